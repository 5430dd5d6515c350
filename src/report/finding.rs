//! Findings: defects and oddities of a checkpoint.

use std::error::Error as StdError;

use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::count::{UnresolvedModules, UnresolvedReason};
use crate::formats::chain;
use crate::formats::safetensors::{HeaderError, IndexError};

/// A defect or an oddity of a checkpoint.
///
/// A plain result lists the findings that leave its counts right; a
/// [`VerifyReport`](crate::VerifyReport) lists all of them. Each finding has a [`Severity`], and its
/// [`Display`](std::fmt::Display) is a sentence for people. In JSON a finding is an object of
/// `severity`, `kind` (the name of the variant), `message` and the fields of the variant.
///
/// Text from a file is clipped to 200 characters. It may hold control characters: pass it through
/// [`escape`](crate::report::text::escape) before you print it.
///
/// ```
/// use hf_meta::report::{Finding, Severity};
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
    /// A file breaks a rule of its format.
    #[error("`{file}` is not a valid {format} file: {}", chain(reason))]
    MalformedHeader {
        /// The path of the file.
        file: String,
        /// The name of the format as people write it, such as `GGUF`.
        format: &'static str,
        /// The rule that the file breaks.
        #[serde(serialize_with = "as_text")]
        reason: HeaderError,
    },
    /// The index is not valid.
    #[error("`{file}` is not a valid index: {}", chain(reason))]
    MalformedIndex {
        /// The path of the index.
        file: String,
        /// The rule that the index breaks.
        #[serde(serialize_with = "as_text")]
        reason: IndexError,
    },
    /// The index lists a shard that does not exist.
    #[error("the index lists shard `{file}`, which does not exist")]
    MissingShard {
        /// The path of the shard.
        file: String,
    },
    /// A file could not be read, because the server, the network or the disk failed.
    #[error("`{file}` could not be read: {reason}")]
    Unreadable {
        /// The path of the file.
        file: String,
        /// The error with its causes.
        reason: String,
    },
    /// A tensor is stored in two shards and would be counted twice.
    #[error("tensor `{tensor}` is in two shards, `{first}` and `{second}`")]
    DuplicateTensor {
        /// The name of the tensor.
        tensor: String,
        /// The first shard that stores it.
        first: String,
        /// Another shard that stores it.
        second: String,
    },
    /// The index lists a tensor that no shard stores.
    #[error("the index lists tensor `{tensor}` in `{shard}`, but no shard contains it")]
    MissingTensor {
        /// The name of the tensor.
        tensor: String,
        /// The shard that the index gives for it.
        shard: String,
    },
    /// A total does not fit into 64 bits.
    #[error("the totals of the shards do not fit into 64 bits")]
    CountOverflow,
    /// A shard stores a tensor that the index does not list. Loaders that use the index ignore it.
    #[error("`{shard}` contains tensor `{tensor}`, which the index does not list")]
    UnindexedTensor {
        /// The name of the tensor.
        tensor: String,
        /// The shard that stores it.
        shard: String,
    },
    /// A tensor is stored in a different shard than the index lists.
    #[error("tensor `{tensor}` is in `{found}`, but the index lists it in `{indexed}`")]
    WrongShard {
        /// The name of the tensor.
        tensor: String,
        /// The shard that the index gives for it.
        indexed: String,
        /// The shard that stores it.
        found: String,
    },
    /// `total_size` of the index is wrong.
    #[error("the index declares {declared} bytes in total, but the tensors have {found}")]
    TotalSizeMismatch {
        /// The declared total, in bytes.
        declared: u64,
        /// The total of all tensors, in bytes.
        found: u64,
    },
    /// The header of a split model declares another number of files or tensors than there are.
    #[error("the model is split into {declared} {unit} by its header, but there are {found}")]
    SplitMismatch {
        /// The unit of the numbers: `files` or `tensors`.
        unit: &'static str,
        /// The declared number.
        declared: u64,
        /// The number that was found.
        found: u64,
    },
    /// `total_parameters` of the index, or of the metadata of a single file, is wrong.
    #[error("the file declares {declared} parameters in total, but the tensors have {found}")]
    TotalParametersMismatch {
        /// The declared total, in parameters.
        declared: u64,
        /// The counted total, in parameters.
        found: u64,
    },
    /// `config.json` describes a model of another size.
    #[error("config.json describes a model of {expected} parameters, but the tensors have {found}")]
    ConfigSizeMismatch {
        /// The number of parameters by the arithmetic of `config.json`.
        expected: u64,
        /// The counted total, in parameters.
        found: u64,
    },
    /// The Hub shows another number of parameters.
    #[error("the Hub shows {reported} parameters, but the tensors have {found}{}", hub_reason(*.is_predicted))]
    HubSizeMismatch {
        /// The number that the Hub shows.
        reported: u64,
        /// The counted total, in parameters.
        found: u64,
        /// True if the number is that of huggingface.js, which counts some quantized modules in another way.
        is_predicted: bool,
    },
    /// The number of parameters that the Hub shows could not be read.
    #[error("the number of parameters that the Hub shows could not be read: {reason}")]
    HubSizeUnreadable {
        /// The error with its causes.
        reason: String,
    },
    /// A dtype is unknown, and so is its size.
    #[error("dtype `{dtype}` is unknown; the sizes of its tensors ({tensors}) are not checked")]
    UnknownDtype {
        /// The name of the dtype.
        dtype: String,
        /// The number of tensors of this dtype.
        tensors: u64,
    },
    /// The numbers in the names of the shards have a gap.
    #[error(
        "the shard names `{shards}` state {total} shards, but the index lists {listed}; the first missing number is {first_missing}"
    )]
    ShardNumberMissing {
        /// The common form of the names, with `*` in place of the number.
        shards: String,
        /// The number of shards that the names state.
        total: u64,
        /// The number of shards that the index lists.
        listed: u64,
        /// The first number without a shard.
        first_missing: u64,
    },
    /// The number in the name of a shard is out of range.
    #[error(
        "the number of shard `{shard}` is out of range: its name states {total} shards, numbered from {first_number}"
    )]
    ShardNumberOutOfRange {
        /// The path of the shard.
        shard: String,
        /// The number of shards that the name states.
        total: u64,
        /// The number of the first shard, 0 or 1.
        first_number: u64,
    },
    /// Two shards have the same number in their names.
    #[error("shards `{first}` and `{second}` have the same number")]
    DuplicateShardNumber {
        /// The path of one shard.
        first: String,
        /// The path of the other shard.
        second: String,
    },
    /// The names of two shards state different numbers of shards.
    #[error("the names of shards `{first}` and `{second}` state different numbers of shards")]
    ShardTotalMismatch {
        /// The path of one shard.
        first: String,
        /// The path of the other shard.
        second: String,
    },
    /// A shard exists that the index does not list. It usually belongs to another split of the same
    /// model. Loaders ignore it, but a download of the repository includes it.
    #[error("shard `{shard}` exists, but the index does not list it")]
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
        /// The shard that the index gives for it.
        shard: String,
        /// The name of the input embedding that is stored.
        stored: String,
    },
    /// The output embedding is not stored, although `config.json` says that it is not tied.
    #[error(
        "no output embedding is stored, although it is not tied to `{stored}` (`tie_word_embeddings`)"
    )]
    MissingOutputEmbedding {
        /// The name of the input embedding that is stored.
        stored: String,
    },
    /// A configuration file cannot be used. Packed weights and tied embeddings may be unknown without it.
    #[error("`{file}` is ignored, and packed weights are counted as stored: {reason}")]
    UnusableConfig {
        /// The path of the configuration file.
        file: String,
        /// The reason why it cannot be used.
        reason: String,
    },
    /// The number of weights of some modules does not follow from their parts. Unless the reason says otherwise,
    /// they are counted as stored.
    #[error("{}: {reason}", modules_text(*modules, examples))]
    UnresolvedModule {
        /// The reason.
        reason: UnresolvedReason,
        /// The number of modules.
        modules: u64,
        /// The names of the first ten modules.
        examples: Vec<String>,
        /// The stored elements of their weights.
        elements: u64,
    },
    /// The parts of some quantized modules give different sizes. The modules are counted as stored.
    #[error("{}: {}", modules_text(*modules, examples), UnresolvedReason::ConflictingParts)]
    ConflictingComponents {
        /// The number of modules.
        modules: u64,
        /// The names of the first ten modules.
        examples: Vec<String>,
        /// The stored elements of their weights.
        elements: u64,
    },
    /// Integers look like packed weights, but no configuration names a quantization. They are counted as stored.
    #[error("{}: {}", modules_text(*modules, examples), UnresolvedReason::SuspectedPacking)]
    SuspectedPacking {
        /// The number of modules.
        modules: u64,
        /// The names of the first ten modules.
        examples: Vec<String>,
        /// The stored elements of their weights.
        elements: u64,
    },
    /// `config.json` names a quantization method that this version does not know. Modules are counted by their parts.
    #[error("quantization method `{method}` is unknown; modules are counted by their parts")]
    UnknownQuantization {
        /// The name of the method, in lower case.
        method: String,
    },
    /// The output embedding is tied to the input embedding and therefore not stored.
    #[error("no output embedding is stored: it is tied to `{stored}` (`tie_word_embeddings`)")]
    TiedEmbedding {
        /// The name of the input embedding that is stored.
        stored: String,
    },
    /// The output embedding is stored and counted, although it is tied to the input embedding.
    #[error(
        "`{tensor}` is stored and counted, although it is tied to `{stored}` (`tie_word_embeddings`)"
    )]
    TiedEmbeddingStored {
        /// The name of the output embedding.
        tensor: String,
        /// The name of the input embedding.
        stored: String,
    },
    /// The Hub redirects to another name of the repository: it was renamed, or the case of a letter differs.
    #[error("the name of this repository on the Hub is `{repo}`")]
    Renamed {
        /// The name of the repository.
        repo: String,
    },
    /// White space precedes the header of a file. The format does not allow it, and some readers refuse it.
    #[error(
        "the header of `{file}` begins with white space instead of `{{`; some readers refuse it"
    )]
    LeadingSpace {
        /// The path of the file.
        file: String,
    },
    /// The server does not report the commit of its files, so they could belong to several commits.
    #[error("the server does not report a commit; its files may belong to several commits")]
    NotPinned,
    /// Only a part of the repository could be searched for weights, because the rest was never
    /// downloaded.
    #[error(
        "only downloaded files were searched; the model may be in a file that was not downloaded"
    )]
    PartialListing,
    /// The list of findings was cut: more findings of the preceding kind exist.
    #[error("{findings} more of this kind")]
    MoreFindings {
        /// The number of findings that are not listed.
        findings: u64,
    },
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// A finding with its severity and message, for readers that do not know its kind.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Information. Nothing is wrong.
    Note,
    /// A defect that leaves every weight stored exactly once.
    Warning,
    /// Weights are broken, missing or ambiguous, or could not be checked.
    Error,
}

