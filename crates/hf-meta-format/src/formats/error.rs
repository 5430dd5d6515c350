//! Errors of headers.

use thiserror::Error;

use super::pytorch::PyTorchError;
use super::{Dtype, clip};

/// The error returned for a file with an invalid header.
///
/// Text from the file, such as a tensor name, is truncated to 200 characters but otherwise unchanged: escape control
/// characters before printing it to a terminal. Sizes and offsets are in bytes. Tensor offsets are relative to the
/// start of the data section.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The file is too short to contain the 8-byte header length.
    #[error("the file has only {file_size} bytes; a safetensors file has at least 8")]
    FileTooShort {
        /// The size of the file.
        file_size: u64,
    },
    /// The file is in a different format.
    #[error("the file looks like {detected}")]
    WrongFormat {
        /// The expected format.
        expected: &'static str,
        /// The format that the file appears to have.
        detected: DetectedFormat,
    },
    /// The header is truncated.
    #[error("the header ends at byte {expected}, but only {found} bytes are available")]
    Truncated {
        /// The end offset of the header.
        expected: u64,
        /// The number of bytes available.
        found: u64,
    },
    /// The header exceeds the size limit.
    #[error("a header of {length} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The length of the header.
        length: u64,
        /// The maximum accepted length.
        limit: u64,
    },
    /// The header is longer than the file.
    #[error("a header of {length} bytes does not fit in a file of {file_size} bytes")]
    ExceedsFile {
        /// The length of the header.
        length: u64,
        /// The size of the file.
        file_size: u64,
    },
    /// The header is empty.
    #[error("the header is empty")]
    Empty,
    /// The header is not a JSON object.
    #[error("the header starts with byte 0x{first:02x} instead of `{{`")]
    NotAnObject {
        /// The first byte of the header.
        first: u8,
    },
    /// The header is not valid UTF-8.
    #[error("the header is not valid UTF-8 at byte {at}")]
    NotUtf8 {
        /// The offset of the first invalid byte in the header.
        at: usize,
    },
    /// The header is padded with NUL bytes.
    #[error("the header is padded with NUL bytes from byte {at}; it must be padded with spaces")]
    NulPadding {
        /// The offset of the first NUL byte in the header.
        at: usize,
    },
    /// The header is not JSON with the expected structure.
    #[error("the header is malformed: {message}")]
    InvalidJson {
        /// The reason, with line and column.
        message: String,
    },
    /// An entry does not describe a tensor.
    #[error("the entry of tensor `{tensor}` is malformed: {message}")]
    InvalidEntry {
        /// The name of the tensor.
        tensor: String,
        /// The reason, with line and column.
        message: String,
    },
    /// Two tensors have the same name.
    #[error("tensor `{tensor}` appears twice in the header")]
    DuplicateTensor {
        /// The name of the tensor.
        tensor: String,
    },
    /// The data of a tensor ends before it begins.
    #[error("tensor `{tensor}` ends at byte {end}, before it begins at byte {begin}")]
    ReversedOffsets {
        /// The name of the tensor.
        tensor: String,
        /// The offset of its first byte.
        begin: u64,
        /// The offset past its last byte.
        end: u64,
    },
    /// The size of a tensor overflows 64 bits.
    #[error("the size of tensor `{tensor}` overflows 64 bits")]
    Overflow {
        /// The name of the tensor.
        tensor: String,
    },
    /// The elements of a tensor do not fill whole bytes.
    #[error(
        "tensor `{tensor}` has {elements} elements of {dtype}, which is not a whole number of bytes"
    )]
    PartialByte {
        /// The name of the tensor.
        tensor: String,
        /// The dtype of the tensor.
        dtype: Dtype,
        /// The number of elements.
        elements: u64,
    },
    /// The shape and dtype of a tensor do not match its offsets.
    #[error(
        "tensor `{tensor}` has {elements} elements of {dtype}, which is {expected} bytes, but spans {found} bytes"
    )]
    SizeMismatch {
        /// The name of the tensor.
        tensor: String,
        /// The dtype of the tensor.
        dtype: Dtype,
        /// The number of elements.
        elements: u64,
        /// The number of bytes implied by shape and dtype.
        expected: u64,
        /// The number of bytes between its offsets.
        found: u64,
    },
    /// A tensor of an unknown dtype has less than one bit per element.
    #[error("tensor `{tensor}` has {elements} elements of {dtype}, too many for its {found} bytes")]
    TooManyElements {
        /// The name of the tensor.
        tensor: String,
        /// The dtype of the tensor.
        dtype: Dtype,
        /// The number of elements.
        elements: u64,
        /// The number of bytes between its offsets.
        found: u64,
    },
    /// The data of a tensor is preceded by bytes that belong to no tensor.
    #[error("the data has a gap from byte {expected} to byte {begin}, before tensor `{tensor}`")]
    Gap {
        /// The name of the tensor.
        tensor: String,
        /// The offset of its first byte.
        begin: u64,
        /// The offset at which the data before it ends.
        expected: u64,
    },
    /// The data of a tensor overlaps that of another.
    #[error(
        "tensor `{tensor}` begins at byte {begin} of the data, inside a tensor that ends at byte {expected}"
    )]
    Overlap {
        /// The name of the tensor.
        tensor: String,
        /// The offset of its first byte.
        begin: u64,
        /// The offset at which the data before it ends.
        expected: u64,
    },
    /// The file does not have the size that its header implies.
    #[error(
        "according to its header, the file ends with {} at byte {expected}, but it has {found} bytes",
        last(tensor.as_deref())
    )]
    FileSizeMismatch {
        /// The name of the last tensor in the file, or `None` if the file has no tensor data.
        tensor: Option<String>,
        /// The size that the header implies.
        expected: u64,
        /// The actual size of the file.
        found: u64,
    },
    /// The file violates the GGUF format.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The file violates the rules of PyTorch checkpoints.
    #[error(transparent)]
    PyTorch(#[from] PyTorchError),
    /// The file violates a custom format.
    #[error("{message}")]
    Other {
        /// The violated rule.
        message: String,
    },
}

