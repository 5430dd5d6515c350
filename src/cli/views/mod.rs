//! The views of one checkpoint: parameters (the default), tensors, tree, metadata and explanation.

pub(crate) mod explain;
pub(crate) mod metadata;
pub(crate) mod parameters;
pub(crate) mod tensors;
pub(crate) mod tree;

use std::io::{self, Write};

use hf_meta::report::text::escape;

use super::style::BOLD;

/// Writes the source of a checkpoint as a heading.
fn heading(out: &mut impl Write, source: &str) -> io::Result<()> {
    writeln!(out, "{BOLD}{}{BOLD:#}", escape(source))
}
