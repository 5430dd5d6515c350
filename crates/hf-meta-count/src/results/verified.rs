//! The result of a verification.

use serde::Serialize;

use super::{Adapter, EngineReport, FetchStats, Finding, Severity, StatedLoader, ValueReport};
use crate::memory::{CacheError, CacheSpec, RankWeights};
use hf_meta_format::CommitSha;
use hf_meta_format::formats::weight_sets::{IncompleteShards, WeightSet};
use hf_meta_format::formats::{FileHeader, HeaderErrorKind, RepoPath, clip};

/// The default limit for all headers of a call, in bytes: for the ones that it reads of a set, and for the memory of the ones
/// that a verification keeps of all sets to check values. It bounds the memory that a hostile repository can take.
pub const DEFAULT_HEADERS_LIMIT: usize = 500_000_000;

/// The result of verifying weight sets, returned by `Model::verify`. The numbers and the findings cover all of them.
///
/// ```
/// use hf_meta_count::VerifyReport;
/// use hf_meta_count::results::Severity;
///
/// fn print_errors(report: &VerifyReport) {
///     let is_error = |severity| severity == Severity::Error;
///     for finding in report.findings().iter().filter(|finding| is_error(finding.severity())) {
///         println!("{finding}");
///     }
/// }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The repository, URL or path that was read, as formatted by `Source`.
    pub source: String,
    /// The commit of the files, or `None` if the source has no commits.
    pub commit: Option<CommitSha>,
    /// The library or program that loads the first set: `diffusers`, `llama.cpp`, `mlx`, `peft`, `sentence-transformers`,
    /// `timm` or `transformers`; `None` if nothing decides it.
    pub loader: Option<&'static str>,
    /// The paths of the files that were checked, the index first.
    pub filepaths: Vec<RepoPath>,
    /// The result of each set that was checked, the main set first.
    pub sets: Vec<VerifiedSet>,
    /// The sets that were not checked, or `None` if the files were not listed: one file was selected, or the server
    /// has no listing.
    pub unchecked: Option<Vec<WeightSet>>,
    /// The description of the first set as an adapter; `None` for other weights.
    pub adapter: Option<Box<Adapter>>,
    /// The check of values; `None` if none was requested.
    pub values: Option<Box<ValueReport>>,
    /// The answer of an engine; `None` if none was requested.
    pub engine: Option<Box<EngineReport>>,
    /// The requests, bytes and time that the verification took.
    pub fetch: FetchStats,
}

/// The result of verifying one weight set.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerifiedSet {
    /// The path of the file or the index, or the path pattern of shards without an index.
    pub path: RepoPath,
    /// The number of weight files that should exist.
    pub files: usize,
    /// The number of weight files with a valid header.
    pub valid_files: usize,
    /// The number of tensors in the valid files.
    pub tensors: u64,
    /// The parameter count according to each source.
    pub parameters: ParameterSources,
    /// The comparison of the tensors with `config.json`, or the reason why there is none.
    pub config_check: ConfigCheck,
    /// All findings, grouped by kind. The first set also has the findings about the repository.
    pub findings: Vec<Finding>,
    /// The content of `config.json` in the folder of the set.
    pub(crate) config: Option<Vec<u8>>,
    /// The content of `hf_quant_config.json`, if it was read.
    pub(crate) recipe: Option<Box<[u8]>>,
    /// The architecture that a GGUF file states.
    pub(crate) architecture: Option<String>,
    /// The cache that a GGUF file describes.
    pub(crate) cache: Option<Result<CacheSpec, CacheError>>,
    /// The bytes of the weights; `None` if not all files were counted.
    pub(crate) weight_bytes: Option<u64>,
    /// The weights on each GPU in vLLM, if it has a rule for the model.
    pub(crate) ranks: Option<Box<RankWeights>>,
    /// The width of the output of a projector in a GGUF file.
    pub(crate) width: Option<u64>,
    /// The loader that the configuration next to the weights states.
    pub(crate) loader: Option<StatedLoader>,
    /// The headers of the valid files, if they are kept.
    pub(crate) headers: Vec<(RepoPath, FileHeader)>,
}

