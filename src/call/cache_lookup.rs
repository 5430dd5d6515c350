//! The cache entries that may serve a call: the stored bytes of a commit that this reader may read.

use futures::future::{TryFutureExt, join_all};
use futures::stream::{self, BoxStream, StreamExt};
use hf_meta_format::formats::{RepoPath, chain};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::backends::{FileSource, HubRepo, Origin};
use crate::base::blocking::spawn_blocking_if_large;
use crate::base::budget::CallBudget;
use crate::base::meter::CallMeter;
use crate::cache::{
    CacheKey, CacheKeys, CacheMode, CachedHeaders, CachedRef, CachedRefAge, HeaderBytes,
    HeaderCache, decode,
};
use crate::error::{Error, ErrorKind};
use crate::hub::CommitSha;

/// The entries of the cache that may serve one call, and those that the call may fill.
///
/// It reads and stores entries, and asks for the commit of a cached branch. It does not read weights.
#[derive(Debug)]
pub(crate) struct CacheLookup {
    cache: HeaderCache,
    cache_mode: CacheMode,
    keys: CacheKeys,
    /// A path that is likely to exist, for requests for the commit of a branch.
    probe: RepoPath,
    /// The repository at the requested revision.
    repo: HubRepo,
    /// True if the repository can be requested.
    is_online: bool,
    meter: CallMeter,
    budget: CallBudget,
}

/// A source that may serve a call, and the age of the cached branch that was used without asking its server.
#[derive(Debug)]
pub(super) enum CallSource {
    /// The stored bytes of a commit that this reader may read.
    Stored(HeaderBytes, Option<CachedRefAge>),
    /// The server, at a commit if the cache knows it.
    Server(Option<CommitSha>, Option<CachedRefAge>),
    /// The files that `huggingface_hub` has downloaded.
    Downloads,
}

/// The commit of a revision, as far as the cache knows it.
#[derive(Debug, Default)]
struct FoundCommit {
    /// `None` if this reader has not read it before, or if the server does not allow it any longer.
    commit: Option<CommitSha>,
    /// The age of the entry, if the server was not asked again.
    age: Option<CachedRefAge>,
    /// The stored bytes of the commit.
    stored: Option<HeaderBytes>,
}

impl CacheLookup {
    /// Creates the lookup for a part of a repository; `None` if the cache must not be used.
    pub(crate) fn new(
        cache: &HeaderCache,
        cache_mode: CacheMode,
        origin: &Origin,
        part: &str,
        probe: RepoPath,
        budget: &CallBudget,
    ) -> Option<Self> {
        if cache_mode == CacheMode::Bypass {
            return None;
        }
        let repo = origin.repo()?;
        let HubRepo { http, endpoint, repo: id, .. } = repo;
        let keys = CacheKeys::new(endpoint, http, id, part);
        let (repo, is_online) = (repo.clone(), origin.online().is_some());
        let (meter, budget) = (repo.http.meter.clone(), budget.clone());
        Some(Self { cache: cache.clone(), cache_mode, keys, probe, repo, is_online, meter, budget })
    }

