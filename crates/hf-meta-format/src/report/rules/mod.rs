//! Rules that compare tensors with the files that describe them: `config.json` and the quantization recipe in it, and
//! the `adapter_config.json` of an adapter.
//!
//! A rule that is not certain reports nothing: a layout that the tables do not contain, a missing key, or a name that
//! an engine might map differently.

mod config;
mod mismatch;
mod recipe;
#[cfg(test)]
mod tests;

pub use self::config::check_model;
pub use self::mismatch::{Mismatch, MismatchKind};
pub use self::recipe::check_recipe;
