//! What two sets of weights differ in, by their headers.

mod group;

use std::collections::BTreeMap;

use serde::Serialize;

pub use self::group::ChangeGroup;
use crate::count::ParameterCount;
use crate::formats::safetensors::SafetensorsFileHeader;
use crate::formats::{Dtype, RepoPath, TensorInfo};
use crate::hub::CommitSha;
use crate::report::SafetensorsParseFromRepo;

/// What two sets of weights differ in: the names of tensors, their dtypes, shapes and shards. Values
/// are not compared, for they are not read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diff {
    /// What is compared with.
    pub before: DiffSide,
    /// What is compared.
    pub after: DiffSide,
    /// The tensors that are not the same on both sides, in the order of their names.
    pub changes: Vec<TensorChange>,
    /// How many tensors are the same.
    pub unchanged: u64,
}

/// One of the sets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiffSide {
    /// What was read, in the form of [`Source`](crate::Source).
    pub source: String,
    /// The commit that it is of; `None` where there are no commits.
    pub commit: Option<CommitSha>,
    /// Its files of weights.
    pub files: usize,
    /// Its parameters, scalars and bytes per dtype.
    pub parameter_count: ParameterCount,
}

/// A tensor that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TensorChange {
    /// Its name.
    pub tensor: String,
    /// In what it differs, at least one.
    pub kinds: Vec<ChangeKind>,
    /// What it was; `None` where it was added.
    pub before: Option<TensorVersion>,
    /// What it is; `None` where it was removed.
    pub after: Option<TensorVersion>,
}

/// In what a tensor may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
    /// It is not there after.
    Removed,
    /// It was not there before.
    Added,
    /// Its shape differs.
    Reshaped,
    /// Its dtype differs.
    Retyped,
    /// It is in another shard. The names of two single files are not compared.
    Moved,
}

/// What a tensor is on one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TensorVersion {
    /// The type of its elements.
    pub dtype: Dtype,
    /// The length of each dimension.
    pub shape: Vec<u64>,
    /// Its file, by the name that the index has for it.
    pub file: RepoPath,
}

impl Diff {
    /// Compares two sets of weights.
    #[must_use]
    pub fn new(before: &SafetensorsParseFromRepo, after: &SafetensorsParseFromRepo) -> Self {
        let has_shards = before.report().sharded || after.report().sharded;
        let mut tensors = BTreeMap::<_, (Option<TensorVersion>, Option<TensorVersion>)>::new();
        for (name, version) in versions(before) {
            tensors.entry(name).or_default().0 = Some(version);
        }
        for (name, version) in versions(after) {
            tensors.entry(name).or_default().1 = Some(version);
        }
        let (all, mut changes) = (tensors.len(), Vec::new());
        for (tensor, (before, after)) in tensors {
            let kinds = kinds(before.as_ref(), after.as_ref(), has_shards);
            if !kinds.is_empty() {
                changes.push(TensorChange { tensor: tensor.to_owned(), kinds, before, after });
            }
        }
        let unchanged = (all - changes.len()) as u64;
        Self { before: DiffSide::new(before), after: DiffSide::new(after), changes, unchanged }
    }

    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How many tensors differ in this.
    #[must_use]
    pub fn count(&self, kind: ChangeKind) -> u64 {
        self.changes.iter().filter(|change| change.kinds.contains(&kind)).count() as u64
    }

    /// The changes with those put together that are alike, by kind and then by name.
    #[must_use]
    pub fn groups(&self) -> Vec<ChangeGroup> {
        group::groups(&self.changes)
    }
}

impl DiffSide {
    fn new(parsed: &SafetensorsParseFromRepo) -> Self {
        let facts = parsed.report();
        Self {
            source: facts.source.clone(),
            commit: facts.commit.clone(),
            files: headers(parsed).count(),
            parameter_count: facts.parameter_count.clone(),
        }
    }
}

/// Every file by its name in the index, with its header.
fn headers(
    parsed: &SafetensorsParseFromRepo,
) -> impl Iterator<Item = (&RepoPath, &SafetensorsFileHeader)> {
    let (single, shards) = match parsed {
        SafetensorsParseFromRepo::Single(file) => (Some((&file.path, &file.header)), &[][..]),
        SafetensorsParseFromRepo::Sharded(shards) => (None, &shards.headers[..]),
    };
    single.into_iter().chain(shards.iter().map(|(path, header)| (path, header)))
}

fn versions(parsed: &SafetensorsParseFromRepo) -> impl Iterator<Item = (&str, TensorVersion)> {
    headers(parsed).flat_map(|(file, header)| {
        header.tensors().iter().map(|(name, TensorInfo { dtype, shape, .. })| {
            (name, TensorVersion { dtype, shape, file: file.clone() })
        })
    })
}

fn kinds(
    before: Option<&TensorVersion>,
    after: Option<&TensorVersion>,
    has_shards: bool,
) -> Vec<ChangeKind> {
    let (Some(before), Some(after)) = (before, after) else {
        return vec![if before.is_some() { ChangeKind::Removed } else { ChangeKind::Added }];
    };
    let kinds = [
        (ChangeKind::Reshaped, before.shape != after.shape),
        (ChangeKind::Retyped, before.dtype != after.dtype),
        (ChangeKind::Moved, has_shards && before.file != after.file),
    ];
    kinds.into_iter().filter(|(_, is_so)| *is_so).map(|(kind, _)| kind).collect()
}
