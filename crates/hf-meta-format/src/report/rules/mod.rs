//! Rules that compare tensors with `config.json`, and with the quantization recipe in it.
//!
//! A rule that is not certain reports nothing: a layout that the tables do not contain, a missing key, or a name that
//! an engine might map differently.

mod adapter;
mod config;
mod mismatch;
mod recipe;
#[cfg(test)]
mod tests;

pub use self::adapter::check_adapter;
pub use self::config::check_model;
pub use self::mismatch::{Mismatch, MismatchKind};
pub use self::recipe::{check_recipe, recipe_file};
