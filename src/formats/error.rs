//! The errors of a header.

use thiserror::Error;

use super::gguf::GgufError;
use super::{Dtype, clip};

/// The error of a file whose header is not valid.
///
/// Text from the file, such as the name of a tensor, is cut to 200 characters and otherwise unchanged: escape
/// control characters before you print it to a terminal. Sizes and offsets are in bytes, and the offsets of
/// tensors are relative to the start of the data.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// A file without the eight bytes of the header's length.
    #[error("the file has {file_size} bytes; a safetensors file has at least 8")]
    FileTooShort {
        /// The size of the file.
        file_size: u64,
    },
    /// A file in another format.
    #[error("the file is not {expected}: it starts like {detected}")]
    WrongFormat {
        /// The name of the expected format.
        expected: &'static str,
        /// The format that the file seems to have.
        detected: DetectedFormat,
    },
    /// A header that is cut off.
    #[error("the header ends at byte {expected}, but only {found} bytes are there")]
    Truncated {
        /// The end of the header.
        expected: u64,
        /// The number of bytes that were read.
        found: u64,
    },
    /// A header longer than the limit.
    #[error("a header of {length} bytes is over the limit of {limit}")]
    OverLimit {
        /// The length of the header.
        length: u64,
        /// The largest accepted length.
        limit: u64,
    },
    /// A header longer than its file.
    #[error("a header of {length} bytes does not fit into a file of {file_size} bytes")]
    PastEndOfFile {
        /// The length of the header.
        length: u64,
        /// The size of the file.
        file_size: u64,
    },
    /// A header of length 0.
    #[error("the header is empty")]
    Empty,
    /// A header that is not a JSON object.
    #[error("the header does not start with `{{` but with byte 0x{first:02x}")]
    NotAnObject {
        /// The first byte of the header.
        first: u8,
    },
    /// A header that is not UTF-8.
    #[error("the header is not UTF-8 at byte {at}")]
    NotUtf8 {
        /// The offset of the first invalid byte in the header.
        at: usize,
    },
    /// A header with NUL bytes at its end.
    #[error("the header is padded with NUL bytes from byte {at} on; the format pads with spaces")]
    NulPadding {
        /// The offset of the first NUL byte in the header.
        at: usize,
    },
    /// A header that is not JSON of the expected structure.
    #[error("the header is not valid JSON of its kind: {message}")]
    Json {
        /// The reason, with line and column.
        message: String,
    },
    /// An entry that does not describe a tensor.
    #[error("tensor `{tensor}` is not a valid entry: {message}")]
    Entry {
        /// The name of the tensor.
        tensor: String,
        /// The reason, with line and column.
        message: String,
    },
    /// Two tensors with one name.
    #[error("tensor `{tensor}` occurs twice in the header")]
    DuplicateTensor {
        /// The name of the tensor.
        tensor: String,
    },
    /// A tensor that ends before it begins.
    #[error("tensor `{tensor}` ends at byte {end}, before it begins at byte {begin}")]
    ReversedOffsets {
        /// The name of the tensor.
        tensor: String,
        /// The offset of its first byte.
        begin: u64,
        /// The offset after its last byte.
        end: u64,
    },
    /// A tensor whose size does not fit in 64 bits.
    #[error("tensor `{tensor}` is larger than 64 bits can count")]
    Overflow {
        /// The name of the tensor.
        tensor: String,
    },
    /// A tensor that does not fill whole bytes.
    #[error(
        "tensor `{tensor}` has {elements} elements of {dtype}, which is not a whole number of bytes"
    )]
    PartialByte {
        /// The name of the tensor.
        tensor: String,
        /// The type of the elements.
        dtype: Dtype,
        /// The number of elements.
        elements: u64,
    },
    /// A tensor whose shape and dtype disagree with its offsets.
    #[error(
        "tensor `{tensor}` has {elements} elements of {dtype}, which is {expected} bytes, but spans {found}"
    )]
    Size {
        /// The name of the tensor.
        tensor: String,
        /// The type of the elements.
        dtype: Dtype,
        /// The number of elements.
        elements: u64,
        /// The number of bytes that shape and dtype need.
        expected: u64,
        /// The number of bytes between the offsets.
        found: u64,
    },
    /// A tensor of an unknown dtype with less than one bit per element.
    #[error("tensor `{tensor}` has {elements} elements of {dtype}, too many for its {found} bytes")]
    Implausible {
        /// The name of the tensor.
        tensor: String,
        /// The type of the elements.
        dtype: Dtype,
        /// The number of elements.
        elements: u64,
        /// The number of bytes between the offsets.
        found: u64,
    },
    /// A tensor after bytes that belong to no tensor.
    #[error(
        "tensor `{tensor}` begins at byte {begin} of the data; the bytes from {expected} on belong to no tensor"
    )]
    Hole {
        /// The name of the tensor.
        tensor: String,
        /// The offset of its first byte.
        begin: u64,
        /// The end of the data before it.
        expected: u64,
    },
    /// A tensor that begins inside another.
    #[error(
        "tensor `{tensor}` begins at byte {begin} of the data, inside a tensor that ends at {expected}"
    )]
    Overlap {
        /// The name of the tensor.
        tensor: String,
        /// The offset of its first byte.
        begin: u64,
        /// The end of the data before it.
        expected: u64,
    },
    /// A file with another size than its header requires.
    #[error(
        "by its header the file ends with {} at byte {expected}, but it has {found} bytes",
        last(tensor.as_deref())
    )]
    FileSize {
        /// The name of the last tensor in the file; `None` if it has no data.
        tensor: Option<String>,
        /// The size that the header requires.
        expected: u64,
        /// The size of the file.
        found: u64,
    },
    /// A broken rule of the GGUF format.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A broken rule of a format that is not part of this library.
    #[error("{message}")]
    Other {
        /// The rule.
        message: String,
    },
}

