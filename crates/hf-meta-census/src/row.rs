//! The rows of the census: one per repository.

use std::mem::swap;

use bytes::Bytes;
use itertools::Itertools;
use serde::{Deserialize, Serialize};

use super::manifest::ListedRepo;
use super::table::{SortedRow, TableRow, integer};
use hf_meta::internal::HeaderBytes;
use hf_meta::{CommitSha, Error, ErrorKind, HubCacheMiss};
use hf_meta_count::count::{MixtureOfExperts, RuleSet};
use hf_meta_count::memory::Memory;
use hf_meta_count::results::{CountReport, Finding};
use hf_meta_format::formats::weight_sets::{ListedFile, ListedWeights, WeightSet};
use hf_meta_format::formats::{Formats, RepoPath, WeightsKind, chain, clip};

/// The version of the table columns, which increases with every change.
pub const SCHEMA_VERSION: i64 = 5;

/// The result for one repository.
///
/// The fields are the columns of the `repos` table. If a repository has no counts, [`status`](Self::status) is the
/// reason. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CensusRow {
    /// The repository name in the list.
    pub repo: String,
    /// The name that the Hub redirects to, if it is different.
    pub canonical_repo: Option<String>,
    /// The revision in the list.
    pub listed_commit: Option<String>,
    /// The commit that the row describes.
    pub commit: Option<String>,
    /// `ok`, `empty`, `no_weights`, `several_sets`, `gated`, `denied`, `gone`, `malformed`, `too_large`, `invalid_name` or
    /// `failed`.
    pub status: String,
    /// The error code, such as `malformedHeader`; absent if the status is `ok`.
    pub error_kind: Option<String>,
    /// The error message, including its causes.
    pub error: Option<String>,
    /// The HTTP status of the response that caused the error.
    pub http_status: Option<i64>,
    /// The kind of the counted weights: `model`, `pipeline`, `adapter`, `projector` or `importance_matrix`.
    pub kind: Option<String>,
    /// `true` if the counted weights are a whole model.
    pub is_complete: Option<bool>,
    /// The path of the weights: a file, an index, or a pattern for shards without an index.
    pub path: Option<String>,
    /// The format of the weights: `safetensors`, `gguf` or `pytorch`.
    pub format: Option<String>,
    /// `true` if the weights are split into several files.
    pub sharded: Option<bool>,
    /// The number of weight files.
    pub files: Option<i64>,
    /// The number of tensors.
    pub tensors: Option<i64>,
    /// The number of parameters.
    pub parameter_total: Option<i64>,
    /// `true` if the number of parameters is exact.
    pub parameter_exact: Option<bool>,
    /// The number of stored elements, excluding scalars.
    pub element_total: Option<i64>,
    /// The total size of all tensors in bytes.
    pub byte_total: Option<i64>,
    /// The number of parameters that the file or the index declares.
    pub declared_total: Option<i64>,
    /// The number of parameters that the Hub reports.
    pub hub_total: Option<i64>,
    /// The totals per dtype.
    pub dtypes: Option<Vec<DtypeSums>>,
    /// The quantization method, such as `gptq`.
    pub quant_method: Option<String>,
    /// The active parameters of a mixture-of-experts model.
    pub moe: Option<ActiveParameters>,
    /// The bytes that each token adds to the cache of a sequence, beyond all windows; absent if the count did not read
    /// the configuration, or if no exact rule for the architecture is known.
    pub cache_token_bytes: Option<i64>,
    /// The bytes of the windows and states in the cache of a sequence; absent as above.
    pub cache_fixed_bytes: Option<i64>,
    /// The kinds of the findings, such as `totalSizeMismatch`.
    pub findings: Option<Vec<String>>,
    /// The other weight sets, which are not counted, at most 1,000; absent if they were not listed.
    pub other_sets: Option<Vec<OtherWeightSet>>,
    /// The sets of weights whose counts the row adds up; absent if it is one set.
    pub components: Option<Vec<ComponentCount>>,
    /// The SHA-256 hashes of the weight files, ordered by path, as far as the Hub reported them.
    pub file_sha256: Option<Vec<Bytes>>,
    /// The hash of the names, dtypes and shapes of all tensors, regardless of how they are split into files.
    pub layout_digest: Option<Bytes>,
    /// The hash of the names and shapes of all tensors, the same for one architecture in different precisions.
    pub shape_digest: Option<Bytes>,
    /// The user or organization that owns the repository.
    pub author: Option<String>,
    /// The time of the first commit, in milliseconds since the Unix epoch.
    pub created_at: Option<i64>,
    /// The time of the last commit, in milliseconds since the Unix epoch.
    pub last_modified: Option<i64>,
    /// The number of downloads in the last 30 days, at the time of the listing.
    pub downloads: Option<i64>,
    /// The type of gate, `auto` or `manual`; absent if the repository is not gated.
    pub gated: Option<String>,
    /// The task, such as `text-generation`.
    pub pipeline_tag: Option<String>,
    /// The library, such as `transformers`.
    pub library: Option<String>,
    /// The license tag, such as `apache-2.0`.
    pub license: Option<String>,
    /// The architecture, such as `LlamaForCausalLM`.
    pub architecture: Option<String>,
    /// The model type in `config.json`, such as `llama`.
    pub model_type: Option<String>,
    /// The base models, as tagged.
    pub base_models: Option<Vec<String>>,
    /// The relation to the base models: `adapter`, `finetune`, `merge` or `quantized`.
    pub base_model_relation: Option<String>,
    /// The number of likes, at the time of the listing.
    pub likes: Option<i64>,
    /// The tags of the Hub.
    pub tags: Option<Vec<String>>,
    /// The version of the counting rules, such as `hf-meta 1`.
    pub rules: String,
}

