//! Parse headers of safetensors, GGUF and PyTorch files, and their indexes, without I/O.
//!
//! This crate contains what the files of a model state: their containers, dtypes, tensors, indexes and names. It needs no
//! network, no disk and no async runtime, and builds for `wasm32-unknown-unknown`. The crate `hf-meta-count` counts the
//! parameters, and `hf-meta` reads the bytes from the Hugging Face Hub.
//!
//! ```
//! use hf_meta_format::SafetensorsFileHeader;
//!
//! let json = br#"{"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}"#;
//! let header = SafetensorsFileHeader::from_json(json).unwrap();
//! assert_eq!(header.tensors().len(), 1);
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`formats`] | headers, indexes, tensors, file names; the trait of a format |
//! | [`metadata`] | the SAI Model Spec, thumbnails and training metadata in headers |
//! | [`read_plan`] | the byte ranges of selected tensors |

/// Used by the crates of this project. It may change in any version.
#[doc(hidden)]
#[allow(
    clippy::len_without_is_empty,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "no other project uses it"
)]
pub mod base;
pub mod formats;
mod ids;
pub mod metadata;
pub mod read_plan;
mod repo_source;

pub use formats::safetensors::{SafetensorsFileHeader, SafetensorsIndexJson};
pub use formats::weight_sets::{UnsupportedWeights, WeightSet};
pub use formats::{Dtype, RepoPath, TensorInfo};
pub use ids::{CommitSha, IdError, RepoId, RepoKind, Revision};
pub use repo_source::{PUBLIC_HUB_HOSTS, RepoSource, SourceError, is_local_path};