/// The comparison of the tensors with `config.json`, or the reason why there is none.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConfigCheck {
    /// True if all modules of the model and their shapes were compared.
    pub compared: bool,
    /// The reason why they were not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ConfigCheck {
    /// Creates the result of a model that was not compared.
    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self { compared: false, reason: Some(reason.into()) }
    }
}

/// The parameter count of a model according to each source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ParameterSources {
    /// The count over all tensors, or `None` if a file is missing or invalid.
    pub counted: Option<u64>,
    /// `true` if the count is exact, or `None` if there is no count.
    pub exact: Option<bool>,
    /// The `total_parameters` declared by the index, or by the metadata of a single file.
    pub declared: Option<u64>,
    /// The count that the Hub reports, or `None` if it reports none for these files.
    pub hub: Option<u64>,
}

impl VerifiedSet {
    /// Creates the result of the set at `path`, which should have `files` files, none of which was read.
    pub(crate) fn new(path: RepoPath, files: usize, findings: Vec<Finding>) -> Self {
        let (parameters, config_check) = (ParameterSources::default(), ConfigCheck::default());
        Self {
            path,
            files,
            valid_files: 0,
            tensors: 0,
            parameters,
            config_check,
            findings,
            config: None,
            recipe: None,
            architecture: None,
            cache: None,
            weight_bytes: None,
            ranks: None,
            width: None,
            loader: None,
            headers: Vec::new(),
        }
    }

    /// Returns the path of a file of the set. The names of shards are relative to their index.
    pub(crate) fn named(&self, file: &RepoPath) -> RepoPath {
        if *file == self.path { file.clone() } else { self.path.sibling(file) }
    }

    /// Keeps the headers of the valid files.
    pub(crate) fn keep_headers(&mut self, headers: Vec<(RepoPath, FileHeader)>) {
        let named = headers.into_iter().map(|(file, header)| (self.named(&file), header));
        self.headers = named.collect();
    }
}

impl VerifyReport {
    /// Creates the result of a set that could not be read. `finding` is the reason, unless shards are missing.
    pub fn unreadable(set: &WeightSet, mut finding: Finding) -> Self {
        if set.is_without_index()
            && let Err(IncompleteShards { total, .. }) = set.shards()
        {
            let (shards, total) = (clip(set.path.as_str()), total.into());
            finding = Finding::IncompleteShards { shards, total, found: set.files as u64 };
        }
        let set = VerifiedSet::new(set.path.clone(), set.files, vec![finding]);
        Self { sets: vec![set], ..Self::default() }
    }

    /// Adds a finding about the repository to the first set.
    pub fn push(&mut self, finding: Finding) {
        if let Some(set) = self.sets.first_mut() {
            set.findings.push(finding);
        }
    }

    /// Adds the report of a check of values, and its findings about each set.
    pub fn add_values(&mut self, values: ValueReport, findings: Vec<Vec<Finding>>) {
        for (set, findings) in self.sets.iter_mut().zip(findings) {
            set.findings.extend(findings);
        }
        if let Some(engine) = &mut self.engine {
            let findings = self.sets.iter().flat_map(|set| &set.findings);
            engine.add_findings(&findings.cloned().collect::<Vec<_>>());
        }
        self.values = Some(Box::new(values));
    }

    /// Takes the headers of the valid files of each set; empty if they were not kept.
    pub fn take_headers(&mut self) -> Vec<Vec<(RepoPath, FileHeader)>> {
        self.sets.iter_mut().map(|set| std::mem::take(&mut set.headers)).collect()
    }

    /// Adds the result of other sets. After the first one, content that is not a model, such as an importance matrix, a
    /// control vector, or a `.bin` file of another program, is left out.
    pub fn add(&mut self, other: Self) {
        if !self.sets.is_empty() && other.has_other_content() {
            return;
        }
        self.fetch.weight_bytes = self.fetch.weight_bytes.saturating_add(other.fetch.weight_bytes);
        self.filepaths.extend(other.filepaths);
        if self.sets.is_empty() {
            self.loader = self.loader.or(other.loader);
            self.adapter = self.adapter.take().or(other.adapter);
        }
        self.sets.extend(other.sets);
        let mut left = DEFAULT_HEADERS_LIMIT;
        for set in &mut self.sets {
            let memory = set.headers.iter().map(|(_, header)| header.tensors().memory());
            match left.checked_sub(memory.sum()) {
                Some(rest) => left = rest,
                None => set.headers.clear(),
            }
        }
    }

