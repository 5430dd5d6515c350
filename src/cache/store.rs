//! The interface of caches, the cache in memory, the cache of a client with its settings, and the entries and their
//! keys.
//!
//! The key of an entry is a hash of everything that identifies it. An entry is its key, a value encoded by `postcard`,
//! and a checksum of both.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, ready};
use quick_cache::Weighter;
use quick_cache::sync::Cache as QuickCache;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use crate::base::meter::CallMeter;
use crate::http::Http;
use crate::hub::{CommitSha, Endpoint, RepoId, Revision};

/// A store for cache entries, such as [`DiskCache`](crate::DiskCache) and [`MemoryCache`](crate::MemoryCache); see
/// [`ClientBuilder::header_cache`](crate::ClientBuilder::header_cache).
///
/// A cache may lose entries and may even return corrupt data, because every entry contains a checksum. It must not
/// make a call fail: implementations should log errors and report a miss.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
///
/// use futures::future::{BoxFuture, FutureExt, ready};
/// use hf_meta::{Cache, CacheKey};
///
/// #[derive(Debug, Default)]
/// struct MapCache(Mutex<HashMap<CacheKey, Vec<u8>>>);
///
/// impl Cache for MapCache {
///     fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>> {
///         ready(self.0.lock().ok().and_then(|entries| entries.get(key).cloned())).boxed()
///     }
///
///     fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()> {
///         if let Ok(mut entries) = self.0.lock() {
///             entries.insert(*key, entry);
///         }
///         ready(()).boxed()
///     }
/// }
///
/// # fn main() -> Result<(), hf_meta::Error> {
/// let client = hf_meta::Client::builder().header_cache(MapCache::default()).build()?;
/// # Ok(())
/// # }
/// ```
pub trait Cache: fmt::Debug + Send + Sync + 'static {
    /// Returns the entry that was last stored under `key`, or `None` if the cache does not have it.
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>>;

    /// Stores an entry under `key`, replacing any earlier entry.
    fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()>;
}

impl<C: Cache + ?Sized> Cache for Arc<C> {
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        (**self).get(key)
    }

    fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()> {
        (**self).put(key, entry)
    }
}

/// The expected number of entries. More entries are stored if they fit. With more than 32, `quick_cache` splits its
/// capacity into shards, and large entries do not fit into one.
const EXPECTED_ENTRIES: usize = 32;

/// An in-memory header cache, for services.
///
/// When it is full, entries that were not used recently are evicted.
///
/// ```
/// use hf_meta::{Client, MemoryCache};
///
/// let client = Client::builder().header_cache(MemoryCache::new(64 << 20)).build()?;
/// # Ok::<(), hf_meta::Error>(())
/// ```
#[derive(Debug)]
pub struct MemoryCache(QuickCache<CacheKey, Bytes, EntrySize>);

/// The size of an entry in bytes.
#[derive(Clone, Debug)]
struct EntrySize;

impl Weighter<CacheKey, Bytes> for EntrySize {
    fn weight(&self, _: &CacheKey, entry: &Bytes) -> u64 {
        entry.len() as u64
    }
}

impl MemoryCache {
    /// Creates an empty cache for entries of up to `max_bytes` in total. A single entry that would take almost all
    /// of it is not stored.
    pub fn new(max_bytes: usize) -> Self {
        Self(QuickCache::with_weighter(EXPECTED_ENTRIES, max_bytes as u64, EntrySize))
    }
}

impl Cache for MemoryCache {
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        ready(self.0.get(key).map(Vec::from)).boxed()
    }

    fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()> {
        self.0.insert(*key, entry.into());
        ready(()).boxed()
    }
}

/// The maximum time that a call waits for an entry, or until one is stored.
const CACHE_TIMEOUT: Duration = Duration::from_secs(5);

/// A cache of header bytes with its settings.
#[derive(Clone, Debug)]
pub(crate) struct HeaderCache {
    pub(crate) cache: Arc<dyn Cache>,
    /// Time to live of a cached branch.
    pub(crate) branch_ttl: Duration,
    /// The maximum age of a cached branch that is used while the server is down.
    pub(crate) stale_if_error: Duration,
}