/// The totals of the tensors of one dtype.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DtypeSums {
    /// The dtype, such as `BF16`.
    pub dtype: String,
    /// The number of tensors.
    pub tensors: i64,
    /// The number of elements, excluding scalars.
    pub elements: i64,
    /// The number of scalars.
    pub scalars: i64,
    /// The number of parameters.
    pub parameters: i64,
    /// The size in bytes.
    pub bytes: i64,
}

/// The active parameters of a mixture-of-experts model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ActiveParameters {
    /// The number of routed experts per layer.
    pub num_experts: i64,
    /// The number of routed experts per token.
    pub top_k: i64,
    /// The number of parameters outside the routed experts, all of which every token uses.
    pub always_active: i64,
    /// The number of parameters in the routed experts that one token uses.
    pub routed_active: i64,
    /// The number of parameters that one token uses: `always_active + routed_active`.
    pub active: i64,
}

/// A weight set that is not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OtherWeightSet {
    /// The path of the file, the index or the shards.
    pub path: String,
    /// The format: `safetensors`, `gguf` or `pytorch`.
    pub format: String,
    /// The number of files.
    pub files: i64,
    /// The total size of the files in bytes; absent if unknown.
    pub bytes: Option<i64>,
}

/// The counts of a component of a pipeline, or of a module of a `sentence-transformers` model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ComponentCount {
    /// The path of the file, the index or the shards.
    pub path: String,
    /// The format: `safetensors`, `gguf` or `pytorch`.
    pub format: String,
    /// The number of tensors.
    pub tensors: i64,
    /// The number of parameters.
    pub parameters: i64,
    /// The total size of all tensors in bytes.
    pub bytes: i64,
}

impl ComponentCount {
    pub(super) fn new(path: &RepoPath, report: &CountReport) -> Self {
        let sums = report.parameter_count.totals();
        Self {
            path: path.to_string(),
            format: report.format.to_owned(),
            tensors: integer(sums.tensors),
            parameters: integer(sums.parameters),
            bytes: integer(sums.bytes),
        }
    }
}

impl TableRow for CensusRow {
    const NAME: &str = "The table `repos`";
    const KEY: &[&str] = &["repo"];
}

