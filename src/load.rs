//! The call itself: find the weights, then read every header and count.

mod count;
mod plan;
mod reader;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures::future::{Either, select};

pub(crate) use self::plan::Plan;
use self::reader::Reader;
use crate::error::Error;
use crate::parse::SafetensorsParseFromRepo;
use crate::read::{Chunk, Meter};
use crate::safetensors::RepoPath;
use crate::store::{Fetched, Store};

/// The names by which weights are found in a repo.
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// What says how the weights of a repo are quantized, wherever in it they are: huggingface.js, by whose
/// rules they are counted, reads the one at the root.
const CONFIG: &str = "config.json";

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
    pub(crate) plan: Plan,
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
                reader.single(path, start.value).await
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
        let start = self.store.range(path, &self.plan.file(), meter).await?;
        Ok(Found::File { path: path.clone(), start })
    }

    async fn find_index(&self, path: &RepoPath, meter: &Meter) -> Result<Found, Error> {
        let json = self.store.whole(path, self.limits.index, meter).await?;
        Ok(Found::Index { path: path.clone(), json })
    }
}