    /// Returns all findings, in the order of the sets.
    pub fn findings(&self) -> Vec<Finding> {
        self.sets.iter().flat_map(|set| set.findings.iter().cloned()).collect()
    }

    /// Returns the parameter count according to each source, if only one set was checked.
    pub fn parameters(&self) -> ParameterSources {
        if let [only] = &self.sets[..] { only.parameters } else { ParameterSources::default() }
    }

    /// Returns whether there are no errors. Warnings and notes are allowed.
    pub fn is_valid(&self) -> bool {
        self.sets.iter().all(|set| is_valid(&set.findings))
    }

    /// Returns whether no file contains a model, although some have the extension of one.
    pub fn has_other_content(&self) -> bool {
        !self.sets.is_empty() && self.sets.iter().all(|set| is_other_content(&set.findings))
    }

    /// Returns whether every file of each checked set was read. One shard of several is not a complete model.
    pub fn is_complete(&self) -> bool {
        self.sets.iter().all(|set| is_complete(&set.findings))
    }
}

/// Returns whether no finding is an error.
pub fn is_valid(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.severity() < Severity::Error)
}

/// Returns whether no finding states that a file was not read.
pub fn is_complete(findings: &[Finding]) -> bool {
    let is_gap = |finding: &Finding| {
        matches!(finding, Finding::Unreadable { .. } | Finding::SingleShard { .. })
    };
    !findings.iter().any(is_gap)
}

/// Returns whether a file contains something other than a model.
fn is_other_content(findings: &[Finding]) -> bool {
    let found = findings.iter().find_map(|finding| match finding {
        Finding::MalformedHeader { file, reason, .. } => Some((file, reason.kind)),
        _ => None,
    });
    match found {
        Some((_, HeaderErrorKind::NotAModel)) => true,
        Some((file, HeaderErrorKind::NotACheckpoint)) => !is_loaded_by_name(file),
        _ => false,
    }
}

/// Returns whether transformers, diffusers, `open_clip` or PEFT load a pickle with this name, such as `pytorch_model.bin`.
fn is_loaded_by_name(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or_default();
    name.contains("pytorch") || name.starts_with("adapter_model")
}

#[cfg(test)]
mod tests {
    use hf_meta_format::formats::HeaderError;

    use super::*;

    /// Programs other than PyTorch write `.bin` files, too. Loaders read a file with one of their names.
    #[test]
    fn files_of_other_programs_are_left_out_after_the_first_one() {
        let set = |path: &str| {
            let reason = HeaderError::new(HeaderErrorKind::NotACheckpoint, String::new());
            let finding =
                Finding::MalformedHeader { file: path.to_owned(), format: "PyTorch", reason };
            let sets = vec![VerifiedSet::new(path.parse().unwrap(), 1, vec![finding])];
            VerifyReport { sets, ..VerifyReport::default() }
        };
        let mut report = VerifyReport::default();
        for path in ["a.bin", "spm.bin", "b/adapter_model.bin", "pytorch_model.bin", "c/spm.bin"] {
            report.add(set(path));
        }
        let paths: Vec<_> = report.sets.iter().map(|set| set.path.as_str()).collect();
        assert_eq!(paths, ["a.bin", "b/adapter_model.bin", "pytorch_model.bin"]);
        assert!(!report.has_other_content() && set("a.bin").has_other_content());
    }

    #[test]
    fn an_unreadable_file_makes_the_report_incomplete() {
        let unreadable = Finding::Unreadable { file: "a".to_owned(), reason: "timeout".to_owned() };
        let cases = [
            (vec![], true, true),
            (vec![Finding::NotPinned], true, true),
            (vec![Finding::CountOverflow], false, true),
            (vec![Finding::CountOverflow, unreadable], false, false),
        ];
        for (findings, is_valid, is_complete) in cases {
            let path = "a.safetensors".parse().unwrap();
            let set = VerifiedSet::new(path, 1, findings);
            let report = VerifyReport { sets: vec![set], ..VerifyReport::default() };
            assert_eq!((report.is_valid(), report.is_complete()), (is_valid, is_complete));
        }
    }
}