impl SortedRow for CensusRow {
    fn key(&self) -> (&str, &str) {
        (&self.repo, "")
    }
}

/// Exchanges the values of fields that have the same names in two structs.
macro_rules! swap_fields {
    ($one:ident, $other:ident: $($field:ident)*) => {
        $(swap(&mut $one.$field, &mut $other.$field);)*
    };
}

impl CensusRow {
    /// Creates the row of a repository that has not been read.
    pub(super) fn new(mut listed: ListedRepo) -> Self {
        let mut row = Self { rules: RuleSet::CURRENT.to_string(), ..Self::default() };
        row.swap_listing(&mut listed);
        row
    }

    /// Exchanges the columns that a row has in common with a listing.
    fn swap_listing(&mut self, listed: &mut ListedRepo) {
        swap(&mut self.listed_commit, &mut listed.commit);
        swap_fields!(self, listed: repo author created_at last_modified downloads gated hub_total
            pipeline_tag library license architecture model_type base_models base_model_relation
            likes tags);
    }

    /// Updates the row of an unchanged repository with a new listing. If the listing has no architecture, the
    /// architecture of the weights is kept. This costs no requests.
    pub(super) fn carried_over(mut self, mut listed: ListedRepo) -> Self {
        listed.architecture = listed.architecture.or_else(|| self.architecture.take());
        self.swap_listing(&mut listed);
        self
    }

    /// Returns the repository as a listing entry, to read it again.
    pub(super) fn into_listing(mut self) -> ListedRepo {
        let mut listed = ListedRepo::default();
        self.swap_listing(&mut listed);
        listed
    }

    /// Sets the status and, on success, the counts.
    pub(super) fn set_result(&mut self, result: Result<&CountReport, &Error>) {
        let error = match result {
            Ok(report) => return self.set_report(report),
            Err(error) => error,
        };
        self.set_failure(status(error), error.code(), clip(&chain(error)));
        self.http_status = error.status().map(i64::from);
        if let Error::SeveralSets { sets, .. } = error {
            self.other_sets = Some(sets.iter().take(MAX_SETS).map(OtherWeightSet::from).collect());
        }
    }

    pub(super) fn set_failure(&mut self, status: &str, kind: &str, error: String) {
        status.clone_into(&mut self.status);
        (self.error_kind, self.error) = (Some(kind.to_owned()), Some(error));
    }

    fn set_report(&mut self, report: &CountReport) {
        let sums = report.parameter_count.totals();
        let is_too_large = |sum: u64| i64::try_from(sum).is_err();
        if [sums.parameters, sums.elements, sums.bytes].into_iter().any(is_too_large) {
            let error = "the totals overflow 63 bits".to_owned();
            return self.set_failure("malformed", "countOverflow", error);
        }
        if sums.tensors == 0 { "empty" } else { "ok" }.clone_into(&mut self.status);
        self.commit = report.commit.as_ref().map(ToString::to_string);
        self.format = Some(report.format.to_owned());
        self.sharded = Some(report.sharded);
        self.files = Some(integer(report.file_count() as u64));
        self.tensors = Some(integer(sums.tensors));
        self.parameter_total = Some(integer(sums.parameters));
        self.parameter_exact = Some(report.breakdown.is_exact());
        self.element_total = Some(integer(sums.elements));
        self.byte_total = Some(integer(sums.bytes));
        self.declared_total = report.declared_total.and_then(|total| i64::try_from(total).ok());
        self.dtypes = Some(report.parameter_count.rows().map(DtypeSums::from).collect());
        self.quant_method.clone_from(&report.breakdown.method);
        self.moe = report.breakdown.moe.map(ActiveParameters::from);
        let cache = report.cache_spec.as_deref().and_then(Memory::growth);
        (self.cache_token_bytes, self.cache_fixed_bytes) =
            cache.map(|(token, fixed)| (integer(token), integer(fixed))).unzip();
        self.findings = Some(kinds(&report.findings));
        let others = report.other_sets.as_ref().map(|sets| sets.iter().take(MAX_SETS));
        self.other_sets = others.map(|sets| sets.map(OtherWeightSet::from).collect());
        let architecture = report.model.as_ref().and_then(|model| model.architecture.clone());
        self.architecture = self.architecture.take().or(architecture);
    }

