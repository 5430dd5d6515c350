//! Tensors by module, with what is repeated told once.

use std::collections::HashMap;

use crate::formats::Dtype;
use crate::formats::safetensors::SafetensorsFileHeader;
use crate::report::SafetensorsParseFromRepo;
use crate::report::{in_order, number, parts, ranges};

/// The most names that are written out where several things are alike.
const MOST_NAMES: usize = 4;

/// The tensors of a set of weights by the dots in their names, as the modules of a model.
///
/// Modules side by side that hold the same (the same names, dtypes and shapes below them) stand there
/// once, as `[0-69]` or `{gate_proj,up_proj}`, and a module that holds one thing alone stands in one
/// with it, as `h.[0-69]`. So the tree of a model of 100,000 tensors has some dozens of modules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tree {
    /// What is at the top, in the order of names, with numbers by their value.
    pub modules: Vec<TreeModule>,
}

/// A module, a tensor, or several of them that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeModule {
    /// Its name without that of the module around it, as it stands in the file but for what is in
    /// brackets or braces.
    pub name: String,
    /// All tensors below it and its likes.
    pub tensors: u64,
    /// Their elements as stored, scalars left out.
    pub elements: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What it is made of.
    pub content: TreeContent,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeContent {
    /// A tensor, or several that are alike.
    Tensor {
        /// The type of the elements.
        dtype: Dtype,
        /// The length of each dimension.
        shape: Vec<u64>,
    },
    /// A module of these.
    Modules(Vec<TreeModule>),
}

impl Tree {
    /// The tree of all tensors of a set of weights.
    #[must_use]
    pub fn new(parsed: &SafetensorsParseFromRepo) -> Self {
        Self::from_headers(parsed.files().map(|(_, header)| header))
    }

    /// The tree of all tensors of some headers.
    #[must_use]
    pub fn from_headers<'a>(headers: impl IntoIterator<Item = &'a SafetensorsFileHeader>) -> Self {
        let tensors = headers.into_iter().flat_map(|header| header.tensors());
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
        leaves.sort_unstable_by(|a, b| in_order(&a.parts, &b.parts));
        let modules = Kinds::default().modules(&leaves, 0);
        Self { modules: modules.into_iter().map(|(_, module)| module).collect() }
    }
}

/// One tensor.
struct Leaf<'a> {
    parts: Vec<&'a str>,
    elements: u64,
    bytes: u64,
    dtype: Dtype,
    shape: Vec<u64>,
}

/// What things hold; those that hold the same have the same number.
#[derive(Default)]
struct Kinds(HashMap<Kind, usize>);

#[derive(PartialEq, Eq, Hash)]
enum Kind {
    Tensor(Dtype, Vec<u64>),
    Modules(Vec<(String, usize)>),
}

/// A module before it stands in one with its likes.
struct Node<'a> {
    /// The part of its name that may differ from that of its likes.
    head: &'a str,
    kind: usize,
    module: TreeModule,
}

impl Kinds {
    fn number(&mut self, kind: Kind) -> usize {
        let next = self.0.len();
        *self.0.entry(kind).or_insert(next)
    }

    /// What is at a depth of names that agree up to there, and of which kind each is.
    fn modules(&mut self, leaves: &[Leaf<'_>], depth: usize) -> Vec<(usize, TreeModule)> {
        // A tensor and a module may have the same name.
        let is_tensor = |leaf: &Leaf<'_>| leaf.parts.len() == depth + 1;
        let same = leaves
            .chunk_by(|a, b| a.parts[depth] == b.parts[depth] && is_tensor(a) == is_tensor(b));
        collapse(same.map(|leaves| self.node(leaves, depth)).collect())
    }

    fn node<'a>(&mut self, leaves: &[Leaf<'a>], depth: usize) -> Node<'a> {
        let first = &leaves[0];
        let head = first.parts[depth];
        if first.parts.len() == depth + 1 {
            return self.leaf(first, head);
        }
        let inner = self.modules(leaves, depth + 1);
        let names = inner.iter().map(|(kind, module)| (module.name.clone(), *kind));
        let kind = self.number(Kind::Modules(names.collect()));
        let modules: Vec<_> = inner.into_iter().map(|(_, module)| module).collect();
        let module = match <[TreeModule; 1]>::try_from(modules) {
            Ok([only]) => TreeModule { name: format!(".{}", only.name), ..only },
            Err(modules) => sum(modules),
        };
        Node { head, kind, module }
    }

    fn leaf<'a>(&mut self, leaf: &Leaf<'a>, head: &'a str) -> Node<'a> {
        let (dtype, shape) = (leaf.dtype.clone(), leaf.shape.clone());
        let kind = self.number(Kind::Tensor(dtype.clone(), shape.clone()));
        let module = TreeModule {
            name: String::new(),
            tensors: 1,
            elements: leaf.elements,
            bytes: leaf.bytes,
            content: TreeContent::Tensor { dtype, shape },
        };
        Node { head, kind, module }
    }
}

/// Puts those that are alike into one, at the place of the first.
fn collapse(nodes: Vec<Node<'_>>) -> Vec<(usize, TreeModule)> {
    let mut groups: Vec<Vec<Node<'_>>> = Vec::new();
    let mut places = HashMap::new();
    for node in nodes {
        let likeness = (number(node.head).is_some(), node.kind);
        let place = *places.entry(likeness).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(node),
            None => groups.push(vec![node]),
        }
    }
    groups.into_iter().filter_map(merge).collect()
}

fn merge(group: Vec<Node<'_>>) -> Option<(usize, TreeModule)> {
    let head = heads(&group);
    let kind = group.first()?.kind;
    let mut modules = group.into_iter().map(|node| node.module);
    let mut merged = modules.next()?;
    modules.for_each(|module| merged.add(&module));
    merged.name.insert_str(0, &head);
    Some((kind, merged))
}

/// What to call things that are alike.
fn heads(group: &[Node<'_>]) -> String {
    let numbers: Option<_> = group.iter().map(|node| number(node.head)).collect();
    if let Some(numbers) = numbers {
        return ranges(&numbers);
    }
    let mut names: Vec<_> = group.iter().take(MOST_NAMES).map(|node| node.head).collect();
    if group.len() > MOST_NAMES {
        names.push("…");
    }
    if names.len() == 1 { names.concat() } else { format!("{{{}}}", names.join(",")) }
}

/// A module of these, of which the name is still to be said.
fn sum(modules: Vec<TreeModule>) -> TreeModule {
    let total =
        |figure: fn(&TreeModule) -> u64| modules.iter().map(figure).fold(0, u64::saturating_add);
    TreeModule {
        name: String::new(),
        tensors: total(|module| module.tensors),
        elements: total(|module| module.elements),
        bytes: total(|module| module.bytes),
        content: TreeContent::Modules(modules),
    }
}

impl TreeModule {
    /// Adds the figures of a module that is alike.
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