impl Finding {
    /// Returns the severity of this kind of finding.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::MalformedHeader { .. }
            | Self::MalformedIndex { .. }
            | Self::MissingShard { .. }
            | Self::Unreadable { .. }
            | Self::DuplicateTensor { .. }
            | Self::MissingTensor { .. }
            | Self::SplitMismatch { .. }
            | Self::CountOverflow => Severity::Error,
            Self::UnindexedTensor { .. }
            | Self::WrongShard { .. }
            | Self::TotalSizeMismatch { .. }
            | Self::TotalParametersMismatch { .. }
            | Self::ConfigSizeMismatch { .. }
            | Self::UnknownDtype { .. }
            | Self::ShardNumberMissing { .. }
            | Self::ShardNumberOutOfRange { .. }
            | Self::DuplicateShardNumber { .. }
            | Self::ShardTotalMismatch { .. }
            | Self::UnindexedShard { .. }
            | Self::DroppedTiedEmbedding { .. }
            | Self::MissingOutputEmbedding { .. }
            | Self::UnusableConfig { .. }
            | Self::UnresolvedModule { .. }
            | Self::ConflictingComponents { .. }
            | Self::SuspectedPacking { .. }
            | Self::UnknownQuantization { .. }
            | Self::LeadingSpace { .. }
            | Self::PartialListing => Severity::Warning,
            Self::TiedEmbedding { .. }
            | Self::TiedEmbeddingStored { .. }
            | Self::Renamed { .. }
            | Self::HubSizeMismatch { .. }
            | Self::HubSizeUnreadable { .. }
            | Self::NotPinned
            | Self::MoreFindings { .. } => Severity::Note,
        }
    }
}

/// Explains the number that the Hub shows, if it is known how the Hub counts.
fn hub_reason(is_predicted: bool) -> &'static str {
    if is_predicted {
        ": it counts some quantized modules by other rules (see `--explain`)"
    } else {
        ""
    }
}

impl From<UnresolvedModules> for Finding {
    fn from(found: UnresolvedModules) -> Self {
        let UnresolvedModules { reason, modules, examples, elements, .. } = found;
        match reason {
            UnresolvedReason::ConflictingParts => {
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
        0 | 1 => format!("the parameters of `{name}` are not certain"),
        modules => {
            format!("the parameters of {modules} modules, such as `{name}`, are not certain")
        }
    }
}

/// Returns the first 1,000 findings and the number of the others: a file can cause millions.
pub(crate) fn bounded(mut findings: impl Iterator<Item = Finding>) -> Vec<Finding> {
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