    /// Sets the hashes of the layout and the shapes; `None` for a repository without counts.
    pub(super) fn set_digests(&mut self, digests: Option<(Bytes, Bytes)>) {
        let digests = if self.status == "ok" { digests } else { None };
        (self.layout_digest, self.shape_digest) = digests.unzip();
    }

    /// Sets the commit and the canonical name that the Hub responded with. Without a response, results that follow from
    /// the listed files describe the listed commit.
    pub(super) fn set_source(&mut self, headers: Option<&HeaderBytes>) {
        let follows_from_files = matches!(&*self.status, "no_weights" | "several_sets");
        let is_read = follows_from_files || is_read(&self.status);
        let listed = if follows_from_files { self.listed_commit.as_ref() } else { None };
        let listed = listed.filter(|commit| commit.parse::<CommitSha>().is_ok()).cloned();
        let read = headers.map(|headers| headers.commit().to_string());
        self.commit = if is_read { read.or(self.commit.take()).or(listed) } else { None };
        self.canonical_repo =
            headers.and_then(|headers| headers.canonical_name().map(str::to_owned));
    }

    /// Returns the paths of the components, without the main one.
    pub(super) fn other_components(&self) -> impl Iterator<Item = RepoPath> {
        let components = self.components.iter().flatten().skip(1);
        components.filter_map(|component| component.path.parse().ok())
    }

    /// Sets the path of the counted weights and their role, which follows from the names of the files and the tensors.
    pub(super) fn set_role(
        &mut self,
        path: Option<&RepoPath>,
        files: &[RepoPath],
        is_adapter: bool,
    ) {
        self.path = path.map(ToString::to_string);
        let files: Vec<_> =
            files.iter().map(|path| ListedFile { path: path.clone(), size: 0 }).collect();
        let listed = ListedWeights::new(Formats::built_in(), None, &files);
        let Some(set) = path.and_then(|path| listed.find(path)) else { return };
        let has_name = |name| set.path.file_name().as_str().starts_with(name);
        let kind = match set.kind {
            WeightsKind::Projector => "projector",
            WeightsKind::ImportanceMatrix => "importance_matrix",
            WeightsKind::Adapter => "adapter",
            _ if is_adapter || ADAPTERS.iter().any(has_name) => "adapter",
            _ if self.components.is_some() => "pipeline",
            _ => "model",
        };
        let is_complete = matches!(kind, "model" | "pipeline");
        (self.kind, self.is_complete) = (Some(kind.to_owned()), Some(is_complete));
    }

    /// Returns the row with a new count of the same bytes, without its components.
    pub(super) fn recounted(&self, result: Result<&CountReport, &Error>) -> Self {
        let mut counted = Self::new(self.clone().into_listing());
        counted.set_result(result);
        if counted.error_kind == self.error_kind {
            counted.error.clone_from(&self.error);
        }
        let row = self.clone();
        // These findings follow from the responses of the Hub, not from the stored bytes.
        let of_source = row.findings.into_iter().flatten();
        let of_source = of_source.filter(|kind| SOURCE_FINDINGS.contains(&&**kind));
        counted.findings = counted
            .findings
            .map(|found| found.into_iter().chain(of_source).sorted().dedup().collect());
        let has_counts = counted.error_kind.is_none();
        Self {
            canonical_repo: row.canonical_repo,
            commit: row.commit,
            path: row.path,
            kind: if has_counts { row.kind } else { None },
            is_complete: if has_counts { row.is_complete } else { None },
            http_status: row.http_status,
            other_sets: row.other_sets,
            file_sha256: row.file_sha256,
            layout_digest: if has_counts { row.layout_digest } else { None },
            shape_digest: if has_counts { row.shape_digest } else { None },
            ..counted
        }
    }

