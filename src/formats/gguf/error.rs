//! The errors of a GGUF header.

use thiserror::Error;

/// The rule of the GGUF format that a header breaks.
///
/// Text from the file is cut to 200 characters and otherwise unchanged. Rules that other formats have, too, are variants
/// of [`HeaderError`](crate::formats::HeaderError).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GgufError {
    /// A file that does not begin with the magic bytes.
    #[error("the file does not begin with `GGUF` but with the bytes {found:02x?}")]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// A version other than 2 and 3.
    #[error("version {version} of GGUF is not supported, only 2 and 3")]
    Version {
        /// The version.
        version: u32,
    },
    /// More keys than any model has.
    #[error("the header has {keys} keys, over the limit of {limit}")]
    TooManyKeys {
        /// The number of keys.
        keys: u64,
        /// The largest accepted number.
        limit: u64,
    },
    /// A key or a name of a tensor that is empty or too long.
    #[error("{what} {at} has a name of {length} bytes; it must have 1 to {limit}")]
    NameLength {
        /// The named thing: `key` or `tensor`.
        what: &'static str,
        /// The position of the key or the tensor, from 0.
        at: u64,
        /// The length of the name in bytes.
        length: u64,
        /// The largest accepted length.
        limit: u64,
    },
    /// A key or a name of a tensor that is not UTF-8.
    #[error("the name of {what} {at} is not UTF-8")]
    NotUtf8 {
        /// The named thing: `key` or `tensor`.
        what: &'static str,
        /// The position of the key or the tensor, from 0.
        at: u64,
    },
    /// Two values under one key.
    #[error("key `{key}` occurs twice")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A value of an unknown type.
    #[error("key `{key}` has a value of the unknown type {number}")]
    ValueType {
        /// The key.
        key: String,
        /// The number of the type.
        number: u32,
    },
    /// A list of lists.
    #[error("key `{key}` has a list of lists")]
    NestedList {
        /// The key.
        key: String,
    },
    /// An alignment that is not a 32-bit power of two.
    #[error("`general.alignment` is `{value}`; it must be a power of two, of 32 bits")]
    Alignment {
        /// The value.
        value: String,
    },
    /// A tensor with too many dimensions.
    #[error("tensor `{tensor}` has {dimensions} dimensions; at most 4 are possible")]
    Dimensions {
        /// The name of the tensor.
        tensor: String,
        /// The number of dimensions.
        dimensions: u32,
    },
    /// A tensor whose rows are not divisible into blocks.
    #[error(
        "tensor `{tensor}` has rows of {row} elements, which are no multiple of its blocks of {block}"
    )]
    PartialBlock {
        /// The name of the tensor.
        tensor: String,
        /// The elements of a row.
        row: u64,
        /// The elements of a block.
        block: u64,
    },
}
