//! Findings: defects and irregularities in a checkpoint.

use std::error::Error as StdError;

use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::count::{UnresolvedModules, UnresolvedReason};
use crate::formats::chain;
use crate::formats::safetensors::{HeaderError, IndexError};
use crate::memory::CacheError;
use crate::report::adapter::ADAPTER_CONFIG;
use crate::report::rules::Mismatch;
use crate::report::text::thousands;

/// A defect or irregularity in a checkpoint.
///
/// A [`CountReport`](crate::CountReport) lists findings that did not cause the call to fail; a
/// [`VerifyReport`](crate::VerifyReport) lists all of them. Each finding has a [`Severity`], and its
/// [`Display`](std::fmt::Display) is a human-readable sentence. In JSON, a finding is an object with the fields
/// `severity`, `kind` (the name of the variant), `message` and those of the variant.
///
/// Text from a file is truncated to 200 characters and may contain control characters: pass it through
/// [`escape`](crate::report::text::escape) before printing it.
///
/// ```
/// use hf_meta_format::report::{Finding, Severity};
///
/// let finding = Finding::MissingShard { file: "model-00002-of-00002.safetensors".to_owned() };
/// assert_eq!(finding.severity(), Severity::Error);
/// let json = serde_json::to_value(&finding).unwrap();
/// assert_eq!(json["kind"], "missingShard");
/// assert_eq!(json["severity"], "error");
/// assert_eq!(json["message"], finding.to_string());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Error)]
#[serde(remote = "Self", tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Finding {
    /// A file violates its format.
    #[error("`{file}` is not a valid {format} file: {}", chain(reason))]
    MalformedHeader {
        /// The path of the file.
        file: String,
        /// The display name of the format, such as `GGUF`.
        format: &'static str,
        /// The violated rule.
        #[serde(serialize_with = "as_text")]
        reason: HeaderError,
    },
    /// The index is invalid.
    #[error("`{file}` is not a valid index: {}", chain(reason))]
    MalformedIndex {
        /// The path of the index.
        file: String,
        /// The violated rule.
        #[serde(serialize_with = "as_text")]
        reason: IndexError,
    },
    /// Shards without an index lack some of the shards that their names imply.
    #[error("`{shards}` is incomplete: found {found} of {total} shards and no index")]
    IncompleteShards {
        /// The common path of the shards, with a `*` in place of the number.
        shards: String,
        /// The number of shards that the names imply.
        total: u64,
        /// The number of shards found.
        found: u64,
    },
    /// A pipeline lists a component that has no files.
    #[error("`{file}` lists the component `{component}`, which has no files")]
    MissingComponent {
        /// The folder of the component.
        component: String,
        /// The path of the `model_index.json`.
        file: String,
    },
    /// A model is stored both as a single file and as shards with an index. Programs disagree on the one to load.
    #[error(
        "`{file}` and `{index}` contain the same model: transformers loads the file, diffusers and vLLM load the index"
    )]
    StoredTwice {
        /// The path of the single file.
        file: String,
        /// The path of the index.
        index: String,
    },
    /// The index lists a shard that does not exist.
    #[error("the index lists shard `{file}`, which does not exist")]
    MissingShard {
        /// The path of the shard.
        file: String,
    },
    /// A file could not be read because of a server, network or disk failure.
    #[error("`{file}` could not be read: {reason}")]
    Unreadable {
        /// The path of the file.
        file: String,
        /// The error, including its causes.
        reason: String,
    },
    /// A tensor is stored in two shards and would be counted twice.
    #[error("tensor `{tensor}` is in two shards, `{first}` and `{second}`")]
    DuplicateTensor {
        /// The name of the tensor.
        tensor: String,
        /// The first shard that contains it.
        first: String,
        /// Another shard that contains it.
        second: String,
    },
    /// The index lists a tensor that no shard contains.
    #[error("the index lists tensor `{tensor}` in `{shard}`, but no shard contains it")]
    MissingTensor {
        /// The name of the tensor.
        tensor: String,
        /// The shard in which the index lists it.
        shard: String,
    },
    /// A total overflows 64 bits.
    #[error("the shard totals overflow 64 bits")]
    CountOverflow,
    /// The header of a GGUF file lacks a key that `llama.cpp` needs.
    #[error("`{file}` lacks the key `{key}`, without which llama.cpp does not load it")]
    MissingKey {
        /// The path of the file.
        file: String,
        /// The name of the key.
        key: String,
    },
    /// A GGUF model lacks a tensor that its architecture needs.
    #[error("`{file}` lacks tensor `{tensor}`, without which llama.cpp does not load it")]
    MissingModelTensor {
        /// The path of the file, or the path pattern of its parts.
        file: String,
        /// The name of the first missing tensor of its kind.
        tensor: String,
    },
    /// A key in the header of a GGUF file contradicts its tensors, its other keys or its name.
    #[error("`{file}` declares {declared} in `{key}`, but {found}")]
    MetadataMismatch {
        /// The path of the file, or the path pattern of its parts.
        file: String,
        /// The name of the key.
        key: String,
        /// The declared value, or the length of the list.
        declared: String,
        /// The contradiction, as a clause.
        found: String,
    },
    /// The quantization that a GGUF file declares contradicts its name or the size of its tensors.
    #[error("`{file}` is declared as {declared}, but {found}")]
    FileTypeMismatch {
        /// The path of the file, or the path pattern of its parts.
        file: String,
        /// The declared quantization, such as `Q8_0`.
        declared: String,
        /// The contradiction, as a clause.
        found: String,
    },
    /// A shard contains a tensor that the index does not list. Loaders that use the index ignore it.
    #[error("`{shard}` contains tensor `{tensor}`, which the index does not list")]
    UnindexedTensor {
        /// The name of the tensor.
        tensor: String,
        /// The shard that contains it.
        shard: String,
    },
    /// A tensor is stored in a shard other than the one in which the index lists it.
    #[error("tensor `{tensor}` is in `{found}`, but the index lists it in `{indexed}`")]
    WrongShard {
        /// The name of the tensor.
        tensor: String,
        /// The shard in which the index lists it.
        indexed: String,
        /// The shard that contains it.
        found: String,
    },
    /// The `total_size` declared by the index is wrong.
    #[error("the index declares {declared} bytes in total, but the tensors take up {found}", declared = thousands(*.declared), found = thousands(*.found))]
    TotalSizeMismatch {
        /// The declared total, in bytes.
        declared: u64,
        /// The actual total, in bytes.
        found: u64,
    },
    /// The header of a split model declares a different number of files or tensors than were found.
    #[error("the header declares {declared} {unit} in total, but {found} were found", declared = thousands(*.declared), found = thousands(*.found))]
    SplitMismatch {
        /// The kind of item: `files` or `tensors`.
        unit: &'static str,
        /// The declared number.
        declared: u64,
        /// The actual number.
        found: u64,
    },
    /// The `total_parameters` declared by the index, or by the metadata of a single file, is wrong.
    #[error("the file declares {declared} parameters in total, but the tensors contain {found}", declared = thousands(*.declared), found = thousands(*.found))]
    TotalParametersMismatch {
        /// The declared number of parameters.
        declared: u64,
        /// The counted number of parameters.
        found: u64,
    },
    /// `config.json` describes a model of a different size.
    #[error("config.json describes a model with {expected} parameters, but the tensors contain {found}", found = thousands(*.found), expected = thousands(*.expected))]
    ConfigCountMismatch {
        /// The number of parameters computed from `config.json`.
        expected: u64,
        /// The counted number of parameters.
        found: u64,
    },
    /// The Hub reports a different number of parameters.
    #[error("the Hub reports {reported} parameters, but the tensors contain {found}{}", hub_reason(*.is_predicted), found = thousands(*.found), reported = thousands(*.reported))]
    HubCountMismatch {
        /// The number of parameters that the Hub reports.
        reported: u64,
        /// The counted number of parameters.
        found: u64,
        /// `true` if the Hub's number is the one that huggingface.js would compute; it counts some quantized modules
        /// differently.
        is_predicted: bool,
    },
    /// The parameter count that the Hub reports could not be fetched.
    #[error("failed to fetch the parameter count that the Hub reports: {reason}")]
    HubCountUnavailable {
        /// The error, including its causes.
        reason: String,
    },
    /// A dtype, and therefore the size of its elements, is unknown.
    #[error("dtype `{dtype}` is unknown, so the sizes of its tensors ({tensors}) were not checked", tensors = thousands(*.tensors))]
    UnknownDtype {
        /// The name of the dtype.
        dtype: String,
        /// The number of tensors of this dtype.
        tensors: u64,
    },
    /// The shard numbers have a gap.
    #[error("the shard names `{shards}` imply {total} shards, but the index lists {listed}; the first missing number is {first_missing}", total = thousands(*.total), listed = thousands(*.listed), first_missing = thousands(*.first_missing))]
    ShardNumberMissing {
        /// The common pattern of the names, with a `*` in place of the number.
        shards: String,
        /// The number of shards implied by the names.
        total: u64,
        /// The number of shards that the index lists.
        listed: u64,
        /// The first missing number.
        first_missing: u64,
    },
    /// The number in a shard name is out of range.
    #[error("the number of shard `{shard}` is out of range: its name implies {total} shards, numbered from {first_number}", total = thousands(*.total))]
    ShardNumberOutOfRange {
        /// The path of the shard.
        shard: String,
        /// The number of shards that the name implies.
        total: u64,
        /// The number of the first shard, 0 or 1.
        first_number: u64,
    },
    /// Two shard names contain the same number.
    #[error("shards `{first}` and `{second}` have the same number")]
    DuplicateShardNumber {
        /// The path of one shard.
        first: String,
        /// The path of the other shard.
        second: String,
    },
    /// Two shard names imply different numbers of shards.
    #[error("the names of shards `{first}` and `{second}` imply different numbers of shards")]
    ShardTotalMismatch {
        /// The path of one shard.
        first: String,
        /// The path of the other shard.
        second: String,
    },
    /// A shard exists but is not listed in the index. It usually belongs to another split of the same model. Loaders
    /// ignore it, but a download of the repository includes it.
    #[error("shard `{shard}` exists but is not listed in the index")]
    UnindexedShard {
        /// The path of the shard.
        shard: String,
    },
    /// A tied output embedding was dropped when the weights were saved, but the index still lists it.
    #[error(
        "the index lists tensor `{tensor}` in `{shard}`, but no shard contains it: it is tied to `{stored}` (`tie_word_embeddings`)"
    )]
    DroppedTiedEmbedding {
        /// The name of the output embedding.
        tensor: String,
        /// The shard in which the index lists it.
        shard: String,
        /// The name of the stored input embedding.
        stored: String,
    },
    /// The output embedding is missing, although `config.json` says that it is not tied.
    #[error(
        "the output embedding is missing, although it is not tied to `{stored}` (`tie_word_embeddings`)"
    )]
    MissingOutputEmbedding {
        /// The name of the stored input embedding.
        stored: String,
    },
    /// A configuration file cannot be used. Without it, packed weights and tied embeddings may go unrecognized.
    #[error("`{file}` is unusable{}: {reason}", unusable_effect(file))]
    UnusableConfig {
        /// The path of the configuration file.
        file: String,
        /// The reason why it cannot be used.
        reason: String,
    },
    /// The size of some modules cannot be derived from their components. Unless the reason says otherwise, they are
    /// counted as stored.
    #[error("{}: {reason}", modules_text(*modules, examples))]
    UnresolvedModule {
        /// The reason.
        reason: UnresolvedReason,
        /// The number of modules.
        modules: u64,
        /// The names of up to ten of the modules.
        examples: Vec<String>,
        /// The number of elements stored for their weights.
        elements: u64,
    },
    /// The components of some quantized modules imply different sizes. The modules are counted as stored.
    #[error("{}: {}", modules_text(*modules, examples), UnresolvedReason::ConflictingComponents)]
    ConflictingComponents {
        /// The number of modules.
        modules: u64,
        /// The names of up to ten of the modules.
        examples: Vec<String>,
        /// The number of elements stored for their weights.
        elements: u64,
    },
    /// Integers may be packed weights: they are in `weight` of an unquantized model, or many large tensors have names
    /// that no known method uses. They are counted as stored.
    #[error("{}: {}", modules_text(*modules, examples), UnresolvedReason::SuspectedPacking)]
    SuspectedPacking {
        /// The number of modules.
        modules: u64,
        /// The names of up to ten of the modules.
        examples: Vec<String>,
        /// The number of elements stored for their weights.
        elements: u64,
    },
    /// The size of the model's cache is unknown, so that only the memory of its weights is known.
    #[error("the size of the cache is unknown: {reason}")]
    UnknownCacheSize {
        /// The reason.
        reason: CacheError,
    },
    /// `config.json` specifies an unknown quantization method. Modules are counted by their components.
    #[error("unknown quantization method `{method}`; modules are counted by their components")]
    UnknownQuantization {
        /// The name of the method, in lowercase.
        method: String,
    },
    /// The quantization configuration names modules or patterns that select no stored module.
    #[error(
        "the quantization configuration names modules that are not stored, such as `{}` ({entries} in total)",
        examples.first().map_or("", String::as_str)
    )]
    UnusedRecipe {
        /// The number of names and patterns.
        entries: u64,
        /// Up to ten of them.
        examples: Vec<String>,
    },
    /// The output embedding is not stored because it is tied to the input embedding.
    #[error("the output embedding is not stored: it is tied to `{stored}` (`tie_word_embeddings`)")]
    TiedEmbedding {
        /// The name of the stored input embedding.
        stored: String,
    },
    /// The output embedding is stored, although it is tied to the input embedding.
    #[error(
        "`{tensor}` is stored{}, although it is tied to `{stored}` (`tie_word_embeddings`)",
        counted_text(*.counted)
    )]
    TiedEmbeddingStored {
        /// The name of the output embedding.
        tensor: String,
        /// The name of the input embedding.
        stored: String,
        /// `true` if the output embedding is counted.
        counted: bool,
    },
    /// The files contain moving averages of the weights (EMA), which are counted as buffers, or the state of an
    /// optimizer, which is not counted.
    #[error(
        "{tensors} tensors are training state: {copies} elements of EMA copies, counted as buffers, and {states} elements of \
         optimizer state, not counted"
    )]
    TrainingState {
        /// The number of tensors.
        tensors: u64,
        /// The number of elements of EMA copies.
        copies: u64,
        /// The number of elements of the state of optimizers.
        states: u64,
    },
    /// A pickle imports a function or class that `torch.load(weights_only=True)` rejects, because loading it can
    /// execute any code.
    #[error(
        "`{file}` imports `{import}`, which `torch.load(weights_only=True)` rejects: loading the file can execute any code"
    )]
    UnsafeImport {
        /// The path of the first file that imports it.
        file: String,
        /// The function or class, as `module.name`.
        import: String,
    },
    /// Tensors share stored elements with others, or repeat elements. Each stored element is counted once.
    #[error(
        "{tensors} tensors share stored elements, which are counted once: {}",
        shared_text(tensor, stored_in)
    )]
    SharedElements {
        /// The number of tensors.
        tensors: u64,
        /// The name of one of them.
        tensor: String,
        /// The name of the tensor that is counted for it.
        stored_in: String,
    },
    /// The weights are pickles, and no safetensors weights were found. Loading a pickle can execute code.
    #[error(
        "the weights are pickles, which can execute code when they are loaded; a bot of the Hub offers conversions to safetensors as pull requests (`refs/pr/N`)"
    )]
    PickledWeights,
    /// The Hub redirects to another name: the repository was renamed, or the requested name differs in case.
    #[error("the repository's current name on the Hub is `{repo}`")]
    Renamed {
        /// The current name of the repository.
        repo: String,
    },
    /// The header of a file is preceded by whitespace. The format does not allow this, and some readers reject it.
    #[error(
        "the header of `{file}` begins with whitespace instead of `{{`; some readers reject it"
    )]
    LeadingSpace {
        /// The path of the file.
        file: String,
    },
    /// The server does not report the commit of its files, so they may come from different commits.
    #[error("the server does not report a commit, so its files may come from different commits")]
    NotPinned,
    /// Only part of the repository could be searched for weights, because the rest was never downloaded.
    #[error(
        "only downloaded files were searched; the model may be in a file that was not downloaded"
    )]
    PartialListing,
    /// Only one shard of a model was requested and read.
    #[error("`{file}` is only shard {number} of {total}; the others were not read")]
    SingleShard {
        /// The path of the shard.
        file: String,
        /// The number in its name.
        number: u32,
        /// The number of shards that the name implies.
        total: u32,
    },
    /// More findings of the preceding kind were omitted from the list.
    #[error("{findings} more of this kind", findings = thousands(*.findings))]
    MoreFindings {
        /// The number of omitted findings.
        findings: u64,
    },
    /// Tensors contradict a file that describes them. In JSON, `kind` is the name of the violated rule.
    #[error("{0}")]
    #[serde(untagged)]
    Mismatch(Mismatch),
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// The JSON form of a finding. Severity and message serve readers that do not know its kind.
        #[derive(Serialize)]
        struct FindingDocument<'a> {
            severity: Severity,
            message: String,
            #[serde(flatten, serialize_with = "Finding::serialize")]
            fields: &'a Finding,
        }

        FindingDocument { severity: self.severity(), message: self.to_string(), fields: self }
            .serialize(serializer)
    }
}

