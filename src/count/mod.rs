//! How many parameters a stored tensor holds, which its shape alone does not tell.
//!
//! A quantized model packs several weights into one element of an integer type, and stores scales, zero
//! points and tables beside them. What is what follows from the names and dtypes of the tensors and from
//! what `config.json` says of the quantization. The rules are those that huggingface.js, the Hub's own
//! counter, applies; a result names them and their version as its [`RuleSet`], because they change.
//!
//! Pure functions over names, dtypes and shapes, one tensor at a time: [`needs_config`] tells whether
//! a configuration could change what is counted, [`Classifier`] are what follows from it, and a [`Counter`] adds
//! up by them. No pattern of a configuration is run as a regular expression, and the work on a name has a
//! bound whatever the configuration lists.

mod auxiliary;
mod breakdown;
mod buffer;
mod classifier;
mod config_use;
mod configs;
mod counted_as;
mod counter;
mod experts;
mod json_object;
mod merging_counter;
mod methods;
mod packing;
mod parameter_count;
mod patterns;
mod waiting;

pub use auxiliary::AuxiliaryTensor;
pub use breakdown::{CountBreakdown, RuleSet, TensorGroup};
pub use buffer::Buffer;
pub use classifier::Classifier;
pub use configs::{ConfigError, Configs};
pub use counted_as::CountedAs;
pub use counter::{CountOverflow, Counter};
pub use experts::MixtureOfExperts;
pub use merging_counter::MergingCounter;
pub use packing::Packing;
pub use parameter_count::{DtypeCount, ParameterCount};

/// The part of a tensor's name after the last dot: `weight_scale` of `h.0.mlp.weight_scale`.
fn suffix(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, suffix)| suffix)
}

/// The part of a tensor's name before the last dot, and all of a name without one.
fn module(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(module, _)| module)
}

/// Returns whether `config.json` could change the count of a tensor.
#[must_use]
pub fn needs_config(name: &str, tensor: &crate::formats::TensorInfo) -> bool {
    config_use::ConfigUse::from_tensor(name, tensor).asks
}
