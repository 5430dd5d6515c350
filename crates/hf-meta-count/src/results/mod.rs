//! The results of a call: counts, findings, and views of them.

pub(crate) mod adapter;
mod bounded;
pub mod diff;
mod engine;
mod finding;
mod json;
mod loader;
pub mod metadata;
mod mismatch;
mod plan;
#[cfg(feature = "schema")]
pub(crate) mod schema;
mod severity;
/// Used by the command only. It may change in any version.
#[doc(hidden)]
pub mod text;
pub mod tree;
mod value_diff;
mod values;
mod verified;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::adapter::Adapter;
pub use self::bounded::bounded;
pub use self::engine::{EnginePair, EnginePairKind, EngineReason, EngineReasonCode, EngineReport};
pub use self::finding::Finding;
pub(crate) use self::loader::StatedLoader;
pub use self::mismatch::{Mismatch, MismatchKind};
pub use self::plan::{Plan, RangeRequest};
pub use self::severity::Severity;
pub use self::value_diff::{TensorDifference, ValueDiff};
pub use self::values::{ValueCheck, ValueReport};
pub use self::verified::{
    ConfigCheck, DEFAULT_HEADERS_LIMIT, ParameterSources, VerifiedSet, VerifyReport, is_complete,
    is_valid,
};

use crate::count::{CountBreakdown, ParameterCount};
use crate::memory::{CacheError, CacheSpec, Memory, MemoryComponent, MemoryOptions, RankWeights};
use hf_meta_format::CommitSha;
use hf_meta_format::formats::safetensors::{SafetensorsFileHeader, SafetensorsIndexJson};
use hf_meta_format::formats::weight_sets::{ListedWeights, WeightSet};
use hf_meta_format::formats::{Dtype, FileHeader, ModelDescription, RepoPath, WeightsKind};

/// The validated safetensors headers of a repository, with their parameter counts.
///
/// Serializes to the JSON of huggingface.js with additional fields: those of [`CountReport`], followed by `header`,
/// or by `index` and `headers`.
// Exhaustive, because callers match both variants: the weights are in one file or in several, as in huggingface.js.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum SafetensorsParseFromRepo {
    /// All weights are stored in one file.
    Single(SafetensorsFile),
    /// The weights are split across shards.
    Sharded(SafetensorsShards),
}

/// The configurations of a model, and the weights on each GPU, for the answer of an engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelFiles {
    /// The content of `config.json`.
    pub(crate) config: Option<Vec<u8>>,
    /// The content of `hf_quant_config.json`, if it was read.
    pub(crate) recipe: Option<Box<[u8]>>,
    /// The weights on each GPU in vLLM, if it has a rule for the model.
    pub(crate) ranks: Option<RankWeights>,
}

/// A single safetensors file.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SafetensorsFile {
    /// The path of the file in its repository or folder.
    #[serde(skip)]
    pub path: RepoPath,
    /// The counts for the file.
    #[serde(flatten)]
    pub report: CountReport,
    /// The header of the file.
    pub header: SafetensorsFileHeader,
}

/// Safetensors weights split across several files.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SafetensorsShards {
    /// The path of the index in its repository or folder. For shards without an index, their common path, with a `*`
    /// in place of the shard number.
    #[serde(skip)]
    pub path: RepoPath,
    /// The counts for all shards together.
    #[serde(flatten)]
    pub report: CountReport,
    /// The index. If the shards have none, it is built from their headers.
    pub index: SafetensorsIndexJson,
    /// The shards and their headers, sorted by their names in the index. Names are relative to the index.
    pub headers: BTreeMap<RepoPath, SafetensorsFileHeader>,
}

/// The validated headers of weights in any format, with their parameter counts.
///
/// Safetensors weights serialize like [`SafetensorsParseFromRepo`]; other formats have `headers` by file name.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
#[non_exhaustive]
pub enum Weights {
    /// Weights in safetensors format.
    Safetensors(SafetensorsParseFromRepo),
    /// Weights in another format: GGUF, PyTorch, or a custom format registered with `ClientBuilder::format`.
    Other(WeightFiles),
}

