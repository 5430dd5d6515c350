//! The safetensors format: header and index parsers.
//!
//! The parsers perform no I/O. A [`SafetensorsFileHeader`] or [`SafetensorsIndexJson`] exists only if it satisfies
//! every rule that can be checked from its own bytes. The size of a file is checked as soon as it is known. The
//! consistency of an index with its shards is checked when their headers are put together.
//!
//! The rules are those of the [format] and its reference implementation, the `safetensors` crate. Intentional
//! differences are documented at [`SafetensorsFileHeader::from_json`].
//!
//! [format]: https://github.com/huggingface/safetensors#format

mod edit;
mod header;
mod index;
mod json;

use std::ops::Range;

use super::buffer::{DETECTION_BYTES, FileParts, PartsParser, Stop};
use super::error::MAX_HEADER_BYTES;
pub use super::path::is_index_name;
pub use super::{DetectedFormat, HeaderError, HeaderErrorKind};
use super::{FileHeader, Format, HeaderParser, RepoPath, WeightFileName};
pub use edit::{
    EditError, MAX_METADATA_VALUE, MetadataEdit, edit_header, pad_header, padded_header,
};
pub use header::SafetensorsFileHeader;
pub use index::{IndexError, IndexErrorKind, SafetensorsIndexJson};

/// The extension of weight files.
pub const EXTENSION: &str = ".safetensors";

/// The standard name of unsharded weights.
pub const WEIGHTS_NAME: &str = "model.safetensors";

/// The standard name of the index of a sharded checkpoint.
pub const INDEX_NAME: &str = "model.safetensors.index.json";

/// Returns the model name and variant, without extension, from the file name of an index of weights with an extension.
///
/// `diffusers` has put the variant in three places: before `.safetensors`, before `.index`, and after it.
pub fn split_index(file: &str, extension: &str) -> Option<String> {
    let (stem, rest) = file.strip_suffix(".json")?.split_once(extension)?;
    let variant = match rest.strip_suffix(".index") {
        Some(variant) => variant,
        None => rest.strip_prefix(".index").filter(|variant| variant.starts_with('.'))?,
    };
    Some(format!("{stem}{variant}"))
}

/// The names that libraries give to weights. A suffix such as `.fp16` is a variant only after one of these; in other
/// names it may be part of a version such as `1.0`.
const STEMS: [&str; 5] =
    ["model", "diffusion_pytorch_model", "consolidated", "adapter_model", "pytorch_lora_weights"];

/// Splits a name without extension into model name and variant.
pub(super) fn split_variant(text: &str) -> WeightFileName {
    let variant = |stem: &str| text.strip_prefix(stem)?.strip_prefix('.');
    let found = STEMS.iter().find_map(|stem| Some((*stem, variant(stem)?)));
    let (stem, variant) = found.unwrap_or((text, ""));
    WeightFileName { variant: variant.to_owned(), ..WeightFileName::new(stem) }
}

/// The safetensors format: eight bytes with the header length, the header as JSON, and the tensor data.
#[derive(Clone, Copy, Debug)]
pub struct Safetensors;

impl Format for Safetensors {
    fn name(&self) -> &'static str {
        "safetensors"
    }

    fn extension(&self) -> &'static str {
        EXTENSION
    }

    fn parser(&self, _path: &RepoPath, max_header_bytes: u64) -> Box<dyn HeaderParser> {
        PartsParser::boxed(PREFIX_LENGTH, max_header_bytes, parse)
    }

    fn split_name(&self, stem: &str) -> Option<WeightFileName> {
        Some(split_variant(stem))
    }
}

/// Parses the header of a file, or returns the range to read next.
pub(super) fn parse(file: &FileParts) -> Result<FileHeader, Stop> {
    let range = header_range(file.detection_bytes()?, file.size, file.limit)?;
    Ok(SafetensorsFileHeader::from_json(file.get(range)?)?.into())
}

/// The number of bytes that encode the header length.
pub const PREFIX_LENGTH: u64 = DETECTION_BYTES;