impl HeaderError {
    /// Creates the error for a tensor whose size does not fit in 64 bits.
    pub(crate) fn overflow(tensor: &str) -> Self {
        Self::Overflow { tensor: clip(tensor) }
    }
}

/// Describes the last part of a file: a tensor, or the header if there is no data.
fn last(tensor: Option<&str>) -> String {
    tensor.map_or_else(|| "its header".to_owned(), |tensor| format!("tensor `{tensor}`"))
}

/// The actual format of a file with an unexpected format, detected from its first eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DetectedFormat {
    /// A Git LFS pointer, the text file that Git stores in place of a large file.
    GitLfsPointer,
    /// A web page, such as a login or error page.
    Html,
    /// A ZIP archive, such as a checkpoint written by `torch.save`.
    Zip,
    /// A GGUF file.
    Gguf,
    /// A Python pickle, such as a checkpoint written by an old version of `torch.save`.
    Pickle,
    /// An HDF5 file, such as a checkpoint of Keras.
    Hdf5,
    /// A JSON object, such as a configuration.
    Json,
    /// Any other text.
    Text,
}

impl DetectedFormat {
    /// The first bytes of each format, after optional whitespace.
    const STARTS: [(&[u8], Self); 9] = [
        (b"version ", Self::GitLfsPointer),
        (b"<", Self::Html),
        (b"PK\x03\x04", Self::Zip),
        (b"GGUF", Self::Gguf),
        (b"\x80\x02", Self::Pickle),
        (b"\x80\x03", Self::Pickle),
        (b"\x80\x04", Self::Pickle),
        (b"\x80\x05", Self::Pickle),
        (b"\x89HDF", Self::Hdf5),
    ];

    /// Detects the format of a file by its first bytes; `None` if it is unknown.
    pub(in crate::formats) fn recognize(start: &[u8]) -> Option<Self> {
        let start = start.trim_ascii_start();
        let mut found = Self::STARTS.into_iter().filter(|(known, _)| start.starts_with(known));
        found.next().map(|(_, detected)| detected)
    }

