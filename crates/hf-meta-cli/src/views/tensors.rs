//! `--tensors`: one row per tensor, as a table on a terminal and otherwise as tab-separated values.

use std::cmp::Reverse;
use std::io::{self, Write};

use glob::Pattern;
use hf_meta::report::text::{escape, shape, thousands};
use hf_meta::{RepoPath, TensorInfo, Weights};

use super::heading;
use super::overview::SortKey;
use crate::table::Table;
use crate::terminal::TerminalSize;

/// The minimum useful width of the name column.
const MIN_NAME_WIDTH: usize = 16;

/// The minimum useful width of the file column.
const MIN_FILE_WIDTH: usize = 12;

/// A tensor's name, its description and the path of its file.
type TensorRow<'a> = (&'a str, TensorInfo, &'a RepoPath);

/// Writes every tensor whose name matches the filter. A heading names the source if there are several.
pub(crate) fn write(
    out: &mut impl Write,
    weights: &Weights,
    filter: Option<&Pattern>,
    is_one_of_many: bool,
    sort: Option<SortKey>,
    terminal: Option<TerminalSize>,
) -> io::Result<()> {
    if is_one_of_many {
        heading(out, &weights.report().source)?;
    }
    let files: Vec<_> = weights.files().collect();
    let matches = |name: &str| filter.is_none_or(|filter| filter.matches(name));
    let rows = || {
        files.iter().flat_map(move |(path, header)| {
            let tensors = header.tensors().iter().filter(move |(name, _)| matches(name));
            tensors.map(move |(name, tensor)| (name, tensor, path))
        })
    };
    let table = Table::new()
        .text("name", |(name, _, _): &TensorRow<'_>| escape(name))
        .can_shrink_to(MIN_NAME_WIDTH)
        .text("dtype", |(_, tensor, _)| escape(tensor.dtype.as_str()))
        .text("shape", |(_, tensor, _)| shape(&tensor.shape))
        .number("bytes", |(_, tensor, _)| match terminal {
            Some(_) => thousands(tensor.byte_length()),
            None => tensor.byte_length().to_string(),
        })
        .text("shard", |(_, _, path)| escape(path.as_str()))
        .dropped_below(MIN_FILE_WIDTH);
    let Some(key) = sort else {
        return match terminal {
            Some(_) => table.fit(terminal).write(out, rows),
            None => table.write_tsv(out, rows()),
        };
    };
    let mut sorted: Vec<_> = rows().collect();
    match key {
        SortKey::Name => sorted.sort_by_key(|(name, ..)| *name),
        SortKey::Bytes => sorted.sort_by_key(|(_, tensor, _)| Reverse(tensor.byte_length())),
        SortKey::Parameters | SortKey::Active => {
            sorted.sort_by_key(|(_, tensor, _)| Reverse(tensor.elements()));
        }
    }
    match terminal {
        Some(_) => table.fit(terminal).write(out, || sorted.iter().cloned()),
        None => table.write_tsv(out, sorted),
    }
}
