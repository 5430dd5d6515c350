//! Errors of GGUF headers.

use thiserror::Error;

/// A rule of the GGUF format that a header violates.
///
/// Text from the file is truncated to 200 characters but otherwise unchanged. Violations that are not specific to
/// GGUF are variants of [`HeaderError`](crate::formats::HeaderError).
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
