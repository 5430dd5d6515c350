//! Hashes that identify checkpoints with the same layout.

use std::mem::take;

use bytes::Bytes;
use itertools::Itertools;
use sha2::{Digest, Sha256};

use hf_meta::formats::FileHeader;

/// The number of hash bytes to keep per tensor. Small, because a checkpoint may have half a million tensors.
const HASH_BYTES: usize = 16;

/// Hashes all tensors of a checkpoint.
///
/// A hash is the SHA-256 of sorted entries. The entry of a tensor is the first 16 bytes of the SHA-256 of its name,
/// dtype and shape as text, each followed by a line feed: `w\nBF16\n2,3\n`. The hash of shapes omits the dtype.
/// Neither the order of the tensors nor their files affect the result.
#[derive(Debug, Default)]
pub(super) struct LayoutHasher {
    layout: Vec<[u8; HASH_BYTES]>,
    shape: Vec<[u8; HASH_BYTES]>,
}

/// The finished hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LayoutDigests {
    pub(super) layout: Bytes,
    pub(super) shape: Bytes,
}

impl LayoutHasher {
    /// Adds the tensors of a file.
    pub(super) fn add(&mut self, header: &FileHeader) {
        header.tensors().for_each(|name, tensor| {
            let (dtype, shape) = (tensor.dtype.as_str(), tensor.shape.iter().join(","));
            self.layout.push(short_hash(&format!("{name}\n{dtype}\n{shape}\n")));
            self.shape.push(short_hash(&format!("{name}\n{shape}\n")));
        });
    }

    /// Returns the hashes; `None` if no header was added.
    pub(super) fn finish(&mut self) -> Option<LayoutDigests> {
        let (layout, shape) = (take(&mut self.layout), take(&mut self.shape));
        (!layout.is_empty()).then(|| LayoutDigests { layout: digest(layout), shape: digest(shape) })
    }
}

/// Returns the first bytes of a text's hash.
pub(super) fn short_hash(text: &str) -> [u8; HASH_BYTES] {
    let mut kept = [0; HASH_BYTES];
    kept.copy_from_slice(&Sha256::digest(text)[..HASH_BYTES]);
    kept
}

fn digest(mut entries: Vec<[u8; HASH_BYTES]>) -> Bytes {
    entries.sort_unstable();
    Bytes::copy_from_slice(&Sha256::digest(entries.as_flattened()))
}

/// Parses a SHA-256 hash in hexadecimal.
pub(super) fn digest_from_hex(text: &str) -> Option<Bytes> {
    let digits: Vec<_> = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let bytes = digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair.get(1)?).ok());
    bytes.collect::<Option<Bytes>>().filter(|bytes| bytes.len() == Sha256::output_size())
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    format!("{:02x}", bytes.iter().format(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hf_meta::formats::safetensors::SafetensorsFileHeader;

    fn digests(files: &[&str]) -> LayoutDigests {
        let mut hasher = LayoutHasher::default();
        for json in files {
            let header = SafetensorsFileHeader::from_json(json.as_bytes()).unwrap();
            hasher.add(header.as_ref());
        }
        hasher.finish().unwrap()
    }

    #[test]
    fn hashes_ignore_order_and_files_and_only_one_includes_dtypes() {
        let a = r#"{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
        let b = r#"{"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}"#;
        let both = r#"{"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
                       "a":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]}}"#;
        let half = r#"{"b":{"dtype":"F16","shape":[],"data_offsets":[0,2]},
                       "a":{"dtype":"F16","shape":[2,3],"data_offsets":[2,14]}}"#;
        assert_eq!(digests(&[a, b]), digests(&[both]));
        assert_eq!(digests(&[half]).shape, digests(&[both]).shape);
        assert_ne!(digests(&[half]).layout, digests(&[both]).layout);
        assert_eq!(LayoutHasher::default().finish(), None);
    }

    /// Computed with Python: `sha256(b"".join(sorted(sha256(entry).digest()[:16] for entry in entries)))`.
    #[test]
    fn hashes_match_the_python_reference() {
        let both = r#"{"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
                       "a":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]}}"#;
        let found = digests(&[both]);
        let layout = "222b08064d26d8a977592d7b5ee3ac731075bc37f03aff8fbc3bdc9e92d3c2bf";
        let shape = "e8f71e746555f3c5ced1a4752595b5a2f2331b66b6816644f8232c3dc786cd35";
        assert_eq!(
            (hexadecimal(&found.layout), hexadecimal(&found.shape)),
            (layout.into(), shape.into())
        );
        assert_eq!(digest_from_hex(layout), Some(found.layout));
        assert!(
            [&layout[1..], &layout[2..], &layout.replace('b', "g"), ""].map(digest_from_hex)
                == [const { None }; 4]
        );
    }
}