    /// Returns the sources that may serve a call, best first. The cache is asked only after the sources before it have
    /// failed.
    pub(super) fn sources(&self) -> BoxStream<'_, Result<CallSource, Error>> {
        let known = async {
            let FoundCommit { commit, age, stored } = self.find().await?;
            let server = self.is_online.then_some(CallSource::Server(commit, age));
            let stored = stored.map(|bytes| CallSource::Stored(bytes, age));
            Ok(stream::iter(stored.into_iter().chain(server).map(Ok)))
        };
        // Programs on this machine load the downloaded files.
        let downloads = (!self.is_online).then_some(Ok(CallSource::Downloads));
        stream::iter(downloads).chain(known.try_flatten_stream()).boxed()
    }

    /// Returns the commit of the revision that this reader may read, and its stored bytes.
    ///
    /// # Errors
    ///
    /// Returns the error of the request for the commit of a branch.
    async fn find(&self) -> Result<FoundCommit, Error> {
        let Some((commit, age)) = self.readable_commit().await? else {
            return Ok(FoundCommit::default());
        };
        let stored = self.stored(&commit).await?;
        Ok(FoundCommit { commit: Some(commit), age, stored })
    }

    /// Returns the commit of the revision if this reader has read it before, and the age of that fact if the server was
    /// not asked again. Returns `None` if this reader has not, or if the server does not allow it any longer.
    ///
    /// # Errors
    ///
    /// Returns the error of the request for the commit of a branch.
    async fn readable_commit(&self) -> Result<Option<(CommitSha, Option<CachedRefAge>)>, Error> {
        let key = self.keys.revision(&self.repo.revision);
        let Some(cached) = self.get::<CachedRef>(&key).await? else { return Ok(None) };
        let is_current = self.is_commit()
            || (self.cache_mode == CacheMode::Default && cached.is_fresh(self.cache.branch_ttl));
        if self.is_online && !is_current {
            return self.request_commit(cached).await;
        }
        let age = (!self.is_commit()).then(|| cached.age(false));
        Ok(Some((self.use_ref(cached), age)))
    }

    /// Returns the commit of a cached revision, and restores the name that the repository was redirected to.
    fn use_ref(&self, cached: CachedRef) -> CommitSha {
        if let Some(name) = cached.canonical_name {
            self.repo.canonical.get_or_init(|| name);
        }
        cached.commit
    }

    /// Returns the stored bytes of a commit. The caller must know that this reader may read it.
    pub(super) async fn stored(&self, commit: &CommitSha) -> Result<Option<HeaderBytes>, Error> {
        let headers: Option<CachedHeaders> = self.get(&self.keys.commit(commit)).await?;
        let commit = commit.clone();
        Ok(headers.map(|headers| HeaderBytes { commit, headers, canonical_name: None }))
    }

    /// Caches the headers of a call, and the commit of its revision.
    pub(super) async fn store(&self, HeaderBytes { commit, headers, .. }: HeaderBytes) {
        let key = self.keys.commit(&commit);
        // Concurrently, because each of them may wait for a cache that does not respond.
        futures::join!(self.cache.put(&self.meter, &key, &headers), self.store_ref(&commit));
    }

    /// Requests the commit of the revision. Returns the cached commit while it may be used and the server is down.
    /// Returns `None` if the server rejects the request or the token, as it then rejects the call.
    async fn request_commit(
        &self,
        cached: CachedRef,
    ) -> Result<Option<(CommitSha, Option<CachedRefAge>)>, Error> {
        use ErrorKind::{FileNotFound, Forbidden, RateLimited, Refused, RejectedToken};
        let HeaderCache { branch_ttl, stale_if_error, .. } = self.cache;
        let path = &self.probe;
        let request = self.repo.current_commit(path);
        let may_be_stale = cached.is_fresh(stale_if_error);
        // A server that hangs must leave time for the cached commit.
        let time_left = if may_be_stale { self.meter.time_left() } else { None };
        let limit = time_left.map(|left| left / 2);
        let found = match limit {
            Some(limit) => {
                timeout(limit, request).await.unwrap_or(Err(Error::DeadlineExceeded { limit }))
            }
            None => request.await,
        };
        let commit = match found {
            Ok(found) => found,
            Err(error) if may_be_stale && is_outage(&error) => {
                let error = chain(&error);
                let file = self.repo.file_name(path);
                tracing::warn!(file, error, "the Hub is unavailable; using the cached commit");
                let age = cached.age(true);
                return Ok(Some((self.use_ref(cached), Some(age))));
            }
            Err(error) => match (error.kind(), error.status()) {
                (RejectedToken | FileNotFound | Forbidden, _)
                // Some servers do not support `HEAD`.
                | (Refused | RateLimited, Some(400..=499 | 501)) => None,
                _ => return Err(error),
            },
        };
        let uses_time = !branch_ttl.is_zero() || !stale_if_error.is_zero();
        if let Some(commit) = &commit
            && (uses_time || *commit != cached.commit)
        {
            self.store_ref(commit).await;
        }
        Ok(commit.map(|commit| (commit, None)))
    }

    /// Returns whether the requested revision is a commit, which never changes.
    fn is_commit(&self) -> bool {
        self.repo.revision.as_str().parse::<CommitSha>().is_ok()
    }

    /// Stores that this reader may read a commit, and that it is the commit of the revision.
    pub(super) async fn store_ref(&self, commit: &CommitSha) {
        let keys = [self.keys.revision(&self.repo.revision), self.keys.revision(&commit.into())];
        let cached = CachedRef::new(commit.clone(), self.repo.canonical.get().cloned());
        let keys = if self.is_commit() { &keys[..1] } else { &keys[..] };
        join_all(keys.iter().map(|key| self.cache.put(&self.meter, key, &cached))).await;
    }

    /// Logs that the headers of a commit are corrupt. The call reads the files again and replaces them.
    pub(super) fn warn_of_corrupt_headers(&self, commit: &CommitSha, error: &Error) {
        tracing::warn!(key = %self.keys.commit(commit), %error, "a cache entry is corrupt");
    }

    /// Returns the value of an entry.
    async fn get<T: DeserializeOwned + Send + 'static>(
        &self,
        key: &CacheKey,
    ) -> Result<Option<T>, Error> {
        let (key, entry) = (*key, self.cache.get(&self.meter, key).await);
        let Some(entry) = entry else { return Ok(None) };
        // Decoding briefly holds the entry in memory twice.
        self.budget.admit_bytes(2 * entry.len() as u64).await?;
        let value = spawn_blocking_if_large(entry.len(), move || decode(&key, &entry)).await;
        if value.is_none() {
            tracing::warn!(%key, error = %"it cannot be decoded", "a cache entry is corrupt");
        }
        Ok(value)
    }
}

/// Returns whether the server or the network failed, rather than the request itself.
fn is_outage(error: &Error) -> bool {
    match error {
        Error::RequestFailed { .. } | Error::DeadlineExceeded { .. } => true,
        Error::Refused { .. } => error.is_transient(),
        _ => false,
    }
}
