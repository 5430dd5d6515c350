//! Groups changes that differ only in the numbers in tensor names.

use std::collections::{BTreeMap, BTreeSet};

use super::{ChangeKind, TensorChange, TensorState};
use crate::formats::{Dtype, RepoPath};
use crate::report::{compare_parts, number, parts, ranges};

/// Changes with the same kinds, dtypes and shapes, to tensors whose names differ only in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeGroup {
    /// The common name, with numbers as ranges in brackets, such as `h.[0-69].ln.weight`. If several components are
    /// ranges, not every combination has to exist.
    pub name: String,
    /// The number of tensors.
    pub tensors: u64,
    /// The kinds of change.
    pub kinds: Vec<ChangeKind>,
    /// The old dtype and shape, or `None` for added tensors.
    pub before: Option<(Dtype, Vec<u64>)>,
    /// The new dtype and shape, or `None` for removed tensors.
    pub after: Option<(Dtype, Vec<u64>)>,
    /// The files that contain the tensors in the old checkpoint.
    pub files_before: BTreeSet<RepoPath>,
    /// The files that contain the tensors in the new checkpoint.
    pub files_after: BTreeSet<RepoPath>,
}

/// The common properties of a group: kinds, name without numbers, dtypes and shapes.
type GroupKey<'a> = (&'a [ChangeKind], Vec<Option<&'a str>>, [Option<(&'a Dtype, &'a [u64])>; 2]);

pub(super) fn groups(changes: &[TensorChange]) -> Vec<ChangeGroup> {
    let mut groups = BTreeMap::<GroupKey<'_>, Vec<&TensorChange>>::new();
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
        let names = || compare_parts(&parts(&a.name), &parts(&b.name));
        a.kinds.cmp(&b.kinds).then_with(names)
    });
    groups
}

fn summarize(group: &[&TensorChange]) -> Option<ChangeGroup> {
    let first = group.first()?;
    let figures = |version: &Option<TensorState>| {
        version.as_ref().map(|version| (version.dtype.clone(), version.shape.clone()))
    };
    let files = |side: fn(&TensorChange) -> &Option<TensorState>| {
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

/// Returns the common name of a group, with the numbers in brackets.
fn name(group: &[&TensorChange]) -> String {
    let names: Vec<_> = group.iter().map(|change| parts(&change.tensor)).collect();
    let Some(first) = names.first() else { return String::new() };
    let part = |at: usize| {
        let numbers: Option<BTreeSet<_>> = names.iter().map(|name| number(name[at])).collect();
        numbers.map_or_else(|| first[at].to_owned(), |numbers| ranges(&numbers))
    };
    (0..first.len()).map(part).collect::<Vec<_>>().join(".")
}
