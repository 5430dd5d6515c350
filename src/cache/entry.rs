//! The encoding of a cache entry: its key, the size of its value, the value, and a checksum of all three.
//!
//! The value is encoded by `postcard` and compressed: headers are mostly names that resemble each other.

use std::io::Read;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::CacheKey;
use super::headers::LIMIT;

const KEY_LENGTH: usize = 32;
const SIZE_LENGTH: usize = 8;
const CHECKSUM_LENGTH: usize = 32;

/// The reason why bytes are not the entry that was stored under a key.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("it is {0}")]
pub(crate) struct BrokenEntry(&'static str);

/// Encodes the entry of a key. `size` is the approximate size of the value in bytes. Returns `None` for a value
/// that cannot be encoded.
pub(crate) fn encode(key: &CacheKey, size: usize, value: &impl Serialize) -> Option<Vec<u8>> {
    let start = [&key.as_bytes()[..], &(size as u64).to_le_bytes()].concat();
    let encoder = DeflateEncoder::new(start, Compression::fast());
    let mut entry = postcard::to_io(value, encoder).ok()?.finish().ok()?;
    let checksum = Sha256::digest(&entry);
    entry.extend_from_slice(&checksum);
    Some(entry)
}

/// Returns the approximate size of the value of an entry in bytes, before it is decoded. 0 for a broken entry.
pub(crate) fn decoded_size(entry: &[u8]) -> usize {
    let size = entry.get(KEY_LENGTH..).and_then(|rest| rest.first_chunk::<SIZE_LENGTH>());
    let size = size.map_or(0, |size| u64::from_le_bytes(*size).min(LIMIT));
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// Decodes the entry of a key from bytes of any origin.
///
/// # Errors
///
/// [`BrokenEntry`] unless the bytes are exactly what [`encode`] returned for this key.
pub(crate) fn decode<T: DeserializeOwned>(key: &CacheKey, entry: &[u8]) -> Result<T, BrokenEntry> {
    let (sealed, checksum) =
        entry.split_last_chunk::<CHECKSUM_LENGTH>().ok_or(BrokenEntry("too short"))?;
    if Sha256::digest(sealed).as_slice() != checksum {
        return Err(BrokenEntry("not what its checksum says"));
    }
    let compressed = match sealed.split_first_chunk::<KEY_LENGTH>() {
        Some((found, rest)) if found == key.as_bytes() => rest.get(SIZE_LENGTH..),
        _ => return Err(BrokenEntry("an entry of another key")),
    };
    let unreadable = BrokenEntry("not in the format of this version");
    let compressed = compressed.unwrap_or_default();
    let mut encoded = Vec::with_capacity(decoded_size(entry));
    // Paths and sizes come on top of the bytes that the limit is for.
    let read = DeflateDecoder::new(compressed).take(2 * LIMIT).read_to_end(&mut encoded);
    match (read, postcard::take_from_bytes(&encoded)) {
        (Ok(_), Ok((value, []))) => Ok(value),
        _ => Err(unreadable),
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
        let entry = encode(&key(""), 10, &"value").unwrap();
        assert_eq!(decode(&key(""), &entry), Ok("value".to_owned()));
        assert_eq!(
            decode::<String>(&key("other"), &entry),
            Err(BrokenEntry("an entry of another key"))
        );
    }

    #[test]
    fn the_size_of_a_value_is_known_before_it_is_decoded() {
        let entry = |size| encode(&key(""), size, &"value").unwrap();
        assert_eq!(decoded_size(&entry(5_000)), 5_000);
        assert_eq!(decoded_size(&entry(usize::MAX)) as u64, LIMIT);
        assert_eq!(decoded_size(b"short"), 0);
    }

    #[test]
    fn no_byte_of_an_entry_can_be_lost_added_or_changed() {
        let entry = encode(&key(""), 10, &"value").unwrap();
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
        let unreadable = Err(BrokenEntry("not in the format of this version"));
        let long = encode(&key(""), 10, &(u64::MAX, "x")).unwrap();
        assert_eq!(decode::<String>(&key(""), &long), unreadable);
        assert_eq!(decode::<Vec<u64>>(&key(""), &long).map(|_| String::new()), unreadable);
        let more = encode(&key(""), 10, &("value", 7)).unwrap();
        assert_eq!(decode::<String>(&key(""), &more), unreadable);
    }
}
