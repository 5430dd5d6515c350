//! Calls that find in a cache what an earlier one has read.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::locate::SINGLE;
use super::{CacheRecorder, Load, Plan, Target};
use crate::backends::{CachedCommit, pinned};
use crate::cache::{Cache, CacheKey, CachedHeaders, FillLease, Keys, open, seal};
use crate::error::{BoxError, Error};
use crate::formats::RepoPath;
use crate::http::transfer::spawn_blocking_if_large;
use crate::hub::{CommitSha, Revision};
use crate::report::SafetensorsParseFromRepo;

/// A cache, and how it is used.
#[derive(Clone, Debug)]
pub(crate) struct HeaderCache {
    pub(crate) cache: Arc<dyn Cache>,
    /// How long a branch is taken to be where it was.
    pub(crate) branch_ttl: Duration,
}

/// The entries of one call.
pub(super) struct CacheLookup<'a> {
    memory: &'a HeaderCache,
    keys: Keys,
    revision: Revision,
}

/// Which commit a branch was at, and when, in seconds since 1970.
#[derive(Debug, PartialEq, Eq)]
struct CachedRef {
    commit: CommitSha,
    seconds: u64,
}

impl<'a> CacheLookup<'a> {
    /// `None` for what is not of commits, and so not kept.
    pub(super) fn of(memory: &'a HeaderCache, load: &Load) -> Option<Self> {
        let path = load.target.path().map_or("", RepoPath::as_str);
        // No path holds a line break.
        let target =
            if load.lists_sets { format!("{path}\nand all sets") } else { path.to_owned() };
        let identity = load.backend.cache_identity()?;
        let keys = Keys::new(identity, &target);
        Some(Self { memory, keys, revision: identity.revision.clone() })
    }

    /// The result, if all that it takes is there. Else the call is pinned to the commit that is to be
    /// read, as far as that is known.
    pub(super) async fn result(
        &self,
        load: &mut Load,
    ) -> Result<Option<SafetensorsParseFromRepo>, Error> {
        let Some(commit) = self.commit(load).await? else { return Ok(None) };
        load.backend = pinned(&load.backend, Some(&commit));
        let key = self.keys.of_commit(&commit);
        let Some(payload) = self.get(&key).await else { return Ok(None) };
        match self.parse(load, &commit, payload).await {
            Ok(parsed) => Ok(Some(parsed)),
            Err(error) => {
                complain(&key, &*error);
                Ok(None)
            }
        }
    }

    /// What a call makes of what was kept, as if it had just been read. An entry holds headers and nothing
    /// behind them, so none is read ahead.
    async fn parse(
        &self,
        load: &Load,
        commit: &CommitSha,
        payload: Vec<u8>,
    ) -> Result<SafetensorsParseFromRepo, BoxError> {
        let heads =
            spawn_blocking_if_large(payload.len(), move || CachedHeaders::decode(&payload)).await?;
        let (inner, commit) = (Arc::clone(&load.backend), commit.clone());
        let backend = Arc::new(CachedCommit { inner, commit, headers: heads });
        let load = Load { backend, plan: Plan::Exact, ..load.clone() };
        Ok(Box::pin(load.read()).await?)
    }

    /// Waits for whoever else is reading the same.
    pub(super) async fn turn(&self) -> FillLease {
        let key = match self.revision.as_str().parse() {
            Ok(commit) => self.keys.of_commit(&commit),
            Err(_) => self.keys.of_branch(&self.revision),
        };
        let cache = Arc::clone(&self.memory.cache);
        cache.turn(&key).await
    }

    /// Keeps what a call has read.
    pub(super) async fn keep(&self, parsed: &SafetensorsParseFromRepo, record: &CacheRecorder) {
        let Some(commit) = &parsed.report().commit else { return };
        let heads = record.take();
        if heads.is_forgone() {
            return;
        }
        let payload = spawn_blocking_if_large(heads.length(), move || heads.encode()).await;
        self.put(&self.keys.of_commit(commit), &payload).await;
        self.saw(commit).await;
    }

