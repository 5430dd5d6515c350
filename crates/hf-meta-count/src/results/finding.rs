//! Findings: defects and irregularities in a checkpoint.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::count::config::ADAPTER_CONFIG;
use crate::count::{UnresolvedModules, UnresolvedReason};
use crate::memory::CacheError;
use crate::results::mismatch::Mismatch;
use crate::results::severity::{FindingKind, Severity};
use crate::results::text::{counted, thousands};
use hf_meta_format::formats::pytorch::is_data_import;
use hf_meta_format::formats::safetensors::{HeaderError, IndexError};

/// Declares the kinds of findings: the severity, the fields, the sentence that contains them, and after `=>` what to do. A
/// value after the sentence replaces the field of the same name in it.
macro_rules! findings {
    ($(
        $(#[doc = $documentation:literal])*
        $severity:ident $kind:ident $({ $($(#[$attribute:meta])* $field:ident: $type:ty),+ })?
        $sentence:literal $(, $value:ident = $expression:expr)* $(=> $help:literal)?;
    )+) => {
        /// A defect or irregularity in a checkpoint.
        ///
        /// A [`CountReport`](crate::CountReport) lists findings that did not cause the call to fail; a
        /// [`VerifyReport`](crate::VerifyReport) lists all of them. Each finding has a [`Severity`], and its
        /// [`Display`](std::fmt::Display) is a human-readable sentence, which is quoted at each kind. In JSON, a
        /// finding is an object with the fields `severity`, `kind` (the name of the variant), `message`, `help` (what to
        /// do, if it is known) and the fields of the variant.
        ///
        /// Text from a file is truncated to 200 characters and may contain control characters: pass it through
        /// [`escape`](crate::results::text::escape) before printing it.
        ///
        /// ```
        /// use hf_meta_count::results::{Finding, Severity};
        ///
        /// let finding = Finding::MissingShard { file: "model-00002-of-00002.safetensors".to_owned() };
        /// assert_eq!(finding.severity(), Severity::Error);
        /// let json = serde_json::to_value(&finding).unwrap();
        /// assert_eq!(json["kind"], "missingShard");
        /// assert_eq!(json["severity"], "error");
        /// assert_eq!(json["message"], finding.to_string());
        /// ```
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[cfg_attr(feature = "schema", schemars(transform = crate::results::schema::add_message))]
        #[serde(
            remote = "Self",
            tag = "kind",
            rename_all = "camelCase",
            rename_all_fields = "camelCase"
        )]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "the sentence of a kind explains its fields")]
        pub enum Finding {
            $(
                $(#[doc = $documentation])*
                ///
                #[doc = concat!("> ", $sentence)]
                $kind $({ $($(#[$attribute])* $field: $type),+ })?,
            )+
            /// Tensors contradict a file that describes them. In JSON, `kind` is the name of the violated rule.
            #[serde(untagged)]
            Mismatch(Mismatch),
        }

        impl Finding {
            fn rule(&self) -> FindingKind {
                match self {
                    $(Self::$kind { .. } => FindingKind {
                        severity: Severity::$severity,
                        documentation: concat!($($documentation),*),
                        help: <[&str]>::first(&[$($help)?]).copied(),
                    },)+
                    Self::Mismatch(found) => found.kind.rule(),
                }
            }
        }

        impl fmt::Display for Finding {
            #[allow(unused_variables, reason = "not all fields are in the sentence")]
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$kind $({ $($field),+ })? => {
                        write!(f, $sentence $(, $value = $expression)*)
                    })+
                    Self::Mismatch(found) => found.fmt(f),
                }
            }
        }
    };
}

findings! {
    /// A file violates its format.
    Error MalformedHeader {
        file: String,
        /// The display name of the format, such as `GGUF`.
        format: &'static str,
        reason: HeaderError
    }
    "`{file}` is not a valid {format} file: {reason}";

    /// The content of a file is in another format than its name says. Loaders take the format from the name.
    Warning Misnamed { file: String, format: &'static str }
    "`{file}` contains {format}, although its name says otherwise: loaders take the format from the name";

    /// The index is invalid.
    Error MalformedIndex { file: String, reason: IndexError }
    "`{file}` is not a valid index: {reason}";

    /// Shards without an index lack some of the shards that their names imply. `shards` is their common path, with a
    /// `*` in place of the number.
    Error IncompleteShards { shards: String, total: u64, found: u64 }
    "`{shards}` {reason}", reason = incomplete_text(*total, *found)
    => "add the missing shards and the index, or save the model again";

    /// A pipeline lists a component that has no files, or only a configuration: the folder of the component, and the path
    /// of the `model_index.json`.
    Error MissingComponent { component: String, file: String }
    "`{file}` lists the component `{component}`, whose files are missing"
    => "add the folder of the component, or remove it from the file if the pipeline needs no such part";

    /// Shards have no index, without which transformers and diffusers do not find them. `shards` is their common path,
    /// with a `*` in place of the number.
    Warning MissingIndex { shards: String }
    "`{shards}` has no index, without which transformers and diffusers do not find the shards"
    => "save the model again with `save_pretrained`, which writes the index";

    /// A model is stored both as a single file and as shards with an index. Programs disagree on the one to load.
    Warning StoredTwice { file: String, index: String }
    "`{file}` and `{index}` contain the same model: transformers loads the file, diffusers and vLLM load the index"
    => "keep only one of them, so that every program loads the same weights";

    /// The index next to a single file lists shards that do not exist, such as `shard`. It was left over when the model was
    /// saved again. vLLM uses it to choose the files, and finds none.
    Warning StaleIndex { index: String, file: String, shard: String }
    "`{index}` is left over: it lists `{shard}`, which does not exist; transformers loads `{file}`"
    => "delete the index";

    /// The configuration states a loader that does not find the file, because of its name. `expected` is the name.
    Warning UnexpectedName { file: String, loader: &'static str, expected: String }
    "`{file}` is not found by {loader}, which the configuration states: it loads `{expected}`{variant}",
    variant = variant_text(file, expected)
    => "rename the file";

    /// The weights are the last of several checkpoints of a training run. `checkpoint` is its folder.
    Note LastCheckpoint { checkpoint: String, checkpoints: u64 }
    "`{checkpoint}` is the last of {checkpoints} checkpoints, and the only one that is read",
    checkpoints = thousands(*checkpoints);

    /// The index lists a shard that does not exist.
    Error MissingShard { file: String }
    "the index lists shard `{file}`, which does not exist"
    => "add the shard, or save the model again";

    /// A file could not be read because of a server, network or disk failure. The reason includes its causes.
    Error Unreadable { file: String, reason: String }
    "`{file}` could not be read: {reason}";

    /// A tensor is stored in two shards and would be counted twice.
    Error DuplicateTensor { tensor: String, first: String, second: String }
    "tensor `{tensor}` is in two shards, `{first}` and `{second}`"
    => "save the model again, so that each tensor is in one shard";

    /// The index lists a tensor that no shard contains.
    Error MissingTensor { tensor: String, shard: String }
    "the index lists tensor `{tensor}` in `{shard}`, but no shard contains it"
    => "save the model again, so that the index matches the shards";

    /// A total overflows 64 bits.
    Error CountOverflow
    "the shard totals overflow 64 bits";

    /// The header of a GGUF file lacks a key that `llama.cpp` needs.
    Error MissingKey { file: String, key: String }
    "`{file}` lacks the key `{key}`, without which llama.cpp does not load it"
    => "convert the model again with the current converter of llama.cpp";

    /// A key in the header of a GGUF file contradicts its tensors, its other keys or its name. `declared` is the value,
    /// or the length of the list, and `found` the contradiction as a clause.
    Error MetadataMismatch { file: String, key: String, declared: String, found: String }
    "`{file}` declares {declared} in `{key}`, but {found}"
    => "convert the model again, or correct the key";

    /// The quantization that a GGUF file declares, such as `Q8_0`, contradicts its name or the size of its tensors.
    /// `found` is the contradiction as a clause.
    Warning FileTypeMismatch { file: String, declared: String, found: String }
    "`{file}` is declared as {declared}, but {found}";

    /// Numbers of a tensor are NaN or infinite, so that nothing can be computed with it. Only reported with `--values`.
    /// `read` is the number of values that were read, and `first` the index of the first one that is invalid.
    Error InvalidValues { tensor: String, value: &'static str, found: u64, read: u64, first: u64 }
    "tensor `{tensor}` has {value} values: {found} of {read} values read, the first at index {first}", found = thousands(*found), read = thousands(*read)
    => "if the original weights are finite, `verify --against` finds the corrupt file; otherwise, train or convert again";

    /// The data of a file are not those whose hash its metadata state. Only reported with `--values=all`.
    Error WrongDataHash { file: String, found: String }
    "the data of `{file}` do not have the SHA-256 in `modelspec.hash_sha256`, but 0x{found}"
    => "copy the file again; if the hash is still different, its author has to correct it";

    /// The values of a matrix contain no information, scales are negative or zero, or values are infinite in a tensor whose name
    /// does not show that it is a parameter. Only reported with `--values`.
    Warning SuspiciousValues { tensor: String, reason: &'static str, found: u64, read: u64, first: u64 } "tensor `{tensor}` has {reason}: {found} of {read} values read, the first at index {first}", found = thousands(*found), read = thousands(*read);

    /// A shard contains a tensor that the index does not list. Loaders that use the index ignore it.
    Warning UnindexedTensor { tensor: String, shard: String }
    "`{shard}` contains tensor `{tensor}`, which the index does not list"
    => "save the model again, so that the index matches the shards";

    /// A tensor is stored in a shard other than the one in which the index lists it.
    Warning WrongShard { tensor: String, indexed: String, found: String }
    "tensor `{tensor}` is in `{found}`, but the index lists it in `{indexed}`"
    => "save the model again, so that the index matches the shards";

    /// The `total_size` declared by the index is wrong.
    Warning TotalSizeMismatch { declared: u64, found: u64 }
    "the index declares {declared} bytes in total, but the tensors take up {found}",
    declared = thousands(*declared), found = thousands(*found)
    => "correct `total_size` in the index";

    /// The header of a split model declares a different number of files or tensors than were found. `unit` is `files`
    /// or `tensors`.
    Error SplitMismatch { unit: &'static str, declared: u64, found: u64 }
    "the header declares {declared} {unit} in total, but {found} were found",
    declared = thousands(*declared), found = thousands(*found)
    => "add the missing files, or split the model again";

    /// The `total_parameters` declared by the index, or by the metadata of a single file, is wrong.
    Warning TotalParametersMismatch { declared: u64, found: u64 }
    "the file declares {declared} parameters in total, but the tensors contain {found}",
    declared = thousands(*declared), found = thousands(*found)
    => "correct `total_parameters`";

    /// The Hub reports a different number of parameters.
    Note HubCountMismatch { reported: u64, found: u64 }
    "the Hub reports {reported} parameters, but the tensors contain {found}",
    reported = thousands(*reported), found = thousands(*found);

    /// The parameter count that the Hub reports could not be fetched. The reason includes its causes.
    Note HubCountUnavailable { reason: String }
    "failed to fetch the parameter count that the Hub reports: {reason}";

    /// A dtype, and therefore the size of its elements, is unknown.
    Error UnknownDtype { dtype: String, tensors: u64 }
    "dtype `{dtype}` is unknown, so the sizes of its tensors ({tensors}) were not checked",
    tensors = thousands(*tensors);

    /// The shard numbers have a gap.
    Warning ShardNumberMissing { shards: String, total: u64, listed: u64, first_missing: u64 }
    "the shard names `{shards}` imply {total} shards, but the index lists {listed}; the first missing number is \
     {first_missing}",
    total = thousands(*total), listed = thousands(*listed), first_missing = thousands(*first_missing);

    /// The number in a shard name is out of range.
    Warning ShardNumberOutOfRange { shard: String, total: u64, first_number: u64 }
    "the name of shard `{shard}` contradicts itself: {total} shards are numbered from {first_number} to {last}",
    total = thousands(*total), last = thousands(first_number.saturating_add(*total).saturating_sub(1));

    /// Two shard names contain the same number.
    Warning DuplicateShardNumber { first: String, second: String }
    "shards `{first}` and `{second}` have the same number";

    /// Two shard names imply different numbers of shards.
    Warning ShardTotalMismatch { first: String, second: String }
    "the names of shards `{first}` and `{second}` imply different numbers of shards";

    /// A shard exists but is not listed in the index. It usually belongs to another split of the same model. Loaders
    /// ignore it, but a download of the repository includes it.
    Warning UnindexedShard { shard: String }
    "shard `{shard}` exists but is not listed in the index"
    => "delete the shard, or add it to the index";

    /// A tied output embedding was dropped when the weights were saved, but the index still lists it. `stored` is the
    /// name of the input embedding.
    Warning DroppedTiedEmbedding { tensor: String, shard: String, stored: String }
    "the index lists tensor `{tensor}` in `{shard}`, but no shard contains it: it is tied to `{stored}` \
     (`tie_word_embeddings`)"
    => "remove the tensor from the index";

    /// The output embedding is missing, although `config.json` says that it is not tied.
    Warning MissingOutputEmbedding { stored: String }
    "the output embedding is missing, although it is not tied to `{stored}` (`tie_word_embeddings`)"
    => "save the output embedding, or set `tie_word_embeddings` to true";

    /// A configuration file cannot be used. Without it, packed weights and tied embeddings may go unrecognized.
    Warning UnusableConfig { file: String, reason: String }
    "`{file}` is unusable{effect}: {reason}", effect = unusable_effect(file);

    /// A configuration file is not valid JSON, so that loaders fail.
    Error InvalidConfig { file: String, reason: String }
    "`{file}` is invalid{effect}: {reason}", effect = unusable_effect(file)
    => "correct the JSON, or save the configuration again";

    /// Two parts of a repository, such as a text encoder and the attention that reads its results, have different widths.
    /// `file` is the configuration with `key`, and `other` names the other part.
    Error WidthMismatch { file: String, key: String, found: u64, other: String, expected: u64 }
    "`{file}` states {found} in `{key}`, but the width of `{other}` is {expected}",
    found = thousands(*found), expected = thousands(*expected)
    => "use parts of one model: one of them is from another model, or its key was changed";

    /// The configuration of a component belongs to another class than the pipeline loads.
    Error OtherClass { file: String, found: String, component: String, expected: String }
    "`{file}` belongs to `{found}`, but the pipeline loads `{component}` as `{expected}`"
    => "replace the configuration, or correct the class of the component in `model_index.json`";

    /// A configuration is missing without which a loader does not load the weights.
    Error MissingConfig { file: String, loader: &'static str }
    "`{file}` is missing, without which {loader} does not load the weights"
    => "add the file; `save_pretrained` writes it next to the weights";

    /// The files contain no tensors.
    Error NoTensors
    "the files contain no tensors"
    => "save the model again: the file is empty";

    /// The size of the model's cache is unknown, so that only the memory of its weights is known.
    Warning UnknownCacheSize { reason: CacheError }
    "the size of the cache is unknown: {reason}";

    /// `config.json` specifies an unknown quantization method. Modules are counted by their components.
    Warning UnknownQuantization { method: String }
    "unknown quantization method `{method}`; modules are counted by their components";

    /// The size of some modules cannot be derived from their components.
    Warning UnresolvedModule { reason: UnresolvedReason, modules: u64, examples: Vec<String>, elements: u64 }
    "{uncertain}: {reason}", uncertain = uncertain_text(*modules, examples);

    /// The components of some modules imply different sizes.
    Warning ConflictingComponents { modules: u64, examples: Vec<String>, elements: u64 }
    "{uncertain}: {reason}", uncertain = uncertain_text(*modules, examples),
    reason = UnresolvedReason::ConflictingComponents;

    /// Some modules may be packed, although nothing describes their layout.
    Warning SuspectedPacking { modules: u64, examples: Vec<String>, elements: u64 }
    "{uncertain}: {reason}", uncertain = uncertain_text(*modules, examples),
    reason = UnresolvedReason::SuspectedPacking;

    /// The output embedding is not stored because it is tied to the input embedding.
    Note TiedEmbedding { stored: String }
    "the output embedding is not stored: it is tied to `{stored}` (`tie_word_embeddings`)";

    /// The output embedding is stored, although it is tied to the input embedding.
    Note TiedEmbeddingStored { tensor: String, stored: String, counted: bool }
    "`{tensor}` is stored {counted}, although it is tied to `{stored}` (`tie_word_embeddings`)",
    counted = if *counted { "and counted" } else { "but not counted" };

    /// The files contain moving averages of the weights (EMA), which are only counted if the weights are not stored, or
    /// the state of an optimizer and other values of a training run, which are not counted.
    Warning TrainingState { tensors: u64, copies: u64, states: u64 }
    "training state: {text}, with {copies} elements of EMA copies, and {states} elements of other state",
    text = counted(*tensors, "tensor"), copies = thousands(*copies), states = thousands(*states);

    /// A pickle imports a function or class that `torch.load(weights_only=True)` rejects. Other ways to load it can execute
    /// code, unless the import only holds data. `file` is the first that imports it.
    Error UnsafeImport { file: String, import: String }
    "`{file}` imports `{import}`, which `torch.load(weights_only=True)` rejects: {effect}",
    effect = import_effect(import)
    => "load it only if you trust its author, and prefer safetensors";

    /// Tensors share stored elements with others, or repeat elements. Each stored element is counted once. `tensor` is
    /// one of them, and `stored_in` the tensor that is counted for it.
    Note SharedElements { tensors: u64, tensor: String, stored_in: String }
    "{text} with shared elements, which are counted once: {example}",
    text = counted(*tensors, "tensor"), example = shared_text(tensor, stored_in);

    /// The weights are pickles, and no safetensors weights were found. Loading a pickle can execute code.
    Note PickledWeights
    "the weights are pickles, which can execute code when they are loaded; safetensors cannot";

    /// The Hub redirects to another name: the repository was renamed, or the requested name differs in case.
    Note Renamed { repo: String }
    "the repository's current name on the Hub is `{repo}`";

    /// The header of a file is preceded by whitespace. The format does not allow this, and some readers reject it.
    Warning LeadingSpace { file: String }
    "the header of `{file}` begins with whitespace instead of `{{`; some readers reject it"
    => "save the file again, without whitespace in front of the header";

    /// The metadata of a file have keys of the SAI Model Spec, but not all that it requires. `missing` are their names.
    Warning IncompleteModelSpec { file: String, missing: Vec<String> }
    "the metadata of `{file}` lack keys that the SAI Model Spec requires: {names}", names = missing.join(", ");

    /// A value in the metadata of a file does not have the type that the SAI Model Spec requires. `rule` is the violated rule
    /// as a clause.
    Warning InvalidModelSpec { file: String, key: String, rule: String }
    "the value of `{key}` in the metadata of `{file}` {rule}";

    /// A file has metadata without `format`, which accelerate and transformers 4 reject. A file without any metadata is
    /// accepted.
    Note MissingFormat { file: String }
    "`{file}` has metadata without `format`, which accelerate and transformers 4 reject; `hf-meta metadata set FILE format=pt` adds it";

    /// The server does not report the commit of its files, so they may come from different commits.
    Note NotPinned
    "the server does not report a commit, so its files may come from different commits";

    /// Only part of the repository could be searched for weights, because the rest was never downloaded.
    Warning PartialListing
    "only downloaded files were searched; the model may be in a file that was not downloaded";

    /// Only one shard of a model was requested and read: the number in its name, and the number of shards that the name
    /// implies.
    Warning SingleShard { file: String, number: u32, total: u32 }
    "`{file}` is only shard {number} of {total}; the others were not read";

    /// More findings of the preceding kind were omitted from the list.
    Note MoreFindings { findings: u64 }
    "{findings} more of this kind", findings = thousands(*findings);
}

/// Returns how the number of shards contradicts their names.
fn incomplete_text(total: u64, found: u64) -> String {
    if found > total {
        return format!("has no index, and {found} shards, although the names imply {total}");
    }
    format!("is incomplete: found {found} of {total} shards and no index")
}

/// Returns the effect of an import that `torch.load(weights_only=True)` rejects.
fn import_effect(import: &str) -> &'static str {
    if is_data_import(import) {
        return "it only holds data, and `torch.serialization.add_safe_globals` allows it";
    }
    "loading the file can execute code"
}

impl std::error::Error for Finding {}

/// Returns the way to load a file whose name differs from the expected one only in a variant, such as `fp16`.
fn variant_text(file: &str, expected: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or_default();
    // An index has the variant before its last extension, and a file has it before its first.
    let place = if expected.contains(".index.") { expected.rfind('.') } else { expected.find('.') };
    let (stem, end) = place.map_or((expected, ""), |dot| (&expected[..dot], &expected[dot + 1..]));
    let variant = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('.'));
    let variant = variant.and_then(|rest| rest.strip_suffix(end)?.strip_suffix('.'));
    variant.map_or_else(String::new, |variant| format!(", or this file with variant=\"{variant}\""))
}

impl From<UnresolvedModules> for Finding {
    fn from(found: UnresolvedModules) -> Self {
        let UnresolvedModules { reason, modules, examples, elements } = found;
        match reason {
            UnresolvedReason::ConflictingComponents => {
                Self::ConflictingComponents { modules, examples, elements }
            }
            UnresolvedReason::SuspectedPacking => {
                Self::SuspectedPacking { modules, examples, elements }
            }
            _ => Self::UnresolvedModule { reason, modules, examples, elements },
        }
    }
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// The JSON form of a finding. Severity and message serve readers that do not know its kind.
        #[derive(Serialize)]
        struct FindingDocument<'a> {
            severity: Severity,
            message: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            help: Option<&'static str>,
            #[serde(flatten, serialize_with = "Finding::serialize")]
            fields: &'a Finding,
        }

        let FindingKind { severity, help, .. } = self.rule();
        FindingDocument { severity, message: self.to_string(), help, fields: self }
            .serialize(serializer)
    }
}

impl Finding {
    /// Returns the severity of this kind of finding.
    pub fn severity(&self) -> Severity {
        self.rule().severity
    }

    /// Returns the documentation of this kind of finding, in Markdown.
    pub fn description(&self) -> &'static str {
        self.rule().documentation.trim_start()
    }

    /// Returns the advice for this kind of finding: what the author of the files can do. `None` if its sentence says it, or
    /// if it depends on the case.
    pub fn help(&self) -> Option<&'static str> {
        self.rule().help
    }

    /// Returns whether two findings have the same kind.
    pub fn is_same_kind(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Mismatch(one), Self::Mismatch(other)) => one.kind == other.kind,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// Returns the effect of an unusable configuration on the count. The description of an adapter has none.
fn unusable_effect(file: &str) -> &'static str {
    let is_other =
        [ADAPTER_CONFIG, "model_index.json", "modules.json"].iter().any(|end| file.ends_with(end));
    if is_other { "" } else { ", so packed weights are counted as stored" }
}

fn shared_text(tensor: &str, stored_in: &str) -> String {
    if tensor == stored_in {
        format!("`{tensor}` shares or repeats elements")
    } else {
        format!("`{tensor}` is stored in `{stored_in}`")
    }
}

/// Returns the beginning of the sentence about unresolved modules.
fn uncertain_text(modules: u64, examples: &[String]) -> String {
    let example = examples.first().filter(|name| !name.is_empty());
    let name = example.map_or("the weights", String::as_str);
    match modules {
        0 | 1 => format!("the parameter count of `{name}` is uncertain"),
        _ => {
            let modules = thousands(modules);
            format!("the parameter counts of {modules} modules, such as `{name}`, are uncertain")
        }
    }
}
