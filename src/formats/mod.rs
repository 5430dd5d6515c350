//! File formats of model weights: pure functions from bytes to checked values.

mod dtype;
mod error;
mod format;
mod header;
mod names;
mod path;
mod records;
pub mod safetensors;
mod spans;
mod table;
mod tensor;
mod text;
pub(crate) mod weight_sets;

pub use dtype::{Dtype, UnknownDtype};
pub use error::{DetectedFormat, HeaderError};
pub use format::{Format, HeaderParser, Step};
pub use header::FileHeader;
pub use path::{PathError, RepoPath};
pub use table::{TensorTable, TensorTableIter};
pub use tensor::TensorInfo;

pub(crate) use format::format_of;
pub(crate) use path::names_index;
pub(crate) use text::{chain, clip};
