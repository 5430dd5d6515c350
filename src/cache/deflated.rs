//! Deflate compression. Headers compress well, because they consist mostly of similar names.

use std::io::{self, Read, Write};
use std::ops::Range;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::{Deserialize, Serialize};

/// The maximum compression ratio of deflate. An entry that claims more is corrupt.
const MAX_RATIO: u64 = 1_040;

/// Compressed bytes. Clones share them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Deflated {
    bytes: Bytes,
    /// The number of bytes before compression.
    length: u64,
}

impl Deflated {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut deflater = Deflater::default();
        deflater.add(bytes);
        deflater.finish()
    }

    /// Returns the number of bytes before compression.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Decompresses all bytes; `None` if they are corrupt.
    pub(crate) fn inflate(&self) -> Option<Vec<u8>> {
        self.inflate_range(0..self.length)
    }

    /// Decompresses a range; `None` if it is out of bounds or the bytes are corrupt.
    pub(crate) fn inflate_range(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let length = range.end.checked_sub(range.start)?;
        if range.end > self.length || range.end / MAX_RATIO > self.bytes.len() as u64 {
            return None;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).ok()?);
        let mut inflater = DeflateDecoder::new(&*self.bytes);
        io::copy(&mut (&mut inflater).take(range.start), &mut io::sink()).ok()?;
        inflater.take(length).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 == length).then_some(bytes)
    }
}

/// A streaming compressor.
#[derive(Debug)]
pub(crate) struct Deflater {
    encoder: DeflateEncoder<Vec<u8>>,
    length: u64,
}

impl Default for Deflater {
    fn default() -> Self {
        Self { encoder: DeflateEncoder::new(Vec::new(), Compression::fast()), length: 0 }
    }
}

impl Deflater {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        // Writing to a `Vec` never fails.
        self.encoder.write_all(bytes).ok();
        self.length += bytes.len() as u64;
    }

    pub(crate) fn finish(self) -> Deflated {
        let bytes = self.encoder.finish().unwrap_or_default().into();
        Deflated { bytes, length: self.length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Vec<u8> {
        (0..50_000_u32).flat_map(u32::to_le_bytes).collect()
    }

    #[test]
    fn compression_round_trips() {
        for text in [vec![], b"x".to_vec(), text()] {
            let deflated = Deflated::from_bytes(&text);
            assert_eq!(deflated.length(), text.len() as u64);
            assert_eq!(deflated.inflate().as_ref(), Some(&text));
        }
    }

    #[test]
    fn ranges_out_of_bounds_are_none() {
        let (text, deflated) = (text(), Deflated::from_bytes(&text()));
        assert_eq!(deflated.inflate_range(0..8).as_deref(), Some(&text[..8]));
        assert_eq!(deflated.inflate_range(8..200_000).as_deref(), Some(&text[8..]));
        assert_eq!(deflated.inflate_range(200_000..200_000), Some(Vec::new()));
        for range in [0..200_001, u64::MAX - 1..u64::MAX, Range { start: 9, end: 8 }] {
            assert_eq!(deflated.inflate_range(range), None);
        }
    }

    #[test]
    fn corrupt_bytes_are_not_returned() {
        let deflated = Deflated::from_bytes(&text());
        let cut = Deflated { bytes: deflated.bytes.slice(..100), ..deflated.clone() };
        let other = Deflated { bytes: vec![0xff; 1_000].into(), ..deflated.clone() };
        let promises = Deflated { length: u64::MAX, ..deflated };
        for broken in [cut, other, promises.clone()] {
            assert_eq!(broken.inflate(), None);
        }
        assert_eq!(promises.inflate_range(0..u64::MAX), None, "nothing is allocated for it");
    }
}
