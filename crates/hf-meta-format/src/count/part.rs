//! Part names of quantized modules.

use std::sync::LazyLock;

use memchr::memrchr;

use super::AuxiliaryTensor;
use super::methods::part_names;

/// The name that quantizers give to a part of a module, and its role.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartName {
    /// The last components of the tensor name. After an initial `*`, a suffix of the last component.
    name: &'static str,
    role: PartRole,
    /// True if a tensor of this name is a reason to request `config.json`.
    asks: bool,
}

/// The role of a part in its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartRole {
    /// The weights, with several in one element.
    Weights,
    /// A tensor that is needed to unpack the weights.
    Auxiliary(AuxiliaryTensor),
    /// A tensor that is auxiliary in every quantized model, even in modules without packed weights.
    AuxiliaryAnywhere(AuxiliaryTensor),
}

impl PartName {
    /// Creates the name of packed weights.
    pub(super) const fn weights(name: &'static str) -> Self {
        Self { name, role: PartRole::Weights, asks: true }
    }

    /// Creates the name of an auxiliary tensor.
    pub(super) const fn auxiliary(name: &'static str, tensor: AuxiliaryTensor) -> Self {
        Self { name, role: PartRole::Auxiliary(tensor), asks: true }
    }

    /// Creates the name of an auxiliary tensor that unquantized models use, too, such as `scale`.
    pub(super) const fn common(name: &'static str, tensor: AuxiliaryTensor) -> Self {
        Self { name, role: PartRole::Auxiliary(tensor), asks: false }
    }

    /// Creates the name of a tensor that is auxiliary in every quantized model.
    pub(super) const fn anywhere(name: &'static str, tensor: AuxiliaryTensor) -> Self {
        Self { name, role: PartRole::AuxiliaryAnywhere(tensor), asks: true }
    }

    pub(super) fn role(&self) -> PartRole {
        self.role
    }

    fn is_end(&self) -> bool {
        self.name.starts_with('*')
    }

    /// Returns the name without the `*`.
    pub(super) fn text(&self) -> &'static str {
        self.name.strip_prefix('*').unwrap_or(self.name)
    }
}

/// The index of a part name in the list of all part names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PartId(u16);

impl PartId {
    /// A tensor that is a whole module, because its name ends with no known part name.
    pub(super) const WHOLE: Self = Self(0);

    /// Returns the name of the part; empty for [`WHOLE`](Self::WHOLE).
    pub(super) fn name(self) -> &'static str {
        PARTS.get(self).text()
    }

    pub(super) fn role(self) -> PartRole {
        PARTS.get(self).role
    }

    /// Returns whether the name of the part is a reason to request `config.json`.
    pub(super) fn asks(self) -> bool {
        PARTS.get(self).asks
    }

    /// Returns whether the part has a name that unquantized models use for weights.
    pub(super) fn is_plain(self) -> bool {
        self == Self::WHOLE || self == PARTS.weight
    }

    /// Returns the tensor name of the part in a module. The inverse of [`split`].
    pub(super) fn tensor_name(self, module: &str) -> String {
        let part = PARTS.get(self);
        let dot = if module.is_empty() || part.is_end() || self == Self::WHOLE { "" } else { "." };
        [module, dot, part.text()].concat()
    }

    /// Returns all parts, ordered by index.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..PARTS.parts.len()).filter_map(|index| index.try_into().ok().map(Self))
    }

    /// Returns the index of the part in [`all`](Self::all).
    pub(super) fn index(self) -> usize {
        self.0.into()
    }

    /// Returns the part with a number from [`number`](Self::number).
    pub(super) fn from_number(number: u64) -> Self {
        Self(u16::try_from(number).unwrap_or_default())
    }

    /// Returns the number of the part, for compact storage.
    pub(super) fn number(self) -> u64 {
        self.0.into()
    }
}

/// Splits the name of a tensor into its module and its part.
pub(super) fn split(name: &str) -> (&str, PartId) {
    let (module, last) = match memrchr(b'.', name.as_bytes()) {
        Some(at) => (&name[..at], &name[at + 1..]),
        None => ("", name),
    };
    PARTS.split(name, module, last).unwrap_or((name, PartId::WHOLE))
}

/// Returns the module of a tensor whose name only quantizers use for weights.
pub(crate) fn module_of_packed_weights(name: &str) -> Option<&str> {
    let (module, part) = split(name);
    (part.role() == PartRole::Weights && !part.is_plain()).then_some(module)
}

static PARTS: LazyLock<PartIndex> = LazyLock::new(PartIndex::from_methods);