/// The validated headers of weights in a format other than safetensors, with their parameter counts.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct WeightFiles {
    /// The path of the file, or the common path of its shards, with a `*` in place of the shard number.
    #[serde(skip)]
    pub path: RepoPath,
    /// The counts for all files together.
    #[serde(flatten)]
    pub report: CountReport,
    /// The files and their headers, sorted by name. Names are relative to the folder of `path`.
    pub headers: BTreeMap<RepoPath, FileHeader>,
}

impl Weights {
    /// Returns the counts without the headers.
    pub fn report(&self) -> &CountReport {
        match self {
            Self::Safetensors(parsed) => parsed.report(),
            Self::Other(files) => &files.report,
        }
    }

    /// Returns every weight file: its path in the repository or folder, and its header.
    pub fn files(&self) -> impl Iterator<Item = (RepoPath, &FileHeader)> {
        let path = match self {
            Self::Safetensors(SafetensorsParseFromRepo::Single(_)) => None,
            Self::Safetensors(SafetensorsParseFromRepo::Sharded(shards)) => Some(&shards.path),
            Self::Other(files) => Some(&files.path),
        };
        self.named_headers().map(move |(name, header)| {
            (path.map_or_else(|| name.clone(), |path| path.sibling(name)), header)
        })
    }

    /// Returns every weight file: its path relative to the index, and its header.
    pub(crate) fn named_headers(&self) -> impl Iterator<Item = (&RepoPath, &FileHeader)> {
        let (single, shards, files) = match self {
            Self::Safetensors(SafetensorsParseFromRepo::Single(file)) => {
                (Some((&file.path, &*file.header)), None, None)
            }
            Self::Safetensors(SafetensorsParseFromRepo::Sharded(shards)) => {
                (None, Some(&shards.headers), None)
            }
            Self::Other(files) => (None, None, Some(&files.headers)),
        };
        let shards = shards.into_iter().flatten().map(|(name, header)| (name, &**header));
        single.into_iter().chain(shards).chain(files.into_iter().flatten())
    }
}

impl From<SafetensorsParseFromRepo> for Weights {
    fn from(parsed: SafetensorsParseFromRepo) -> Self {
        Self::Safetensors(parsed)
    }
}

/// The parameter counts of a checkpoint, without its headers.
///
/// Serializes to the JSON of [`SafetensorsParseFromRepo`] without `header`, `index` and `headers`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CountReport {
    /// The repository, URL or path that was read, as formatted by `Source`.
    pub source: String,
    /// The commit that all files belong to, or `None` if the source has no commits.
    pub commit: Option<CommitSha>,
    /// The name of the format, such as `safetensors`.
    pub format: &'static str,
    /// The model description from the file header, or `None` if the format has none.
    pub model: Option<ModelDescription>,
    /// `true` if the weights are split across several files.
    pub sharded: bool,
    /// The paths of all files that were read, starting with the index if there is one.
    pub filepaths: Vec<RepoPath>,
    /// The parameters, elements, scalars and bytes of each dtype.
    pub parameter_count: ParameterCount,
    /// The tensors, grouped by how they were counted.
    pub breakdown: CountBreakdown,
    /// The number of parameters declared by the file or the index. It is never used as the count.
    pub declared_total: Option<u64>,
    /// Findings that did not cause the call to fail.
    pub findings: Vec<Finding>,
    /// The other weight sets in the repository, which are not included in the counts. `None` if they were not listed.
    /// They are listed if the weights do not have one of the two standard names, or if requested with
    /// `Model::other_sets`.
    pub other_sets: Option<Vec<WeightSet>>,
    /// The KV cache: the layers and what they store per token. Present if it follows from a file that the
    /// count needed anyway: a GGUF file, or `config.json`
    /// of a quantized model or a mixture of experts.
    pub cache_spec: Option<Box<CacheSpec>>,
    /// The files that an engine looks at; `None` unless memory was requested.
    pub(crate) files: Option<Box<ModelFiles>>,
    /// The description of the weights as an adapter; `None` for other weights.
    pub adapter: Option<Box<Adapter>>,
    /// The answer of an engine; `None` unless [`add_count_answer`](crate::engines::add_count_answer) was called.
    pub engine: Option<Box<EngineReport>>,
    /// The memory that the model needs, if it was requested with `Count::memory`, and is not a part of `engine`.
    pub memory: Option<Box<Memory>>,
    /// The requests, bytes and time that the call took.
    pub fetch: FetchStats,
    /// The plan by which the headers were read.
    pub plan: Plan,
}

