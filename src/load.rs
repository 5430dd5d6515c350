//! The call itself: find the weights, read every header, hold them against each other, count.

use std::fmt;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures::future::{Either, select};
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::error::Error;
use crate::hub::CommitSha;
use crate::parse::{Cost, Facts, SafetensorsFile, SafetensorsParseFromRepo, SafetensorsShards};
use crate::read::{Chunk, Meter};
use crate::safetensors::{
    Finding, HeaderLength, PREFIX_LENGTH, ParameterCount, RepoPath, SafetensorsFileHeader,
    SafetensorsIndexJson, agreement,
};
use crate::store::{Fetched, Store};

/// The bytes of a file that hold the length of its header.
const PREFIX: Range<u64> = 0..PREFIX_LENGTH;

/// The names by which weights are found in a repo.
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// How far a call is, in shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Shards whose header is read and checked.
    pub done: usize,
    /// All shards.
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
    /// Whichever of the two is in the folder, or in the store itself.
    Folder(Option<RepoPath>),
}

impl Target {
    /// What a path in a repo asks for, by its name: it is a folder unless it looks like a file.
    pub(crate) fn of(path: Option<RepoPath>) -> Self {
        match path {
            Some(path) if path.is_safetensors() || path.is_index() => Self::of_file(path),
            folder => Self::Folder(folder),
        }
    }

    /// What a file is by its name: weights unless it looks like an index.
    pub(crate) fn of_file(path: RepoPath) -> Self {
        if path.is_index() { Self::Index(path) } else { Self::File(path) }
    }
}

/// One call.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) source: String,
    pub(crate) store: Store,
    pub(crate) target: Target,
    pub(crate) limits: Limits,
    pub(crate) on_progress: Option<OnProgress>,
}

/// What the target turned out to be.
enum Found {
    File { path: RepoPath, start: Fetched<Chunk> },
    Index { path: RepoPath, json: Fetched<Vec<u8>> },
}

impl Load {
    pub(crate) async fn run(self) -> Result<SafetensorsParseFromRepo, Error> {
        let (started, meter) = (Instant::now(), Meter::default());
        let (load, found) = self.find_with_or_without_token(&meter).await?;
        match found {
            Found::File { path, start } => {
                let reader = Reader::new(load, start.commit, started, meter);
                reader.single(path, &start.value).await
            }
            Found::Index { path, json } => {
                let reader = Reader::new(load, json.commit, started, meter);
                reader.sharded(path, json.value).await
            }
        }
    }

    /// A public repo needs no token, and one that has expired must not keep its owner from it.
    async fn find_with_or_without_token(mut self, meter: &Meter) -> Result<(Self, Found), Error> {
        let error = match self.find(meter).await {
            Err(error @ Error::BadToken { .. }) => error,
            found => return found.map(|found| (self, found)),
        };
        let Some(store) = self.store.anonymous() else { return Err(error) };
        self.store = store;
        let Ok(found) = self.find(meter).await else { return Err(error) };
        tracing::warn!("the token is not valid; reading without it");
        Ok((self, found))
    }

    async fn find(&self, meter: &Meter) -> Result<Found, Error> {
        match &self.target {
            Target::File(path) => self.find_file(path, meter).await,
            Target::Index(path) => self.find_index(path, meter).await,
            Target::Folder(folder) => self.search(folder.as_ref(), meter).await,
        }
    }

    /// Asks for both names at once: which of them a repo has is not known before, and asking for one
    /// after the other would cost every sharded repo a round trip. Where both are there the single file
    /// is the one that loaders take, and the index is not waited for.
    async fn search(&self, folder: Option<&RepoPath>, meter: &Meter) -> Result<Found, Error> {
        let [single, index] = [SINGLE, INDEX].map(|name| RepoPath::within(folder, name));
        let file = pin!(self.find_file(&single, meter));
        let shards = pin!(self.find_index(&index, meter));
        let found = match select(file, shards).await {
            Either::Left((Err(Error::FileNotFound { .. }), shards)) => shards.await,
            Either::Left((file, _)) => file,
            Either::Right((shards, file)) => match file.await {
                Err(Error::FileNotFound { .. }) => shards,
                file => file,
            },
        };
        found.map_err(|error| match error {
            Error::FileNotFound { source, .. } => Error::NoSafetensors {
                place: self.source.clone(),
                single: single.to_string(),
                index: index.to_string(),
                source,
            },
            other => other,
        })
    }

    async fn find_file(&self, path: &RepoPath, meter: &Meter) -> Result<Found, Error> {
        let start = self.store.range(path, &PREFIX, meter).await?;
        Ok(Found::File { path: path.clone(), start })
    }

    async fn find_index(&self, path: &RepoPath, meter: &Meter) -> Result<Found, Error> {
        let json = self.store.whole(path, self.limits.index, meter).await?;
        Ok(Found::Index { path: path.clone(), json })
    }
}

/// Reads headers of one commit.
struct Reader {
    source: String,
    store: Store,
    commit: Option<CommitSha>,
    limits: Limits,
    on_progress: Option<OnProgress>,
    started: Instant,
    meter: Meter,
    header_bytes: AtomicU64,
}

