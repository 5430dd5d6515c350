//! Damage to a header: to its structure, to its text, and to its file.

pub(super) mod bytes;
mod entry;
pub(super) mod listing;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::tree::{Fields, Node, quoted};

/// The choice of a position and a value.
#[derive(Clone, Debug)]
pub(super) struct Pick {
    place: Index,
    part: Index,
    value: Index,
    change: Index,
}

/// One change. It has no effect on a header without anything to change.
pub(super) type Change<T> = fn(&mut T, &Pick);

/// A strategy for some of the given changes, at most `limit` of them.
pub(super) fn changes<T: 'static>(
    among: &'static [Change<T>],
    most: usize,
) -> impl Strategy<Value = Vec<(Change<T>, Pick)>> {
    proptest::collection::vec((select(among), pick()), 0..=most)
}

fn pick() -> impl Strategy<Value = Pick> {
    any::<[Index; 4]>().prop_map(|[place, part, value, change]| Pick { place, part, value, change })
}

fn one<T>(index: Index, among: &mut [T]) -> Option<&mut T> {
    (!among.is_empty()).then(|| index.get_mut(among))
}

fn value_of<'a>(fields: &'a mut Fields, name: &str) -> Option<&'a mut Node> {
    let name = quoted(name);
    fields.iter_mut().find(|(field, _)| *field == name).map(|(_, value)| value)
}

fn number(node: &Node) -> Option<u64> {
    match node {
        Node::Token(text) => text.parse().ok(),
        _ => None,
    }
}
