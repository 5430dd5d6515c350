//! `--tensors`: one row per tensor.

use std::io::{self, Write};

use glob::Pattern;
use hf_meta::report::text::{escape, shape, thousands};
use hf_meta::{RepoPath, SafetensorsParseFromRepo, TensorInfo};

use crate::cli::table::Table;

/// The name of a tensor, its description, and the path of its file.
type TensorRow<'a> = (&'a str, TensorInfo, &'a RepoPath);

/// Writes every tensor whose name matches the filter.
pub(crate) fn write(
    out: &mut impl Write,
    parsed: &SafetensorsParseFromRepo,
    filter: Option<&Pattern>,
) -> io::Result<()> {
    let files: Vec<_> = parsed.files().collect();
    let matches = |name: &str| filter.is_none_or(|filter| filter.matches(name));
    let rows = || {
        files.iter().flat_map(move |(path, header)| {
            let tensors = header.tensors().iter().filter(move |(name, _)| matches(name));
            tensors.map(move |(name, tensor)| (name, tensor, path))
        })
    };
    let table = Table::new()
        .text("name", |(name, _, _): &TensorRow<'_>| escape(name))
        .text("dtype", |(_, tensor, _)| escape(tensor.dtype.as_str()))
        .text("shape", |(_, tensor, _)| shape(&tensor.shape))
        .number("bytes", |(_, tensor, _)| thousands(tensor.byte_length()))
        .text("shard", |(_, _, path)| escape(path.as_str()));
    table.write(out, rows)
}
