//! Parse headers of safetensors, GGUF and PyTorch files, and count parameters per dtype, without I/O.
//!
//! This crate contains everything about model weights that needs no network, no disk and no async runtime. It builds
//! for `wasm32-unknown-unknown`. The crate `hf-meta` reads the bytes from the Hugging Face Hub and re-exports these
//! modules.
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
//! | [`count`] | parameters per dtype, quantized layouts, experts |
//! | [`memory`] | the memory of weights and caches |
//! | [`results`] | counts with their context, findings, differences, trees, JSON |
//! | [`steps`] | the steps of a call: a count from headers that arrive in any order |
//! | [`check`] | the checks of a verification |

mod base;
pub mod check;
pub mod count;
pub mod formats;
mod ids;
pub mod memory;
mod repo_source;
pub mod results;
pub mod steps;
mod tables;

pub use count::ParameterCount;
pub use formats::safetensors::{SafetensorsFileHeader, SafetensorsIndexJson};
pub use formats::weight_sets::{UnsupportedWeights, WeightSet};
pub use formats::{Dtype, RepoPath, TensorInfo};
pub use ids::{CommitSha, IdError, RepoId, RepoKind, Revision};
pub use repo_source::{PUBLIC_HUB_HOSTS, RepoSource, SourceError, is_local_path};
pub use results::diff::Diff;
pub use results::tree::Tree;
pub use results::{
    CountReport, CountSummary, FetchStats, Plan, SafetensorsFile, SafetensorsParseFromRepo,
    SafetensorsShards, VerifyReport, WeightFiles, Weights,
};
pub use tables::architecture::add_tables;
