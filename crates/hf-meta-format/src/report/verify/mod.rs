//! The report of a verification, and its checks, which need no I/O.

mod gguf;
pub(super) mod weight_set;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::value::RawValue;

pub use self::weight_set::{ConfigFile, CountedReport, SetCheck};
use crate::CommitSha;
use crate::base::json_object::{JsonObject, parse, read};
use crate::base::sort::Ordered;
use crate::formats::weight_sets::{NumberedName, WeightSet};
use crate::formats::{HeaderErrorKind, RepoPath, clip};
use crate::report::rules::ConfigCheck;
use crate::report::{Adapter, FetchStats, Finding, Severity, Weights, bounded};

/// The result of verifying weight sets, returned by `Model::verify`. The numbers and the findings cover all of them.
///
/// ```
/// use hf_meta_format::VerifyReport;
/// use hf_meta_format::report::Severity;
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
    /// The paths of the files that were checked, the index first.
    pub filepaths: Vec<RepoPath>,
    /// The result of each set that was checked, the main set first.
    pub sets: Vec<VerifiedSet>,
    /// The sets that were not checked, or `None` if the files were not listed: one file was selected, or the server
    /// has no listing.
    pub unchecked: Option<Vec<WeightSet>>,
    /// The description of the first set as an adapter; `None` for other weights.
    pub adapter: Option<Box<Adapter>>,
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
        Self { path, files, valid_files: 0, tensors: 0, parameters, config_check, findings }
    }
}

impl VerifyReport {
    /// Adds a finding about the repository to the first set.
    pub fn push(&mut self, finding: Finding) {
        if let Some(set) = self.sets.first_mut() {
            set.findings.push(finding);
        }
    }

    /// Compares the adapter with the tensors of its base model, and adds the findings to the first set. Does nothing if
    /// the weights are not an adapter.
    pub fn check_base(&mut self, base: &Weights) {
        let found = self.adapter.as_ref().map(|adapter| adapter.check_base(base));
        found.into_iter().flatten().for_each(|finding| self.push(finding));
    }

