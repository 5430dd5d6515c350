//! File formats of model weights.
//!
//! A weight file contains a header: the name, dtype, shape and data offsets of each tensor. The tensor data is
//! thousands of times larger and is never read. [`FileHeader`] is the validated header of a file in any
//! format, and its [`TensorTable`] contains the tensors.
//!
//! Parsers perform no I/O. A [`HeaderParser`] requests byte ranges through [`HeaderParser::first_range`] and
//! [`Step::Read`]. The caller reads the bytes from the network or from disk and passes them to
//! [`HeaderParser::advance`] until it returns [`Step::Done`]; [`read_header`] does this for synchronous reads. File contents are untrusted: sizes are limited,
//! arithmetic is checked, and text in errors is truncated.
//!
//! A format is a module that implements [`Format`], plus one line in [`Formats::built_in`]. A dtype is one line of
//! the table in `dtype.rs`. Indexes of sharded checkpoints belong to [`safetensors`].

mod buffer;
mod content;
mod dtype;
mod error;
mod format;
pub mod gguf;
mod header;
mod names;
mod path;
pub mod pytorch;
mod registry;
pub mod safetensors;
#[cfg(feature = "schema")]
mod schema;
mod table;
pub mod weight_sets;

pub use dtype::{BlockSize, Dtype, UnknownDtype};
pub use error::{DetectedFormat, HeaderError, HeaderErrorKind};
pub use format::{Format, HeaderParser, Step, WeightFileName, WeightsKind, read_header};
pub use header::{FileHeader, Headers, ModelDescription, TrainingEntry};
#[doc(hidden)]
pub use header::{all_tensors, loaded_tensors};
#[doc(hidden)]
pub use path::NumberedName;
pub use path::{PathError, RepoPath};
pub use registry::Formats;
pub use table::{TensorInfo, TensorTable, TensorTableBuilder};

pub use crate::base::text::{chain, clip};
pub(crate) use crate::base::text::{text_type, whole_number};
#[doc(hidden)]
pub use names::NameList;
#[doc(hidden)]
pub use table::{product, push_layout, push_number, read_layout, read_number};