impl HeaderError {
    /// Creates the error of a tensor that is too large for 64 bits.
    pub(crate) fn overflow(tensor: &str) -> Self {
        Self::Overflow { tensor: clip(tensor) }
    }
}

/// Names the last part of a file: a tensor, or the header if there is no data.
fn last(tensor: Option<&str>) -> String {
    tensor.map_or_else(|| "its header".to_owned(), |tensor| format!("tensor `{tensor}`"))
}

/// The format of a file that has another format than expected, recognized by its first eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DetectedFormat {
    /// The text file that git stores in place of a large file.
    GitLfsPointer,
    /// A page of a website, such as a login or an error page.
    Markup,
    /// A zip archive, such as a checkpoint written by `torch.save`.
    Zip,
    /// A GGUF model.
    Gguf,
}

impl DetectedFormat {
    /// The first bytes of each format, after white space.
    const STARTS: [(&[u8], Self); 4] = [
        (b"version ", Self::GitLfsPointer),
        (b"<", Self::Markup),
        (b"PK\x03\x04", Self::Zip),
        (b"GGUF", Self::Gguf),
    ];

    /// Returns the format of a file that starts with these bytes; `None` for an unknown format.
    pub(in crate::formats) fn recognize(start: &[u8]) -> Option<Self> {
        let start = start.trim_ascii_start();
        let mut found = Self::STARTS.into_iter().filter(|(known, _)| start.starts_with(known));
        found.next().map(|(_, detected)| detected)
    }

    /// Returns whether these bytes can be an incomplete start of one of the formats.
    pub(in crate::formats) fn is_possible(start: &[u8]) -> bool {
        Self::STARTS.iter().any(|(known, _)| known.starts_with(start.trim_ascii_start()))
    }
}

impl std::fmt::Display for DetectedFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::GitLfsPointer => "a git-LFS pointer",
            Self::Markup => "an HTML or XML page",
            Self::Zip => "a zip archive (a PyTorch checkpoint?)",
            Self::Gguf => "a GGUF file",
        })
    }
}
