//! The index of all component names, which splits tensor names into module and component.

use std::sync::LazyLock;

use memchr::memrchr;

use super::Buffer;
use super::methods::{METHODS, Method, all_names, without_star};
use super::module::{Component, container_bits};
use crate::formats::Dtype;

static INDEX: LazyLock<NameIndex> = LazyLock::new(NameIndex::new);

/// The components of all methods.
struct NameIndex {
    /// The components, the bare module name first, then longer names before shorter ones.
    components: Vec<Component>,
    /// For each component, the methods whose weights may be in it.
    methods: Vec<Vec<&'static Method>>,
    /// The indices of components, by the [`bucket`] of their last segment. Every tensor of every model is looked up
    /// here, and few names share a bucket, so a lookup compares one or two names.
    buckets: Vec<Vec<usize>>,
    /// The indices of components with several segments, by their [`long_bucket`]. Many of them end with `.weight`, the
    /// name of most tensors.
    long_buckets: Vec<Vec<usize>>,
    /// The indices of components whose name is a suffix of a segment, longest first.
    suffixes: Vec<usize>,
    /// True for the last byte of any suffix.
    last_bytes: [bool; 256],
}

impl NameIndex {
    fn new() -> Self {
        let mut names: Vec<_> = all_names().collect();
        // Sorted so that the longest of several suffixes matches first.
        names.sort_by_key(|(name, ..)| {
            (!name.is_empty(), usize::MAX - without_star(name).len(), *name)
        });
        names.dedup_by_key(|(name, ..)| *name);
        let components = names.into_iter().zip(0..).map(|((name, role), index)| {
            let is_suffix = name.starts_with('*');
            let name = without_star(name);
            let is_end = is_suffix || name.is_empty();
            let last = last_segment(name);
            let is_name = |buffer: &str| buffer == last || is_end && buffer.ends_with(last);
            let may_be_buffer = Buffer::last_segments().any(is_name);
            Component { index, name, is_suffix, role, may_be_buffer }
        });
        let components: Vec<_> = components.collect();
        let has_weights = |component| {
            METHODS.iter().filter(move |method| method.has_weights_in(component)).collect()
        };
        let mut index = Self {
            methods: components.iter().map(has_weights).collect(),
            buckets: vec![Vec::new(); 256],
            long_buckets: vec![Vec::new(); 256],
            suffixes: Vec::new(),
            last_bytes: [false; 256],
            components,
        };
        for (at, component) in index.components.iter().enumerate().skip(1) {
            if component.is_suffix {
                index.suffixes.push(at);
                index.last_bytes[last_byte(component.name)] = true;
            } else {
                let last = last_segment(component.name);
                if last.len() < component.name.len() {
                    index.long_buckets[long_bucket(component.name, last)].push(at);
                } else {
                    index.buckets[bucket(last)].push(at);
                }
            }
        }
        index
    }

    fn split<'a>(&'static self, name: &'a str) -> (&'a str, &'static Component) {
        let last = last_segment(name);
        let is_candidate = self.last_bytes[last_byte(name)];
        let suffixes = if is_candidate { &self.suffixes[..] } else { &[] };
        let long = &self.long_buckets[long_bucket(name, last)];
        for indices in [long, &self.buckets[bucket(last)], suffixes] {
            for &index in indices {
                let component = &self.components[index];
                if let Some(module) = component.module_of(name) {
                    return (module, component);
                }
            }
        }
        (name, &self.components[0])
    }
}

/// Splits the name of a tensor into its module and its component.
pub(crate) fn split(name: &str) -> (&str, &'static Component) {
    INDEX.split(name)
}

/// Returns the module of a tensor: its name without the name that quantizers or unquantized models give to a part.
pub(crate) fn module_of(name: &str) -> &str {
    split(name).0
}

/// Returns whether a tensor may contain packed weights, judging by its name and dtype.
pub(crate) fn is_packed_weight(name: &str, dtype: &Dtype) -> bool {
    let (_, component) = split(name);
    let is_packed = dtype.is_narrow_float() || container_bits(dtype).is_some();
    component.is_weights() && (is_packed || !component.is_plain())
}

/// Returns all components, ordered by index.
pub(super) fn components() -> &'static [Component] {
    &INDEX.components
}

/// Returns the methods whose weights may be in a component.
pub(super) fn methods_of(component: &Component) -> &'static [&'static Method] {
    &INDEX.methods[usize::from(component.index)]
}

fn last_segment(name: &str) -> &str {
    memrchr(b'.', name.as_bytes()).map_or(name, |dot| &name[dot + 1..])
}

fn last_byte(name: &str) -> usize {
    name.bytes().last().unwrap_or_default().into()
}

/// Returns a bucket below 256. Few names share one, because it depends on their length, first byte and last byte.
fn bucket(name: &str) -> usize {
    let [first, last] = [name.bytes().next(), name.bytes().last()].map(Option::unwrap_or_default);
    let length = name.len().to_le_bytes()[0];
    length.wrapping_mul(29).wrapping_add(first.wrapping_mul(7)).wrapping_add(last).into()
}

/// Returns a bucket below 256 for a name of several segments. It also depends on the last byte of the segment before
/// the last one.
fn long_bucket(name: &str, last: &str) -> usize {
    let before = name.len().checked_sub(last.len() + 2).map_or(0, |at| name.as_bytes()[at]);
    (bucket(last) + 31 * usize::from(before)) % 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_module_and_component() {
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
        for (name, module, expected) in cases {
            let (found, component) = split(name);
            assert_eq!((found, component.name), (module, expected), "{name}");
            let mut written = String::new();
            component.write_tensor_name(found, &mut written);
            assert_eq!(written, name);
        }
    }

    /// The index keeps only one of several components with the same name.
    #[test]
    fn methods_agree_on_the_role_of_a_name() {
        for (name, role) in all_names() {
            let is_same = |found: &&Component| {
                found.name == without_star(name) && found.is_suffix == name.starts_with('*')
            };
            let found = components().iter().find(is_same).unwrap();
            assert_eq!(found.role, role, "{name}");
        }
    }
}
