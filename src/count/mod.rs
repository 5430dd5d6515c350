//! Counting the parameters of a model from the names, dtypes and shapes of its tensors.
//!
//! # What is counted
//!
//! A parameter is a weight of the model before it was quantized. In most models every element is a
//! parameter. A quantized model packs several weights into one element of an integer dtype, and stores scales, zero
//! points and tables next to them. `config.json` names the quantization method and its parameters. The rules
//! are those of huggingface.js, the Hub's own counter; [`RuleSet`] names them and their version.
//!
//! - A tensor without dimensions is a constant and is not counted.
//! - Exponents without a mantissa (`F8_E8M0`) are scales and are not counted in any model.
//! - A [`Buffer`], such as a mask, is counted as stored and listed in a group of its own.
//! - For a mixture of experts, [`MixtureOfExperts`] has the parameters that are active for one token.
//!
//! # The life of a tensor
//!
//! There is one [`Counter`], without I/O, and every way of reading headers feeds it.
//!
//! 1. [`Counter::add`] looks at the name, the dtype and the shape. If no configuration could change the class
//!    of the tensor, the tensor is classified and added to the sums at once. Otherwise it waits, packed into a few bytes.
//! 2. [`Counter::needs_config`] is `true` as soon as one tensor is a reason to request `config.json`. Some
//!    tensors wait without being one: the `biases` of MLX matter only next to packed weights, which ask themselves.
//! 3. [`Counter::set_configs`] classifies the tensors that waited, and from then on every new one. If the method
//!    looks at whole modules, its tensors wait for [`Counter::finish`], because the parts of a module may lie in
//!    different files.
//! 4. [`Counter::finish`] returns the [`ParameterCount`] and the [`CountBreakdown`], which explains it.
//!
//! The result does not depend on the order of the tensors, on the files they are in, or on the moment of
//! `set_configs`. This is why sums are kept for each layer: only the configuration says which layers draft tokens.
//!
//! # Adding a quantization method
//!
//! Write one file in `methods/` and add its `METHOD` to the list `METHODS` in `methods/mod.rs`. The file has
//!
//! - the values of `quant_method`, and the keys of `config.json` that may describe the method,
//! - the names of its parts with their roles, which also decide if a tensor waits and if it asks for
//!   `config.json`,
//! - the function that reads the configuration, and the arithmetic: `classify` returns the class of a part, and
//!   is given its whole module if the method needs it,
//! - cases, as tests.
//!
//! Then add rows to the table of rules in `tests/it/rules/table.md`.
//!
//! Names and configurations come from the network. No pattern is run as a regular expression, and the work per
//! tensor is bounded.

mod auxiliary;
mod breakdown;
mod buffer;
mod config_use;
mod configs;
mod counted_as;
mod counter;
mod experts;
mod json_object;
mod methods;
mod module_part;
mod packing;
mod parameter_count;
mod patterns;
mod waiting;

pub use auxiliary::AuxiliaryTensor;
pub use breakdown::{CountBreakdown, RuleSet, TensorGroup};
pub use buffer::Buffer;
pub use configs::{ConfigError, Configs};
pub use counted_as::CountedAs;
pub use counter::{CountOverflow, Counter};
pub use experts::MixtureOfExperts;
pub use packing::Packing;
pub use parameter_count::{DtypeCount, ParameterCount};

/// Returns the last component of a tensor's name: `weight_scale` of `h.0.mlp.weight_scale`.
fn suffix(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, suffix)| suffix)
}

/// Returns whether `config.json` could change the count of a tensor.
///
/// A [`Counter`] answers this for all its tensors together. Ask here to request `config.json` before the headers
/// of all files have arrived.
#[must_use]
pub fn needs_config(name: &str, tensor: &crate::formats::TensorInfo) -> bool {
    config_use::ConfigUse::from_part(&module_part::ModulePart::new(name, tensor)).asks
}
