//! The modules in the files of a model, by the names of its layout.

use std::collections::{BTreeMap, BTreeSet};

use super::MismatchKind;
use super::exceptions::other_names;
use crate::architectures::blueprint::{Blueprint, BlueprintEntry, Place};
use crate::count::names::is_leftover;
use crate::count::{Embedding, NamePatterns, container_bits, split_name};
use hf_meta_format::base::sort::sort_by;
use hf_meta_format::formats::{Headers, TensorInfo, loaded_tensors};

/// A tensor of a known module.
pub(super) struct Found {
    pub(super) entry: usize,
    pub(super) place: Place,
    pub(super) part: ModulePart,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ModulePart {
    Weight,
    Bias,
    /// A part of a packed weight.
    Packed,
}

impl Found {
    /// Finds the module of a tensor that is not a head, also by another name.
    fn in_model(layout: &Blueprint<'_>, name: &str) -> Option<Self> {
        Self::new(layout, name, false).or_else(|| {
            other_names().find_map(|(other, known)| {
                let (outer, inner) = name.split_once(other)?;
                Self::new(layout, &format!("{outer}{known}{inner}"), false)
            })
        })
    }

    /// Finds the module of a tensor by its name without the prefix of the model.
    fn new(layout: &Blueprint<'_>, name: &str, is_head: bool) -> Option<Self> {
        Self::by(name, |module| layout.find(module, is_head))
    }

    /// Finds the module of a tensor whose name the loader has changed. The loader adds the prefix of the base model to
    /// names without it.
    fn renamed(layout: &Blueprint<'_>, name: &str) -> Option<Self> {
        let found = Self::by(name, |module| layout.find_renamed(module));
        let outer = || format!("{}{name}", layout.prefix);
        let found = found.or_else(|| Self::by(&outer(), |module| layout.find_renamed(module)));
        found.or_else(|| {
            let inside = name.strip_prefix(layout.prefix).unwrap_or(name);
            let found = Self::new(layout, inside, false).or_else(|| Self::new(layout, name, true));
            let base = Some(&layout.base).filter(|base| !base.is_empty());
            let found = found.or_else(|| Self::new(layout, &format!("{}{name}", base?), false));
            // The rules of the class with a head make names of that class, and the layout may be that of its base model.
            found.or_else(|| Self::new(layout, name.strip_prefix("model.")?, false))
        })
    }

