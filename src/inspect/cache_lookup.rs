//! Serves calls from the header cache.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Target;
use super::call::{Call, Inspected};
use super::files::CallFiles;
use crate::backends::{FileSource, HubRepo};
use crate::cache::{
    Cache, CacheIdentity, CacheKey, CacheKeys, FillLease, HeaderBytes, decode, encode,
};
use crate::error::Error;
use crate::formats::safetensors::WEIGHTS_NAME;
use crate::formats::{HeaderError, RepoPath, chain};
use crate::http::blocking::spawn_blocking_if_large;
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

/// The cache entries of one call.
struct CacheLookup<'a> {
    settings: &'a HeaderCache,
    keys: CacheKeys,
    /// The requested revision.
    revision: Revision,
    /// A path that is likely to exist. The commit of a branch is requested with it.
    probe_path: RepoPath,
}

/// The commit that a branch pointed to.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CachedRef {
    commit: String,
    /// Unix time of the request, in seconds.
    seconds: u64,
}

impl HeaderCache {
    /// Serves a call from the cached commit. On a miss, or if the entry is corrupt, reads from the origin and caches
    /// what the call has read.
    ///
    /// # Errors
    ///
    /// Returns the errors of the call and of the request for a branch's commit. Corrupt entries are treated as
    /// misses.
    pub(super) async fn inspect(
        &self,
        call: &mut Call,
        keep_headers: bool,
    ) -> Result<Inspected, Error> {
        let Some(repo) = call.files.origin.repo() else { return call.read(keep_headers).await };
        let (name, probe_path) = part_of_repo(call);
        let (keys, revision) = (CacheKeys::new(identity(repo), &name), repo.revision.clone());
        let lookup = CacheLookup { settings: self, keys, revision, probe_path };
        if call.files.origin.online().is_none() {
            // Downloaded files take precedence, because programs on this machine load them.
            return match call.read(keep_headers).await {
                Err(error) if error.is_not_found() || error.has_no_weights() => {
                    let found = lookup.find(call, keep_headers).await?;
                    call.meter.count_lookup(found.is_some());
                    found.ok_or(error)
                }
                read => read,
            };
        }
        let mut found = lookup.find(call, keep_headers).await?;
        let lease = match found {
            Some(_) => FillLease::immediate(),
            None => lookup.lease().await,
        };
        if lease.has_waited() {
            found = lookup.find(call, keep_headers).await?;
        }
        call.meter.count_lookup(found.is_some());
        if let Some(found) = found {
            return Ok(found);
        }
        call.files = CallFiles::recorded(call.files.origin.clone());
        let read = call.read(keep_headers).await?;
        if let Some(bytes) = call.files.take_recorded() {
            lookup.store(bytes).await;
        }
        Ok(read)
    }
}

/// Returns the name of the part of a repository that a call reads, and a path in it that is likely to exist. Calls
/// that read different parts have different names.
fn part_of_repo(call: &Call) -> (String, RepoPath) {
    let (path, probe_path) = match &call.target {
        Target::File(path) | Target::Index(path) => (Some(path), path.clone()),
        Target::Shards(path) => (Some(path), RepoPath::join(path.folder().as_ref(), WEIGHTS_NAME)),
        Target::Folder(path) => (path.as_ref(), RepoPath::join(path.as_ref(), WEIGHTS_NAME)),
        Target::Quantization(name) => (Some(name), RepoPath::new_unchecked(WEIGHTS_NAME)),
    };
    let path = path.map_or("", RepoPath::as_str);
    // Paths contain no line breaks, so names stay unique.
    let suffix = if call.list_sets { "\nand all sets" } else { "" };
    let other_format = if call.formats.safetensors().is_none() { "\nnot safetensors" } else { "" };
    (format!("{path}{suffix}{other_format}"), probe_path)
}

/// Returns the part of the cache keys that identifies a repository and its reader.
fn identity(repo: &HubRepo) -> CacheIdentity<'_> {
    let HubRepo { http, endpoint, repo, .. } = repo;
    CacheIdentity { endpoint, token: http.authorization(), headers: http.headers(), repo }
}