/// The severity of a finding, in ascending order.
// Exhaustive, because callers map each severity to something else, such as a SARIF level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Informational. Not a defect.
    Note,
    /// A defect or uncertainty, but no weights are missing, duplicated or unreadable.
    Warning,
    /// Weights are invalid, missing or duplicated, or could not be checked.
    Error,
}

impl Finding {
    /// Returns whether two findings have the same kind.
    #[must_use]
    pub fn is_same_kind(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Mismatch(one), Self::Mismatch(other)) => one.kind == other.kind,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Returns the severity of this kind of finding.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::MalformedHeader { .. }
            | Self::MalformedIndex { .. }
            | Self::IncompleteShards { .. }
            | Self::MissingComponent { .. }
            | Self::MissingKey { .. }
            | Self::MissingModelTensor { .. }
            | Self::MetadataMismatch { .. }
            | Self::MissingShard { .. }
            | Self::Unreadable { .. }
            | Self::DuplicateTensor { .. }
            | Self::MissingTensor { .. }
            | Self::SplitMismatch { .. }
            | Self::UnsafeImport { .. }
            | Self::CountOverflow => Severity::Error,
            Self::UnindexedTensor { .. }
            | Self::WrongShard { .. }
            | Self::TotalSizeMismatch { .. }
            | Self::TotalParametersMismatch { .. }
            | Self::ConfigCountMismatch { .. }
            | Self::UnknownDtype { .. }
            | Self::ShardNumberMissing { .. }
            | Self::ShardNumberOutOfRange { .. }
            | Self::DuplicateShardNumber { .. }
            | Self::ShardTotalMismatch { .. }
            | Self::StoredTwice { .. }
            | Self::FileTypeMismatch { .. }
            | Self::UnindexedShard { .. }
            | Self::DroppedTiedEmbedding { .. }
            | Self::MissingOutputEmbedding { .. }
            | Self::UnusableConfig { .. }
            | Self::UnresolvedModule { .. }
            | Self::ConflictingComponents { .. }
            | Self::SuspectedPacking { .. }
            | Self::UnknownQuantization { .. }
            | Self::UnknownCacheSize { .. }
            | Self::TrainingState { .. }
            | Self::LeadingSpace { .. }
            | Self::PartialListing
            | Self::SingleShard { .. } => Severity::Warning,
            Self::TiedEmbedding { .. }
            | Self::TiedEmbeddingStored { .. }
            | Self::Renamed { .. }
            | Self::HubCountMismatch { .. }
            | Self::HubCountUnavailable { .. }
            | Self::UnusedRecipe { .. }
            | Self::SharedElements { .. }
            | Self::PickledWeights
            | Self::NotPinned
            | Self::MoreFindings { .. } => Severity::Note,
            Self::Mismatch(found) => found.kind.severity(),
        }
    }
}

