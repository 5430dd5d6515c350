//! Serves calls from the header cache.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::Target;
use super::call::{Call, Inspected};
use super::files::CallFiles;
use crate::backends::{FileSource, HubRepo};
use crate::cache::{
    Cache, CacheIdentity, CacheKey, CacheKeys, CacheMode, CachedHeaders, FillLease, HeaderBytes,
    decode, encode,
};
use crate::error::Error;
use crate::formats::safetensors::{Safetensors, WEIGHTS_NAME};
use crate::formats::{Format, HeaderErrorKind, RepoPath, chain};
use crate::http::blocking::spawn_blocking_if_large;
use crate::http::transfer::CallMeter;
use crate::hub::{CommitSha, Revision};

/// The maximum time that a call waits for an entry, or until one is stored.
const CACHE_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum time that a call waits for another one to fill the same entry.
const LEASE_TIMEOUT: Duration = Duration::from_secs(60);

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

/// The commit that a revision pointed to.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CachedRef {
    commit: String,
    /// Unix time of the request, in seconds.
    seconds: u64,
}

/// The age of a cached branch that was used without asking its server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedRefAge {
    pub(super) seconds: u64,
    /// True if it had expired, and was used because the server was unavailable.
    pub(super) is_stale: bool,
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
        let lease =
            if found.is_some() { FillLease::immediate() } else { lookup.lease(&call.meter).await };
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
            lookup.store(&call.meter, bytes).await;
        }
        Ok(read)
    }

    /// Returns an entry. A cache that does not respond is a miss.
    pub(crate) async fn get(&self, meter: &CallMeter, key: &CacheKey) -> Option<Vec<u8>> {
        within_limit(meter, CACHE_TIMEOUT, self.cache.get(key)).await?
    }

    /// Stores a value. A cache that does not respond delays the call, but its result is complete.
    pub(crate) async fn put<T: Serialize>(&self, meter: &CallMeter, key: &CacheKey, value: &T) {
        if let Some(entry) = encode(key, value) {
            within_limit(meter, CACHE_TIMEOUT, self.cache.put(key, entry)).await;
        }
    }
}

/// Runs an operation of a cache for at most `limit`, and at most a quarter of the time left for the call, so that
/// neither a hanging cache nor the next operation exceeds the timeout of the call.
async fn within_limit<T>(
    meter: &CallMeter,
    limit: Duration,
    operation: impl Future<Output = T>,
) -> Option<T> {
    let limit = meter.time_left().map_or(limit, |left| limit.min(left / 4));
    let done = timeout(limit, operation).await.ok();
    if done.is_none() {
        tracing::warn!(?limit, "the cache does not respond");
    }
    done
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
    let suffix = if call.options.list_sets { "\nand all sets" } else { "" };
    // A call that selects a format reads other files. Without a selection, safetensors comes first.
    let format = Some(call.formats.name(0)).filter(|name| *name != Safetensors.name());
    let format = format.map(|name| format!("\nformat {name}")).unwrap_or_default();
    let config = if call.options.memory.is_some() { "\nand the configuration" } else { "" };
    (format!("{path}{suffix}{format}{config}"), probe_path)
}

/// Returns the part of the cache keys that identifies a repository and its reader.
fn identity(repo: &HubRepo) -> CacheIdentity<'_> {
    let HubRepo { http, endpoint, repo, .. } = repo;
    CacheIdentity { endpoint, token: http.authorization(), headers: http.headers(), repo }
}