/// The part names of all methods.
struct PartIndex {
    parts: Vec<PartName>,
    /// Names of whole components, by the [`bucket`] of their last component. Every tensor of every model is looked up
    /// here, and few names share a bucket, so a lookup compares one or two names.
    buckets: Vec<Vec<ComponentName>>,
    /// Suffixes of components, longest first.
    ends: Vec<(&'static str, PartId)>,
    /// True for the last byte of any suffix.
    last_bytes: [bool; 256],
    weight: PartId,
}

/// A part name of one or more components.
struct ComponentName {
    /// The components before the last one; empty if there are none.
    before: &'static str,
    last: &'static str,
    part: PartId,
}

impl PartIndex {
    fn from_methods() -> Self {
        let mut parts: Vec<_> = part_names().copied().collect();
        // For these, the dtype decides whether `config.json` is needed.
        parts
            .extend(["", "weight"].map(|name| PartName { asks: false, ..PartName::weights(name) }));
        // Sorted so that the longest of several suffixes matches first. The empty name has index 0.
        parts
            .sort_by_key(|part| (!part.name.is_empty(), usize::MAX - part.text().len(), part.name));
        parts.dedup_by_key(|part| part.name);
        let mut index = Self {
            parts: Vec::new(),
            buckets: std::iter::repeat_with(Vec::new).take(256).collect(),
            ends: Vec::new(),
            last_bytes: [false; 256],
            weight: PartId::WHOLE,
        };
        for (part, number) in parts.iter().zip(0..).skip(1) {
            index.insert(part, PartId(number));
        }
        Self { parts, ..index }
    }

    fn insert(&mut self, part: &PartName, id: PartId) {
        let name = part.text();
        if part.name == "weight" {
            self.weight = id;
        }
        if part.is_end() {
            self.ends.push((name, id));
            let last = name.bytes().last().unwrap_or_default();
            self.last_bytes[usize::from(last)] = true;
            return;
        }
        let (before, last) = name.rsplit_once('.').unwrap_or(("", name));
        self.buckets[bucket(last)].push(ComponentName { before, last, part: id });
    }

    fn split<'a>(&self, name: &'a str, module: &'a str, last: &str) -> Option<(&'a str, PartId)> {
        for component in &self.buckets[bucket(last)] {
            if component.last == last
                && let Some(module) = strip_components(module, component.before)
            {
                return Some((module, component.part));
            }
        }
        if !self.last_bytes[usize::from(last.bytes().last()?)] {
            return None;
        }
        let ends = self.ends.iter().filter(|(end, _)| end.len() < last.len());
        let mut found = ends.filter(|(end, _)| last.ends_with(end));
        found.next().map(|&(end, part)| (&name[..name.len() - end.len()], part))
    }

    fn get(&self, part: PartId) -> &PartName {
        &self.parts[usize::from(part.0)]
    }
}

/// Returns a bucket below 256. Few names share one, because it depends on their length, first byte and last byte.
fn bucket(name: &str) -> usize {
    let [first, last] = [name.bytes().next(), name.bytes().last()].map(Option::unwrap_or_default);
    let length = name.len().to_le_bytes()[0];
    length.wrapping_mul(29).wrapping_add(first.wrapping_mul(7)).wrapping_add(last).into()
}

/// Removes trailing components from a module name; `None` if it does not end with them.
fn strip_components<'a>(module: &'a str, components: &str) -> Option<&'a str> {
    if components.is_empty() {
        return Some(module);
    }
    let rest = module.strip_suffix(components)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_suffix('.') }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_module_and_part() {
        let cases = [
            ("h.0.q_proj.weight", "h.0.q_proj", "weight"),
            ("weight", "", "weight"),
            ("h.q_proj.bias", "h.q_proj.bias", ""),
            ("h.q_proj.weight.absmax", "h.q_proj", "weight.absmax"),
            ("h.up_proj.absmax", "h.up_proj", "absmax"),
            (
                "h.q.weight.quant_state.bitsandbytes__nf4",
                "h.q",
                "weight.quant_state.bitsandbytes__nf4",
            ),
            ("h.experts.up_proj_blocks", "h.experts.up_proj", "_blocks"),
            ("h.experts._blocks", "h.experts._blocks", ""),
            ("h.myweight.absmax", "h.myweight", "absmax"),
            ("", "", ""),
        ];
        for (name, module, part) in cases {
            let (found, id) = split(name);
            assert_eq!((found, id.name()), (module, part), "{name}");
            assert_eq!(id.tensor_name(found), name);
        }
    }

    /// The index keeps only one of several parts with the same name.
    #[test]
    fn methods_agree_on_the_role_of_a_name() {
        for part in part_names() {
            let found = PARTS.parts.iter().find(|found| found.name == part.name).unwrap();
            assert_eq!((found.role, found.asks), (part.role, part.asks), "{}", part.name);
        }
    }
}
