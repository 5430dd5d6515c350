//! Serves calls from our own header cache.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::cached::{CacheRecorder, CachedCommit};
use super::{Backend, CallHooks, pinned};
use crate::cache::{Cache, CacheKey, CacheKeys, CachedHeaders, FillLease, decode, encode};
use crate::error::Error;
use crate::formats::{HeaderError, RepoPath, chain};
use crate::http::blocking::spawn_blocking_if_large;
use crate::http::transfer::CallMeter;
use crate::hub::{CommitSha, Revision};

/// A cache of header bytes with its settings.
#[derive(Clone, Debug)]
pub(crate) struct HeaderCache {
    pub(crate) cache: Arc<dyn Cache>,
    /// Time to live of a cached branch.
    pub(crate) branch_ttl: Duration,
    /// The maximum age of a cached branch that is used while the server is down.
    pub(crate) stale_if_error: Duration,
}

/// The part of a repository that a call reads.
pub(crate) struct CacheTarget {
    /// Unique to the part: calls that read different parts have different names.
    pub(crate) name: String,
    /// A path that is likely to exist. The commit of a branch is requested with it.
    pub(crate) probe: RepoPath,
    pub(crate) gate: Option<Arc<dyn CallHooks>>,
    pub(crate) meter: CallMeter,
}

/// The cache entries of one call.
struct CacheLookup<'a> {
    settings: &'a HeaderCache,
    keys: CacheKeys,
    /// The requested revision.
    revision: Revision,
    probe: RepoPath,
    gate: Option<Arc<dyn CallHooks>>,
}

/// The commit that a branch pointed to.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CachedRef {
    commit: String,
    /// Unix time of the request, in seconds.
    seconds: u64,
}

impl HeaderCache {
    /// Serves a call from the cached commit. On a miss, or if the entry is corrupt, reads from the backend and caches
    /// what the call has read.
    ///
    /// # Errors
    ///
    /// Returns the errors of the call and of the request for a branch's commit. Corrupt entries are treated as
    /// misses.
    pub(crate) async fn run<T>(
        &self,
        mut backend: Arc<dyn Backend>,
        target: CacheTarget,
        call: impl Fn(Arc<dyn Backend>) -> BoxFuture<'static, Result<T, Error>>,
    ) -> Result<T, Error> {
        let Some(identity) = backend.cache_identity() else { return call(backend).await };
        let (keys, revision) = (CacheKeys::new(identity, &target.name), identity.revision.clone());
        let CacheTarget { probe, gate, meter, .. } = target;
        let lookup = CacheLookup { settings: self, keys, revision, probe, gate };
        if backend.is_offline() {
            // Downloaded files take precedence, because programs on this machine load them.
            return match call(Arc::clone(&backend)).await {
                Err(error) if error.is_not_found() || error.has_no_weights() => {
                    let found = lookup.find(&mut backend, &call).await?;
                    meter.count_lookup(found.is_some());
                    found.ok_or(error)
                }
                read => read,
            };
        }
        let mut found = lookup.find(&mut backend, &call).await?;
        let lease = match found {
            Some(_) => FillLease::immediate(),
            None => lookup.lease().await,
        };
        if lease.has_waited() {
            found = lookup.find(&mut backend, &call).await?;
        }
        meter.count_lookup(found.is_some());
        if let Some(found) = found {
            return Ok(found);
        }
        let recorder = CacheRecorder::new(backend);
        let read = call(Arc::new(recorder.clone())).await?;
        if let Some((commit, headers)) = recorder.take() {
            lookup.store(&commit, headers).await;
        }
        Ok(read)
    }
}

