//! The differences between two checkpoints, based on their headers.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;

use crate::count::names::pattern::{NamePattern, common_name, compare_parts, parts};
use crate::count::{is_packed_weight, module_of};
use crate::results::{CountReport, ValueDiff, Weights};
use hf_meta_format::base::sort::{Ordered, sort_by};
use hf_meta_format::formats::pytorch::PickleSummary;
use hf_meta_format::formats::{Dtype, RepoPath};

/// The differences between the tensors of two checkpoints: their names, dtypes, shapes and shards. Values are compared
/// separately, because only headers are read; see [`Diff::with_values`].
///
/// ```
/// use hf_meta_count::count::Configs;
/// use hf_meta_count::results::Weights;
/// use hf_meta_count::results::diff::{ChangeKind, Diff};
/// use hf_meta_count::SafetensorsParseFromRepo;
/// use hf_meta_format::SafetensorsFileHeader;
///
/// fn weights(json: &str) -> Result<Weights, Box<dyn std::error::Error>> {
///     let header = SafetensorsFileHeader::from_json(json.as_bytes())?;
///     let headers = vec![("model.safetensors".parse()?, header)];
///     let parsed = SafetensorsParseFromRepo::from_headers(None, headers, &Configs::default())?;
///     Ok(parsed.into())
/// }
///
/// let before = weights(r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#)?;
/// let after = weights(r#"{"w":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}"#)?;
/// let diff = Diff::new(&before, &after, false);
/// assert_eq!(diff.changes[0].tensor, "w");
/// assert_eq!(diff.changes[0].kinds, [ChangeKind::Retyped]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diff {
    /// The counts of the old checkpoint.
    pub before: CountReport,
    /// The counts of the new checkpoint.
    pub after: CountReport,
    /// The tensors that differ, sorted by name, except for the tensors of quantized modules.
    pub changes: Vec<TensorChange>,
    /// The prefix of names that differs, if there is one. `changes` compares the tensors under their new names.
    pub renamed: Option<RenamedPrefix>,
    /// The modules that only one checkpoint packs, if there are any.
    pub quantized: Option<QuantizedLinear>,
    /// The number of tensors that do not differ.
    pub unchanged: u64,
    /// The comparison of the values, if they were compared.
    pub values: Option<ValueDiff>,
}

/// A tensor that differs between two checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TensorChange {
    /// The name of the tensor.
    pub tensor: String,
    /// The kinds of change; never empty.
    pub kinds: Vec<ChangeKind>,
    /// The old version of the tensor, or `None` if it was added.
    pub before: Option<TensorState>,
    /// The new version of the tensor, or `None` if it was removed.
    pub after: Option<TensorState>,
}

/// A kind of change to a tensor.
// Exhaustive: a tensor has no other properties that could change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
    /// The tensor exists only in the old checkpoint.
    Removed,
    /// The tensor exists only in the new checkpoint.
    Added,
    /// The shape differs.
    Reshaped,
    /// The dtype differs.
    Retyped,
    /// The tensor is in a different shard. If both checkpoints are single files, file names are not compared.
    Moved,
}

/// A tensor as described by one of the two checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TensorState {
    /// The dtype of the elements.
    pub dtype: Dtype,
    /// The size of each dimension.
    pub shape: Vec<u64>,
    /// The path of the file that contains it, relative to the index.
    pub file: RepoPath,
}

