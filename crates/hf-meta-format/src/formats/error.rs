//! Errors of headers.

use std::fmt::Display;

use thiserror::Error;

use crate::base::text::{clip, named_enum};

/// The maximum length of a header in bytes, which the `safetensors` crate enforces (`MAX_HEADER_SIZE`).
pub(super) const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The error returned for a file with an invalid header, and for an index that is invalid or inconsistent with its
/// shards.
///
/// Text from the file, such as a tensor name, is truncated to 200 characters but otherwise unchanged: escape control
/// characters before printing it to a terminal. Sizes and offsets are in bytes. Tensor offsets are relative to the
/// start of the data section.
///
/// ```
/// use hf_meta_format::SafetensorsFileHeader;
/// use hf_meta_format::formats::HeaderErrorKind;
///
/// let json = br#"{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}"#;
/// let error = SafetensorsFileHeader::from_json(json).unwrap_err();
/// assert_eq!((error.kind, error.tensor.as_deref()), (HeaderErrorKind::SizeMismatch, Some("w")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct HeaderError {
    /// The kind of the violated rule.
    pub kind: HeaderErrorKind,
    /// The name of the tensor that violates the rule, if it concerns one.
    pub tensor: Option<String>,
    /// The violated rule, with the numbers that violate it.
    pub message: String,
}

/// The kind of rule that an invalid header violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeaderErrorKind {
    /// The file is too short to contain the 8-byte header length.
    FileTooShort,
    /// The file is in this format instead of the expected one.
    WrongFormat(DetectedFormat),
    /// The header is truncated.
    Truncated,
    /// The header exceeds the size limit, and is longer than the one of any valid file.
    TooLarge,
    /// The header exceeds a limit that the caller lowered. The file may be valid.
    OverLimit,
    /// The header is longer than the file.
    ExceedsFile,
    /// The header is empty.
    Empty,
    /// The header is not a JSON object.
    NotAnObject,
    /// The header, or a name in it, is not valid UTF-8.
    NotUtf8,
    /// The header is padded with NUL bytes.
    NulPadding,
    /// The header or the index is not JSON with the expected structure.
    InvalidJson,
    /// An entry does not describe a tensor.
    InvalidEntry,
    /// The header or the index lists a tensor twice.
    DuplicateTensor,
    /// The data of a tensor ends before it begins.
    ReversedOffsets,
    /// The size of a tensor overflows 64 bits.
    Overflow,
    /// The elements of a tensor do not fill whole bytes or blocks.
    PartialBlock,
    /// The shape and dtype of a tensor do not match its offsets.
    SizeMismatch,
    /// A tensor of an unknown dtype has less than one bit per element.
    TooManyElements,
    /// The data of a tensor is preceded by bytes that belong to no tensor.
    Gap,
    /// The data of a tensor overlaps that of another.
    Overlap,
    /// The file does not have the size that its header implies.
    FileSizeMismatch,
    /// The GGUF file is valid, but contains something other than a model, such as an importance matrix.
    NotAModel,
    /// The file contains something other than a PyTorch checkpoint.
    NotACheckpoint,
    /// A file with another error imports functions or classes that `torch.load(weights_only=True)` rejects.
    UnsafeImports,
    /// The file uses a version or a feature of its format that this crate does not support.
    Unsupported,
    /// The index contains an unresolved merge conflict.
    MergeConflict,
    /// The index has no `weight_map`.
    NoWeightMap,
    /// The index lists no tensors.
    EmptyWeightMap,
    /// A shard name is not a safe relative path.
    UnsafeShardName,
    /// A shard name does not have the extension that the name of the index implies.
    UnexpectedExtension,
    /// The index lists too many shards.
    TooManyShards,
    /// Two shards contain the same tensor.
    TensorInTwoShards,
    /// The index lists a tensor that no shard contains.
    MissingTensor,
    /// The parameter count overflows 64 bits at the tensor.
    CountOverflow,
    /// The header of a shard is missing.
    MissingHeader,
    /// The header of a shard was given more than once.
    DuplicateHeader,
    /// No headers were given.
    NoHeaders,
    /// The file violates any other rule of its format.
    Other,
}

impl HeaderError {
    /// Creates an error that concerns no single tensor.
    pub fn new(kind: HeaderErrorKind, message: impl Into<String>) -> Self {
        Self { kind, tensor: None, message: message.into() }
    }

    /// Sets the tensor that the error concerns.
    #[must_use]
    pub fn with_tensor(self, name: &str) -> Self {
        Self { tensor: Some(clip(name)), ..self }
    }

    /// Creates the error of a tensor. The message is the name of the tensor followed by `rule`.
    pub fn of_tensor(kind: HeaderErrorKind, name: &str, rule: impl Display) -> Self {
        Self::new(kind, format!("tensor `{}` {rule}", clip(name))).with_tensor(name)
    }