    /// Adds the result of other sets. After the first one, content that is not a model, such as an importance matrix or a
    /// control vector, is left out.
    pub fn add(&mut self, other: Self) {
        if !self.sets.is_empty() && is_other_content(&other.findings()) {
            return;
        }
        self.fetch.weight_bytes = self.fetch.weight_bytes.saturating_add(other.fetch.weight_bytes);
        self.filepaths.extend(other.filepaths);
        self.adapter = self.adapter.take().or(other.adapter.filter(|_| self.sets.is_empty()));
        self.sets.extend(other.sets);
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

/// Returns whether a file is valid but contains no model.
fn is_other_content(findings: &[Finding]) -> bool {
    let kind = findings.iter().find_map(|finding| match finding {
        Finding::MalformedHeader { reason, .. } => Some(reason.kind),
        _ => None,
    });
    kind == Some(HeaderErrorKind::NotAModel)
}

/// Returns the folders of the components that a diffusers pipeline lists in `model_index.json`. `index` is the path of
/// that file and `json` its content. diffusers loads each component from the folder of its name; one that is not used
/// is listed as `[null, null]` (`DiffusionPipeline.from_pretrained`).
pub fn pipeline_components(index: &RepoPath, json: &[u8]) -> Option<Vec<RepoPath>> {
    let object = parse::<JsonObject<'_>>(json).ok()?;
    let is_listed = |(name, value): &(&str, &RawValue)| {
        !name.starts_with('_') && read::<[String; 2]>(value).is_some()
    };
    let names: BTreeSet<_> = object.entries().filter(is_listed).map(|(name, _)| name).ordered();
    let folder = |name| RepoPath::join(index.folder().as_ref(), name);
    Some(names.into_iter().map(folder).collect())
}

/// Checks the numbers in shard names. Returns the first finding for each group of names that differ only in numbers.
pub(crate) fn check_shard_numbers(shards: &[RepoPath]) -> Vec<Finding> {
    let mut sets = BTreeMap::<_, Vec<_>>::new();
    for path in shards {
        let Some(name) = NumberedName::split(path.as_str()).last() else { continue };
        if let (Ok(number), Ok(total)) = (name.number.parse(), name.total.parse()) {
            let numbers = sets.entry((name.stem, name.end)).or_default();
            numbers.push(NumberedShard { path, name, number, total });
        }
    }
    bounded(sets.values().filter_map(|set| check_set(set)))
}

/// A shard with numbers in its name, of any length.
struct NumberedShard<'a> {
    path: &'a RepoPath,
    name: NumberedName<'a>,
    number: u64,
    total: u64,
}

/// Returns the first defect in the numbers of one set of shards.
fn check_set(set: &[NumberedShard<'_>]) -> Option<Finding> {
    let name = |shard: &NumberedShard<'_>| clip(shard.path.as_str());
    let NumberedShard { name: NumberedName { stem, total: digits, end, .. }, total, .. } =
        set.first()?;
    let total = *total;
    if let Some(other) = set.iter().find(|other| other.total != total) {
        let (first, second) = (name(&set[0]), name(other));
        return Some(Finding::ShardTotalMismatch { first, second });
    }
    // Some exporters number shards from 0.
    let first_number = u64::from(set.iter().all(|shard| shard.number > 0));
    let mut numbers = BTreeMap::new();
    for shard in set {
        if shard.number - first_number >= total {
            let shard = name(shard);
            return Some(Finding::ShardNumberOutOfRange { shard, total, first_number });
        }
        if let Some(twin) = numbers.insert(shard.number, shard) {
            let (first, second) = (name(twin), name(shard));
            return Some(Finding::DuplicateShardNumber { first, second });
        }
    }
    let listed = numbers.len() as u64;
    let first_missing = (first_number..=total).find(|number| !numbers.contains_key(number));
    (listed < total).then(|| Finding::ShardNumberMissing {
        shards: clip(&format!("{stem}*-of-{digits}{end}")),
        total,
        listed,
        first_missing: first_missing.unwrap_or(listed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::{Configs, Counter};
    use crate::formats::{Dtype, TensorInfo};
    use crate::report::index_check::check_count;

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

    /// transformers declares totals without buffers.
    #[test]
    fn a_total_may_leave_buffers_out() {
        let mut counter = Counter::new();
        for (name, length) in
            [("h.0.mlp.gate.weight", 32), ("h.0.mlp.gate.e_score_correction_bias", 4)]
        {
            counter.add(name, &TensorInfo::new(Dtype::F32, vec![length], (0, 0))).unwrap();
        }
        let (count, breakdown) = counter.finish().unwrap();
        for (declared, findings) in [(36, 0), (32, 0), (31, 1)] {
            assert_eq!(
                check_count(&count, &breakdown, Some(declared)).len(),
                findings,
                "{declared}"
            );
        }
    }

    #[test]
    fn training_state_and_tied_copies_are_findings() {
        let count = |config: &str, names: &[&str]| {
            let mut counter = Counter::new();
            for name in names {
                let tensor = TensorInfo::new(Dtype::F32, vec![4, 8, 2], (0, 0));
                counter.add(name, &tensor).unwrap();
            }
            counter.set_configs(Configs::from_config_json(config.as_bytes()).unwrap());
            let (parameters, breakdown) = counter.finish().unwrap();
            let found = check_count(&parameters, &breakdown, None);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let names = ["ema.h.0.weight", "model_ema.decay_w", "h.0.weight.exp_avg", "h.0.weight"];
        assert_eq!(
            count("{}", &names),
            ["training state: 3 tensors, with 128 elements of EMA copies, and 64 elements of \
                 other state"]
        );
        let tied = r#"{"model_type":"mixtral","tie_word_embeddings":true,"num_experts_per_tok":2}"#;
        let names = ["embed_tokens.weight", "lm_head.weight", "h.0.experts.w"];
        let reason = "although it is tied to `embed_tokens.weight` (`tie_word_embeddings`)";
        let found = |how: &str| [format!("`lm_head.weight` is stored {how}, {reason}")];
        assert_eq!(count(tied, &names), found("but not counted"));
        assert_eq!(count(tied, &names[..2]), found("and counted"));
    }

    fn findings(shards: &[&str]) -> Vec<Finding> {
        let paths: Vec<_> = shards.iter().map(|name| name.parse().unwrap()).collect();
        check_shard_numbers(&paths)
    }

    #[test]
    fn a_complete_numbering_has_no_findings() {
        let sets: [&[&str]; 5] = [
            &["a.safetensors", "b-of-2.safetensors", "c-1-of-.safetensors"],
            &["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
            // DeepSeek-R1 pads the two numbers to different lengths.
            &["model-00001-of-000001.safetensors"],
            &["model_00000-of-00002.safetensors", "model_00001-of-00002.safetensors"],
            &["m-1-of-1.fp16.safetensors", "m-1-of-1.safetensors", "x/m-1-of-1.safetensors"],
        ];
        for shards in sets {
            assert_eq!(findings(shards), [], "{shards:?}");
        }
    }

    #[test]
    fn the_first_defect_of_each_numbering_is_found() {
        let name = |number: u64, of: u64| format!("m-{number}-of-{of}.safetensors");
        let found = |numbers: &[(u64, u64)]| {
            let names: Vec<_> = numbers.iter().map(|&(number, of)| name(number, of)).collect();
            findings(&names.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let missing = |total, listed, first_missing| Finding::ShardNumberMissing {
            shards: format!("m-*-of-{total}.safetensors"),
            total,
            listed,
            first_missing,
        };
        assert_eq!(found(&[(1, 3), (3, 3)]), [missing(3, 2, 2)]);
        assert_eq!(found(&[(2, 3), (3, 3)]), [missing(3, 2, 1)]);
        assert_eq!(found(&[(0, 3), (1, 3)]), [missing(3, 2, 2)]);
        assert_eq!(found(&[(1, u64::MAX)]), [missing(u64::MAX, 1, 2)]);
        let beyond =
            |shard, first_number| Finding::ShardNumberOutOfRange { shard, total: 2, first_number };
        assert_eq!(found(&[(1, 2), (3, 2)]), [beyond(name(3, 2), 1)]);
        assert_eq!(found(&[(0, 2), (1, 2), (2, 2)]), [beyond(name(2, 2), 0)]);
        assert_eq!(
            found(&[(1, 2), (2, 3)]),
            [Finding::ShardTotalMismatch { first: name(1, 2), second: name(2, 3) }]
        );
        let twice = Finding::DuplicateShardNumber {
            first: "m-01-of-2.safetensors".to_owned(),
            second: "m-1-of-2.safetensors".to_owned(),
        };
        assert_eq!(findings(&["m-01-of-2.safetensors", "m-1-of-2.safetensors"]), [twice]);
    }
}