impl Diff {
    /// Compares two checkpoints. With `ignore_shards`, it does not compare the files that contain each tensor, so
    /// resharding makes no difference.
    pub fn new(before: &Weights, after: &Weights, ignore_shards: bool) -> Self {
        let is_sharded = before.report().sharded || after.report().sharded;
        let has_shards = is_sharded && !ignore_shards;
        let [mut old, mut new] = [before, after].map(loaded_tensors);
        let renamed = RenamedPrefix::rename(&mut old, &new, |one, other| one.shape == other.shape);
        remove_dropped_aliases(&mut old, before, &new);
        remove_dropped_aliases(&mut new, after, &old);
        let quantized = quantized_modules(&old, &new);
        let quantized = quantized.or_else(|| quantized_modules(&new, &old));
        let (quantized, modules) = quantized.unzip();
        let modules = modules.unwrap_or_default();
        let names: BTreeSet<_> = old.keys().chain(new.keys()).ordered();
        let (mut changes, mut unchanged) = (Vec::new(), 0);
        for tensor in names.into_iter().filter(|name| !modules.contains(module_of(name))) {
            let [before, after] = [&old, &new].map(|side| side.get(tensor).cloned());
            let kinds = kinds(before.as_ref(), after.as_ref(), has_shards);
            if kinds.is_empty() {
                unchanged += 1;
            } else {
                changes.push(TensorChange { tensor: tensor.clone(), kinds, before, after });
            }
        }
        let [before, after] = [before, after].map(|weights| weights.report().clone());
        Self { before, after, changes, renamed, quantized, unchanged, values: None }
    }

    /// Adds a comparison of the values.
    #[must_use]
    pub fn with_values(self, values: Option<ValueDiff>) -> Self {
        Self { values, ..self }
    }

    /// Returns whether no differences were found, neither of tensors nor of values.
    pub fn is_empty(&self) -> bool {
        self.has_same_tensors() && self.values.as_ref().is_none_or(ValueDiff::is_empty)
    }

    /// Returns whether the tensors have no differences, apart from their values.
    pub fn has_same_tensors(&self) -> bool {
        self.changes.is_empty() && self.renamed.is_none() && self.quantized.is_none()
    }

    /// Returns the number of tensors with this kind of change.
    pub fn count(&self, kind: ChangeKind) -> u64 {
        self.changes.iter().filter(|change| change.kinds.contains(&kind)).count() as u64
    }

    /// Groups changes whose tensor names differ only in numbers, sorted by kind and then by name.
    pub fn groups(&self) -> Vec<ChangeGroup<'_>> {
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for change in &self.changes {
            let pattern = NamePattern::new(&change.tensor).text;
            let tensors = [&change.before, &change.after]
                .map(|tensor| tensor.as_ref().map(|tensor| (&tensor.dtype, &tensor.shape)));
            groups.entry((&*change.kinds, pattern, tensors)).or_default().push(change);
        }
        let groups = groups.into_iter().map(|((kinds, ..), changes)| {
            let names: Vec<_> = changes.iter().map(|change| &*change.tensor).collect();
            ChangeGroup { name: common_name(&names), kinds, changes }
        });
        let mut groups: Vec<_> = groups.collect();
        sort_by(&mut groups, |a, b| {
            let names = || compare_parts(&parts(&a.name), &parts(&b.name));
            a.kinds.cmp(b.kinds).then_with(names)
        });
        groups
    }
}

/// Returns the tensors as they are loaded: views follow the stored tensors that they replace.
fn loaded_tensors(weights: &Weights) -> Tensors {
    let tensors = weights.named_headers().flat_map(|(file, header)| {
        let stored = header.tensors().iter();
        let stored = stored.map(|(name, tensor)| (name.to_owned(), tensor.dtype, tensor.shape));
        let views = header.pickle.iter().flat_map(|pickle| pickle.views.iter().cloned());
        let all = stored.chain(views.map(|view| (view.name, view.dtype, view.shape)));
        all.map(|(name, dtype, shape)| (name, TensorState { dtype, shape, file: file.clone() }))
    });
    tensors.ordered()
}

/// Removes tensors that only this side has, if the other side has another tensor with the same elements: a writer may
/// drop a tensor that shares all elements with another one.
fn remove_dropped_aliases(tensors: &mut Tensors, weights: &Weights, other: &Tensors) {
    let pickles = weights.named_headers().filter_map(|(_, header)| header.pickle.as_deref());
    let mut stored_in = HashMap::new();
    for alias in pickles.flat_map(PickleSummary::aliases) {
        stored_in.insert(&alias.name, &alias.stored_in);
        stored_in.insert(&alias.stored_in, &alias.stored_in);
    }
    let kept = stored_in.iter().filter(|(name, _)| other.contains_key(**name));
    let kept: HashSet<_> = kept.map(|(_, stored_in)| stored_in).collect();
    let is_kept = |name: &String| stored_in.get(name).is_some_and(|tensor| kept.contains(tensor));
    tensors.retain(|name, _| other.contains_key(name) || !is_kept(name));
}

