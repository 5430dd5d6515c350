//! Matches the tensors of two checkpoints of one model that store them differently: under a renamed prefix, or packed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::{TensorState, common_name};
use crate::count::{is_packed_weight, module_of};
use crate::formats::Dtype;
use crate::report::{number, parts};

/// A prefix of tensor names that the new checkpoint replaced, such as `model.language_model.` with
/// `language_model.model.`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
#[non_exhaustive]
pub struct QuantizedLinear {
    /// The number of linear modules that are packed.
    pub quantized: u64,
    /// The number of linear modules, including embeddings, that are stored as floats in the other checkpoint.
    pub modules: u64,
    /// The linear modules that neither checkpoint packs, with numbers as ranges in brackets; at most 100 names.
    pub plain: Vec<String>,
}

/// The tensors of one checkpoint by name.
pub(super) type Tensors<'a> = BTreeMap<&'a str, TensorState>;

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

/// Finds the prefix that distinguishes most tensors of equal shape, at least two, among those that only one of two
/// checkpoints has.
pub(crate) fn renamed_prefix<'a>(
    before: impl Iterator<Item = (&'a str, &'a [u64])>,
    after: impl Iterator<Item = (&'a str, &'a [u64])>,
) -> Option<RenamedPrefix> {
    let mut rests = HashMap::<&str, Vec<(&str, &[u64])>>::new();
    for (name, shape) in after {
        for (prefix, rest) in prefixes(name) {
            let found = rests.entry(rest).or_default();
            // A rest that several tensors share identifies none of them.
            if found.len() < 2 {
                found.push((prefix, shape));
            }
        }
    }
    let mut votes = BTreeMap::<(&str, &str), u64>::new();
    for (name, expected) in before {
        let renamed = prefixes(name).find_map(|(old, rest)| match rests.get(rest)?[..] {
            [(new, shape)] if shape == expected => Some((old, new)),
            _ => None,
        });
        if let Some(pair) = renamed {
            *votes.entry(pair).or_default() += 1;
        }
    }
    let ((before, after), tensors) = votes.into_iter().max_by_key(|(_, tensors)| *tensors)?;
    let (before, after) = (before.to_owned(), after.to_owned());
    (tensors > 1).then_some(RenamedPrefix { before, after, tensors })
}

/// Matches the linear modules of `original` with the modules of `packed`. Also returns the modules that are packed.
/// Returns `None` if there are none.
pub(super) fn quantized_modules<'a, 'b>(
    original: &Tensors<'a>,
    packed: &Tensors<'b>,
) -> Option<(QuantizedLinear, BTreeSet<&'a str>)> {
    let is_float =
        |dtype: &Dtype| matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16);
    let packed_module = |(name, tensor): (&&'b str, &TensorState)| {
        let is_whole = original.get(*name).is_some_and(|other| {
            other.shape == tensor.shape && is_float(&tensor.dtype) && is_float(&other.dtype)
        });
        (!is_whole && is_packed_weight(name, &tensor.dtype)).then_some(module_of(name))
    };
    let packed: BTreeSet<_> = packed.iter().filter_map(packed_module).collect();
    let is_linear = |(name, tensor): &(&&str, &TensorState)| {
        is_float(&tensor.dtype)
            && match tensor.shape.len() {
                2 => name.ends_with(".weight"),
                // The matrices of experts.
                dimensions => dimensions == 3 && module_of(name) == **name,
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
        let name = parts(name);
        let key: Vec<_> =
            name.iter().map(|part| Some(*part).filter(|part| number(part).is_none())).collect();
        groups.entry(key).or_default().push(name);
    }
    groups.values().take(MAX_NAMES).map(|names| common_name(names)).collect()
}