impl CountReport {
    /// The maximum number of components of one model. A pipeline has a dozen.
    pub const MAX_COMPONENTS: usize = 100;

    /// Sets the format that the names of the files imply. Does nothing if their content is in another format.
    pub fn set_format(&mut self, named: &'static str) {
        let is_misnamed = |finding: &Finding| matches!(finding, Finding::Misnamed { .. });
        if !self.findings.iter().any(is_misnamed) {
            self.format = named;
        }
    }

    /// Returns the number of weight files, excluding the index.
    pub fn file_count(&self) -> usize {
        self.filepaths.iter().filter(|path| !path.is_index()).count()
    }

    /// Returns the quantizations in a repository: names, paths and sizes in bytes. The set at `read`, which the
    /// report describes, has the size of its tensors; the others have the sizes of their files.
    pub(crate) fn quantizations(
        &self,
        listed: &ListedWeights,
        read: &RepoPath,
    ) -> Vec<(String, RepoPath, u64)> {
        let Some(model) = &self.model else { return Vec::new() };
        let is_model =
            |set: &&WeightSet| set.kind == WeightsKind::Model && set.format == self.format;
        let sets = listed.sets.iter().filter(is_model).filter_map(|set| {
            let is_read = set.path == *read;
            let of_header = if is_read { model.file_type.as_ref() } else { None };
            let name = set.quantization.as_ref().or(of_header)?;
            let bytes = if is_read { self.breakdown.model_bytes() } else { set.bytes };
            Some((name.clone(), set.path.clone(), bytes))
        });
        sets.collect()
    }

    /// Adds the memory that the weights at `path` need, together with the sizes of the `others` that are loaded with
    /// them.
    pub fn add_memory(
        &mut self,
        path: &RepoPath,
        cache: Result<CacheSpec, CacheError>,
        options: MemoryOptions,
        others: Vec<MemoryComponent>,
        listed: Option<&ListedWeights>,
    ) {
        let weight_bytes = self.breakdown.model_bytes();
        let mut sizes = vec![MemoryComponent { path: path.clone(), weight_bytes }];
        sizes.extend(others);
        let weight_bytes = sizes.iter().map(|set| set.weight_bytes).fold(0, u64::saturating_add);
        let mut memory = match self.ranks() {
            Some(ranks) if sizes.len() == 1 => Memory::of_ranks(ranks.clone(), cache, options),
            _ => Memory::new(weight_bytes, cache, options),
        };
        let reason = memory.unknown.clone();
        self.findings.extend(reason.map(|reason| Finding::UnknownCacheSize { reason }));
        if sizes.len() > 1 {
            memory.components = sizes;
        }
        if let Some(listed) = listed {
            memory.add_quantizations(self.quantizations(listed, path));
        }
        self.memory = Some(Box::new(memory));
    }

    /// Returns the weights on each GPU, if the engine has a rule for them.
    fn ranks(&self) -> Option<&RankWeights> {
        self.files.as_deref()?.ranks.as_ref()
    }

    /// Returns the number of parameters of the model.
    pub fn parameter_total(&self) -> u64 {
        self.parameter_count.total()
    }

    /// Returns whether the parameters of every module are known, as `parameterExact` in the JSON. If not, a finding
    /// gives the reason.
    pub fn is_exact(&self) -> bool {
        self.breakdown.is_exact()
    }

