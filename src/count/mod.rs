//! Counting the parameters of a model from the names, dtypes and shapes of its tensors.
//!
//! # What is counted
//!
//! A parameter is a weight of the model before it was quantized. In most models every element is a
//! parameter. A quantized model packs several weights into one element, and stores scales, zero
//! points and tables next to them. The shapes of these parts show the size of the original matrix.
//!
//! - A tensor without dimensions is a constant and is not counted.
//! - Exponents without a mantissa (`F8_E8M0`) are scales and are not counted in any model.
//! - A [`Buffer`], such as a mask, is counted as stored and listed in a group of its own.
//! - A module whose size does not follow from its parts is counted as stored, and makes the count inexact.
//! - For a mixture of experts, [`MixtureOfExperts`] has the parameters that are active for one token.
//!
//! # The life of a tensor
//!
//! There is one [`Counter`], without I/O, and every way of reading headers feeds it.
//!
//! 1. [`Counter::add`] looks at the name, the dtype and the shape. A tensor that cannot be a part of a quantized module is
//!    added to the sums at once. Any other waits, packed into a few bytes, because the parts of a module may lie in different
//!    files.
//! 2. [`Counter::needs_config`] is `true` as soon as one tensor is a reason to request `config.json`.
//! 3. [`Counter::finish`] groups the tensors that waited into modules and solves each one: the methods whose parts it has are
//!    asked for the number of its weights. The configuration is used only where the shapes leave a choice.
//!
//! The result does not depend on the order of the tensors, on the files they are in, or on the moment of
//! [`Counter::set_configs`]. This is why sums are kept for each layer: only the configuration says which layers draft tokens.
//!
//! # Adding a quantization method
//!
//! Write one file in `methods/` and add its `METHOD` to the list `METHODS` in `methods/mod.rs`. The file has the values of
//! `quant_method`, the names of the parts, and the function that derives the number of weights from two or more parts. Then
//! add a checkpoint of known size to `fixtures/quantized`.
//!
//! Names and configurations come from the network. Regular expressions are matched in linear time and limited in number
//! and length, and the work per module is bounded.

mod auxiliary;
mod breakdown;
mod buffer;
mod configs;
mod counted_as;
mod counter;
mod expert_configs;
mod expert_sums;
mod experts;
mod hints;
mod huggingface_js;
mod json_object;
#[cfg(test)]
mod marked;
mod metadata;
mod methods;
mod module;
#[cfg(test)]
mod oracles;
mod parameter_count;
mod part;
mod pattern;
mod position;
mod schemes;
mod solver;
mod sums;
mod unresolved;
mod waiting;

pub use auxiliary::AuxiliaryTensor;
pub use breakdown::{CountBreakdown, ModuleKind, RuleSet, TensorGroup};
pub use buffer::Buffer;
pub use configs::{ConfigError, Configs};
pub use counted_as::{CountedAs, Packing};
pub use counter::{CountOverflow, Counter, needs_config};
pub use experts::{MixtureOfExperts, UnknownActive};
pub use parameter_count::{DtypeCount, ParameterCount};
pub(crate) use part::module_of_packed_weights;
pub use unresolved::{UnresolvedModules, UnresolvedReason};