    /// Detects the format of a file like [`recognize`](Self::recognize), or else JSON and other text, which have no
    /// distinctive start.
    pub(in crate::formats) fn recognize_or_text(start: &[u8]) -> Option<Self> {
        let is_text =
            start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
        let is_json = start.trim_ascii_start().starts_with(b"{");
        let text = if is_json { Self::Json } else { Self::Text };
        Self::recognize(start).or(is_text.then_some(text))
    }

    /// Returns whether these bytes could be an incomplete start of a known format.
    pub(in crate::formats) fn is_possible(start: &[u8]) -> bool {
        Self::STARTS.iter().any(|(known, _)| known.starts_with(start.trim_ascii_start()))
    }
}

impl std::fmt::Display for DetectedFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::GitLfsPointer => "a Git LFS pointer",
            Self::Html => "an HTML or XML page",
            Self::Zip => "a ZIP archive (a PyTorch checkpoint?)",
            Self::Gguf => "a GGUF file",
            Self::Pickle => "a Python pickle (a PyTorch checkpoint?)",
            Self::Hdf5 => "an HDF5 file (a Keras checkpoint?)",
            Self::Json => "JSON",
            Self::Text => "text",
        })
    }
}

/// A rule of the GGUF format that a header violates.
///
/// Text from the file is truncated to 200 characters but otherwise unchanged. Violations that are not specific to
/// GGUF are variants of [`HeaderError`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The file does not start with the magic bytes.
    #[error("the file starts with the bytes {found:02x?} instead of `GGUF`")]
    InvalidMagic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// The version is neither 2 nor 3.
    #[error("unsupported GGUF version {version}; only 2 and 3 are supported")]
    UnsupportedVersion {
        /// The version.
        version: u32,
    },
    /// The file contains something other than the weights of a model.
    #[error("the file contains {content}, not a model")]
    NotAModel {
        /// The content: an importance matrix or a control vector.
        content: &'static str,
    },
    /// There are more keys than in any known model.
    #[error("the header has {keys} keys, which exceeds the limit of {limit}")]
    TooManyKeys {
        /// The number of keys.
        keys: u64,
        /// The maximum number of keys.
        limit: u64,
    },
    /// A key or a tensor name is empty or too long.
    #[error("the name of {what} {at} has {length} bytes; it must have 1 to {limit}")]
    InvalidNameLength {
        /// The kind of item: `key` or `tensor`.
        what: &'static str,
        /// The position of the key or tensor, counted from 0.
        at: u64,
        /// The length of the name in bytes.
        length: u64,
        /// The maximum length of the name, in bytes.
        limit: u64,
    },
    /// A key or a tensor name is not valid UTF-8.
    #[error("the name of {what} {at} is not valid UTF-8")]
    NotUtf8 {
        /// The kind of item: `key` or `tensor`.
        what: &'static str,
        /// The position of the key or tensor, counted from 0.
        at: u64,
    },
    /// A key appears twice.
    #[error("key `{key}` appears twice")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A value has an unknown type.
    #[error("key `{key}` has a value of unknown type {number}")]
    UnknownValueType {
        /// The key.
        key: String,
        /// The type number.
        number: u32,
    },
    /// A value is an array of arrays.
    #[error("key `{key}` has an array of arrays")]
    NestedArray {
        /// The key.
        key: String,
    },
    /// The alignment is not a 32-bit power of two.
    #[error("`general.alignment` is `{value}`; it must be a 32-bit power of two")]
    InvalidAlignment {
        /// The value.
        value: String,
    },
    /// A tensor has too many dimensions.
    #[error("tensor `{tensor}` has {dimensions} dimensions; the maximum is 4")]
    TooManyDimensions {
        /// The name of the tensor.
        tensor: String,
        /// The number of dimensions.
        dimensions: u32,
    },
    /// The rows of a tensor are not a whole number of blocks.
    #[error(
        "tensor `{tensor}` has rows of {row} elements, which is not a multiple of the block size {block}"
    )]
    PartialBlock {
        /// The name of the tensor.
        tensor: String,
        /// The number of elements per row.
        row: u64,
        /// The number of elements per block.
        block: u64,
    },
}