/// The commit that a revision pointed to.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CachedRef {
    pub(crate) commit: CommitSha,
    /// The canonical name of the repository, if the requested one was redirected to it.
    pub(crate) canonical_name: Option<RepoId>,
    /// Unix time of the request, in seconds.
    seconds: u64,
}

/// The age of a cached branch that was used without asking its server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedRefAge {
    pub(crate) seconds: u64,
    /// True if it had expired, and was used because the server was unavailable.
    pub(crate) is_stale: bool,
}

impl HeaderCache {
    /// Returns an entry. A cache that does not respond is a miss.
    pub(crate) async fn get(&self, meter: &CallMeter, key: &CacheKey) -> Option<Vec<u8>> {
        within_limit(meter, self.cache.get(key)).await?
    }

    /// Stores a value. A cache that does not respond delays the call, but its result is complete.
    pub(crate) async fn put<T: Serialize>(&self, meter: &CallMeter, key: &CacheKey, value: &T) {
        if let Some(entry) = encode(key, value) {
            within_limit(meter, self.cache.put(key, entry)).await;
        }
    }
}

/// Runs an operation of a cache for at most [`CACHE_TIMEOUT`], and at most a quarter of the time left for the call, so that
/// neither a hanging cache nor the next operation exceeds the timeout of the call.
async fn within_limit<T>(meter: &CallMeter, operation: impl Future<Output = T>) -> Option<T> {
    let limit = meter.time_left().map_or(CACHE_TIMEOUT, |left| CACHE_TIMEOUT.min(left / 4));
    let done = timeout(limit, operation).await;
    done.inspect_err(|_elapsed| tracing::warn!(?limit, "the cache does not respond")).ok()
}

impl CachedRef {
    /// Creates the entry for a commit that was requested just now.
    pub(crate) fn new(commit: CommitSha, canonical_name: Option<RepoId>) -> Self {
        Self { commit, canonical_name, seconds: unix_seconds() }
    }

    pub(crate) fn age(&self, is_stale: bool) -> CachedRefAge {
        CachedRefAge { seconds: unix_seconds().saturating_sub(self.seconds), is_stale }
    }

    /// Returns whether the branch was requested less than `ttl` ago. A time in the future comes from a wrong clock
    /// and counts as expired.
    pub(crate) fn is_fresh(&self, ttl: Duration) -> bool {
        let age = unix_seconds().checked_sub(self.seconds);
        age.is_some_and(|age| Duration::from_secs(age) < ttl)
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Part of every key. Changing it invalidates all existing entries.
const VERSION: &[u8] = b"hf-meta cache 8";

/// The key of a cache entry: a SHA-256 hash of everything that identifies the entry. The key of an entry that shows
/// what a reader may read includes a hash of the reader's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// Returns the hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the key of the known servers of an endpoint.
    pub(crate) fn known_servers(endpoint: &Endpoint) -> Self {
        finish(&add(Sha256::new(), VERSION), "known servers", endpoint.url().as_str())
    }
}

/// Formats the hash in hexadecimal.
impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The keys for one repository, one token and one target, at any revision.
///
/// All readers share the header bytes of a commit. A reader finds them only through an entry with the reader's own
/// token in its key, which is stored after the server has let this reader read the commit. Only a hash of the token
/// leaves this module.
#[derive(Clone, Debug)]
pub(crate) struct CacheKeys {
    shared: Sha256,
    reader: Sha256,
}

impl CacheKeys {
    /// Creates the keys of a repository for a reader, who has the token and the other headers of the client. A gateway may
    /// show each reader something different. `target` names the part of the repository that a call reads.
    ///
    /// The Hub ignores letter case in names, so all spellings of a name share the header bytes. Other servers may
    /// distinguish them, so each spelling has its own revisions.
    pub(crate) fn new(endpoint: &Endpoint, http: &Http, repo: &RepoId, target: &str) -> Self {
        let (endpoint, repo) = (endpoint.url().as_str(), repo.to_string());
        let folded = repo.to_ascii_lowercase();
        let parts = [VERSION, endpoint.as_bytes(), folded.as_bytes(), target.as_bytes()];
        let hash = parts.into_iter().fold(Sha256::new(), add);
        let shared = http.headers().iter().fold(hash, |hash, (name, value)| {
            add(add(hash, name.as_str().as_bytes()), value.as_bytes())
        });
        Self { reader: add(add(shared.clone(), repo.as_bytes()), http.authorization()), shared }
    }

