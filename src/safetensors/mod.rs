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

pub mod agreement;
mod count;
mod digest;
mod dtype;
mod error;
mod finding;
mod header;
mod index;
mod length;
mod names;
mod parts;
mod path;
mod tensor;
mod text;

pub use count::{DtypeCount, ParameterCount};
pub use digest::NamesDigest;
pub use dtype::{Dtype, UnknownDtype};
pub use error::{HeaderError, Impostor, IndexError};
pub use finding::{Finding, Severity};
pub use header::SafetensorsFileHeader;
pub use index::{IndexOutline, IndexReader, SafetensorsIndexJson};
pub use length::{HeaderLength, PREFIX_LENGTH};
pub use path::{PathError, RepoPath};
pub use tensor::TensorInfo;

pub(crate) use finding::bounded;
pub(crate) use header::{HeaderOutline, Sink};
pub(crate) use index::FromIndex;
pub(crate) use parts::{in_order, number, parts, ranges};
pub(crate) use path::names_index;
pub(crate) use text::{chain, clip};