impl Reader {
    /// A reader that stays with the commit of the call's first answer, whatever becomes of the branch.
    fn new(load: Load, commit: Option<CommitSha>, started: Instant, meter: Meter) -> Self {
        let Load { source, store, limits, on_progress, .. } = load;
        Self {
            source,
            store: store.pinned(commit.as_ref()),
            commit,
            limits,
            on_progress,
            started,
            meter,
            header_bytes: AtomicU64::new(0),
        }
    }

    async fn single(
        self,
        path: RepoPath,
        start: &Chunk,
    ) -> Result<SafetensorsParseFromRepo, Error> {
        let header = self.rest(&path, start).await?;
        let (count, declared) = (header.parameter_count().clone(), header.declared_total());
        let findings = agreement::check_count(&count, declared);
        let facts = self.facts(header.file_size(), count, declared, findings);
        Ok(SafetensorsParseFromRepo::Single(SafetensorsFile { path, header, facts }))
    }

    async fn sharded(
        self,
        path: RepoPath,
        json: Vec<u8>,
    ) -> Result<SafetensorsParseFromRepo, Error> {
        let wrong = |source| Error::Index { file: self.store.name(&path), source };
        let index = SafetensorsIndexJson::from_json(&json).map_err(wrong)?;
        drop(json);
        let headers = self.headers(&path, index.shards()).await?;
        let (count, findings) = agreement::check(&index, &headers).map_err(wrong)?;
        let bytes =
            headers.iter().map(|(_, header)| header.file_size()).fold(0, u64::saturating_add);
        let facts = self.facts(bytes, count, index.declared_total(), findings);
        Ok(SafetensorsParseFromRepo::Sharded(SafetensorsShards { path, index, headers, facts }))
    }

    /// The headers of all shards, read side by side, in the order of the shards.
    async fn headers(
        &self,
        index: &RepoPath,
        shards: &[RepoPath],
    ) -> Result<Vec<(RepoPath, SafetensorsFileHeader)>, Error> {
        let total = shards.len();
        let reads = shards.iter().cloned().enumerate().map(|(rank, shard)| {
            let path = index.sibling(&shard);
            async move { self.header(&path).await.map(|header| (rank, shard, header)) }
        });
        let mut headers = Vec::with_capacity(total);
        let mut reads = stream::iter(reads).buffer_unordered(self.limits.concurrency);
        while let Some(header) = reads.try_next().await? {
            headers.push(header);
            if let Some(OnProgress(tell)) = &self.on_progress {
                tell(Progress { done: headers.len(), total });
            }
        }
        headers.sort_unstable_by_key(|(rank, ..)| *rank);
        Ok(headers.into_iter().map(|(_, shard, header)| (shard, header)).collect())
    }

    async fn header(&self, path: &RepoPath) -> Result<SafetensorsFileHeader, Error> {
        let start = self.read(path, &PREFIX).await?;
        self.rest(path, &start).await
    }

    /// Reads and checks the header of a file of which the first bytes are known.
    async fn rest(&self, path: &RepoPath, start: &Chunk) -> Result<SafetensorsFileHeader, Error> {
        let wrong = |source| Error::Header { file: self.store.name(path), source };
        let file_size = start.file_size;
        let length = HeaderLength::from_prefix(&start.bytes, file_size, self.limits.header);
        let range = length.map_err(wrong)?.range();
        self.take_from_budget(path, range.end - range.start)?;
        let json = self.read(path, &range).await?;
        if json.file_size != file_size {
            let (before, after) = (file_size, json.file_size);
            return Err(Error::Changed { file: self.store.name(path), before, after });
        }
        let header = SafetensorsFileHeader::from_json(&json.bytes).map_err(wrong)?;
        header.check_file_size(file_size).map_err(wrong)?;
        Ok(header)
    }

    /// Reads a range of a file of the commit.
    async fn read(&self, path: &RepoPath, range: &Range<u64>) -> Result<Chunk, Error> {
        let Fetched { value, commit } = self.store.range(path, range, &self.meter).await?;
        match (&self.commit, commit) {
            (Some(pinned), Some(found)) if *pinned != found => Err(Error::OtherCommit {
                file: self.store.name(path),
                pinned: pinned.clone(),
                found,
            }),
            _ => Ok(value),
        }
    }

    /// Counts a header before it is read: many that are each within their limit are too much together.
    fn take_from_budget(&self, path: &RepoPath, length: u64) -> Result<(), Error> {
        let before = self.header_bytes.fetch_add(length, Ordering::Relaxed);
        let limit = self.limits.headers;
        if before.saturating_add(length) > limit {
            return Err(Error::TooManyHeaders { file: self.store.name(path), limit });
        }
        Ok(())
    }

    fn facts(
        self,
        bytes_total: u64,
        parameter_count: ParameterCount,
        declared_total: Option<u64>,
        mut findings: Vec<Finding>,
    ) -> Facts {
        if self.commit.is_none() && self.store.has_commits() {
            findings.push(Finding::NotPinned);
        }
        let cost = Cost {
            requests: self.meter.requests(),
            bytes_read: self.meter.bytes(),
            bytes_total,
            elapsed: self.started.elapsed(),
        };
        Facts {
            source: self.source,
            commit: self.commit,
            parameter_count,
            declared_total,
            findings,
            cost,
        }
    }
}