fn kinds(
    before: Option<&TensorState>,
    after: Option<&TensorState>,
    has_shards: bool,
) -> Vec<ChangeKind> {
    let (Some(before), Some(after)) = (before, after) else {
        return vec![if before.is_some() { ChangeKind::Removed } else { ChangeKind::Added }];
    };
    let kinds = [
        (ChangeKind::Reshaped, before.shape != after.shape),
        (ChangeKind::Retyped, before.dtype != after.dtype),
        (ChangeKind::Moved, has_shards && before.file != after.file),
    ];
    kinds.into_iter().filter(|(_, is_so)| *is_so).map(|(kind, _)| kind).collect()
}

/// Changes with the same kinds, dtypes and shapes, to tensors whose names differ only in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeGroup<'a> {
    /// The common name, with numbers as ranges in brackets, such as `h.[0-69].ln.weight`. If several components are
    /// ranges, not every combination has to exist.
    pub name: String,
    /// The kinds of change.
    pub kinds: &'a [ChangeKind],
    /// The changes; never empty.
    pub changes: Vec<&'a TensorChange>,
}

/// A prefix of tensor names that the new checkpoint replaced, such as `model.language_model.` with
/// `language_model.model.`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RenamedPrefix {
    /// The old prefix, with its last dot; empty if the new checkpoint adds a prefix.
    pub before: String,
    /// The new prefix.
    pub after: String,
    /// The number of tensors whose names differ only in this prefix.
    pub tensors: u64,
}

/// The linear modules that one of the two checkpoints stores as packed weights, and the other one as floats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct QuantizedLinear {
    /// The number of linear modules that are packed.
    pub quantized: u64,
    /// The number of linear modules, including embeddings, that are stored as floats in the other checkpoint.
    pub modules: u64,
    /// The linear modules that neither checkpoint packs, with numbers as ranges in brackets; at most 100 names.
    pub plain: Vec<String>,
}

impl RenamedPrefix {
    /// Finds the prefix that distinguishes most names, at least two, among those that only one of two checkpoints has,
    /// and gives the old entries with this prefix their new names. `are_equal` compares two entries.
    pub(crate) fn rename<T, U>(
        old: &mut BTreeMap<String, T>,
        new: &BTreeMap<String, U>,
        are_equal: impl Fn(&T, &U) -> bool,
    ) -> Option<Self> {
        let mut rests = HashMap::<&str, Vec<(&str, &U)>>::new();
        for (name, entry) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
            for (prefix, rest) in prefixes(name) {
                let found = rests.entry(rest).or_default();
                // A rest that several entries share identifies none of them.
                if found.len() < 2 {
                    found.push((prefix, entry));
                }
            }
        }
        let mut votes = BTreeMap::<(&str, &str), u64>::new();
        for (name, entry) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
            let renamed = prefixes(name).find_map(|(before, rest)| match rests.get(rest)?[..] {
                [(after, other)] if are_equal(entry, other) => Some((before, after)),
                _ => None,
            });
            if let Some(pair) = renamed {
                *votes.entry(pair).or_default() += 1;
            }
        }
        let ((before, after), tensors) = votes.into_iter().max_by_key(|(_, votes)| *votes)?;
        let (before, after) = (before.to_owned(), after.to_owned());
        let renamed = (tensors > 1).then_some(Self { before, after, tensors })?;
        renamed.apply(old, new);
        Some(renamed)
    }

    fn apply<T, U>(&self, old: &mut BTreeMap<String, T>, new: &BTreeMap<String, U>) {
        let renamed = old.keys().filter(|name| !new.contains_key(*name)).filter_map(|name| {
            let rest = name.strip_prefix(&*self.before)?;
            Some((name.clone(), format!("{}{rest}", self.after)))
        });
        let renamed: Vec<_> = renamed.filter(|(_, name)| !old.contains_key(name)).collect();
        for (name, new_name) in renamed {
            if let Some(entry) = old.remove(&name) {
                old.insert(new_name, entry);
            }
        }
    }
}