    /// Returns whether other counting rules could change the row.
    pub(super) fn depends_on_headers(&self) -> bool {
        is_read(&self.status) && self.commit.is_some()
    }

    /// Marks the row as up to date with the current counting rules.
    pub(super) fn set_current(&mut self) {
        self.rules = RuleSet::CURRENT.to_string();
    }

    /// Returns whether another attempt may succeed.
    pub(super) fn has_failed(&self) -> bool {
        self.status == "failed"
    }
}

/// The name and the version of this program.
pub(super) const TOOL: &str = concat!("hf-meta ", env!("CARGO_PKG_VERSION"));

/// The file that lists the modules of a `sentence-transformers` model.
pub(super) const MODULES: &str = "modules.json";

/// The standard names of adapters, which may have no tensors.
const ADAPTERS: [&str; 2] = ["adapter_model.", "pytorch_lora_weights."];

/// The maximum number of other sets in a row. A repository may have 100,000 files.
pub(super) const MAX_SETS: usize = 1_000;

/// Returns whether a status follows from the content of the weight files.
fn is_read(status: &str) -> bool {
    matches!(status, "ok" | "empty" | "malformed" | "too_large")
}

/// The findings about the source of a model.
const SOURCE_FINDINGS: [&str; 2] = ["notPinned", "renamed"];

/// Returns the status of a repository that could not be read.
fn status(error: &Error) -> &'static str {
    use ErrorKind::{
        FileNotFound, Forbidden, Gated, InvalidSource, MalformedHeader, MalformedIndex,
        MissingShards, NoWeights, RepoNotFound, RevisionNotFound, SeveralSets, TooLarge,
    };
    if let Error::FileNotFound { source, .. } | Error::NoWeights { source, .. } = error
        && source.is::<HubCacheMiss>()
    {
        // The client is offline, and a later download may add the files.
        return "failed";
    }
    match error.kind() {
        NoWeights => "no_weights",
        SeveralSets => "several_sets",
        Gated => "gated",
        Forbidden => "denied",
        RepoNotFound | RevisionNotFound | FileNotFound => "gone",
        InvalidSource => "invalid_name",
        MalformedHeader | MalformedIndex | MissingShards => "malformed",
        TooLarge => "too_large",
        // None of the others, such as an expired token, is a property of the repository.
        _ => "failed",
    }
}

/// Returns the distinct kinds of findings, sorted.
fn kinds(findings: &[Finding]) -> Vec<String> {
    let kind = |finding| Some(serde_json::to_value(finding).ok()?["kind"].as_str()?.to_owned());
    findings.iter().filter_map(kind).sorted().dedup().collect()
}

impl From<(&hf_meta_format::formats::Dtype, &hf_meta_count::count::DtypeCount)> for DtypeSums {
    fn from(
        (dtype, sums): (&hf_meta_format::formats::Dtype, &hf_meta_count::count::DtypeCount),
    ) -> Self {
        Self {
            dtype: dtype.to_string(),
            tensors: integer(sums.tensors),
            elements: integer(sums.elements),
            scalars: integer(sums.scalars),
            parameters: integer(sums.parameters),
            bytes: integer(sums.bytes),
        }
    }
}

impl From<MixtureOfExperts> for ActiveParameters {
    fn from(moe: MixtureOfExperts) -> Self {
        Self {
            num_experts: integer(moe.experts),
            top_k: integer(moe.experts_per_token),
            always_active: integer(moe.always_active),
            routed_active: integer(moe.routed_active),
            active: integer(moe.active()),
        }
    }
}

impl From<&WeightSet> for OtherWeightSet {
    fn from(set: &WeightSet) -> Self {
        Self {
            path: set.path.to_string(),
            format: set.format.to_owned(),
            files: integer(set.files as u64),
            bytes: (set.bytes > 0).then(|| integer(set.bytes)),
        }
    }
}
