//! The result of a call.

pub mod agreement;
pub mod diff;
mod finding;
pub(crate) mod json;
mod name_parts;
pub mod text;
pub mod tree;
pub mod verify;

use std::time::Duration;

pub use finding::{Finding, Severity};

pub(crate) use finding::bounded;
pub(crate) use name_parts::{in_order, number, parts, ranges};

use crate::count::CountBreakdown;
use crate::count::ParameterCount;
use crate::formats::RepoPath;
use crate::formats::safetensors::{SafetensorsFileHeader, SafetensorsIndexJson};
use crate::formats::weight_sets::WeightSet;
use crate::hub::CommitSha;

/// What the safetensors headers of a repo say, checked and counted.
///
/// Serializes to the JSON of huggingface.js, with fields of our own beside its own; see
/// [`Summary`](crate::Summary) for the part without the headers.
#[derive(Clone, Debug)]
pub enum SafetensorsParseFromRepo {
    /// All weights are in one file.
    Single(SafetensorsFile),
    /// The weights are spread over shards, which an index lists.
    Sharded(SafetensorsShards),
}

/// One file of weights.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SafetensorsFile {
    /// The path of the file in its repo or folder.
    pub path: RepoPath,
    /// Its header.
    pub header: SafetensorsFileHeader,
    /// What was found out about it.
    pub facts: Facts,
}

/// Weights spread over several files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SafetensorsShards {
    /// The path of the index in its repo or folder. Where there is none, the common path of the shards
    /// with a `*` in place of their number.
    pub path: RepoPath,
    /// The index. Where there is none, what the headers say in its place.
    pub index: SafetensorsIndexJson,
    /// Every shard by its name in the index, with its header, in the order of their names.
    pub headers: Vec<(RepoPath, SafetensorsFileHeader)>,
    /// What was found out about them.
    pub facts: Facts,
}

/// What is known of a set of weights beside its headers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Facts {
    /// What was read, in the form of [`Source`](crate::Source).
    pub source: String,
    /// The commit that every byte is of; `None` where there are no commits.
    pub commit: Option<CommitSha>,
    /// Parameters, elements, scalars and bytes per dtype.
    pub parameter_count: ParameterCount,
    /// How the parameters were counted, tensor by tensor.
    pub counting: CountBreakdown,
    /// The total that the file or the index claims of itself; a claim, not a count.
    pub declared_total: Option<u64>,
    /// What is odd about the files, though the counts are right.
    pub findings: Vec<Finding>,
    /// The other sets of weights that are there, which are not counted; `None` where nobody looked. They
    /// are looked for when the weights are not where most repos have them, and when asked for by
    /// [`Model::other_sets`](crate::Model::other_sets).
    pub other_sets: Option<Vec<WeightSet>>,
    /// What it took to know all this.
    pub cost: FetchStats,
}

/// The figures of a set of weights, without its headers.
///
/// Serializes to the JSON of [`SafetensorsParseFromRepo`] less `header`, `index` and `headers`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CountReport {
    /// The paths of all files that the figures are from, the index first.
    pub paths: Vec<RepoPath>,
    /// Whether the weights are spread over shards.
    pub sharded: bool,
    /// What was found out about them.
    pub facts: Facts,
}

impl CountReport {
    /// The number of files of weights.
    #[must_use]
    pub fn files(&self) -> usize {
        self.paths.len() - usize::from(self.sharded)
    }
}

impl From<&SafetensorsParseFromRepo> for CountReport {
    fn from(parsed: &SafetensorsParseFromRepo) -> Self {
        let (paths, sharded) = (parsed.filepaths(), parsed.is_sharded());
        Self { paths, sharded, facts: parsed.facts().clone() }
    }
}

/// What a call took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FetchStats {
    /// HTTP requests, those that redirects led to among them.
    pub requests: u64,
    /// Bytes read: of HTTP bodies, or of local files.
    pub bytes_read: u64,
    /// Bytes that all the files of weights have together.
    pub bytes_total: u64,
    /// From the call to its result.
    pub elapsed: Duration,
}

impl SafetensorsParseFromRepo {
    /// Parameters per dtype, over all shards.
    #[must_use]
    pub fn parameter_count(&self) -> &ParameterCount {
        &self.facts().parameter_count
    }

    /// What is known beside the headers.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        match self {
            Self::Single(file) => &file.facts,
            Self::Sharded(shards) => &shards.facts,
        }
    }

    pub(crate) fn facts_mut(&mut self) -> &mut Facts {
        match self {
            Self::Single(file) => &mut file.facts,
            Self::Sharded(shards) => &mut shards.facts,
        }
    }

    /// Every file of weights with its header. Its path is that in the repo or folder.
    pub fn files(&self) -> impl Iterator<Item = (RepoPath, &SafetensorsFileHeader)> {
        let (single, sharded) = match self {
            Self::Single(file) => (Some((file.path.clone(), &file.header)), None),
            Self::Sharded(shards) => (None, Some(shards)),
        };
        let shards = sharded.into_iter().flat_map(|shards| {
            shards.headers.iter().map(|(name, header)| (shards.path.sibling(name), header))
        });
        single.into_iter().chain(shards)
    }

    /// The paths of all files that the result is from, the index first, if there is one.
    #[must_use]
    pub fn filepaths(&self) -> Vec<RepoPath> {
        let index = match self {
            Self::Single(_) => None,
            Self::Sharded(shards) => Some(shards.path.clone()).filter(RepoPath::is_index),
        };
        index.into_iter().chain(self.files().map(|(path, _)| path)).collect()
    }

    /// Whether the weights are spread over shards.
    #[must_use]
    pub fn is_sharded(&self) -> bool {
        matches!(self, Self::Sharded(_))
    }
}