    /// Returns the quantization of the weights: the method, such as `gptq`, or the file type of a GGUF file, such as
    /// `Q4_K_M` or `BF16`. `None` if no method and no type is known.
    pub fn quantization(&self) -> Option<&str> {
        let file_type = self.model.as_ref().and_then(|model| model.file_type.as_deref());
        self.breakdown.method.as_deref().or(file_type)
    }

    /// Sets the other weight sets, excluding the one that was read.
    pub fn add_other_sets(&mut self, sets: Option<Vec<WeightSet>>) {
        let read = self.filepaths.iter().cloned().collect();
        let is_other = |set: &WeightSet| !set.is_part_of(&read);
        self.other_sets = sets.map(|sets| sets.into_iter().filter(is_other).collect());
    }
}

/// The main values of a [`CountReport`], which can be read from the JSON of the command, the badge service, the
/// Python module, or `serde_json::to_string`.
///
/// ```
/// # let json = r#"{"source":"gpt2","format":"safetensors","sharded":false,"parameterCount":{"F32":137022720},
/// #     "parameterTotal":137022720,"parameterExact":true,"elementTotal":137022720,"byteTotal":548090880,
/// #     "filepaths":["model.safetensors"],"fetch":{"requests":4,"bytesRead":14283,"weightBytes":548105171,
/// #     "seconds":0.1}}"#;
/// let summary: hf_meta_count::CountSummary = serde_json::from_str(json)?;
/// assert_eq!(summary.parameter_total, 137_022_720);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CountSummary {
    /// The repository, URL or path that was read.
    pub source: String,
    /// The commit that all files belong to, if the source has commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitSha>,
    /// The name of the format, such as `safetensors`.
    pub format: String,
    /// `true` if the weights are split across several files.
    pub sharded: bool,
    /// The parameters per dtype.
    pub parameter_count: BTreeMap<Dtype, u64>,
    /// The parameters of all dtypes.
    pub parameter_total: u64,
    /// `false` if the size of some modules could not be derived.
    pub parameter_exact: bool,
    /// The elements of all tensors as stored.
    pub element_total: u64,
    /// The size of all tensors in bytes.
    pub byte_total: u64,
    /// The paths of all files that were read, starting with the index if there is one.
    pub filepaths: Vec<RepoPath>,
    /// The requests, bytes and time that the call took.
    pub fetch: FetchStats,
}

/// The requests, bytes and time spent on a call, or on the equal concurrent call that it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FetchStats {
    /// The number of HTTP requests, including redirects and retries.
    pub requests: u64,
    /// The number of bytes read from HTTP response bodies or local files.
    pub bytes_read: u64,
    /// The total size of all weight files, in bytes.
    pub weight_bytes: u64,
    /// The time from the start of the call until its result. Serialized as `seconds`.
    #[serde(rename = "seconds", serialize_with = "as_seconds", deserialize_with = "from_seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub elapsed: Duration,
    /// The seconds since the commit of the branch was requested, if the commit came from a cache and was not requested
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// `true` if the cached commit had expired and was used because the server was unavailable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

fn as_seconds<S: Serializer>(elapsed: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(elapsed.as_secs_f64())
}

fn from_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    Duration::try_from_secs_f64(seconds).map_err(D::Error::custom)
}

impl SafetensorsParseFromRepo {
    /// Returns the parameters per dtype, across all shards.
    pub fn parameter_count(&self) -> &ParameterCount {
        &self.report().parameter_count
    }

    /// Returns the counts without the headers.
    pub fn report(&self) -> &CountReport {
        match self {
            Self::Single(file) => &file.report,
            Self::Sharded(shards) => &shards.report,
        }
    }

    /// Returns every weight file: its path in the repository or folder, and its header.
    pub fn files(&self) -> impl Iterator<Item = (RepoPath, &SafetensorsFileHeader)> {
        let (single, sharded) = match self {
            Self::Single(file) => (Some((file.path.clone(), &file.header)), None),
            Self::Sharded(shards) => (None, Some(shards)),
        };
        let shards = sharded.into_iter().flat_map(|shards| {
            shards.headers.iter().map(|(name, header)| (shards.path.sibling(name), header))
        });
        single.into_iter().chain(shards)
    }
}
