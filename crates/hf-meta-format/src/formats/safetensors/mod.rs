//! The safetensors format: header and index parsers.
//!
//! The parsers perform no I/O. A [`SafetensorsFileHeader`] or [`SafetensorsIndexJson`] exists only if it satisfies
//! every rule that can be checked from its own bytes. The size of a file is checked as soon as it is known. The
//! consistency of an index with its shards is checked by
//! [`SafetensorsParseFromRepo::from_headers`](crate::SafetensorsParseFromRepo::from_headers).
//!
//! The rules are those of the [format] and its reference implementation, the `safetensors` crate. Intentional
//! differences are documented at [`SafetensorsFileHeader::from_json`].
//!
//! [format]: https://github.com/huggingface/safetensors#format

mod error;
mod file_names;
mod format;
mod header;
mod index;
mod json;
mod prefix;

pub use super::{DetectedFormat, HeaderError};
pub use error::IndexError;
pub use format::Safetensors;
pub use header::SafetensorsFileHeader;
pub use index::{IndexReader, SafetensorsIndexJson};
pub use prefix::{HeaderLength, PREFIX_LENGTH};

pub use file_names::{
    EXTENSION, INDEX_NAME, WEIGHTS_NAME, is_index_name, is_weights_name, split_index,
};
pub use prefix::expected_header_end;
