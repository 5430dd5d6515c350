//! Cache entries: their keys, and their encoding.
//!
//! The key of an entry is a hash of everything that identifies it. An entry is its key, a value encoded by `postcard`,
//! and a checksum of both.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::http::Http;
use crate::hub::{CommitSha, Endpoint, RepoId, Revision};

/// Part of every key. Changing it invalidates all existing entries.
const VERSION: &[u8] = b"hf-meta cache 7";

/// The key of a cache entry: a SHA-256 hash of everything that identifies the entry. The key of an entry that shows
/// what a reader may read includes a hash of the reader's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// Returns the hash.
    #[must_use]
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
    pub(crate) fn new(endpoint: &Endpoint, http: &Http, repo: &RepoId, target: &str) -> Self {
        let (endpoint, repo) = (endpoint.url().as_str(), repo.to_string());
        let parts = [VERSION, endpoint.as_bytes(), repo.as_bytes(), target.as_bytes()];
        let hash = parts.into_iter().fold(Sha256::new(), add);
        let shared = http.headers().iter().fold(hash, |hash, (name, value)| {
            add(add(hash, name.as_str().as_bytes()), value.as_bytes())
        });
        Self { reader: add(shared.clone(), http.authorization()), shared }
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
    use crate::http::HttpSettings;

    impl CacheKeys {
        pub(crate) fn for_test(target: &str) -> Self {
            use crate::http::HttpSettings;

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
