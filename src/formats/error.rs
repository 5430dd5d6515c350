//! The errors of a header: which tensor, what was found, what was expected.

use thiserror::Error;

use super::{Dtype, clip};

/// Why a file is not a valid safetensors file.
///
/// Text from the file (names, parser messages) is cut to 200 characters. It is otherwise as it
/// stands in the file: escape it before it meets a terminal.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum HeaderError {
    #[error("the file has {file_size} bytes; a safetensors file has at least 8")]
    FileTooShort { file_size: u64 },
    #[error("the file is not {expected}: it starts like {detected}")]
    WrongFormat { expected: &'static str, detected: DetectedFormat },
    #[error("the header ends at byte {expected}, but only {found} bytes are there")]
    Truncated { expected: u64, found: u64 },
    #[error("a header of {length} bytes is over the limit of {limit}")]
    OverLimit { length: u64, limit: u64 },
    #[error("a header of {length} bytes does not fit into a file of {file_size} bytes")]
    PastEndOfFile { length: u64, file_size: u64 },
    #[error("the header is empty")]
    Empty,
    #[error("the header does not start with `{{` but with byte 0x{first:02x}")]
    NotAnObject { first: u8 },
    #[error("the header is not UTF-8 at byte {at}")]
    NotUtf8 { at: usize },
    #[error("the header is padded with NUL bytes from byte {at} on; the format pads with spaces")]
    NulPadding { at: usize },
    #[error("the header is not valid JSON of its kind: {message}")]
    Json { message: String },
    #[error("tensor `{tensor}` is not a valid entry: {message}")]
    Entry { tensor: String, message: String },
    #[error("tensor `{tensor}` occurs twice in the header")]
    DuplicateTensor { tensor: String },
    #[error("tensor `{tensor}` ends at byte {end}, before it begins at byte {begin}")]
    ReversedOffsets { tensor: String, begin: u64, end: u64 },
    #[error("tensor `{tensor}` is larger than 64 bits can count")]
    Overflow { tensor: String },
    #[error(
        "tensor `{tensor}` has {elements} elements of {dtype}, which is not a whole number of bytes"
    )]
    PartialByte { tensor: String, dtype: Dtype, elements: u64 },
    #[error(
        "tensor `{tensor}` has {elements} elements of {dtype}, which is {expected} bytes, but spans {found}"
    )]
    Size { tensor: String, dtype: Dtype, elements: u64, expected: u64, found: u64 },
    #[error("tensor `{tensor}` has {elements} elements of {dtype}, too many for its {found} bytes")]
    Implausible { tensor: String, dtype: Dtype, elements: u64, found: u64 },
    #[error(
        "tensor `{tensor}` begins at byte {begin} of the data; the bytes from {expected} on belong to no tensor"
    )]
    Hole { tensor: String, begin: u64, expected: u64 },
    #[error(
        "tensor `{tensor}` begins at byte {begin} of the data, inside a tensor that ends at {expected}"
    )]
    Overlap { tensor: String, begin: u64, expected: u64 },
    #[error(
        "by its header the file ends with {} at byte {expected}, but it has {found} bytes",
        last(tensor.as_deref())
    )]
    FileSize { tensor: Option<String>, expected: u64, found: u64 },
}

impl HeaderError {
    /// A tensor that is too large to be counted, or with which a sum becomes so.
    pub(crate) fn overflow(tensor: &str) -> Self {
        Self::Overflow { tensor: clip(tensor) }
    }
}

/// The tensor that a file ends with, or its header where it has no data.
fn last(tensor: Option<&str>) -> String {
    tensor.map_or_else(|| "its header".to_owned(), |tensor| format!("tensor `{tensor}`"))
}

/// What a file that is not safetensors is instead, as far as its first eight bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DetectedFormat {
    /// The text that git keeps in place of a large file.
    GitLfsPointer,
    /// A page of a website, such as a login or an error page.
    Markup,
    /// A zip archive; a checkpoint of `torch.save` is one.
    Zip,
    /// A GGUF model.
    Gguf,
}

impl DetectedFormat {
    /// What each starts with, white space aside.
    const STARTS: [(&[u8], Self); 4] = [
        (b"version ", Self::GitLfsPointer),
        (b"<", Self::Markup),
        (b"PK\x03\x04", Self::Zip),
        (b"GGUF", Self::Gguf),
    ];

    /// Recognizes an index that is something else, or the start of a file that is.
    pub(in crate::formats) fn recognize(start: &[u8]) -> Option<Self> {
        let start = start.trim_ascii_start();
        let mut found = Self::STARTS.into_iter().filter(|(of, _)| start.starts_with(of));
        found.next().map(|(_, detected)| detected)
    }

    /// Whether more bytes after these could be those of another format.
    pub(in crate::formats) fn is_possible(start: &[u8]) -> bool {
        Self::STARTS.iter().any(|(of, _)| of.starts_with(start.trim_ascii_start()))
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
