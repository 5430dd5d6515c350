//! The views of one checkpoint: parameters (the default), tensors, tree, metadata and explanation.

pub(crate) mod explain;
pub(crate) mod metadata;
pub(crate) mod overview;
pub(crate) mod parameters;
pub(crate) mod tensors;
pub(crate) mod tree;
mod variants;

use std::io::{self, Write};

use hf_meta::report::text::escape;

use super::style::BOLD;

/// Formats the number of stored bits per parameter, as in `16` or `4.25`.
fn bits_per_parameter(bytes: u64, parameters: u64) -> String {
    let hundredths = u128::from(bytes) * 800 / u128::from(parameters.max(1));
    let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Writes the source of a checkpoint as a heading.
fn heading(out: &mut impl Write, source: &str) -> io::Result<()> {
    writeln!(out, "{BOLD}{}{BOLD:#}", escape(source))
}