/// The maximum length of a header in bytes in the `safetensors` crate, which rejects files with a longer one.
pub const DEFAULT_HEADER_LIMIT: u64 = MAX_HEADER_BYTES;

/// Returns the byte range of a header, according to the start of a file whose size is `file_size` bytes, or `None` if
/// it is unknown.
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
/// use hf_meta_format::formats::safetensors::header_range;
///
/// let range = header_range(&14_283_u64.to_le_bytes(), Some(548_105_171), 100_000_000)?;
/// assert_eq!(range, 8..14_291);
/// # Ok::<(), hf_meta_format::formats::safetensors::HeaderError>(())
/// ```
///
/// # Errors
///
/// Returns an error if the file is too short to contain a length, if the header is empty, longer than `limit` or
/// longer than the file, or if the bytes are the start of another known format.
pub fn header_range(
    start: &[u8],
    file_size: Option<u64>,
    limit: u64,
) -> Result<Range<u64>, HeaderError> {
    let Some(prefix) = start.first_chunk() else {
        return Err(too_short(start.len() as u64, file_size));
    };
    let length = u64::from_le_bytes(*prefix);
    if length == 0 {
        return Err(HeaderError::new(HeaderErrorKind::Empty, "the header is empty"));
    }
    if length > limit {
        // Below the maximum, only the size of the file shows that the header is invalid.
        let too_large = || match file_size {
            Some(size)
                if length <= MAX_HEADER_BYTES && length > size.saturating_sub(PREFIX_LENGTH) =>
            {
                HeaderError::exceeds_file(length, size)
            }
            _ => HeaderError::too_large(length, limit),
        };
        // The magic bytes of another format are a length that no file has.
        let is_length = file_size.is_some_and(|size| length <= size.saturating_sub(PREFIX_LENGTH));
        let detected = if is_length { None } else { DetectedFormat::recognize_or_text(prefix) };
        return Err(detected.map_or_else(too_large, HeaderError::wrong_format));
    }
    match file_size {
        Some(size) if length > size.saturating_sub(PREFIX_LENGTH) => {
            Err(HeaderError::exceeds_file(length, size))
        }
        _ => Ok(PREFIX_LENGTH..PREFIX_LENGTH.saturating_add(length)),
    }
}

/// Returns the error for a file of which only `found` bytes could be read, which are less than a header length.
fn too_short(found: u64, file_size: Option<u64>) -> HeaderError {
    let size = file_size.unwrap_or(found);
    if size >= PREFIX_LENGTH {
        return HeaderError::truncated(PREFIX_LENGTH, found);
    }
    let noun = if size == 1 { "byte" } else { "bytes" };
    let message =
        format!("the file has only {size} {noun}; a safetensors file has at least {PREFIX_LENGTH}");
    HeaderError::new(HeaderErrorKind::FileTooShort, message)
}

/// The size of a tensor entry in bytes, without its name: 46 for keys and punctuation, and the maximum that dtype,
/// shape and offsets take in shards of up to ten gigabytes.
const ENTRY_BYTES: u64 = 46 + "F8_E4M3".len() as u64 + 15 + 20;

/// The size of a header besides its entries, in bytes: the length prefix, metadata and padding.
const OVERHEAD_BYTES: u64 = 256;

