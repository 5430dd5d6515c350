//! Exceptions of all architectures that no generator derives. `tests/oracles/layout_corrections.txt` has their reasons.

use crate::architectures::architecture::text_of;
use crate::architectures::blueprint::{Blueprint, BlueprintEntry};

/// Returns the lines of a kind of exceptions, in their order.
fn lines(kind: &str) -> impl Iterator<Item = &'static str> {
    text_of("exceptions", kind).into_iter().flat_map(|lines| lines.split('\t'))
}

/// Returns parts of names in files, with what the layouts have in their place.
pub(super) fn other_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let names = lines("names").filter_map(|line| line.split_once(' '));
    names.map(|(other, known)| (other, if known == "none" { "" } else { known }))
}

/// Returns whether a class stores a head, even if its embeddings are tied. The first line that fits holds.
pub(super) fn stores_head(class: &str) -> bool {
    let mut ends = lines("heads");
    let end = ends.find(|end| class.ends_with(end.trim_start_matches('!')));
    end.is_some_and(|end| !end.starts_with('!'))
}

/// Returns whether a class, which may have several names, lacks a module of the layout. The first line of a part holds.
pub(super) fn lacks(classes: &[String], layout: &Blueprint<'_>, entry: &BlueprintEntry) -> bool {
    let outermost = entry.path.split('.').next().unwrap_or_default();
    let mut rules = lines("lacks").filter_map(|line| line.split_once(' '));
    let Some((part, rule)) = rules.find(|(part, _)| [outermost, "*"].contains(part)) else {
        return false;
    };
    let (end, other) = match rule.split_once(" beside ") {
        Some((end, other)) => (end, Some(other)),
        None => (rule, None),
    };
    let is_class = |end: &str| classes.iter().any(|class| class.ends_with(end));
    let is_class = match end.strip_prefix('!') {
        Some(end) => !is_class(end),
        None => is_class(end),
    };
    let is_meant = part != "*" || entry.depth == 0 && !entry.is_list;
    is_class && is_meant && other.is_none_or(|other| layout.has_root(other))
}