/// The tensors of one checkpoint by name.
type Tensors = BTreeMap<String, TensorState>;

/// The maximum number of leading parts of a name that a prefix consists of.
const MAX_PREFIX_PARTS: usize = 3;

/// The minimum number of parts after a prefix. Fewer, such as `weight`, are common to unrelated tensors.
const MIN_SUFFIX_PARTS: usize = 2;

/// Splits a name into each prefix, the shortest first, and the rest.
fn prefixes(name: &str) -> impl Iterator<Item = (&str, &str)> {
    let dots = name.match_indices('.').map(|(at, _)| at + 1);
    let prefixes = [0].into_iter().chain(dots).take(MAX_PREFIX_PARTS + 1);
    let is_long = |rest: &str| rest.split('.').nth(MIN_SUFFIX_PARTS - 1).is_some();
    prefixes.map(|at| name.split_at(at)).filter(move |(_, rest)| is_long(rest))
}

/// Matches the linear modules of `original` with the modules of `packed`. Also returns the modules that are packed.
/// Returns `None` if there are none.
fn quantized_modules<'a>(
    original: &'a Tensors,
    packed: &Tensors,
) -> Option<(QuantizedLinear, BTreeSet<&'a str>)> {
    let is_float =
        |dtype: &Dtype| matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16);
    let is_packed = |(name, tensor): &(&String, &TensorState)| {
        let is_whole = original.get(*name).is_some_and(|other| {
            other.shape == tensor.shape && is_float(&tensor.dtype) && is_float(&other.dtype)
        });
        !is_whole && is_packed_weight(name, &tensor.dtype)
    };
    let packed = packed.iter().filter(is_packed).map(|(name, _)| module_of(name));
    let packed: BTreeSet<_> = packed.ordered();
    let is_linear = |(name, tensor): &(&String, &TensorState)| {
        is_float(&tensor.dtype)
            && match tensor.shape.len() {
                2 => name.ends_with(".weight"),
                // The matrices of experts.
                dimensions => dimensions == 3 && module_of(name) == *name,
            }
    };
    let linear = original.iter().filter(is_linear).map(|(name, _)| module_of(name));
    let (quantized, plain): (BTreeSet<_>, BTreeSet<_>) =
        linear.partition(|module| packed.contains(module));
    let (count, modules) = (quantized.len() as u64, (quantized.len() + plain.len()) as u64);
    let linear = QuantizedLinear { quantized: count, modules, plain: folded(&plain) };
    (count > 0).then_some((linear, quantized))
}

/// Folds names that differ only in numbers.
fn folded(names: &BTreeSet<&str>) -> Vec<String> {
    const MAX_NAMES: usize = 100;

    let mut groups = BTreeMap::<_, Vec<_>>::new();
    for name in names {
        let pattern = NamePattern::new(name).text;
        groups.entry(pattern).or_default().push(*name);
    }
    groups.values().take(MAX_NAMES).map(|names| common_name(names)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shards_are_moved() {
        let version = |dtype: Dtype, shape: &[u64], file: &str| {
            Some(TensorState { dtype, shape: shape.to_vec(), file: file.parse().unwrap() })
        };
        let before = version(Dtype::BF16, &[2, 3], "a.safetensors");
        let moved = version(Dtype::BF16, &[2, 3], "b.safetensors");
        let other = version(Dtype::F16, &[3, 2], "b.safetensors");
        let all = vec![ChangeKind::Reshaped, ChangeKind::Retyped, ChangeKind::Moved];
        let cases = [
            (&before, &before, true, vec![]),
            (&before, &moved, true, vec![ChangeKind::Moved]),
            (&before, &moved, false, vec![]),
            (&before, &other, true, all.clone()),
            (&before, &other, false, all[..2].to_vec()),
            (&before, &None, true, vec![ChangeKind::Removed]),
            (&None, &before, true, vec![ChangeKind::Added]),
        ];
        for (before, after, has_shards, expected) in cases {
            let found = kinds(before.as_ref(), after.as_ref(), has_shards);
            assert_eq!(found, expected, "{before:?} {after:?} {has_shards}");
        }
    }
}
