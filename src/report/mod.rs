//! Results of a call and their views.

pub(crate) mod agreement;
mod assembly;
pub mod diff;
mod finding;
pub(crate) mod json;
mod name_parts;
/// For the command only; it may change in any version.
#[doc(hidden)]
pub mod text;
pub mod tree;
pub mod verify;

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use finding::{Finding, Severity};

pub(crate) use assembly::{Assembled, Assembly};
pub(crate) use finding::bounded;
pub(crate) use name_parts::{compare_parts, number, parts, ranges};

use crate::count::{CountBreakdown, ParameterCount};
use crate::formats::safetensors::{SafetensorsFileHeader, SafetensorsIndexJson};
use crate::formats::weight_sets::WeightSet;
use crate::formats::{FileHeader, ModelDescription, RepoPath};
use crate::hub::CommitSha;

/// The checked and counted safetensors headers of a repository.
///
/// Serializes to the JSON of huggingface.js with additional fields: those of [`CountReport`], then `header`,
/// or `index` and `headers`.
#[derive(Clone, Debug)]
pub enum SafetensorsParseFromRepo {
    /// All weights are in one file.
    Single(SafetensorsFile),
    /// The weights are spread over shards.
    Sharded(SafetensorsShards),
}

/// One file of weights.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SafetensorsFile {
    /// The path of the file in its repository or folder.
    pub path: RepoPath,
    /// The header of the file.
    pub header: SafetensorsFileHeader,
    /// The counts of the file.
    pub report: CountReport,
}

/// Weights spread over several files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SafetensorsShards {
    /// The path of the index in its repository or folder. Shards without an index have their common path
    /// here, with a `*` in place of the shard number.
    pub path: RepoPath,
    /// The index. It is built from the headers if the shards have none.
    pub index: SafetensorsIndexJson,
    /// The shards by their names in the index, sorted, with their headers.
    pub headers: Vec<(RepoPath, SafetensorsFileHeader)>,
    /// The counts of all shards together.
    pub report: CountReport,
}

/// The checked and counted headers of weights in any format.
///
/// Serializes as [`SafetensorsParseFromRepo`], and other formats with `headers` by file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Weights {
    /// Weights in safetensors.
    Safetensors(SafetensorsParseFromRepo),
    /// Weights in GGUF.
    Gguf(WeightFiles),
    /// Weights in a format that was added by `ClientBuilder::format`.
    Other(WeightFiles),
}

/// The checked and counted headers of weights in another format than safetensors.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WeightFiles {
    /// The path of the file, or the common path of its shards with a `*` in place of the number.
    pub path: RepoPath,
    /// The files by their names in the folder of `path`, sorted, with their headers.
    pub headers: Vec<(RepoPath, FileHeader)>,
    /// The counts of all files together.
    pub report: CountReport,
}

impl Weights {
    /// Returns the counts without the headers.
    #[must_use]
    pub fn report(&self) -> &CountReport {
        match self {
            Self::Safetensors(parsed) => parsed.report(),
            Self::Gguf(files) | Self::Other(files) => &files.report,
        }
    }

    /// Returns every file of weights with its path in the repository or folder and its header.
    pub fn files(&self) -> impl Iterator<Item = (RepoPath, &FileHeader)> {
        let path = match self {
            Self::Safetensors(SafetensorsParseFromRepo::Single(_)) => None,
            Self::Safetensors(SafetensorsParseFromRepo::Sharded(shards)) => Some(&shards.path),
            Self::Gguf(files) | Self::Other(files) => Some(&files.path),
        };
        self.named_headers().map(move |(name, header)| {
            (path.map_or_else(|| name.clone(), |path| path.sibling(name)), header)
        })
    }

    /// Returns every file with its path relative to the index, and its header.
    pub(crate) fn named_headers(&self) -> impl Iterator<Item = (&RepoPath, &FileHeader)> {
        let (single, shards, files) = match self {
            Self::Safetensors(SafetensorsParseFromRepo::Single(file)) => {
                (Some((&file.path, file.header.as_ref())), &[][..], &[][..])
            }
            Self::Safetensors(SafetensorsParseFromRepo::Sharded(shards)) => {
                (None, &shards.headers[..], &[][..])
            }
            Self::Gguf(files) | Self::Other(files) => (None, &[][..], &files.headers[..]),
        };
        let shards = shards.iter().map(|(name, header)| (name, header.as_ref()));
        let files = files.iter().map(|(name, header)| (name, header));
        single.into_iter().chain(shards).chain(files)
    }
}

impl From<SafetensorsParseFromRepo> for Weights {
    fn from(parsed: SafetensorsParseFromRepo) -> Self {
        Self::Safetensors(parsed)
    }
}

