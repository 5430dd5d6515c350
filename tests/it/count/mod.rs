//! Parameters, and the parsers that see the tensors first.
//!
//! Add a test here if the expected value is a number of parameters, or a tensor as a parser returns it. A rule of
//! counting is one row of `rules/table.md`. A quantization method has its case in `tests/oracles`, next to the sources of
//! the crates. Arbitrary input belongs to `properties`, and damaged files to `differential`.

mod counts;
mod differential;
mod documented;
mod fixtures;
pub(crate) mod gguf;
pub(crate) mod properties;
mod published;
mod pytorch;
pub(crate) mod quantization;
mod rules;
mod same_result;