impl CacheLookup<'_> {
    /// Returns the result of the call on a cache hit. On a miss, pins the call to the commit to read, if it is known.
    async fn find(&self, call: &mut Call, keep_headers: bool) -> Result<Option<Inspected>, Error> {
        let Some(commit) = self.commit(call).await? else { return Ok(None) };
        if let Some(hooks) = &call.hooks {
            hooks.commit_resolved(&commit, call.files.canonical_name()).await;
        }
        let origin = call.files.origin.pinned(Some(&commit));
        call.files = CallFiles::new(origin.clone());
        let key = self.keys.commit(&commit);
        let Some(headers) = self.get(call, &key).await else { return Ok(None) };
        call.files = CallFiles::from_bytes(origin.clone(), HeaderBytes { commit, headers });
        let error = match call.read(keep_headers).await {
            Ok(found) => return Ok(Some(found)),
            Err(error) => error,
        };
        call.files = CallFiles::new(origin);
        match error {
            // The call that stored the entry may have had higher limits.
            error if is_over_limit(&error) => Err(error),
            // It may also have read other formats.
            Error::NoWeights { .. } => Ok(None),
            error => {
                warn_of_corrupt_entry(&key, &error);
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
    async fn store(&self, HeaderBytes { commit, headers }: HeaderBytes) {
        self.put(self.keys.commit(&commit), headers).await;
        self.store_ref(&commit).await;
    }

    /// Returns the commit to read: the requested commit, or the commit of the requested branch. Returns `None` if the
    /// branch is not cached, because requesting its commit would save nothing.
    async fn commit(&self, call: &Call) -> Result<Option<CommitSha>, Error> {
        let Some(repo) = call.files.origin.repo() else { return Ok(None) };
        if let Ok(commit) = repo.revision.as_str().parse() {
            return Ok(Some(commit));
        }
        let key = self.keys.branch(&self.revision);
        let Some(cached) = self.get::<CachedRef>(call, &key).await else { return Ok(None) };
        let is_current = !call.revalidate && cached.is_fresh(self.settings.branch_ttl);
        let commit = cached.commit.parse().ok();
        match call.files.origin.online() {
            Some(repo) if commit.is_none() || !is_current => {
                self.request_commit(repo, &cached).await
            }
            _ => Ok(commit),
        }
    }

    /// Requests the commit of the branch. Returns the cached commit while it may be used and the server is down.
    /// Returns `None` if the server rejects the request or the token; the call then continues without the token.
    async fn request_commit(
        &self,
        repo: &HubRepo,
        cached: &CachedRef,
    ) -> Result<Option<CommitSha>, Error> {
        let commit = match repo.current_commit(&self.probe_path).await {
            Ok(commit) => commit,
            Err(error) if is_outage(&error) && cached.is_fresh(self.settings.stale_if_error) => {
                let error = chain(&error);
                tracing::warn!(
                    file = repo.file_name(&self.probe_path),
                    error,
                    "the Hub is unavailable; using the cached commit"
                );
                return Ok(cached.commit.parse().ok());
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
            && (commit.as_str() != cached.commit || uses_time)
        {
            self.store_ref(commit).await;
        }
        Ok(commit)
    }

    /// Stores the commit of the branch.
    async fn store_ref(&self, commit: &CommitSha) {
        if self.revision.as_str() != commit.as_str() {
            let cached = CachedRef { commit: commit.to_string(), seconds: unix_seconds() };
            self.put(self.keys.branch(&self.revision), cached).await;
        }
    }

    async fn get<T: DeserializeOwned + Send + 'static>(
        &self,
        call: &Call,
        key: &CacheKey,
    ) -> Option<T> {
        let (key, entry) = (*key, self.settings.cache.get(key).await?);
        // Decoding briefly holds the entry in memory twice.
        call.before_allocation(2 * entry.len() as u64).await;
        let value = spawn_blocking_if_large(entry.len(), move || decode(&key, &entry)).await;
        value.map_err(|error| warn_of_corrupt_entry(&key, &error)).ok()
    }

    async fn put<T: Serialize>(&self, key: CacheKey, value: T) {
        if let Some(entry) = encode(&key, &value) {
            self.settings.cache.put(&key, entry).await;
        }
    }
}

/// Logs a corrupt entry. The call reads the files again and replaces it.
fn warn_of_corrupt_entry(key: &CacheKey, error: &dyn Display) {
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
        let age = unix_seconds().checked_sub(self.seconds);
        age.is_some_and(|age| Duration::from_secs(age) < ttl)
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_branch_is_fresh_for_its_time_to_live() {
        let seen = |seconds| CachedRef { commit: "1".repeat(40), seconds };
        let minute = Duration::from_secs(60);
        assert!(seen(unix_seconds()).is_fresh(minute));
        assert!(!seen(unix_seconds()).is_fresh(Duration::ZERO));
        assert!(!seen(unix_seconds() - 61).is_fresh(minute));
        assert!(!seen(unix_seconds() + 1_000).is_fresh(minute), "of a wrong clock");
    }
}
