//! The module tree of a checkpoint, with identical modules folded into one.

use std::collections::HashMap;

use serde::Serialize;

use crate::count::names::pattern::{compare_parts, number, parts, ranges};
use crate::results::Weights;
use hf_meta_format::base::sort::{sort_by, sort_by_key};
use hf_meta_format::formats::{Dtype, TensorInfo};

/// The maximum number of names of folded modules to list in braces.
const MAX_LISTED_NAMES: usize = 4;

/// The modules of a checkpoint, derived from the dot-separated names of its tensors.
///
/// Identical siblings (modules whose tensors have the same names, dtypes and shapes) are folded into one, named
/// `[0-69]` or `{gate_proj,up_proj}`. A module with a single child is merged with it, as in `h.[0-69]`. The tree of a
/// model with 100,000 tensors has a few dozen modules.
///
/// ```
/// use hf_meta_format::SafetensorsFileHeader;
/// use hf_meta_count::results::tree::{Tree, TreeContent};
///
/// let header = SafetensorsFileHeader::from_json(
///     br#"{
///         "layers.0.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
///         "layers.1.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [24, 48]}
///     }"#,
/// )?;
/// let tree = Tree::from_tensors(header.tensors());
/// let layers = &tree.modules[0];
/// assert_eq!(layers.name, "layers.[0-1].weight");
/// assert_eq!((layers.repeats, layers.tensors, layers.elements), (2, 2, 12));
/// assert!(matches!(&layers.content, TreeContent::Tensor { shape, .. } if *shape == [2, 3]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Tree {
    /// The top-level modules, sorted by name; numeric components are sorted by value.
    pub modules: Vec<TreeModule>,
}

/// A module or a tensor, or several identical ones folded together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct TreeModule {
    /// The name relative to the enclosing module. Brackets and braces list the names of folded modules; the rest is
    /// unescaped text from the file.
    pub name: String,
    /// The number of identical modules or tensors that were folded into this one, within one enclosing module; 1 if
    /// none were.
    pub repeats: u64,
    /// The total number of tensors.
    pub tensors: u64,
    /// The total number of stored elements, excluding scalars.
    pub elements: u64,
    /// The total size of the tensors, in bytes.
    pub bytes: u64,
    /// The tensor, or the modules inside this one.
    pub content: TreeContent,
}

/// The content of a [`TreeModule`].
// Exhaustive, because a node of a tree is a leaf or has children.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum TreeContent {
    /// A tensor, or several identical ones folded together.
    Tensor {
        /// The dtype of each tensor.
        dtype: Dtype,
        /// The shape of each tensor.
        shape: Vec<u64>,
    },
    /// The modules and tensors inside a module.
    Modules(Vec<TreeModule>),
}

impl Tree {
    /// Builds the tree of a checkpoint.
    pub fn new(weights: &Weights) -> Self {
        Self::filtered(weights, |_| true)
    }

    /// Builds the tree of the tensors whose names `keep` accepts.
    pub fn filtered(weights: &Weights, keep: impl Fn(&str) -> bool) -> Self {
        let tensors = weights.named_headers().flat_map(|(_, header)| header.tensors());
        Self::from_tensors(tensors.filter(|(name, _)| keep(name)))
    }

    /// Builds the tree of tensors with these names, such as those of a [`TensorTable`](hf_meta_format::formats::TensorTable).
    pub fn from_tensors<'a>(tensors: impl IntoIterator<Item = (&'a str, TensorInfo)>) -> Self {
        let leaves = tensors.into_iter().map(|(name, tensor)| (parts(name), tensor));
        let mut leaves: Vec<_> = leaves.collect();
        sort_by(&mut leaves, |(a, _), (b, _)| compare_parts(a, b));
        Self { modules: modules(&leaves, 0) }
    }
}

/// A tensor with the parts of its name.
type Leaf<'a> = (Vec<&'a str>, TensorInfo);

