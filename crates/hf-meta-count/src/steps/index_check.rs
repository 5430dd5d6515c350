//! Compares an index with the headers of its shards.
//!
//! A disagreement that leaves the counts correct is a warning. One that makes them wrong is an error: a tensor in two
//! shards would be counted twice, and a tensor in no shard would be missing from the total.

use std::collections::BTreeSet;

use crate::count::{Buffer, CountBreakdown, DtypeCount, ParameterCount};
use crate::results::{Finding, bounded};
use hf_meta_format::base::sort::{Ordered, sort_by, sort_by_key};
use hf_meta_format::formats::safetensors::{IndexError, IndexErrorKind, SafetensorsIndexJson};
use hf_meta_format::formats::{NameList, RepoPath, clip};

/// Compares an index with the headers of its shards, which may arrive in any order.
///
/// Takes two bytes per tensor of the index. Other tensors are stored by name, in one string per shard, because a set
/// without an index may contain millions.
#[derive(Debug, Default)]
pub(super) struct IndexCheck {
    pub(super) index: Option<SafetensorsIndexJson>,
    /// The folder of the index. Findings contain the paths of shards in the repository.
    folder: Option<RepoPath>,
    /// The shards whose headers were added, in the order of arrival.
    shards: Vec<RepoPath>,
    /// For each tensor of the index, the 1-based index in `shards` of the first shard that contains it; 0 if none
    /// does.
    first_shards: Vec<u16>,
    /// For each shard, the tensors that the index does not list, and those that an earlier shard contains.
    others: Vec<NameList>,
}

/// A tensor in `others`: the index of its shard, and of its name in that shard.
type OtherTensor = (u16, u32);

/// The tensors in `others` with the same name.
struct SameName<'a> {
    /// The index of the tensor in the index.
    indexed: Option<usize>,
    tensors: &'a [OtherTensor],
}

impl IndexCheck {
    /// Starts a comparison. Without an index, only duplicate tensors are found.
    pub(super) fn new(index: Option<SafetensorsIndexJson>, folder: Option<RepoPath>) -> Self {
        let tensors = index.as_ref().map_or(0, |index| index.weight_map().len());
        Self { index, folder, first_shards: vec![0; tensors], ..Self::default() }
    }