/// Explains the number that the Hub shows, if the reason is known.
fn hub_reason(is_predicted: bool) -> &'static str {
    if is_predicted {
        ": it counts some quantized modules differently (see `--explain`)"
    } else {
        ""
    }
}

/// Returns the effect of an unusable configuration on the count. The description of an adapter has none.
fn unusable_effect(file: &str) -> &'static str {
    let is_adapter = file.ends_with(ADAPTER_CONFIG);
    if is_adapter { "" } else { ", so packed weights are counted as stored" }
}

fn shared_text(tensor: &str, stored_in: &str) -> String {
    if tensor == stored_in {
        format!("`{tensor}` shares or repeats elements")
    } else {
        format!("`{tensor}` is stored in `{stored_in}`")
    }
}

/// Returns how a stored copy of an embedding is counted.
fn counted_text(is_counted: bool) -> &'static str {
    if is_counted { " and counted" } else { " but not counted" }
}

impl From<UnresolvedModules> for Finding {
    fn from(found: UnresolvedModules) -> Self {
        let UnresolvedModules { reason, modules, examples, elements, .. } = found;
        match reason {
            UnresolvedReason::ConflictingComponents => {
                Self::ConflictingComponents { modules, examples, elements }
            }
            UnresolvedReason::SuspectedPacking => {
                Self::SuspectedPacking { modules, examples, elements }
            }
            reason => Self::UnresolvedModule { reason, modules, examples, elements },
        }
    }
}

fn modules_text(modules: u64, examples: &[String]) -> String {
    let example = examples.first().map_or("", String::as_str);
    let name = if example.is_empty() { "the weights" } else { example };
    match modules {
        0 | 1 => format!("the parameter count of `{name}` is uncertain"),
        modules => {
            let modules = thousands(modules);
            format!("the parameter counts of {modules} modules, such as `{name}`, are uncertain")
        }
    }
}

/// Returns the first 1,000 findings and the number of the others, because a file can cause millions.
pub fn bounded(mut findings: impl Iterator<Item = Finding>) -> Vec<Finding> {
    const MAX_FINDINGS: usize = 1_000;

    let mut listed: Vec<_> = findings.by_ref().take(MAX_FINDINGS).collect();
    match findings.count() as u64 {
        0 => {}
        more => listed.push(Finding::MoreFindings { findings: more }),
    }
    listed
}

fn as_text<S: Serializer>(error: &impl StdError, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&chain(error))
}
