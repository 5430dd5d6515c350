//! What surrounds the payload of every entry, wherever it is kept, and proves that it is whole.

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use thiserror::Error;

use super::CacheKey;

const KEY_LENGTH: usize = 32;

/// Why bytes are not the entry that was put there.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("it is {0}")]
pub(crate) struct Broken(&'static str);

/// The payload between its key and a checksum of both.
pub(crate) fn seal(key: &CacheKey, payload: &[u8]) -> Vec<u8> {
    let mut entry = Vec::with_capacity(KEY_LENGTH + payload.len() + SHA256_OUTPUT_LEN);
    entry.extend_from_slice(key.as_bytes());
    entry.extend_from_slice(payload);
    let checksum = digest(&SHA256, &entry);
    entry.extend_from_slice(checksum.as_ref());
    entry
}

/// The payload of an entry that is whole and of this key.
pub(crate) fn open<'a>(key: &CacheKey, entry: &'a [u8]) -> Result<&'a [u8], Broken> {
    let (sealed, checksum) =
        entry.split_last_chunk::<SHA256_OUTPUT_LEN>().ok_or(Broken("cut short"))?;
    if digest(&SHA256, sealed).as_ref() != checksum {
        return Err(Broken("not what its checksum is of"));
    }
    match sealed.split_first_chunk::<KEY_LENGTH>() {
        Some((found, payload)) if found == key.as_bytes() => Ok(payload),
        _ => Err(Broken("an entry of another key")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Keys;

    fn key(target: &str) -> CacheKey {
        Keys::of_test(target).of_branch(&"main".parse().unwrap())
    }

    #[test]
    fn what_was_sealed_opens_with_its_key_alone() {
        let entry = seal(&key(""), b"payload");
        assert_eq!(open(&key(""), &entry), Ok(&b"payload"[..]));
        assert!(open(&key("other"), &entry).is_err());
        assert_eq!(open(&key(""), &seal(&key(""), b"")), Ok(&b""[..]));
    }

    #[test]
    fn no_byte_can_be_lost_added_or_changed() {
        let entry = seal(&key(""), b"payload");
        for at in 0..entry.len() {
            assert!(open(&key(""), &entry[..at]).is_err(), "cut at {at}");
            let mut changed = entry.clone();
            changed[at] ^= 1;
            assert!(open(&key(""), &changed).is_err(), "changed at {at}");
        }
        assert!(open(&key(""), &[entry, vec![0]].concat()).is_err());
    }
}