/// Returns an unnamed module that is a tensor.
fn tensor_module(tensor: &TensorInfo) -> TreeModule {
    let (dtype, shape) = (tensor.dtype.clone(), tensor.shape.clone());
    TreeModule {
        name: String::new(),
        repeats: 1,
        tensors: 1,
        elements: if tensor.is_scalar() { 0 } else { tensor.elements().unwrap_or(u64::MAX) },
        bytes: tensor.byte_length(),
        content: TreeContent::Tensor { dtype, shape },
    }
}

/// Returns the modules at a depth. The names of `leaves` agree up to there.
fn modules(leaves: &[Leaf<'_>], depth: usize) -> Vec<TreeModule> {
    // A tensor and a module may have the same name.
    let is_tensor = |parts: &[&str]| parts.len() == depth + 1;
    let siblings = leaves.chunk_by(|(one, _), (other, _)| {
        one[depth] == other[depth] && is_tensor(one) == is_tensor(other)
    });
    fold(siblings.map(|leaves| {
        let (parts, tensor) = &leaves[0];
        let inner = || parent(modules(leaves, depth + 1));
        (parts[depth], if is_tensor(parts) { tensor_module(tensor) } else { inner() })
    }))
}

/// Folds identical siblings into the first one. A sibling is a part of a name, and the module without this part.
fn fold<'a>(siblings: impl Iterator<Item = (&'a str, TreeModule)>) -> Vec<TreeModule> {
    let mut groups = HashMap::<_, (usize, Vec<&str>)>::new();
    for (at, (part, module)) in siblings.enumerate() {
        let is_number = number(part).is_some();
        let (_, parts) = groups.entry((is_number, module)).or_insert((at, Vec::new()));
        parts.push(part);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    sort_by_key(&mut groups, |(_, (first, _))| *first);
    let repeat = |((_, module), (_, parts)): ((bool, TreeModule), (usize, Vec<&str>))| {
        let times = parts.len() as u64;
        let repeats = module.repeats.saturating_mul(times);
        let name = folded_name(&parts) + &module.name;
        TreeModule { name, repeats, ..module.multiplied(times) }
    };
    groups.into_iter().map(repeat).collect()
}

/// Returns the common name of folded siblings.
fn folded_name(parts: &[&str]) -> String {
    if let Some(numbers) = parts.iter().map(|part| number(part)).collect() {
        return ranges(&numbers);
    }
    if let [only] = parts {
        return (*only).to_owned();
    }
    let listed = parts[..parts.len().min(MAX_LISTED_NAMES)].join(",");
    match parts.len().saturating_sub(MAX_LISTED_NAMES) {
        0 => format!("{{{listed}}}"),
        more => format!("{{{listed},+{more}}}"),
    }
}

/// Returns an unnamed module that contains these modules. A module with a single child is merged with it.
fn parent(mut modules: Vec<TreeModule>) -> TreeModule {
    if let [only] = &mut modules[..] {
        only.name.insert(0, '.');
        return modules.remove(0);
    }
    let total =
        |figure: fn(&TreeModule) -> u64| modules.iter().map(figure).fold(0, u64::saturating_add);
    TreeModule {
        name: String::new(),
        repeats: 1,
        tensors: total(|module| module.tensors),
        elements: total(|module| module.elements),
        bytes: total(|module| module.bytes),
        content: TreeContent::Modules(modules),
    }
}

impl TreeModule {
    /// Multiplies the counts of the module and of all modules inside it.
    fn multiplied(self, times: u64) -> Self {
        let content = match self.content {
            TreeContent::Modules(inner) => {
                let inner = inner.into_iter().map(|module| module.multiplied(times));
                TreeContent::Modules(inner.collect())
            }
            tensor @ TreeContent::Tensor { .. } => tensor,
        };
        let [tensors, elements, bytes] =
            [self.tensors, self.elements, self.bytes].map(|count| count.saturating_mul(times));
        Self { tensors, elements, bytes, content, ..self }
    }
}

#[cfg(test)]
mod tests;
