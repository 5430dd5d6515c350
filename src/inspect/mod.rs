//! The call itself: find the weights, then read every header and count.

mod cached;
mod config_file;
mod locate;
mod plan;
mod reader;
mod shards;
mod unindexed;
mod verify;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;

pub(crate) use self::plan::Plan;
use self::reader::Reader;
use crate::backends::{Backend, ByteStream, Fetched, HeaderCache, pinned, poll_alongside};
use crate::error::Error;
use crate::formats::RepoPath;
use crate::formats::weight_sets::{WeightSet, names_shards};
use crate::http::transfer::{RangeBytes, RequestMeter};
use crate::hub::CommitSha;
use crate::report::Finding;
use crate::report::verify::VerifyReport;
use crate::report::{Assembled, CountReport, SafetensorsParseFromRepo};

/// How far a call is, in shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Shards whose header is read and checked.
    pub done: usize,
    /// Shards that are known. While an index arrives, that may become more.
    pub total: usize,
}

/// Is told of every shard that is done.
#[derive(Clone)]
pub(crate) struct OnProgress(pub(crate) Arc<dyn Fn(Progress) + Send + Sync>);

impl fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnProgress")
    }
}

/// Bounds of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of one header.
    pub(crate) header: u64,
    /// Bytes of all headers together.
    pub(crate) headers: u64,
    /// Bytes of an index.
    pub(crate) index: u64,
    /// Bytes of a configuration.
    pub(crate) config: u64,
    /// Shards that are read side by side.
    pub(crate) concurrency: usize,
}

/// What of a store is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A file of weights.
    File(RepoPath),
    /// An index.
    Index(RepoPath),
    /// Shards without an index, by their common path.
    Shards(RepoPath),
    /// Whatever is in the folder, or in the store itself.
    Folder(Option<RepoPath>),
}

impl Target {
    /// What a path in a repo asks for, by its name: it is a folder unless it looks like a file.
    pub(crate) fn of(path: Option<RepoPath>) -> Self {
        match path {
            Some(path) if names_shards(&path) => Self::Shards(path),
            Some(path) if path.is_safetensors() || path.is_index() => Self::of_file(path),
            folder => Self::Folder(folder),
        }
    }

    /// What a file is by its name: weights unless it looks like an index.
    pub(crate) fn of_file(path: RepoPath) -> Self {
        if path.is_index() { Self::Index(path) } else { Self::File(path) }
    }

    /// The folder to look in; all of the store where none is asked for.
    pub(crate) fn folder(&self) -> Option<&RepoPath> {
        match self {
            Self::Folder(folder) => folder.as_ref(),
            Self::File(_) | Self::Index(_) | Self::Shards(_) => None,
        }
    }
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) source: String,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) target: Target,
    pub(crate) plan: Plan,
    pub(crate) limits: Limits,
    /// Whether the other sets of weights are listed even if the first place to look at has some.
    pub(crate) lists_sets: bool,
    pub(crate) on_progress: Option<OnProgress>,
    pub(crate) started: Instant,
    pub(crate) meter: RequestMeter,
}

/// A set of weights whose headers were read, from a backend or from the cache.
struct Inspected {
    /// The path of the file or the index, or the common path of shards without an index.
    path: RepoPath,
    backend: Arc<dyn Backend>,
    assembled: Assembled,
    report: CountReport,
}

/// What the target turned out to be.
struct Found {
    weights: Weights,
    /// All sets that are there, where they had to be listed.
    other_sets: Option<Vec<WeightSet>>,
    /// Whether they were found without a look at a listing, or by one that leaves nothing out.
    is_whole: bool,
}

impl Found {
    /// Weights where they were said to be.
    fn just(weights: Weights) -> Self {
        Self { weights, other_sets: None, is_whole: true }
    }
}

/// One set of weights, with what is read of it so far.
enum Weights {
    File { path: RepoPath, start: Fetched<RangeBytes> },
    Index { path: RepoPath, stream: Fetched<ByteStream> },
    Shards { path: RepoPath, shards: Vec<RepoPath>, commit: Option<CommitSha> },
}