impl CacheLookup<'_> {
    /// Returns the result of the call on a cache hit. On a miss, pins the call to the commit to read, if it is known.
    async fn find(&self, call: &mut Call, keep_headers: bool) -> Result<Option<Inspected>, Error> {
        let Some((commit, headers)) = self.readable_commit(call).await? else { return Ok(None) };
        if let Some(hooks) = &call.hooks {
            hooks.commit_resolved(&commit, call.files.canonical_name()).await;
        }
        let origin = call.files.origin.pinned(Some(&commit));
        call.files = CallFiles::new(origin.clone());
        let key = self.keys.commit(&commit);
        let headers = match headers {
            Some(headers) => Some(headers),
            None => self.get(call, &key).await,
        };
        let Some(headers) = headers else { return Ok(None) };
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
    async fn lease(&self, meter: &CallMeter) -> FillLease {
        let key = match self.revision.as_str().parse() {
            Ok(commit) => self.keys.commit(&commit),
            Err(_) => self.keys.last_read(&self.revision),
        };
        let lease = within_limit(meter, LEASE_TIMEOUT, self.settings.cache.lease(&key)).await;
        lease.unwrap_or_else(FillLease::immediate)
    }

    /// Caches the headers of a call, and the commit of its revision.
    async fn store(&self, meter: &CallMeter, HeaderBytes { commit, headers }: HeaderBytes) {
        let (key, last) = (self.keys.commit(&commit), self.keys.last_read(&self.revision));
        let cached = CachedRef::new(&commit);
        // Concurrently, because each of them may wait for a cache that does not respond.
        futures::join!(
            self.settings.put(meter, &key, &headers),
            self.settings.put(meter, &last, &cached),
            self.store_ref(meter, &commit),
        );
    }

    /// Returns the commit to read, which this reader may read, with its headers if they have been read already.
    /// Returns `None` if nothing is cached for the revision, because requesting its commit would then save nothing.
    async fn readable_commit(
        &self,
        call: &mut Call,
    ) -> Result<Option<(CommitSha, Option<CachedHeaders>)>, Error> {
        let own = self.get::<CachedRef>(call, &self.keys.revision(&self.revision)).await;
        let Some(cached) = own else { return self.shared_commit(call).await };
        let is_current = self.is_commit()
            || (call.options.cache_mode == CacheMode::Default
                && cached.is_fresh(self.settings.branch_ttl));
        let commit = match call.files.origin.online().cloned() {
            Some(repo) if !is_current => {
                self.request_commit(call, &repo, &self.probe_path, Some(&cached)).await?
            }
            _ => {
                call.cached_ref = (!self.is_commit()).then(|| cached.age(false));
                cached.commit.parse().ok()
            }
        };
        Ok(commit.map(|commit| (commit, None)))
    }

    /// Returns the commit that another reader has cached, if one request shows that this reader may read a weight file
    /// of it. Otherwise returns the commit that this reader may read, or `None`.
    async fn shared_commit(
        &self,
        call: &mut Call,
    ) -> Result<Option<(CommitSha, Option<CachedHeaders>)>, Error> {
        let Some(repo) = call.files.origin.online().cloned() else { return Ok(None) };
        let commit = if let Ok(commit) = self.revision.as_str().parse::<CommitSha>() {
            Some(commit)
        } else {
            let last = self.get::<CachedRef>(call, &self.keys.last_read(&self.revision)).await;
            last.and_then(|last| last.commit.parse().ok())
        };
        let Some(commit) = commit else { return Ok(None) };
        let headers = self.get::<CachedHeaders>(call, &self.keys.commit(&commit)).await;
        let Some(headers) = headers else { return Ok(None) };
        let Some(file) = headers.weight_file(&call.formats) else { return Ok(None) };
        let readable = self.request_commit(call, &repo, &file, None).await?;
        Ok(readable.map(|found| {
            let is_cached = found == commit;
            (found, is_cached.then_some(headers))
        }))
    }

    /// Requests the commit of the revision with a request for `path`. Returns the cached commit while it may be used
    /// and the server is down. Returns `None` if the server rejects the request or the token; the call then continues
    /// without the token. Without a cached commit, the file must exist, because the response is the only evidence that
    /// this reader has access.
    async fn request_commit(
        &self,
        call: &mut Call,
        repo: &HubRepo,
        path: &RepoPath,
        cached: Option<&CachedRef>,
    ) -> Result<Option<CommitSha>, Error> {
        let HeaderCache { branch_ttl, stale_if_error, .. } = self.settings;
        let commit = match (repo.current_commit(path).await, cached) {
            (Ok(found), _) => {
                found.filter(|(_, exists)| *exists || cached.is_some()).map(|(commit, _)| commit)
            }
            (Err(error), Some(cached)) if is_outage(&error) && cached.is_fresh(*stale_if_error) => {
                let error = chain(&error);
                let file = repo.file_name(path);
                tracing::warn!(file, error, "the Hub is unavailable; using the cached commit");
                call.cached_ref = Some(cached.age(true));
                return Ok(cached.commit.parse().ok());
            }
            (
                Err(
                    Error::RejectedToken { .. }
                    | Error::FileNotFound { .. }
                    | Error::Forbidden { .. },
                ),
                _,
            ) => None,
            // Some servers do not support `HEAD`.
            (Err(Error::Refused { source, .. }), _) if matches!(source.status, 400..=499 | 501) => {
                None
            }
            (Err(error), _) => return Err(error),
        };
        let uses_time = !branch_ttl.is_zero() || !stale_if_error.is_zero();
        if let Some(commit) = &commit
            && (uses_time || cached.is_none_or(|cached| commit.as_str() != cached.commit))
        {
            self.store_ref(repo.http.meter(), commit).await;
        }
        Ok(commit)
    }

    /// Returns whether the requested revision is a commit, which never changes.
    fn is_commit(&self) -> bool {
        self.revision.as_str().parse::<CommitSha>().is_ok()
    }

    /// Stores that this reader may read a commit, and that it is the commit of the revision.
    async fn store_ref(&self, meter: &CallMeter, commit: &CommitSha) {
        let keys = [self.keys.revision(&self.revision), self.keys.revision(&commit.into())];
        let cached = CachedRef::new(commit);
        let keys = if self.is_commit() { &keys[..1] } else { &keys[..] };
        join_all(keys.iter().map(|key| self.settings.put(meter, key, &cached))).await;
    }

    async fn get<T: DeserializeOwned + Send + 'static>(
        &self,
        call: &Call,
        key: &CacheKey,
    ) -> Option<T> {
        let (key, entry) = (*key, self.settings.get(&call.meter, key).await?);
        // Decoding briefly holds the entry in memory twice.
        call.before_allocation(2 * entry.len() as u64).await;
        let value = spawn_blocking_if_large(entry.len(), move || decode(&key, &entry)).await;
        value.map_err(|error| warn_of_corrupt_entry(&key, &error)).ok()
    }
}

/// Logs a corrupt entry. The call reads the files again and replaces it.
fn warn_of_corrupt_entry(key: &CacheKey, error: &dyn Display) {
    tracing::warn!(%key, %error, "a cache entry is corrupt");
}

fn is_over_limit(error: &Error) -> bool {
    match error {
        Error::TooLarge { .. } | Error::HeadersTooLarge { .. } => true,
        Error::InvalidHeader { source, .. } => source.kind == HeaderErrorKind::TooLarge,
        _ => false,
    }
}

/// Returns whether the server or the network failed, rather than the request itself.
fn is_outage(error: &Error) -> bool {
    match error {
        Error::RequestFailed { .. } => true,
        Error::Refused { source, .. } => source.is_transient() || source.is_foreign(),
        _ => false,
    }
}

impl CachedRef {
    /// Creates the entry for a commit that was requested just now.
    fn new(commit: &CommitSha) -> Self {
        Self { commit: commit.to_string(), seconds: unix_seconds() }
    }

    fn age(&self, is_stale: bool) -> CachedRefAge {
        CachedRefAge { seconds: unix_seconds().saturating_sub(self.seconds), is_stale }
    }

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
