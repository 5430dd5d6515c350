//! Count the parameters of a model from the headers of its files, estimate its memory, and verify it, without I/O.
//!
//! The crate `hf-meta-format` parses the headers, and `hf-meta` reads them from the Hugging Face Hub. This crate builds for
//! `wasm32-unknown-unknown`.
//!
//! ```
//! use hf_meta_count::count::Configs;
//! use hf_meta_count::SafetensorsParseFromRepo;
//! use hf_meta_format::SafetensorsFileHeader;
//!
//! let json = br#"{"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}"#;
//! let headers = vec![("model.safetensors".parse()?, SafetensorsFileHeader::from_json(json)?)];
//! let parsed = SafetensorsParseFromRepo::from_headers(None, headers, &Configs::default())?;
//! assert_eq!(parsed.parameter_count().total(), 6);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`count`] | parameters per dtype, quantized layouts, experts |
//! | [`memory`] | the memory of weights and caches |
//! | [`results`] | counts with their context, findings, differences, trees, JSON |
//! | [`steps`] | the steps of a call: a count from headers that arrive in any order |
//! | [`values`] | the values of tensors |
//! | [`check`] | the checks of a verification |
//! | [`engines`] | whether an engine loads a model |

mod architectures;
mod base;
pub mod check;
pub mod count;
pub mod engines;
pub mod memory;
pub mod results;
pub mod steps;
pub mod values;

pub use architectures::architecture::add_tables;
pub use count::ParameterCount;
pub use results::diff::Diff;
pub use results::tree::Tree;
pub use results::{
    CountReport, CountSummary, FetchStats, Plan, SafetensorsFile, SafetensorsParseFromRepo,
    SafetensorsShards, VerifyReport, WeightFiles, Weights,
};