    /// Returns the key of the header bytes of a commit.
    pub(crate) fn commit(&self, commit: &CommitSha) -> CacheKey {
        finish(&self.shared, "commit", commit.as_str())
    }

    /// Returns the key of the commit that this reader has read at a revision.
    pub(crate) fn revision(&self, revision: &Revision) -> CacheKey {
        finish(&self.reader, "revision", revision.as_str())
    }
}

fn finish(hash: &Sha256, kind: &str, name: &str) -> CacheKey {
    let hash = add(add(hash.clone(), kind.as_bytes()), name.as_bytes());
    CacheKey(hash.finalize().into())
}

/// Hashes a part with a length prefix, so that different lists of parts never produce the same bytes.
fn add(hash: Sha256, part: &[u8]) -> Sha256 {
    hash.chain_update((part.len() as u64).to_le_bytes()).chain_update(part)
}

/// The length of a SHA-256 hash in bytes.
const CHECKSUM_LENGTH: usize = 32;

/// Encodes the entry for a key. Returns `None` if the value cannot be encoded.
pub(crate) fn encode(key: &CacheKey, value: &impl Serialize) -> Option<Vec<u8>> {
    let mut entry = postcard::to_extend(value, key.as_bytes().to_vec()).ok()?;
    let checksum = Sha256::digest(&entry);
    entry.extend_from_slice(&checksum);
    Some(entry)
}

/// Decodes the entry for a key from untrusted bytes. Returns `None` unless the bytes are exactly what [`encode`] returned
/// for this key.
pub(crate) fn decode<T: DeserializeOwned>(key: &CacheKey, entry: &[u8]) -> Option<T> {
    let (sealed, checksum) = entry.split_last_chunk::<CHECKSUM_LENGTH>()?;
    let encoded = sealed.strip_prefix(key.as_bytes())?;
    if Sha256::digest(sealed).as_slice() != checksum {
        return None;
    }
    let (value, rest) = postcard::take_from_bytes(encoded).ok()?;
    rest.is_empty().then_some(value)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use reqwest::header::{COOKIE, HeaderMap};

    use super::*;
    use crate::cache::CacheKeys;
    use crate::http::HttpSettings;

    #[test]
    fn a_cached_branch_is_fresh_for_its_time_to_live() {
        let seen = |seconds| CachedRef {
            seconds,
            ..CachedRef::new("1".repeat(40).parse().unwrap(), None)
        };
        let minute = Duration::from_secs(60);
        assert!(seen(unix_seconds()).is_fresh(minute));
        assert!(!seen(unix_seconds()).is_fresh(Duration::ZERO));
        assert!(!seen(unix_seconds() - 61).is_fresh(minute));
        assert!(!seen(unix_seconds() + 1_000).is_fresh(minute), "of a wrong clock");
    }
    fn key(n: usize) -> CacheKey {
        CacheKeys::for_test(&n.to_string()).revision(&crate::hub::Revision::default())
    }

    #[tokio::test]
    async fn entries_that_are_used_outlive_others() {
        let (cache, mut stored) = (MemoryCache::new(100), 0);
        cache.put(&key(0), vec![0; 10]).await;
        for n in 1..100 {
            cache.put(&key(n), vec![0; 10]).await;
            assert!(cache.get(&key(0)).await.is_some(), "after {n} entries");
            assert!(cache.0.weight() <= 100);
        }
        for n in 0..100 {
            stored += usize::from(cache.get(&key(n)).await.is_some());
        }
        assert_eq!(stored, 10);
    }

    #[tokio::test]
    async fn entries_are_replaced_and_oversized_ones_are_not_stored() {
        let cache = MemoryCache::new(10);
        for length in [4, 6, 9] {
            cache.put(&key(0), vec![1; length]).await;
            assert_eq!(
                (cache.get(&key(0)).await.map(|entry| entry.len()), cache.0.weight()),
                (Some(length), length as u64)
            );
        }
        cache.put(&key(0), vec![1; 11]).await;
        assert_eq!((cache.get(&key(0)).await, cache.0.weight()), (None, 0));
    }

    impl CacheKeys {
        pub(crate) fn for_test(target: &str) -> Self {
            let endpoint = Endpoint::default();
            let http = Http::new(endpoint.url().clone(), None, HttpSettings::default());
            Self::new(&endpoint, &http, &"a/b".parse().unwrap(), target)
        }
    }

    #[test]
    fn each_part_of_the_identity_changes_the_key() {
        let key = |endpoint: &str, token: &str, repo: &str, target: &str, commit: char| {
            let (token, header) = token.split_once('+').unwrap_or((token, ""));
            let header = (!header.is_empty()).then(|| (COOKIE, header.parse().unwrap()));
            let headers = HeaderMap::from_iter(header);
            let endpoint = Endpoint::parse(endpoint).unwrap();
            let token = (!token.is_empty()).then(|| token.parse().unwrap());
            let settings = HttpSettings { headers, ..HttpSettings::default() };
            let http = Http::new(endpoint.url().clone(), token, settings);
            CacheKeys::new(&endpoint, &http, &repo.parse().unwrap(), target)
                .revision(&commit.to_string().repeat(40).parse().unwrap())
        };
        let hub = Endpoint::HUGGING_FACE;
        let different = [
            key(hub, "", "a/b", "", '1'),
            key("http://127.0.0.1", "", "a/b", "", '1'),
            key(hub, "Bearer x", "a/b", "", '1'),
            key(hub, "Bearer y", "a/b", "", '1'),
            key(hub, "+x", "a/b", "", '1'),
            key(hub, "+y", "a/b", "", '1'),
            key(hub, "", "a/c", "", '1'),
            key(hub, "", "datasets/a/b", "", '1'),
            key(hub, "", "a/b", "c", '1'),
            key(hub, "", "a/b", "", '2'),
        ];
        assert_eq!(different.iter().collect::<HashSet<_>>().len(), different.len());
        assert_eq!(key(hub, "", "a/b", "", '1'), different[0]);
    }

    #[test]
    fn known_servers_are_keyed_by_endpoint() {
        let key = |url: &str| CacheKey::known_servers(&Endpoint::parse(url).unwrap());
        let hub = key(Endpoint::HUGGING_FACE);
        assert_eq!(hub, CacheKey::known_servers(&Endpoint::default()));
        assert_ne!(hub, key("https://hub.example"));
        assert_ne!(key("https://hub.example"), key("https://hub.example/path"));
    }

    #[test]
    fn each_kind_of_entry_has_its_own_key() {
        let (keys, name) = (CacheKeys::for_test(""), "1".repeat(40));
        let (commit, revision) = (name.parse().unwrap(), name.parse().unwrap());
        assert_ne!(keys.commit(&commit), keys.revision(&revision));
    }

    fn entry_key(target: &str) -> CacheKey {
        CacheKeys::for_test(target).revision(&"main".parse().unwrap())
    }

    #[test]
    fn an_entry_decodes_only_with_its_own_key() {
        let entry = encode(&entry_key(""), &"value").unwrap();
        assert_eq!(decode(&entry_key(""), &entry), Some("value".to_owned()));
        assert_eq!(decode::<String>(&entry_key("other"), &entry), None);
    }

    #[test]
    fn every_changed_byte_is_detected() {
        let entry = encode(&entry_key(""), &"value").unwrap();
        let is_broken = |entry: &[u8]| decode::<String>(&entry_key(""), entry).is_none();
        for at in 0..entry.len() {
            assert!(is_broken(&entry[..at]), "cut at {at}");
            let mut changed = entry.clone();
            changed[at] ^= 1;
            assert!(is_broken(&changed), "changed at {at}");
        }
        assert!(is_broken(&[entry, vec![0]].concat()));
    }

    #[test]
    fn wrong_types_and_trailing_bytes_are_not_decoded() {
        let long = encode(&entry_key(""), &(u64::MAX, "x")).unwrap();
        assert_eq!(decode::<String>(&entry_key(""), &long), None);
        assert_eq!(decode::<Vec<u64>>(&entry_key(""), &long), None);
        let more = encode(&entry_key(""), &("value", 7)).unwrap();
        assert_eq!(decode::<String>(&entry_key(""), &more), None);
    }
}
