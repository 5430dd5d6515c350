//! Changes that are alike, put together.

use std::collections::{BTreeMap, BTreeSet};

use super::{ChangeKind, TensorChange, TensorVersion};
use crate::formats::{Dtype, RepoPath};
use crate::report::{in_order, number, parts, ranges};

/// Changes of tensors whose names differ in numbers alone, and that are the same but for shards.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeGroup {
    /// The name, with the numbers that there are, `h.[0-69].ln.weight`. Where there are several such
    /// places not every combination need be there.
    pub name: String,
    /// How many tensors there are.
    pub tensors: u64,
    /// In what they differ.
    pub kinds: Vec<ChangeKind>,
    /// What they were, by dtype and shape; `None` where they were added.
    pub before: Option<(Dtype, Vec<u64>)>,
    /// What they are; `None` where they were removed.
    pub after: Option<(Dtype, Vec<u64>)>,
    /// The shards that they were in.
    pub files_before: BTreeSet<RepoPath>,
    /// The shards that they are in.
    pub files_after: BTreeSet<RepoPath>,
}

/// What those of a group have in common: names without numbers, and what differs.
type Likeness<'a> = (&'a [ChangeKind], Vec<Option<&'a str>>, [Option<(&'a Dtype, &'a [u64])>; 2]);

pub(super) fn groups(changes: &[TensorChange]) -> Vec<ChangeGroup> {
    let mut groups = BTreeMap::<Likeness<'_>, Vec<&TensorChange>>::new();
    for change in changes {
        let name = parts(&change.tensor).into_iter();
        let name = name.map(|part| Some(part).filter(|part| number(part).is_none())).collect();
        let versions = [&change.before, &change.after].map(|version| {
            version.as_ref().map(|version| (&version.dtype, version.shape.as_slice()))
        });
        groups.entry((&change.kinds, name, versions)).or_default().push(change);
    }
    let mut groups: Vec<_> = groups.into_values().filter_map(|group| summarize(&group)).collect();
    groups.sort_by(|a, b| {
        let names = || in_order(&parts(&a.name), &parts(&b.name));
        a.kinds.cmp(&b.kinds).then_with(names)
    });
    groups
}

fn summarize(group: &[&TensorChange]) -> Option<ChangeGroup> {
    let first = group.first()?;
    let figures = |version: &Option<TensorVersion>| {
        version.as_ref().map(|version| (version.dtype.clone(), version.shape.clone()))
    };
    let files = |side: fn(&TensorChange) -> &Option<TensorVersion>| {
        let versions = group.iter().filter_map(|change| side(change).as_ref());
        versions.map(|version| version.file.clone()).collect()
    };
    Some(ChangeGroup {
        name: name(group),
        tensors: group.len() as u64,
        kinds: first.kinds.clone(),
        before: figures(&first.before),
        after: figures(&first.after),
        files_before: files(|change| &change.before),
        files_after: files(|change| &change.after),
    })
}

/// The name of changes whose names differ in numbers alone.
fn name(group: &[&TensorChange]) -> String {
    let names: Vec<_> = group.iter().map(|change| parts(&change.tensor)).collect();
    let Some(first) = names.first() else { return String::new() };
    let part = |at: usize| {
        let numbers: Option<BTreeSet<_>> = names.iter().map(|name| number(name[at])).collect();
        numbers.map_or_else(|| first[at].to_owned(), |numbers| ranges(&numbers))
    };
    (0..first.len()).map(part).collect::<Vec<_>>().join(".")
}