/// The counts of a set of weights, without its headers.
///
/// Serializes to the JSON of [`SafetensorsParseFromRepo`] without `header`, `index` and `headers`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CountReport {
    /// The repository, URL or path that was read, in the form of `Source`.
    pub source: String,
    /// The commit that every byte belongs to; `None` if the source has no commits.
    pub commit: Option<CommitSha>,
    /// The name of the format, such as `safetensors`.
    pub format: &'static str,
    /// The description of the model in the header of a file; `None` in formats that have none.
    pub model: Option<ModelDescription>,
    /// `true` if the weights are in several shards.
    pub sharded: bool,
    /// The paths of all files that were read, the index first.
    pub filepaths: Vec<RepoPath>,
    /// Parameters, elements, scalars and bytes per dtype.
    pub parameter_count: ParameterCount,
    /// The tensors in groups, with the reason why each group counts as it does.
    pub breakdown: CountBreakdown,
    /// The number of parameters that the file or the index declares. Never used as the count.
    pub declared_total: Option<u64>,
    /// Oddities of the files that leave the counts right.
    pub findings: Vec<Finding>,
    /// The other sets of weights in the repository, which are not counted. `None` if they were not
    /// listed: they are listed if the weights are not under one of the two usual names, and on request by
    /// `Model::other_sets`.
    pub other_sets: Option<Vec<WeightSet>>,
    /// Requests, bytes and time of the call.
    pub fetch: FetchStats,
    /// The requests by which the headers were read.
    pub plan: Plan,
}

/// The requests by which headers are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Plan {
    /// Two ranges of each file: the length of the header, then exactly the header. Also the plan of headers that were
    /// not read from a server.
    #[default]
    Exact,
    /// One range of each file that is expected to hold the header, and a second one only if it does not.
    ///
    /// It needs half of the requests, and may read bytes that are not needed. For a shard its length is estimated from
    /// the tensor names in the index, and is at most 8 MiB; for a single file it is 64 KiB.
    Prefetch,
    /// One request for all headers of a sharded repository, which the Hub has parsed.
    ///
    /// The headers are not compared with the files, and the commit may be unknown. Where the Hub has no such answer (a
    /// single file, another revision than `main`, another server), the files are read as by [`Plan::Prefetch`].
    Hub,
}

impl Plan {
    /// Returns whether the headers were read from the files.
    #[must_use]
    pub fn is_checked_against_bytes(self) -> bool {
        self != Self::Hub
    }
}

impl CountReport {
    /// Returns the number of files of weights, without the index.
    #[must_use]
    pub fn files(&self) -> usize {
        self.filepaths.iter().filter(|path| !path.is_index()).count()
    }
}

impl CountReport {
    /// Adds the other sets of weights, without those that were read.
    #[cfg(feature = "_http")]
    pub(crate) fn add_other_sets(&mut self, mut sets: Option<Vec<WeightSet>>) {
        let read = self.filepaths.iter().cloned().collect();
        if let Some(sets) = &mut sets {
            sets.retain(|set| !set.is_part_of(&read));
        }
        self.other_sets = sets;
    }
}

/// The requests, bytes and time that a call took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FetchStats {
    /// HTTP requests, including those that follow a redirect.
    pub requests: u64,
    /// Bytes read from HTTP bodies or local files.
    pub bytes_read: u64,
    /// Size in bytes of all files of weights together.
    pub bytes_total: u64,
    /// Time from the start of the call to its result. Serializes as `seconds`.
    #[serde(rename = "seconds", serialize_with = "as_seconds", deserialize_with = "from_seconds")]
    pub elapsed: Duration,
}

fn as_seconds<S: Serializer>(elapsed: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(elapsed.as_secs_f64())
}

fn from_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    Duration::try_from_secs_f64(seconds).map_err(D::Error::custom)
}

impl SafetensorsParseFromRepo {
    /// Returns the parameters per dtype, over all shards.
    #[must_use]
    pub fn parameter_count(&self) -> &ParameterCount {
        &self.report().parameter_count
    }

    /// Returns the counts without the headers.
    #[must_use]
    pub fn report(&self) -> &CountReport {
        match self {
            Self::Single(file) => &file.report,
            Self::Sharded(shards) => &shards.report,
        }
    }

    /// Returns the counts and drops the headers.
    #[must_use]
    pub fn into_report(self) -> CountReport {
        match self {
            Self::Single(file) => file.report,
            Self::Sharded(shards) => shards.report,
        }
    }

    /// Returns every file of weights with its path in the repository or folder and its header.
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
}
