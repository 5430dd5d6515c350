//! The encoding of a cache entry: the key, the value encoded by `postcard`, and a checksum of both.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::CacheKey;

const KEY_LENGTH: usize = 32;
const CHECKSUM_LENGTH: usize = 32;

/// The reason an entry cannot be decoded.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct BrokenEntry(&'static str);

/// Encodes the entry for a key. Returns `None` if the value cannot be encoded.
pub(crate) fn encode(key: &CacheKey, value: &impl Serialize) -> Option<Vec<u8>> {
    let mut entry = postcard::to_extend(value, key.as_bytes().to_vec()).ok()?;
    let checksum = Sha256::digest(&entry);
    entry.extend_from_slice(&checksum);
    Some(entry)
}

/// Decodes the entry for a key from untrusted bytes.
///
/// # Errors
///
/// Returns [`BrokenEntry`] unless the bytes are exactly what [`encode`] returned for this key.
pub(crate) fn decode<T: DeserializeOwned>(key: &CacheKey, entry: &[u8]) -> Result<T, BrokenEntry> {
    let (sealed, checksum) =
        entry.split_last_chunk::<CHECKSUM_LENGTH>().ok_or(BrokenEntry("too short"))?;
    if Sha256::digest(sealed).as_slice() != checksum {
        return Err(BrokenEntry("checksum mismatch"));
    }
    let encoded = match sealed.split_first_chunk::<KEY_LENGTH>() {
        Some((found, encoded)) if found == key.as_bytes() => encoded,
        _ => return Err(BrokenEntry("stored under a different key")),
    };
    match postcard::take_from_bytes(encoded) {
        Ok((value, [])) => Ok(value),
        _ => Err(BrokenEntry("unsupported format")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CacheKeys;

    fn key(target: &str) -> CacheKey {
        CacheKeys::for_test(target).branch(&"main".parse().unwrap())
    }

    #[test]
    fn an_entry_is_decoded_with_its_key_alone() {
        let entry = encode(&key(""), &"value").unwrap();
        assert_eq!(decode(&key(""), &entry), Ok("value".to_owned()));
        assert_eq!(
            decode::<String>(&key("other"), &entry),
            Err(BrokenEntry("stored under a different key"))
        );
    }

    #[test]
    fn no_byte_of_an_entry_can_be_lost_added_or_changed() {
        let entry = encode(&key(""), &"value").unwrap();
        let is_broken = |entry: &[u8]| decode::<String>(&key(""), entry).is_err();
        for at in 0..entry.len() {
            assert!(is_broken(&entry[..at]), "cut at {at}");
            let mut changed = entry.clone();
            changed[at] ^= 1;
            assert!(is_broken(&changed), "changed at {at}");
        }
        assert!(is_broken(&[entry, vec![0]].concat()));
    }

    #[test]
    fn a_value_of_another_type_or_with_more_behind_it_is_an_error() {
        let unreadable = Err(BrokenEntry("unsupported format"));
        let long = encode(&key(""), &(u64::MAX, "x")).unwrap();
        assert_eq!(decode::<String>(&key(""), &long), unreadable);
        assert_eq!(decode::<Vec<u64>>(&key(""), &long).map(|_| String::new()), unreadable);
        let more = encode(&key(""), &("value", 7)).unwrap();
        assert_eq!(decode::<String>(&key(""), &more), unreadable);
    }
}
