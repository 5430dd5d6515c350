//! The safetensors format: pure functions from bytes to checked values.
//!
//! Nothing here knows of files, of HTTP or of the Hub, and nothing is async. A value of
//! [`SafetensorsFileHeader`] or [`SafetensorsIndexJson`] exists only if every rule that its own bytes
//! can show was checked. That a file ends where its header says is checked where its size is known,
//! and what two files must agree on in [`agreement`].
//!
//! The rules are those of the [format] and of its reference implementation, the `safetensors` crate.
//! Where ours differ, the difference is stated at the rule, with its reason.
//!
//! [format]: https://github.com/huggingface/safetensors#format

mod error;
mod format;
mod header;
mod index;
mod json;
mod position;
mod prefix;

pub use super::{DetectedFormat, HeaderError};
pub use error::IndexError;
pub use format::Safetensors;
pub use header::SafetensorsFileHeader;
pub use index::{IndexReader, SafetensorsIndexJson};
pub use prefix::{HeaderLength, PREFIX_LENGTH};

pub(crate) use prefix::expected_header_end;