    /// Adds the names of the tensors in a shard. `shard` is its path as the index spells it.
    pub(super) fn add<'a>(&mut self, shard: &RepoPath, names: impl Iterator<Item = &'a str>) {
        // An index names at most 10,000 shards (`SafetensorsIndexJson::MAX_SHARDS`).
        let number = u16::try_from(self.shards.len()).unwrap_or(u16::MAX - 1);
        self.shards.push(shard.clone());
        let (mut others, mut next) = (NameList::default(), 0);
        for name in names {
            match self.index.as_ref().and_then(|index| index.index_of(name, next)) {
                Some(entry) if self.first_shards[entry as usize] == 0 => {
                    self.first_shards[entry as usize] = number + 1;
                    next = entry + 1;
                }
                _ => others.push(name),
            }
        }
        others.shrink_to_fit();
        self.others.push(others);
    }

    /// Returns the added shards, sorted by path.
    pub(super) fn shards(&self) -> BTreeSet<&RepoPath> {
        self.shards.iter().collect()
    }

    /// Checks that all shards of the index were added, and none twice.
    pub(super) fn check_shards(&self) -> Result<(), IndexError> {
        let mut added = BTreeSet::new();
        if let Some(twice) = self.shards.iter().find(|shard| !added.insert(*shard)) {
            let message = format!("the header of shard `{}` was given twice", clip(twice.as_str()));
            return Err(IndexError::new(IndexErrorKind::DuplicateHeader, message));
        }
        let mut indexed = self.index.iter().flat_map(SafetensorsIndexJson::shards);
        indexed.find(|shard| !added.contains(shard)).map_or(Ok(()), |missing| {
            let shard = clip(missing.as_str());
            let message = format!("the index lists shard `{shard}`, but its header is missing");
            Err(IndexError::new(IndexErrorKind::MissingHeader, message))
        })
    }

    /// Returns all disagreements, errors first.
    ///
    /// Shards that were not added cause no findings. `tensor_bytes`, the size of all tensors, is compared with the
    /// declared size only if all shards were added and contain exactly the tensors of the index, because otherwise
    /// the sizes must differ. Old versions of transformers took each of the `bool_bytes` for an eighth of a byte
    /// (`dtype_byte_size` until 4.50), with which GPT-NeoX and its relatives were published.
    pub(super) fn findings(&self, tensor_bytes: u64, bool_bytes: u64) -> Vec<Finding> {
        let others = self.others_by_name();
        let same_names = others.chunk_by(|one, next| self.name(*one) == self.name(*next));
        let same_names = same_names.map(|tensors| {
            let entry =
                self.index.as_ref().and_then(|index| index.index_of(self.name(tensors[0]), 0));
            SameName { indexed: entry.map(|entry| entry as usize), tensors }
        });
        let (unindexed, duplicates): (Vec<_>, Vec<_>) =
            same_names.partition(|found| found.indexed.is_none() && found.tensors.len() == 1);
        let found = duplicates.iter().flat_map(|found| self.duplicate_tensors(found));
        let mut findings = bounded(found);
        let Some(index) = &self.index else { return findings };
        findings.extend(bounded(self.missing_tensors(index)));
        let is_complete = findings.is_empty() && self.shards.len() == index.shards().len();
        findings.extend(bounded(self.wrong_shards(index, &duplicates)));
        findings.extend(self.unindexed_tensors(&unindexed));
        let as_bits = tensor_bytes.saturating_sub(bool_bytes).saturating_add(bool_bytes / 8);
        let is_wrong = |declared: &u64| ![tensor_bytes, as_bits].contains(declared);
        let declared = index.total_size().filter(is_wrong);
        if is_complete
            && unindexed.is_empty()
            && let Some(declared) = declared
        {
            findings.push(Finding::TotalSizeMismatch { declared, found: tensor_bytes });
        }
        findings
    }

    /// Returns the path of a shard in the repository, truncated for use in a message.
    fn path(&self, shard: &RepoPath) -> String {
        clip(RepoPath::join(self.folder.as_ref(), shard.as_str()).as_str())
    }

    fn others_by_name(&self) -> Vec<OtherTensor> {
        let tensors = (0..).zip(&self.others);
        let tensors = tensors.flat_map(|(shard, names)| names.indices().map(move |at| (shard, at)));
        let mut tensors: Vec<OtherTensor> = tensors.collect();
        // The stable sort is fast on sorted runs, which most shards are.
        sort_by(&mut tensors, |one, other| self.name(*one).cmp(self.name(*other)));
        tensors
    }

    fn name(&self, (shard, at): OtherTensor) -> &str {
        self.others[usize::from(shard)].get(at as usize)
    }

    /// Returns a finding for each shard that contains a tensor, except for the first by name.
    fn duplicate_tensors(&self, found: &SameName<'_>) -> impl Iterator<Item = Finding> {
        let tensor = self.name(found.tensors[0]);
        let first = found.indexed.map(|entry| self.first_shards[entry] - 1);
        let numbers = first.into_iter().chain(found.tensors.iter().map(|(shard, _)| *shard));
        let shards: BTreeSet<_> = numbers.map(|at| &self.shards[usize::from(at)]).ordered();
        let mut shards = shards.into_iter();
        let first = shards.next();
        shards.filter_map(move |second| {
            Some(Finding::DuplicateTensor {
                tensor: clip(tensor),
                first: self.path(first?),
                second: self.path(second),
            })
        })
    }

    /// Returns the tensors that are in no shard, although the shard that the index names was read.
    fn missing_tensors(&self, index: &SafetensorsIndexJson) -> impl Iterator<Item = Finding> {
        let read = self.shards();
        let entries = index.weight_map().zip(&self.first_shards);
        let missing = entries
            .filter(move |((_, shard), first_shard)| **first_shard == 0 && read.contains(shard));
        missing.map(|((tensor, shard), _)| Finding::MissingTensor {
            tensor: clip(tensor),
            shard: self.path(shard),
        })
    }

    /// Returns the tensors that are in exactly one shard, but not the one that the index names.
    fn wrong_shards(
        &self,
        index: &SafetensorsIndexJson,
        duplicates: &[SameName<'_>],
    ) -> impl Iterator<Item = Finding> {
        let duplicates: BTreeSet<_> = duplicates.iter().filter_map(|found| found.indexed).ordered();
        let entries = (0..).zip(index.weight_map().zip(&self.first_shards));
        entries.filter_map(move |(entry, ((tensor, indexed), first_shard))| {
            let found = self.shards.get(usize::from(first_shard.checked_sub(1)?))?;
            (found != indexed && !duplicates.contains(&entry)).then(|| Finding::WrongShard {
                tensor: clip(tensor),
                indexed: self.path(indexed),
                found: self.path(found),
            })
        })
    }

    /// Returns the tensors that the index does not list, sorted by shard.
    fn unindexed_tensors(&self, unindexed: &[SameName<'_>]) -> Vec<Finding> {
        let shard = |tensor: OtherTensor| &self.shards[usize::from(tensor.0)];
        let mut tensors: Vec<_> = unindexed.iter().map(|found| found.tensors[0]).collect();
        sort_by_key(&mut tensors, |&tensor| shard(tensor));
        bounded(tensors.into_iter().map(|tensor| Finding::UnindexedTensor {
            tensor: clip(self.name(tensor)),
            shard: self.path(shard(tensor)),
        }))
    }
}

/// Returns the error for a finding that makes the counts wrong; `None` if it leaves them correct.
pub(super) fn as_error(finding: &Finding) -> Option<IndexError> {
    let (kind, tensor) = match finding {
        Finding::DuplicateTensor { tensor, .. } => (IndexErrorKind::TensorInTwoShards, tensor),
        Finding::MissingTensor { tensor, .. } => (IndexErrorKind::MissingTensor, tensor),
        _ => return None,
    };
    Some(IndexError::new(kind, finding.to_string()).with_tensor(tensor))
}

/// Checks a count on its own and against the declared total.
///
/// Writers of the total disagree on its meaning: it may be parameters or elements, with or without scalars and buffers.
pub(crate) fn check_count(
    count: &ParameterCount,
    breakdown: &CountBreakdown,
    declared: Option<u64>,
) -> Vec<Finding> {
    let unknown = count.rows().filter(|(dtype, _)| dtype.block().is_none());
    let unknown = unknown.map(|(dtype, row)| Finding::UnknownDtype {
        dtype: clip(dtype.as_str()),
        tensors: row.tensors,
    });
    let totals = count.totals();
    let sum_of = |is_included: &dyn Fn(Buffer) -> bool| {
        let groups = breakdown.groups.iter().filter(|group| group.buffer.is_some_and(is_included));
        groups.map(|group| group.count).sum::<DtypeCount>()
    };
    let buffers = sum_of(&|_| true).parameters;
    // transformers leaves out all buffers, and the kind of some is unknown. They are small.
    let is_wrong = |declared: &u64| {
        [totals.parameters, totals.elements].into_iter().all(|found| {
            let others =
                [found, found.saturating_add(totals.scalars), found.saturating_sub(buffers)];
            others.iter().all(|found| found.abs_diff(*declared) > *found / 100)
        })
    };
    let found = totals.parameters;
    let wrong = declared
        .filter(is_wrong)
        .map(|declared| Finding::TotalParametersMismatch { declared, found });
    let unresolved = breakdown.unresolved.iter().cloned().map(Finding::from);
    let method = breakdown.unknown_method.clone();
    let method = method.map(|method| Finding::UnknownQuantization { method });
    let copies = sum_of(&|buffer| buffer == Buffer::EmaCopy);
    let states = sum_of(&|buffer| matches!(buffer, Buffer::OptimizerState | Buffer::TrainingValue));
    let tensors = copies.tensors.saturating_add(states.tensors);
    let state = (tensors > 0).then_some(Finding::TrainingState {
        tensors,
        copies: copies.elements,
        states: states.elements,
    });
    let tied = breakdown.tied_output.clone().map(|output| Finding::TiedEmbeddingStored {
        tensor: output.tensor,
        stored: output.input,
        counted: output.left_out.is_none(),
    });
    let found = bounded(unknown).into_iter().chain(wrong).chain(unresolved).chain(method);
    found.chain(state).chain(tied).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SafetensorsParseFromRepo;
    use crate::count::{Configs, Counter};
    use crate::steps::ReportBuilder;
    use hf_meta_format::SafetensorsFileHeader;
    use hf_meta_format::formats::{Dtype, TensorInfo};

    fn header(tensors: &[&str]) -> SafetensorsFileHeader {
        let entry = |(at, name): (usize, &&str)| {
            format!(r#""{name}":{{"dtype":"BOOL","shape":[1],"data_offsets":[{at},{}]}}"#, at + 1)
        };
        let entries: Vec<_> = tensors.iter().enumerate().map(entry).collect();
        SafetensorsFileHeader::from_json(format!("{{{}}}", entries.join(",")).as_bytes()).unwrap()
    }

    type Findings = Result<Vec<Finding>, IndexError>;

    /// Compares shards `a` and `b` with an index, added in both orders.
    fn findings(a: &[&str], b: &[&str], index: &str) -> [Findings; 2] {
        let path = |name: &str| name.parse::<RepoPath>().unwrap();
        let first = (path("a.safetensors"), header(a));
        let second = (path("b.safetensors"), header(b));
        [[first.clone(), second.clone()], [second, first]].map(|headers| {
            let index = SafetensorsIndexJson::from_json(index.as_bytes()).unwrap();
            let parsed = SafetensorsParseFromRepo::from_headers(
                Some(index),
                headers.to_vec(),
                &Configs::default(),
            );
            parsed.map(|parsed| parsed.report().findings.clone())
        })
    }

    fn assert_findings(a: &[&str], b: &[&str], index: &str, expected: &Findings) {
        for found in findings(a, b, index) {
            assert_eq!(found, *expected);
        }
    }

    const INDEX: &str = r#"{"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}"#;

    #[test]
    fn a_correct_index_has_no_findings() {
        assert_findings(&["x"], &["y"], INDEX, &Ok(vec![]));
    }

    #[test]
    fn harmless_disagreements_are_findings() {
        let (a, b) = ("a.safetensors", "b.safetensors");
        let swapped = |tensor: &str, indexed: &str, found: &str| Finding::WrongShard {
            tensor: tensor.to_owned(),
            indexed: indexed.to_owned(),
            found: found.to_owned(),
        };
        assert_findings(&["y"], &["x"], INDEX, &Ok(vec![swapped("x", a, b), swapped("y", b, a)]));
        let extra = Finding::UnindexedTensor { tensor: "z".to_owned(), shard: b.to_owned() };
        assert_findings(&["x"], &["y", "z"], INDEX, &Ok(vec![extra]));
    }

    #[test]
    fn findings_of_a_kind_are_bounded() {
        let names: Vec<_> = (0..1_007).map(|n| n.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).chain(["x"]).collect();
        let [findings, _] = findings(&names, &["y"], INDEX).map(Result::unwrap);
        assert_eq!(findings.len(), 1_001);
        assert_eq!(findings.last(), Some(&Finding::MoreFindings { findings: 7 }));
    }

    #[test]
    fn unknown_dtypes_are_found() {
        let json = br#"{"w":{"dtype":"NEW3","shape":[2],"data_offsets":[0,1]}}"#;
        let header = SafetensorsFileHeader::from_json(json).unwrap();
        let headers = vec![("w.safetensors".parse().unwrap(), header)];
        let parsed = SafetensorsParseFromRepo::from_headers(None, headers, &Configs::default());
        let unknown = Finding::UnknownDtype { dtype: "NEW3".to_owned(), tensors: 1 };
        assert_eq!(parsed.unwrap().report().findings, [unknown]);
    }

    #[test]
    fn wrong_totals_are_found() {
        let index = r#"{"metadata":{"total_size":3,"total_parameters":"333312"},
            "weight_map":{"x":"a.safetensors","y":"b.safetensors"}}"#;
        let totals = [
            Finding::TotalSizeMismatch { declared: 3, found: 2 },
            Finding::TotalParametersMismatch { declared: 333_312, found: 2 },
        ];
        assert_findings(&["x"], &["y"], index, &Ok(totals.into()));
    }

    #[test]
    fn harmful_disagreements_are_errors() {
        let message = "tensor `x` is in two shards, `a.safetensors` and `b.safetensors`";
        let twice = IndexError::new(IndexErrorKind::TensorInTwoShards, message).with_tensor("x");
        assert_findings(&["x"], &["x", "y"], INDEX, &Err(twice));
        let message = "the index lists tensor `y` in `b.safetensors`, but no shard contains it";
        let missing = IndexError::new(IndexErrorKind::MissingTensor, message).with_tensor("y");
        assert_findings(&["x"], &[], INDEX, &Err(missing));
    }

    #[test]
    fn too_many_headers_are_an_error() {
        let limit = SafetensorsIndexJson::MAX_SHARDS;
        let shard = |n| (format!("{n}.safetensors").parse().unwrap(), header(&[]));
        let parse = |headers| {
            let headers = (0..headers).map(shard).collect();
            SafetensorsParseFromRepo::from_headers(None, headers, &Configs::default())
        };
        assert!(parse(limit).is_ok());
        assert_eq!(parse(limit + 1).err(), Some(IndexError::too_many_shards(limit)));
    }

    #[test]
    fn missing_and_repeated_headers_are_errors() {
        let index = || SafetensorsIndexJson::from_json(INDEX.as_bytes()).ok();
        let path = RepoPath::new_unchecked("model.safetensors.index.json");
        let sharded = || ReportBuilder::new_sharded(&path, index(), false);
        let single = || ReportBuilder::new_single(false);
        let cases: [(ReportBuilder, &[&str], IndexErrorKind, &str); 6] = [
            (single(), &[], IndexErrorKind::NoHeaders, "no headers were given"),
            (sharded(), &[], IndexErrorKind::NoHeaders, "no headers were given"),
            (
                single(),
                &["a", "b"],
                IndexErrorKind::DuplicateHeader,
                "2 headers were given for a single file",
            ),
            (
                sharded(),
                &["a", "b", "a"],
                IndexErrorKind::DuplicateHeader,
                "the header of shard `a.safetensors` was given twice",
            ),
            (
                ReportBuilder::new_sharded(&path, None, false),
                &["a", "a"],
                IndexErrorKind::DuplicateHeader,
                "the header of shard `a.safetensors` was given twice",
            ),
            (
                sharded(),
                &["a"],
                IndexErrorKind::MissingHeader,
                "the index lists shard `b.safetensors`, but its header is missing",
            ),
        ];
        for (mut builder, shards, kind, message) in cases {
            for shard in shards {
                let tensor = if *shard == "a" { "x" } else { "y" };
                let shard = format!("{shard}.safetensors").parse().unwrap();
                builder.add(shard, header(&[tensor]).into());
            }
            let report = builder.finish(&Configs::default()).report(vec![path.clone()]);
            assert_eq!(report.err(), Some(IndexError::new(kind, message)));
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
}