    /// Finds the module of a tensor with a function that finds modules.
    fn by(name: &str, find: impl Fn(&str) -> Option<(usize, Place)>) -> Option<Self> {
        let find = |module: &str, part| {
            let (entry, place) = find(module)?;
            Some(Self { entry, place, part })
        };
        let weight = find(name.strip_suffix(".weight").unwrap_or(name), ModulePart::Weight);
        weight.or_else(|| find(name.strip_suffix(".bias")?, ModulePart::Bias)).or_else(|| {
            let (module, _) = split_name(name);
            if module.len() < name.len() { find(module, ModulePart::Packed) } else { None }
        })
    }
}

/// The modules in the files.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct StoredModules<'h> {
    /// The prefix of the model, and the one of its head.
    pub(super) prefix: String,
    pub(super) head_prefix: String,
    /// The places of each entry, sorted: of a module, or of the elements of a list.
    pub(super) places: Vec<Vec<Place>>,
    pub(super) biases: Vec<Vec<Place>>,
    /// The unpacked weights and the biases.
    pub(super) tensors: Vec<(&'h str, TensorInfo, Found)>,
    pub(super) unknown: Vec<(&'h str, TensorInfo)>,
    /// The biases outside of lists, as those of heads are.
    biases_outside: BTreeSet<&'h str>,
    /// The layers with experts under names that the layout does not have.
    pub(super) other_experts: BTreeSet<u32>,
    /// The elements of the outermost lists with unknown modules.
    pub(super) with_others: BTreeSet<(usize, u64)>,
    /// The modules with packed weights that the layout does not have. They may contain several of its modules.
    pub(super) packed: BTreeSet<&'h str>,
    /// True if any weight is packed.
    pub(super) has_packed: bool,
    pub(super) has_drafts: bool,
    pub(super) has_output: bool,
    /// True if the shapes count weights, whatever the dtype, as in GGUF files.
    pub(super) is_described: bool,
    /// The modules around unknown tensors.
    pub(super) around_unknown: BTreeSet<&'h str>,
}

impl<'h> StoredModules<'h> {
    pub(super) fn new(layout: &Blueprint<'_>, headers: &'h Headers) -> Self {
        let is_described = headers.iter().any(|(_, header)| header.is_self_describing);
        Self::of_tensors(layout, || loaded_tensors(headers), is_described)
    }

    /// Finds the modules of some tensors.
    pub(super) fn of_tensors<T>(
        layout: &Blueprint<'_>,
        tensors: impl Fn() -> T,
        is_described: bool,
    ) -> Self
    where
        T: Iterator<Item = (&'h str, TensorInfo)>,
    {
        let prefix = prefix(layout, || tensors().map(|(name, _)| name));
        let head_prefix = prefix.strip_suffix(layout.prefix).unwrap_or(prefix);
        let count = layout.entries.len();
        let mut stored = Self {
            prefix: prefix.to_owned(),
            head_prefix: head_prefix.to_owned(),
            places: vec![Vec::new(); count],
            biases: vec![Vec::new(); count],
            is_described,
            ..Self::default()
        };
        let mut names = NamePatterns::default();
        for (name, tensor) in tensors() {
            let facts = names.read(name);
            stored.has_drafts |= facts.is_draft();
            let is_output = facts.embedding() == Some(Embedding::Output);
            // Not its bias, and not the other layers of a head.
            stored.has_output |= is_output && tensor.shape.len() == 2 && !name.contains(".dense.");
            let is_in_list = |module: &str| module.bytes().any(|byte| byte.is_ascii_digit());
            if name.strip_suffix(".bias").is_some_and(|module| !is_in_list(module)) {
                stored.biases_outside.insert(name);
            }
            stored.add(layout, name, tensor);
        }
        for places in stored.places.iter_mut().chain(&mut stored.biases) {
            sort_by(places, Ord::cmp);
            places.dedup();
        }
        stored
    }

    fn add(&mut self, layout: &Blueprint<'_>, name: &'h str, tensor: TensorInfo) {
        let Some(found) = self.find(layout, name) else {
            return self.add_unknown(layout, name, tensor);
        };
        let Found { entry, place, part } = found;
        let is_bias = part == ModulePart::Bias;
        self.has_packed |= part == ModulePart::Packed;
        let places = if is_bias { &mut self.biases } else { &mut self.places };
        places[entry].push(place);
        let mut at = &layout.entries[entry];
        while let Some(list) = at.parent {
            at = &layout.entries[list];
            let element = first_numbers(place, at.depth + 1);
            if self.places[list].last() != Some(&element) {
                self.places[list].push(element);
            }
        }
        if is_bias || part == ModulePart::Weight && (self.is_described || is_unpacked(&tensor)) {
            self.tensors.push((name, tensor, found));
        }
    }

    /// Finds the module of a tensor.
    pub(super) fn find(&self, layout: &Blueprint<'_>, name: &str) -> Option<Found> {
        let inside = name.strip_prefix(&self.prefix);
        let found = inside.and_then(|name| Found::in_model(layout, name));
        let found =
            found.or_else(|| Found::new(layout, name.strip_prefix(&self.head_prefix)?, true));
        found.or_else(|| Found::renamed(layout, &layout.renames.apply(name)))
    }

    /// Returns whether a tensor is the weight of a module of the layout.
    pub(super) fn is_weight(&self, layout: &Blueprint<'_>, name: &str) -> bool {
        self.find(layout, name).is_some_and(|found| found.part != ModulePart::Bias)
    }

    fn add_unknown(&mut self, layout: &Blueprint<'_>, name: &'h str, tensor: TensorInfo) {
        /// The maximum number of unknown tensors. Further ones are ignored.
        const MAX_UNKNOWN: usize = 10_000;

        let (module, component) = split_name(name);
        if !component.is_plain() {
            self.has_packed = true;
            if self.packed.len() < MAX_UNKNOWN {
                self.packed.insert(module);
            }
        }
        if self.around_unknown.len() < MAX_UNKNOWN {
            self.around_unknown.insert(parent(module));
        }
        let inside = name.strip_prefix(&self.prefix).unwrap_or(name);
        if let Some((list, number)) = layout.element(inside) {
            self.with_others.insert((list, number.into()));
            if is_expert(inside) {
                self.other_experts.insert(number);
            }
        }
        let is_nested = layout.unknown.iter().any(|prefix| inside.starts_with(&**prefix));
        if !is_nested && !is_leftover(name) && self.unknown.len() < MAX_UNKNOWN {
            self.unknown.push((name, tensor));
        }
    }

    /// Returns the first tensor if none has a name of the layout, or if all names begin with a prefix.
    pub(super) fn first_of_other_model(&self) -> Option<&'h str> {
        if !self.prefix.is_empty() {
            return self.tensors.first().map(|(name, ..)| *name);
        }
        let is_other = self.places.iter().chain(&self.biases).all(Vec::is_empty);
        if is_other { self.unknown.first().map(|(name, _)| *name) } else { None }
    }

    /// Returns whether a bias outside of lists is stored.
    pub(super) fn has_bias(&self, name: &str) -> bool {
        self.biases_outside.contains(name)
    }

    /// Returns the rule that the prefix of the names violates. Loaders add and remove one segment, the name of the model in
    /// the class with the head; transformers loads nothing with another prefix.
    pub(super) fn wrong_prefix(
        &self,
        layout: &Blueprint<'_>,
        is_by_transformers: bool,
        is_mlx: bool,
    ) -> Option<MismatchKind> {
        let prefix = self.prefix.as_str();
        let spare = prefix.strip_suffix(layout.prefix).unwrap_or(prefix);
        let is_segment = spare == prefix && spare.matches('.').count() == 1 || spare == "model.";
        let is_wrapper = ["module.", "_orig_mod."].contains(&spare);
        let is_wrong = !spare.is_empty() && (is_wrapper || !is_segment);
        // MLX refuses names that the model does not have (`load_weights` in `mlx/nn/layers/base.py`, 0.32). Its packages add
        // one separate segment at most.
        let is_refused = is_by_transformers || is_mlx && spare.matches('.').count() > 1;
        let kind = if is_refused { MismatchKind::OtherPrefix } else { MismatchKind::WrappedNames };
        is_wrong.then_some(kind)
    }

    /// Returns whether no module has a name of the layout, except for a head.
    pub(super) fn is_other(&self, layout: &Blueprint<'_>) -> bool {
        let mut entries = layout.entries.iter().zip(&self.places);
        entries.all(|(entry, places)| entry.is_head || places.is_empty())
    }

    /// Returns whether the modules have the names of a layout, and fewer names of another one.
    pub(super) fn fits_better(
        &self,
        layout: &Blueprint<'_>,
        other: &Self,
        other_layout: &Blueprint<'_>,
    ) -> bool {
        let is_better = self.unknown.len() < other.unknown.len();
        self.are_named_as(layout) && (is_better || !other.are_named_as(other_layout))
    }

    /// Returns whether most modules have names of the layout, or nearly none has other names.
    pub(super) fn are_named_as(&self, layout: &Blueprint<'_>) -> bool {
        let all = layout.entries.iter().zip(&self.places);
        let is_known = |(_, places): &(&BlueprintEntry, &Vec<Place>)| !places.is_empty();
        let (known, missing): (Vec<_>, Vec<_>) = all
            .filter(|found| if found.0.is_head { is_known(found) } else { found.0.is_required })
            .partition(is_known);
        known.len() >= missing.len() || self.unknown.len() < known.len()
    }
}

/// Returns the prefix of a model: the one before most names of its layout.
fn prefix<'h, N>(layout: &Blueprint<'_>, names: impl Fn() -> N) -> &'h str
where
    N: Iterator<Item = &'h str>,
{
    /// The maximum number of prefixes, because each file could have others.
    const MAX_PREFIXES: usize = 64;

    let mut found = BTreeMap::<&str, BTreeSet<usize>>::new();
    for name in names() {
        let dots = name.match_indices('.').map(|(dot, _)| dot + 1);
        for start in std::iter::once(0).chain(dots.take(8)) {
            let (prefix, inside) = name.split_at(start);
            let segment = inside.split('.').next().unwrap_or_default();
            let is_new = !found.contains_key(prefix);
            if !layout.has_root(segment) || is_new && found.len() == MAX_PREFIXES {
                continue;
            }
            if let Some(Found { entry, .. }) = Found::in_model(layout, inside) {
                found.entry(prefix).or_default().insert(entry);
            }
        }
    }
    let best = found.into_iter().max_by_key(|(prefix, entries)| {
        (entries.len(), *prefix == layout.prefix, usize::MAX - prefix.len())
    });
    let Some((prefix, entries)) = best else { return layout.prefix };
    if [layout.prefix, ""].contains(&prefix) {
        return prefix;
    }
    // A part may have a list of the same name, whereas the loader renames all others.
    let renamed = names().filter_map(|name| Found::renamed(layout, &layout.renames.apply(name)));
    let renamed: BTreeSet<_> = renamed.map(|found| found.entry).collect();
    if renamed.len() > 2 * entries.len() { layout.prefix } else { prefix }
}

/// Returns whether a weight tensor has the shape of its weights. bitsandbytes packs into columns, and quantizers may
/// transpose stacks.
fn is_unpacked(TensorInfo { dtype, shape, .. }: &TensorInfo) -> bool {
    let least = if shape.len() > 2 { 16 } else { 8 };
    let is_float = container_bits(dtype).is_none() && dtype.bits() >= Some(least);
    is_float && !matches!(shape[..], [_, 1])
}

/// Returns whether a name belongs to routed experts, which formats store one by one or as stacks.
pub(super) fn is_expert(name: &str) -> bool {
    name.split('.').any(|part| part.contains("expert") || part == "switch_mlp")
}

/// Returns whether a module may be a part of experts, which formats name differently.
pub(super) fn is_feed_forward(path: &str) -> bool {
    const PARTS: [&str; 7] = ["expert", "moe", "mlp", "feed_forward", "ffn", "gate", "router"];

    PARTS.iter().any(|part| path.contains(part))
}

/// Returns the path of the module around a module.
pub(super) fn parent(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(parent, _)| parent)
}

/// Returns a place without the numbers of inner lists.
pub(super) fn first_numbers(place: Place, depth: usize) -> Place {
    let mut first = Place::default();
    first[..depth].copy_from_slice(&place[..depth]);
    first
}
