//! The first eight bytes of a file.

use std::ops::Range;

use super::{DetectedFormat, HeaderError};

/// The number of bytes that encode the header length.
pub const PREFIX_LENGTH: u64 = 8;

/// The length of a header, validated against the file size and a limit.
///
/// ```text
/// byte 0          8              8 + N                      end of the file
///      +----------+--------------+--------------------------+
///      | N as u64 | N bytes JSON | the tensors' data        |
///      | (little  | (the header) | (never read here)        |
///      | endian)  |              |                          |
///      +----------+--------------+--------------------------+
/// ```
///
/// ```
/// use hf_meta_format::formats::safetensors::HeaderLength;
///
/// let length = HeaderLength::from_prefix(&14_283_u64.to_le_bytes(), 548_105_171, 100_000_000)?;
/// assert_eq!(length.range(), 8..14_291);
/// # Ok::<(), hf_meta_format::formats::safetensors::HeaderError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderLength(u64);

impl HeaderLength {
    /// The limit of the `safetensors` crate, in bytes. It rejects files with a longer header.
    pub const DEFAULT_LIMIT: u64 = 100_000_000;

    /// Reads the header length from the start of a file whose size is `file_size` bytes, or `None` if it is unknown.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is too short to contain a length, if the header is empty, longer than `limit` or
    /// longer than the file, or if the bytes are the start of another known format.
    pub fn from_prefix(
        start: &[u8],
        file_size: impl Into<Option<u64>>,
        limit: u64,
    ) -> Result<Self, HeaderError> {
        let file_size = file_size.into();
        let Some(prefix) = start.first_chunk() else {
            let found = start.len() as u64;
            return Err(match file_size {
                Some(size) if size > found => {
                    HeaderError::Truncated { expected: PREFIX_LENGTH, found }
                }
                _ => HeaderError::FileTooShort { file_size: file_size.unwrap_or(found) },
            });
        };
        let length = u64::from_le_bytes(*prefix);
        if length == 0 {
            return Err(HeaderError::Empty);
        }
        if length > limit {
            return Err(match DetectedFormat::recognize(prefix) {
                Some(detected) => {
                    HeaderError::WrongFormat { expected: "a safetensors file", detected }
                }
                None => HeaderError::TooLarge { length, limit },
            });
        }
        if let Some(file_size) = file_size
            && length > file_size.saturating_sub(PREFIX_LENGTH)
        {
            return Err(HeaderError::ExceedsFile { length, file_size });
        }
        Ok(Self(length))
    }

    /// Returns the byte range of the header within the file.
    #[must_use]
    pub fn range(self) -> Range<u64> {
        PREFIX_LENGTH..PREFIX_LENGTH.saturating_add(self.0)
    }
}

/// The size of a tensor entry in bytes, without its name: 46 for keys and punctuation, and the maximum that dtype,
/// shape and offsets take in shards of up to ten gigabytes.
const ENTRY: u64 = 46 + "F8_E4M3".len() as u64 + 15 + 20;

/// The size of a header besides its entries, in bytes: the length prefix, metadata and padding.
const OVERHEAD: u64 = 256;

/// Returns the expected end offset of a file's header, from the number of tensors and the total length of their names
/// in bytes.
pub fn expected_header_end((tensors, name_bytes): (u64, u64)) -> u64 {
    tensors.saturating_mul(ENTRY).saturating_add(name_bytes).saturating_add(OVERHEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = HeaderLength::DEFAULT_LIMIT;

    #[test]
    fn lengths_inside_the_file_and_the_limit_are_accepted() {
        for (length, file_size) in [(1, 9), (2, 10), (LIMIT, u64::MAX)] {
            let found = HeaderLength::from_prefix(&u64::to_le_bytes(length), file_size, LIMIT);
            assert_eq!(found.map(HeaderLength::range), Ok(8..8 + length));
        }
    }

    #[test]
    fn lengths_outside_are_refused() {
        use HeaderError::{Empty, ExceedsFile, FileTooShort, TooLarge};
        let max = u64::MAX;
        let cases = [
            (&[][..], 0, FileTooShort { file_size: 0 }),
            (&[1, 2, 3, 4, 5, 6, 7], 7, FileTooShort { file_size: 7 }),
            (&u64::to_le_bytes(0), 8, Empty),
            (&u64::to_le_bytes(LIMIT + 1), max, TooLarge { length: LIMIT + 1, limit: LIMIT }),
            (&u64::to_le_bytes(max), max, TooLarge { length: max, limit: LIMIT }),
            (&u64::to_le_bytes(3), 10, ExceedsFile { length: 3, file_size: 10 }),
            (&u64::to_le_bytes(3), 5, ExceedsFile { length: 3, file_size: 5 }),
        ];
        for (start, file_size, error) in cases {
            assert_eq!(HeaderLength::from_prefix(start, file_size, LIMIT), Err(error));
        }
    }

    #[test]
    fn the_end_of_a_header_is_expected_behind_its_entries() {
        let entry = r#""n":{"dtype":"F8_E4M3","shape":[129280,7168],"data_offsets":[9000000000,9999999999]},"#;
        let length = entry.len() as u64;
        let expected = expected_header_end((1_000, 1_000)) - OVERHEAD;
        assert!((1_000 * length..1_000 * (length + 5)).contains(&expected), "{expected}");
    }

    #[test]
    fn other_formats_are_recognized() {
        let cases: [(&[u8], DetectedFormat); 5] = [
            (b"version https://git-lfs.github.com/spec/v1\n", DetectedFormat::GitLfsPointer),
            (b"<!DOCTYPE html>", DetectedFormat::Html),
            (b"\n  <html>", DetectedFormat::Html),
            (b"PK\x03\x04\0\0\x08\x08", DetectedFormat::Zip),
            (b"GGUF\x03\0\0\0", DetectedFormat::Gguf),
        ];
        for (start, detected) in cases {
            let found = HeaderLength::from_prefix(start, 1 << 30, 10_000);
            let expected = "a safetensors file";
            assert_eq!(found, Err(HeaderError::WrongFormat { expected, detected }));
        }
    }
}
