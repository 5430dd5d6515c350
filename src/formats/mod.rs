//! File formats of model weights: pure functions from bytes to checked values.

mod dtype;
mod names;
mod path;
pub mod safetensors;
mod tensor;
mod text;
pub(crate) mod weight_sets;

pub use dtype::{Dtype, UnknownDtype};
pub use path::{PathError, RepoPath};
pub use tensor::TensorInfo;

pub(crate) use path::names_index;
pub(crate) use text::{chain, clip};