/// Returns the expected end offset of a file's header, from the number of tensors and the total length of their names
/// in bytes.
pub fn expected_header_end((tensors, name_bytes): (u64, u64)) -> u64 {
    tensors.saturating_mul(ENTRY_BYTES).saturating_add(name_bytes).saturating_add(OVERHEAD_BYTES)
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the files of these tests are short")]
#[expect(clippy::single_range_in_vec_init, reason = "the lists hold ranges")]
mod tests {
    use super::*;
    use crate::formats::FileHeader;
    use crate::formats::Step;

    fn file() -> Vec<u8> {
        let json = br#"{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
        [&(json.len() as u64).to_le_bytes()[..], json, b"ab"].concat()
    }

    /// Reads the header of a file truncated at `end`: `first` bytes at first, then at most `most` at a time. Returns
    /// the requested ranges and the result.
    fn read(
        file: &[u8],
        size: Option<u64>,
        first: usize,
        most: usize,
    ) -> (Vec<Range<u64>>, Result<FileHeader, HeaderError>) {
        let mut parser = Safetensors.parser(&"x".parse().unwrap(), 1_000);
        let (mut start, mut end) = (0, first);
        let mut ranges = Vec::new();
        loop {
            let bytes = file[start.min(file.len())..end.min(file.len())].to_vec();
            match parser.advance(start as u64, bytes, size) {
                Ok(Step::Read(range)) => {
                    (start, end) = (range.start as usize, range.end as usize);
                    end = end.min(start.saturating_add(most));
                    ranges.push(range);
                }
                Ok(Step::Done(header)) => return (ranges, Ok(header)),
                Err(error) => return (ranges, Err(error)),
            }
        }
    }

    #[test]
    fn only_missing_bytes_are_requested() {
        let file = file();
        let end = file.len() as u64 - 2;
        let whole: FileHeader = SafetensorsFileHeader::from_file_start(&file, None).unwrap().into();
        for size in [None, Some(file.len() as u64)] {
            let cases = [
                (8, vec![8..end]),
                (20, vec![20..end]),
                (3, vec![3..8, 8..end]),
                (60, vec![60..end]),
                (1_000, vec![]),
            ];
            for (first, expected) in cases {
                let (ranges, header) = read(&file, size, first, usize::MAX);
                assert_eq!((ranges, header), (expected, Ok(whole.clone())), "{first} bytes first");
            }
            for most in 1..9 {
                assert_eq!(read(&file, size, most, most).1, Ok(whole.clone()), "{most} at a time");
            }
        }
    }

    #[test]
    fn known_and_distant_bytes_are_ignored() {
        let file = file();
        let mut parser = Safetensors.parser(&"x".parse().unwrap(), 1_000);
        let mut advance = |start: usize, end: usize| {
            parser.advance(start as u64, file[start..end].to_vec(), None).unwrap()
        };
        assert!(matches!(advance(9, 20), Step::Read(range) if range == (0..8)));
        assert!(matches!(advance(0, 8), Step::Read(range) if range == (8..61)));
        assert!(matches!(advance(4, 10), Step::Read(range) if range == (10..61)));
        assert!(matches!(advance(0, 10), Step::Read(range) if range == (10..61)));
        assert!(matches!(advance(5, 63), Step::Done(_)));
    }

    #[test]
    fn truncated_files_are_rejected() {
        let file = file();
        let error = |cut: usize, size| read(&file[..cut], size, 8, usize::MAX).1.unwrap_err();
        let truncated = |found| HeaderError::truncated(61, found);
        let short = [(0, None, "0 bytes"), (1, None, "1 byte"), (7, Some(7), "7 bytes")];
        for (end, size, bytes) in short {
            let (error, message) = (error(end, size), format!("the file has only {bytes};"));
            assert_eq!(error.kind, HeaderErrorKind::FileTooShort);
            assert!(error.message.starts_with(&message), "{error}");
        }
        assert_eq!(error(60, None), truncated(60));
        // The file was truncated while it was being read.
        assert_eq!(error(60, Some(63)), truncated(60));
        assert_eq!(error(4, Some(63)), HeaderError::truncated(8, 4));
        assert_eq!(error(60, Some(60)), HeaderError::exceeds_file(53, 60));
        let short = error(62, Some(62));
        assert_eq!(short.kind, HeaderErrorKind::FileSizeMismatch);
        let message = "according to its header, the file ends with tensor `w` at byte 63, but it has 62 bytes";
        assert_eq!((short.tensor.as_deref(), &*short.message), (Some("w"), message));
        let start = |end: usize| SafetensorsFileHeader::from_file_start(&file[..end], Some(63));
        assert_eq!(start(60), Err(truncated(60)));
        assert_eq!(start(4), Err(HeaderError::truncated(8, 4)));
        assert!(start(61).is_ok());
    }

    const LIMIT: u64 = DEFAULT_HEADER_LIMIT;

    #[test]
    fn lengths_inside_the_file_and_the_limit_are_accepted() {
        for (length, file_size) in [(1, 9), (2, 10), (LIMIT, u64::MAX)] {
            let found = header_range(&u64::to_le_bytes(length), Some(file_size), LIMIT);
            assert_eq!(found, Ok(8..8 + length));
        }
    }

    #[test]
    fn lengths_outside_the_limits_are_rejected() {
        let too_short = |size| {
            let message =
                format!("the file has only {size} bytes; a safetensors file has at least 8");
            HeaderError::new(HeaderErrorKind::FileTooShort, message)
        };
        let max = u64::MAX;
        let cases = [
            (&[][..], 0, too_short(0)),
            (&[1, 2, 3, 4, 5, 6, 7], 7, too_short(7)),
            (
                &u64::to_le_bytes(0),
                8,
                HeaderError::new(HeaderErrorKind::Empty, "the header is empty"),
            ),
            (&u64::to_le_bytes(LIMIT + 1), max, HeaderError::too_large(LIMIT + 1, LIMIT)),
            (&u64::to_le_bytes(max), max, HeaderError::too_large(max, LIMIT)),
            (&u64::to_le_bytes(3), 10, HeaderError::exceeds_file(3, 10)),
            (&u64::to_le_bytes(3), 5, HeaderError::exceeds_file(3, 5)),
        ];
        for (start, file_size, error) in cases {
            assert_eq!(header_range(start, Some(file_size), LIMIT), Err(error));
        }
    }

    /// A file with a header over a lowered limit may be valid, unless the header does not fit into it.
    #[test]
    fn a_lowered_limit_does_not_make_a_file_invalid() {
        let kind =
            |length: u64, size| header_range(&length.to_le_bytes(), size, 100).unwrap_err().kind;
        assert_eq!(kind(1_000, Some(2_000)), HeaderErrorKind::OverLimit);
        assert_eq!(kind(1_000, None), HeaderErrorKind::OverLimit);
        assert_eq!(kind(1_000, Some(900)), HeaderErrorKind::ExceedsFile);
        assert_eq!(kind(LIMIT + 1, Some(u64::MAX)), HeaderErrorKind::TooLarge);
    }

    #[test]
    fn the_expected_header_end_is_after_its_entries() {
        let entry = r#""n":{"dtype":"F8_E4M3","shape":[129280,7168],"data_offsets":[9000000000,9999999999]},"#;
        let length = entry.len() as u64;
        let expected = expected_header_end((1_000, 1_000)) - OVERHEAD_BYTES;
        assert!((1_000 * length..1_000 * (length + 5)).contains(&expected), "{expected}");
    }

    #[test]
    fn other_formats_are_recognized() {
        let cases: [(&[u8], DetectedFormat); 9] = [
            (b"version https://git-lfs.github.com/spec/v1\n", DetectedFormat::GitLfsPointer),
            (b"<!DOCTYPE html>", DetectedFormat::Html),
            (b"\n  <html>", DetectedFormat::Html),
            (b"PK\x03\x04\0\0\x08\x08", DetectedFormat::Zip),
            (b"GGUF\x03\0\0\0", DetectedFormat::Gguf),
            (b"\x80\x02\x8a\nl\xfc\x9cF", DetectedFormat::Pickle),
            (b"\x89HDF\r\n\x1a\n", DetectedFormat::Hdf5),
            (b"{\n  \"arc", DetectedFormat::Json),
            (b"root:x:0:0", DetectedFormat::Text),
        ];
        for (start, detected) in cases {
            let error = header_range(start, Some(1 << 30), 10_000).unwrap_err();
            assert_eq!(error.kind, HeaderErrorKind::WrongFormat(detected));
            assert_eq!(error.to_string(), format!("the file looks like {detected}"));
        }
    }
}
