//! Counts the parameters of a model from the names, dtypes and shapes of its tensors.
//!
//! # What is counted
//!
//! A parameter is a weight of the model before quantization. In most models, every element is a parameter. A
//! quantized model packs several weights into one element and stores scales, zero points and lookup tables alongside.
//! The size of the original matrix follows from the shapes of these components.
//!
//! - A tensor without dimensions is a constant and is not counted.
//! - Exponents without a mantissa (`F8_E8M0`) are scales and are never counted.
//! - A [`Buffer`], such as a mask, is counted as stored and reported in a separate group. EMA copies of counted weights are
//!   not counted.
//! - A copy of a tied embedding is not counted if the count depends on the configuration.
//! - A module whose size cannot be derived from its components is counted as stored, and the count is marked inexact.
//! - For a mixture of experts, [`MixtureOfExperts`] gives the parameters that are active per token.
//!
//! # The life of a tensor
//!
//! There is a single [`Counter`]. It performs no I/O, and every way of reading headers uses it.
//!
//! 1. [`Counter::add`] inspects the name, dtype and shape. A tensor that cannot be a component of a quantized module
//!    is counted immediately. Any other tensor is queued in a compact form, because the components of a module may
//!    be in different files.
//! 2. [`Counter::needs_config`] returns `true` as soon as the count of one tensor may depend on `config.json`.
//! 3. [`Counter::finish`] groups the queued tensors into modules and solves each one: the layouts whose components
//!    match are inverted, so that every stored dimension restricts a side of the weight matrix. The configuration is
//!    used only where the shapes are ambiguous.
//!
//! The result does not depend on the order of the tensors, on how they are split into files, or on when
//! [`Counter::set_configs`] is called. Sums are therefore kept per layer: only the configuration identifies the
//! layers that draft tokens.
//!
//! `methods/mod.rs` lists what a new quantization method needs.
//!
//! Names and configurations are untrusted input. Regular expressions are matched in linear time and limited in number
//! and length, and the work per module is bounded.

mod biases;
mod breakdown;
pub(crate) mod config;
mod counted_as;
mod counter;
mod doubts;
mod expected_weights;
mod experts;
mod methods;
mod module;
pub(crate) mod names;
mod parameter_count;
mod pending;
mod solver;
mod sums;
#[cfg(test)]
pub(crate) mod tests;

pub use breakdown::{
    CountBreakdown, ModuleKind, RuleSet, TensorGroup, TiedOutput, UnresolvedModules,
    UnresolvedReason,
};
pub use config::{ConfigError, Configs};
pub use counted_as::{AuxiliaryTensor, CountedAs, Evidence, Packing};
pub use counter::{Counter, needs_config};
pub(crate) use expected_weights::ExpectedWeights;
pub use experts::{MixtureOfExperts, UnknownActive};
#[cfg(test)]
pub(crate) use methods::flags;
pub(crate) use methods::{Difference, DifferenceKind, Recipe, evaluate, packed_by, packed_with};
pub(crate) use module::{Component, ComponentTensor, Module, container_bits};
pub use names::Buffer;
pub(crate) use names::{Embedding, NamePatterns, is_packed_weight, module_of, split as split_name};
pub use parameter_count::{CountOverflow, DtypeCount, ParameterCount};