impl CacheLookup<'_> {
    /// Returns the result of the call on a cache hit. On a miss, pins `backend` to the commit to read, if it is
    /// known.
    async fn find<T>(
        &self,
        backend: &mut Arc<dyn Backend>,
        call: &impl Fn(Arc<dyn Backend>) -> BoxFuture<'static, Result<T, Error>>,
    ) -> Result<Option<T>, Error> {
        let Some(commit) = self.commit(&**backend).await? else { return Ok(None) };
        if let Some(gate) = &self.gate {
            gate.commit_resolved(&commit, backend.canonical_name()).await;
        }
        *backend = pinned(backend, Some(&commit));
        let key = self.keys.commit(&commit);
        let Some(headers) = self.get(&key).await else { return Ok(None) };
        let inner = Arc::clone(backend);
        match call(Arc::new(CachedCommit { inner, commit, headers })).await {
            Ok(found) => Ok(Some(found)),
            // The call that stored the entry may have had higher limits.
            Err(error) if is_over_limit(&error) => Err(error),
            // It may also have read other formats.
            Err(Error::NoWeights { .. }) => Ok(None),
            Err(error) => {
                warn_of_broken_entry(&key, &error);
                Ok(None)
            }
        }
    }

    /// Waits while another call fills the same entry, and returns the lease to fill it.
    async fn lease(&self) -> FillLease {
        let key = match self.revision.as_str().parse() {
            Ok(commit) => self.keys.commit(&commit),
            Err(_) => self.keys.branch(&self.revision),
        };
        self.settings.cache.lease(&key).await
    }

    /// Caches the headers of a call, and the commit of its branch.
    async fn store(&self, commit: &CommitSha, headers: CachedHeaders) {
        self.put(self.keys.commit(commit), headers).await;
        self.store_ref(commit).await;
    }

    /// Returns the commit to read: the requested commit, or the commit of the requested branch. Returns `None` if the
    /// branch is not cached, because requesting its commit would save nothing.
    async fn commit(&self, backend: &dyn Backend) -> Result<Option<CommitSha>, Error> {
        let identity = backend.cache_identity();
        if let Some(commit) = identity.and_then(|now| now.revision.as_str().parse().ok()) {
            return Ok(Some(commit));
        }
        let Some(cached) = self.get::<CachedRef>(&self.keys.branch(&self.revision)).await else {
            return Ok(None);
        };
        match cached.commit.parse() {
            Ok(commit) if backend.is_offline() || self.is_current(&cached) => Ok(Some(commit)),
            _ => self.request_commit(backend, &cached).await,
        }
    }

    fn is_current(&self, cached: &CachedRef) -> bool {
        let has_changed = self.gate.as_ref().is_some_and(|gate| gate.must_revalidate());
        !has_changed && cached.is_fresh(self.settings.branch_ttl)
    }

    /// Requests the commit of the branch. Returns the cached commit while it may be used and the server is down.
    /// Returns `None` if the server rejects the request or the token; the call then continues without the token.
    async fn request_commit(
        &self,
        backend: &dyn Backend,
        before: &CachedRef,
    ) -> Result<Option<CommitSha>, Error> {
        let commit = match backend.current_commit(&self.probe).await {
            Ok(commit) => commit,
            Err(error) if is_outage(&error) && before.is_fresh(self.settings.stale_if_error) => {
                let error = chain(&error);
                tracing::warn!(
                    file = backend.file_name(&self.probe),
                    error,
                    "the Hub is unavailable; using the cached commit"
                );
                return Ok(before.commit.parse().ok());
            }
            Err(
                Error::RejectedToken { .. } | Error::FileNotFound { .. } | Error::Forbidden { .. },
            ) => None,
            // Some servers do not support `HEAD`.
            Err(Error::Refused { source, .. }) if matches!(source.status, 400..=499 | 501) => None,
            Err(error) => return Err(error),
        };
        let HeaderCache { branch_ttl, stale_if_error, .. } = self.settings;
        let uses_time = !branch_ttl.is_zero() || !stale_if_error.is_zero();
        if let Some(commit) = &commit
            && (commit.as_str() != before.commit || uses_time)
        {
            self.store_ref(commit).await;
        }
        Ok(commit)
    }

    /// Stores the commit of the branch.
    async fn store_ref(&self, commit: &CommitSha) {
        if self.revision.as_str() != commit.as_str() {
            let cached = CachedRef { commit: commit.to_string(), seconds: now() };
            self.put(self.keys.branch(&self.revision), cached).await;
        }
    }

    async fn get<T: DeserializeOwned + Send + 'static>(&self, key: &CacheKey) -> Option<T> {
        let (key, entry) = (*key, self.settings.cache.get(key).await?);
        if let Some(gate) = &self.gate {
            // Decoding briefly holds the entry in memory twice.
            gate.before_allocation(2 * entry.len() as u64).await;
        }
        let value = spawn_blocking_if_large(entry.len(), move || decode(&key, &entry)).await;
        value.map_err(|error| warn_of_broken_entry(&key, &error)).ok()
    }

    async fn put<T: Serialize>(&self, key: CacheKey, value: T) {
        if let Some(entry) = encode(&key, &value) {
            self.settings.cache.put(&key, entry).await;
        }
    }
}

/// Logs a corrupt entry. The call reads the files again and replaces it.
fn warn_of_broken_entry(key: &CacheKey, error: &dyn Display) {
    tracing::warn!(%key, %error, "a cache entry is corrupt");
}

fn is_over_limit(error: &Error) -> bool {
    match error {
        Error::TooLarge { .. } | Error::HeadersTooLarge { .. } => true,
        Error::InvalidHeader { source, .. } => matches!(source, HeaderError::TooLarge { .. }),
        _ => false,
    }
}

/// Returns whether the server or the network failed, rather than the request itself.
fn is_outage(error: &Error) -> bool {
    match error {
        Error::RequestFailed { .. } => true,
        Error::Refused { source, .. } => source.is_transient(),
        _ => false,
    }
}

impl CachedRef {
    /// Returns whether the branch was requested less than `ttl` ago. A time in the future comes from a wrong clock
    /// and counts as expired.
    fn is_fresh(&self, ttl: Duration) -> bool {
        let age = now().checked_sub(self.seconds);
        age.is_some_and(|age| Duration::from_secs(age) < ttl)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_branch_is_fresh_for_its_time_to_live() {
        let seen = |seconds| CachedRef { commit: "1".repeat(40), seconds };
        let minute = Duration::from_secs(60);
        assert!(seen(now()).is_fresh(minute));
        assert!(!seen(now()).is_fresh(Duration::ZERO));
        assert!(!seen(now() - 61).is_fresh(minute));
        assert!(!seen(now() + 1_000).is_fresh(minute), "of a wrong clock");
    }
}