impl Weights {
    /// Waits for something else while the weights arrive.
    async fn poll_alongside<T>(self, other: impl Future<Output = T>) -> (Self, T) {
        let Self::Index { path, stream: Fetched { value, commit } } = self else {
            return (self, other.await);
        };
        let (value, other) = poll_alongside(value, other).await;
        (Self::Index { path, stream: Fetched { value, commit } }, other)
    }

    fn commit(&self) -> Option<&CommitSha> {
        match self {
            Self::File { start, .. } => start.commit.as_ref(),
            Self::Index { stream, .. } => stream.commit.as_ref(),
            Self::Shards { commit, .. } => commit.as_ref(),
        }
    }
}

impl Load {
    /// Reads all headers and returns them with their figures. Ends at the first error.
    pub(crate) async fn parse(
        self,
        cache: Option<&HeaderCache>,
    ) -> Result<SafetensorsParseFromRepo, Error> {
        let Inspected { path, backend, assembled, report } = self.inspect(cache, true).await?;
        let file = backend.file_name(&path);
        let parsed = assembled.into_parsed(path, report);
        parsed.map_err(|source| Error::Index { file, source })
    }

    /// Reads all headers and returns their figures; each header is dropped once it is counted.
    pub(crate) async fn count(self, cache: Option<&HeaderCache>) -> Result<CountReport, Error> {
        Ok(self.inspect(cache, false).await?.report)
    }

    /// Reads all headers, and ends at the first error.
    async fn read(self, keeps_headers: bool) -> Result<Inspected, Error> {
        let (reader, Found { weights, other_sets, is_whole }) = self.begin().await?;
        let mut inspected = reader.read_weights(weights, keeps_headers).await?;
        inspected.report.add_other_sets(other_sets);
        inspected.report.findings.extend((!is_whole).then_some(Finding::PartialListing));
        Ok(inspected)
    }

    /// Reads all headers, and goes on where one is wrong.
    pub(crate) async fn verify(self) -> Result<VerifyReport, Error> {
        let (reader, Found { weights, is_whole, .. }) = self.begin().await?;
        let mut report = reader.verify(weights).await?;
        report.findings.extend((!is_whole).then_some(Finding::PartialListing));
        Ok(report)
    }

    /// Finds the weights. The futures of that are many; boxed, they are no part of all others.
    fn begin(self) -> BoxFuture<'static, Result<(Reader, Found), Error>> {
        Box::pin(async move {
            let (mut load, mut found) = self.find_with_or_without_token().await?;
            let commit = found.weights.commit().cloned();
            load.backend = pinned(&load.backend, commit.as_ref());
            if load.lists_sets && found.other_sets.is_none() {
                let (weights, sets) = found.weights.poll_alongside(load.list_sets()).await;
                found = Found { weights, other_sets: sets?, ..found };
            }
            Ok((Reader::new(load, commit), found))
        })
    }

    /// A public repo needs no token, and one that has expired must not keep its owner from it.
    async fn find_with_or_without_token(mut self) -> Result<(Self, Found), Error> {
        let error = match self.find().await {
            Err(error @ Error::RejectedToken { .. }) => error,
            found => return found.map(|found| (self, found)),
        };
        let Some(backend) = self.backend.anonymous() else { return Err(error) };
        self.backend = backend;
        let Ok(found) = self.find().await else { return Err(error) };
        tracing::warn!("the token is not valid; reading without it");
        Ok((self, found))
    }

    async fn find(&self) -> Result<Found, Error> {
        match &self.target {
            Target::File(path) => self.find_file(path).await,
            Target::Index(path) => self.find_index(path).await,
            Target::Shards(path) => self.find_shards(path).await,
            Target::Folder(folder) => self.search(folder.as_ref()).await,
        }
    }

    async fn find_file(&self, path: &RepoPath) -> Result<Found, Error> {
        let start = self.backend.read_range(path, self.plan.first_range(path)).await?;
        Ok(Found::just(Weights::File { path: path.clone(), start }))
    }

    async fn find_index(&self, path: &RepoPath) -> Result<Found, Error> {
        let stream = self.backend.stream(path, self.limits.index).await?;
        Ok(Found::just(Weights::Index { path: path.clone(), stream }))
    }
}