    /// The commit to read: the one that was asked for, or the one that the branch is at. `None` for a
    /// branch of which nothing was ever read, so that asking where it is would save nothing.
    async fn commit(&self, load: &Load) -> Result<Option<CommitSha>, Error> {
        if let Some(commit) = load
            .backend
            .cache_identity()
            .and_then(|identity| identity.revision.as_str().parse().ok())
        {
            return Ok(Some(commit));
        }
        let key = self.keys.of_branch(&self.revision);
        let sighting = self.get(&key).await.and_then(|payload| CachedRef::decode(&payload));
        match sighting {
            None => Ok(None),
            Some(seen) if seen.is_within(self.memory.branch_ttl) => Ok(Some(seen.commit)),
            Some(seen) => self.look(load, &seen.commit).await,
        }
    }

    /// Asks where the branch is now. A server that does not answer such questions is not asked them.
    async fn look(&self, load: &Load, before: &CommitSha) -> Result<Option<CommitSha>, Error> {
        let commit = match load.backend.current_commit(&load.target.any_path(), &load.meter).await {
            Ok(commit) => commit,
            // A bad token is for the call itself to do without, as it does where nothing is kept.
            Err(
                Error::RejectedToken { .. } | Error::FileNotFound { .. } | Error::Forbidden { .. },
            ) => None,
            Err(Error::Refused { source, .. }) if matches!(source.status, 400..=499) => None,
            Err(error) => return Err(error),
        };
        if let Some(commit) = &commit
            && (commit != before || !self.memory.branch_ttl.is_zero())
        {
            self.saw(commit).await;
        }
        Ok(commit)
    }

    /// Keeps where a branch is.
    async fn saw(&self, commit: &CommitSha) {
        if self.revision.as_str() != commit.as_str() {
            let sighting = CachedRef { commit: commit.clone(), seconds: now() };
            self.put(&self.keys.of_branch(&self.revision), &sighting.encode()).await;
        }
    }

    async fn get(&self, key: &CacheKey) -> Option<Vec<u8>> {
        let entry = self.memory.cache.get(key).await?;
        match open(key, &entry) {
            Ok(payload) => Some(payload.to_vec()),
            Err(error) => {
                complain(key, &error);
                None
            }
        }
    }

    async fn put(&self, key: &CacheKey, payload: &[u8]) {
        self.memory.cache.put(key, seal(key, payload)).await;
    }
}

/// A broken entry is read anew, and so replaced.
fn complain(key: &CacheKey, error: &dyn std::fmt::Display) {
    tracing::warn!(%key, %error, "an entry of the cache is broken");
}

impl CachedRef {
    fn encode(&self) -> Vec<u8> {
        [&self.seconds.to_le_bytes(), self.commit.as_str().as_bytes()].concat()
    }

    fn decode(payload: &[u8]) -> Option<Self> {
        let (seconds, commit) = payload.split_first_chunk()?;
        let commit = std::str::from_utf8(commit).ok()?.parse().ok()?;
        Some(Self { commit, seconds: u64::from_le_bytes(*seconds) })
    }

    /// Whether it is at most so old. One from the future is of a clock that was wrong.
    fn is_within(&self, lifetime: Duration) -> bool {
        let age = now().checked_sub(self.seconds);
        age.is_some_and(|age| Duration::from_secs(age) < lifetime)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Target {
    /// The path that is asked for; `None` for the whole repo.
    fn path(&self) -> Option<&RepoPath> {
        match self {
            Self::File(path) | Self::Index(path) | Self::Shards(path) => Some(path),
            Self::Folder(folder) => folder.as_ref(),
        }
    }

    /// A path that is likely to be a file.
    fn any_path(&self) -> RepoPath {
        match self {
            Self::File(path) | Self::Index(path) => path.clone(),
            Self::Shards(path) => RepoPath::within(path.folder().as_ref(), SINGLE),
            Self::Folder(folder) => RepoPath::within(folder.as_ref(), SINGLE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sightings() {
        let commit: CommitSha = "1".repeat(40).parse().unwrap();
        let sighting = |seconds| CachedRef { commit: commit.clone(), seconds };
        assert_eq!(CachedRef::decode(&sighting(7).encode()), Some(sighting(7)));
        for payload in [&b""[..], b"12345678", &[0; 48], &[b'1'; 49]] {
            assert_eq!(CachedRef::decode(payload), None);
        }
        let minute = Duration::from_secs(60);
        assert!(sighting(now()).is_within(minute));
        assert!(!sighting(now()).is_within(Duration::ZERO));
        assert!(!sighting(now() - 61).is_within(minute));
        assert!(!sighting(now() + 1_000).is_within(minute), "of a wrong clock");
    }
}