    /// Creates the error of two tensors with the same name in the header or the index.
    pub(super) fn duplicate(tensor: &str, place: &str) -> Self {
        let rule = format_args!("appears twice in the {place}");
        Self::of_tensor(HeaderErrorKind::DuplicateTensor, tensor, rule)
    }

    /// Creates the error for a tensor whose size does not fit in 64 bits.
    pub fn overflow(tensor: &str) -> Self {
        let message = format!("the size of tensor `{}` overflows 64 bits", clip(tensor));
        Self::new(HeaderErrorKind::Overflow, message).with_tensor(tensor)
    }

    /// Creates the error for the data of a tensor that begins before or after the `expected` offset.
    pub(super) fn misplaced(tensor: &str, begin: u64, expected: u64) -> Self {
        if begin < expected {
            let rule = format!(
                "begins at byte {begin} of the data, inside a tensor that ends at byte {expected}"
            );
            return Self::of_tensor(HeaderErrorKind::Overlap, tensor, rule);
        }
        let message = format!(
            "the data has a gap from byte {expected} to byte {begin}, before tensor `{}`",
            clip(tensor)
        );
        Self::new(HeaderErrorKind::Gap, message).with_tensor(tensor)
    }

    /// Creates the error for a header that ends at byte `expected`, if only `found` bytes are available.
    pub(super) fn truncated(expected: u64, found: u64) -> Self {
        let message =
            format!("the header ends at byte {expected}, but only {found} bytes are available");
        Self::new(HeaderErrorKind::Truncated, message)
    }

    /// Creates the error for a header of `length` bytes, which are more than the limit.
    pub(super) fn too_large(length: u64, limit: u64) -> Self {
        let message = format!("a header of {length} bytes exceeds the limit of {limit} bytes");
        let is_valid = length <= MAX_HEADER_BYTES;
        let kind = if is_valid { HeaderErrorKind::OverLimit } else { HeaderErrorKind::TooLarge };
        Self::new(kind, message)
    }

    /// Creates the error for a header of `length` bytes, which are more than the file has.
    pub(super) fn exceeds_file(length: u64, file_size: u64) -> Self {
        let message =
            format!("a header of {length} bytes does not fit in a file of {file_size} bytes");
        Self::new(HeaderErrorKind::ExceedsFile, message)
    }

    /// Creates the error for a file in a format other than the expected one.
    pub(super) fn wrong_format(detected: DetectedFormat) -> Self {
        let message = format!("the file looks like {detected}");
        Self::new(HeaderErrorKind::WrongFormat(detected), message)
    }
}

named_enum! {
    /// The actual format of a file with an unexpected format, detected from its first eight bytes.
    pub DetectedFormat {
        /// A Git LFS pointer, the text file that Git stores in place of a large file.
        GitLfsPointer "a Git LFS pointer in place of its content (`git lfs pull` fetches it)",
        /// A web page, such as a login or error page.
        Html "an HTML or XML page",
        /// A ZIP archive, such as a checkpoint written by `torch.save`.
        Zip "a ZIP archive (a PyTorch checkpoint?)",
        /// A GGUF file.
        Gguf "a GGUF file",
        /// A Python pickle, such as a checkpoint written by an old version of `torch.save`.
        Pickle "a Python pickle (a PyTorch checkpoint?)",
        /// An HDF5 file, such as a checkpoint of Keras.
        Hdf5 "an HDF5 file (a Keras checkpoint?)",
        /// A tar archive, such as a checkpoint written by torch before 0.1.10.
        Tar "a tar archive (a checkpoint of torch before 0.1.10?)",
        /// A JSON object, such as a configuration.
        Json "JSON",
        /// Any other text.
        Text "text",
    }
}

impl DetectedFormat {
    /// The first bytes of formats, after optional whitespace.
    const STARTS: [(Self, &[u8]); 11] = [
        (Self::GitLfsPointer, b"version "),
        (Self::Html, b"<"),
        (Self::Zip, b"PK\x03\x04"),
        (Self::Gguf, b"GGUF"),
        (Self::Pickle, b"\x80\x02"),
        (Self::Pickle, b"\x80\x03"),
        (Self::Pickle, b"\x80\x04"),
        (Self::Pickle, b"\x80\x05"),
        (Self::Hdf5, b"\x89HDF"),
        // The names of the first entry in archives of torch, and of the headers before it.
        (Self::Tar, b"sys_info"),
        (Self::Tar, b"./PaxHea"),
    ];

    /// Detects the format of a file by its first bytes; `None` if it is unknown.
    pub fn recognize(start: &[u8]) -> Option<Self> {
        let start = start.trim_ascii_start();
        let found = Self::STARTS.iter().find(|(_, known)| start.starts_with(known));
        found.map(|(detected, _)| *detected)
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
        Self::STARTS.iter().any(|(_, known)| known.starts_with(start.trim_ascii_start()))
    }
}

impl serde::Serialize for HeaderError {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
