//! The module tree of a checkpoint, with identical modules folded into one.

use std::collections::HashMap;

use serde::Serialize;

use crate::count::name_pattern::{compare_parts, number, parts, ranges};
use crate::formats::{Dtype, FileHeader};
use crate::report::Weights;

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
/// use hf_meta_format::report::tree::{Tree, TreeContent};
///
/// let header = SafetensorsFileHeader::from_json(
///     br#"{
///         "layers.0.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
///         "layers.1.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [24, 48]}
///     }"#,
/// )?;
/// let tree = Tree::from_headers([&header]);
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    #[must_use]
    pub fn new(weights: &Weights) -> Self {
        Self::filtered(weights, |_| true)
    }

    /// Builds the tree of the tensors whose names `keep` accepts.
    #[must_use]
    pub fn filtered(weights: &Weights, keep: impl Fn(&str) -> bool) -> Self {
        Self::from_filtered_headers(weights.named_headers().map(|(_, header)| header), keep)
    }

    /// Builds the tree of all tensors in the given headers.
    #[must_use]
    pub fn from_headers<'a, H: AsRef<FileHeader> + 'a>(
        headers: impl IntoIterator<Item = &'a H>,
    ) -> Self {
        Self::from_filtered_headers(headers, |_| true)
    }

    fn from_filtered_headers<'a, H: AsRef<FileHeader> + 'a>(
        headers: impl IntoIterator<Item = &'a H>,
        keep: impl Fn(&str) -> bool,
    ) -> Self {
        let tensors = headers.into_iter().flat_map(|header| header.as_ref().tensors());
        let tensors = tensors.filter(|(name, _)| keep(name));
        let leaves = tensors.map(|(name, tensor)| Leaf {
            parts: parts(name),
            elements: if tensor.is_scalar() { 0 } else { tensor.elements().unwrap_or(u64::MAX) },
            bytes: tensor.byte_length(),
            dtype: tensor.dtype,
            shape: tensor.shape,
        });
        Self::from_leaves(leaves.collect())
    }

    fn from_leaves(mut leaves: Vec<Leaf<'_>>) -> Self {
        leaves.sort_unstable_by(|a, b| compare_parts(&a.parts, &b.parts));
        let modules = ContentNumbers::default().modules(&leaves, 0);
        Self { modules: modules.into_iter().map(|(_, module)| module).collect() }
    }
}

/// A tensor with the parts of its name.
struct Leaf<'a> {
    parts: Vec<&'a str>,
    elements: u64,
    bytes: u64,
    dtype: Dtype,
    shape: Vec<u64>,
}

/// Numbers the contents of modules. Identical contents get the same number.
#[derive(Default)]
struct ContentNumbers(HashMap<ContentKey, usize>);

/// The content of a module, as a comparison key.
#[derive(PartialEq, Eq, Hash)]
enum ContentKey {
    Tensor(Dtype, Vec<u64>),
    Modules(Vec<(String, usize)>),
}

/// A module before it is folded with identical siblings.
struct Sibling<'a> {
    /// The part of the name in which identical siblings may differ.
    head: &'a str,
    number: usize,
    module: TreeModule,
}

impl ContentNumbers {
    fn number(&mut self, key: ContentKey) -> usize {
        let next = self.0.len();
        *self.0.entry(key).or_insert(next)
    }

    /// Returns the modules at a depth, with their numbers. The names of `leaves` agree up to there.
    fn modules(&mut self, leaves: &[Leaf<'_>], depth: usize) -> Vec<(usize, TreeModule)> {
        // A tensor and a module may have the same name.
        let is_tensor = |leaf: &Leaf<'_>| leaf.parts.len() == depth + 1;
        let same = leaves
            .chunk_by(|a, b| a.parts[depth] == b.parts[depth] && is_tensor(a) == is_tensor(b));
        fold(same.map(|leaves| self.node(leaves, depth)).collect())
    }

    fn node<'a>(&mut self, leaves: &[Leaf<'a>], depth: usize) -> Sibling<'a> {
        let first = &leaves[0];
        let head = first.parts[depth];
        if first.parts.len() == depth + 1 {
            return self.leaf(first, head);
        }
        let inner = self.modules(leaves, depth + 1);
        let names = inner.iter().map(|(number, module)| (module.name.clone(), *number));
        let number = self.number(ContentKey::Modules(names.collect()));
        let modules: Vec<_> = inner.into_iter().map(|(_, module)| module).collect();
        let module = match <[TreeModule; 1]>::try_from(modules) {
            Ok([only]) => TreeModule { name: format!(".{}", only.name), ..only },
            Err(modules) => parent(modules),
        };
        Sibling { head, number, module }
    }

    fn leaf<'a>(&mut self, leaf: &Leaf<'a>, head: &'a str) -> Sibling<'a> {
        let (dtype, shape) = (leaf.dtype.clone(), leaf.shape.clone());
        let number = self.number(ContentKey::Tensor(dtype.clone(), shape.clone()));
        let module = TreeModule {
            name: String::new(),
            repeats: 1,
            tensors: 1,
            elements: leaf.elements,
            bytes: leaf.bytes,
            content: TreeContent::Tensor { dtype, shape },
        };
        Sibling { head, number, module }
    }
}

/// Folds identical siblings into the first of them.
fn fold(nodes: Vec<Sibling<'_>>) -> Vec<(usize, TreeModule)> {
    let mut groups: Vec<Vec<Sibling<'_>>> = Vec::new();
    let mut positions = HashMap::new();
    for node in nodes {
        let key = (number(node.head).is_some(), node.number);
        let position = *positions.entry(key).or_insert(groups.len());
        match groups.get_mut(position) {
            Some(group) => group.push(node),
            None => groups.push(vec![node]),
        }
    }
    groups.into_iter().filter_map(merge).collect()
}

fn merge(group: Vec<Sibling<'_>>) -> Option<(usize, TreeModule)> {
    let head = folded_name(&group);
    let number = group.first()?.number;
    let mut modules = group.into_iter().map(|node| node.module);
    let mut merged = modules.next()?;
    for module in modules {
        merged.repeats = merged.repeats.saturating_add(module.repeats);
        merged.add(&module);
    }
    merged.name.insert_str(0, &head);
    Some((number, merged))
}

/// Returns the common name of folded siblings.
fn folded_name(group: &[Sibling<'_>]) -> String {
    let numbers: Option<_> = group.iter().map(|node| number(node.head)).collect();
    if let Some(numbers) = numbers {
        return ranges(&numbers);
    }
    let listed = group.iter().take(MAX_LISTED_NAMES);
    let mut names: Vec<_> = listed.map(|node| node.head.to_owned()).collect();
    if let more @ 1.. = group.len().saturating_sub(MAX_LISTED_NAMES) {
        names.push(format!("+{more}"));
    }
    if names.len() == 1 { names.concat() } else { format!("{{{}}}", names.join(",")) }
}

/// Returns an unnamed module that contains these modules.
fn parent(modules: Vec<TreeModule>) -> TreeModule {
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
    /// Adds the counts of an identical module.
    fn add(&mut self, other: &Self) {
        self.tensors = self.tensors.saturating_add(other.tensors);
        self.elements = self.elements.saturating_add(other.elements);
        self.bytes = self.bytes.saturating_add(other.bytes);
        if let (TreeContent::Modules(mine), TreeContent::Modules(others)) =
            (&mut self.content, &other.content)
        {
            mine.iter_mut().zip(others).for_each(|(mine, other)| mine.add(other));
        }
    }
}

#[cfg(test)]
mod tests;
