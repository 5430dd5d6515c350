//! The views of file headers: `--tensors`, one row per tensor, and `--metadata`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

use glob::Pattern;
use hf_meta::formats::FileHeader;
use hf_meta::report::text::{escape, shape, thousands};
use hf_meta::{RepoPath, SafetensorsParseFromRepo, TensorInfo, Weights};

use super::overview::SortKey;
use crate::output::Page;
use crate::table::{RowFormat, Shrink, Table};
use crate::terminal::DIM;

/// The minimum useful width of the name column.
const MIN_NAME_WIDTH: usize = 16;

/// The minimum useful width of the file column.
const MIN_FILE_WIDTH: usize = 12;

/// A tensor's name, its description and the path of its file.
type TensorLine<'a> = (&'a str, TensorInfo, &'a RepoPath);

/// Writes every tensor whose name matches the filter: as a table on a terminal, otherwise as tab-separated values.
pub(crate) fn write_tensors(
    page: &mut Page<'_>,
    weights: &Weights,
    filter: Option<&Pattern>,
    sort: Option<SortKey>,
) -> io::Result<()> {
    let is_terminal = page.terminal.is_some();
    let files: Vec<_> = weights.files().collect();
    let matches = |name: &str| filter.is_none_or(|filter| filter.matches(name));
    let rows = || {
        files.iter().flat_map(move |(path, header)| {
            let tensors = header.tensors().iter().filter(move |(name, _)| matches(name));
            tensors.map(move |(name, tensor)| (name, tensor, path))
        })
    };
    let table = Table::new()
        .text("name", |(name, _, _): &TensorLine<'_>| escape(name))
        .shrink(Shrink::TruncateTo(MIN_NAME_WIDTH))
        .text("dtype", |(_, tensor, _)| escape(tensor.dtype.as_str()))
        .text("shape", |(_, tensor, _)| shape(&tensor.shape))
        .number("bytes", |(_, tensor, _)| match tensor.byte_length() {
            bytes if is_terminal => thousands(bytes),
            bytes => bytes.to_string(),
        })
        .text("shard", |(_, _, path)| escape(path.as_str()))
        .shrink(Shrink::DropBelow(MIN_FILE_WIDTH));
    let sorted = sort.map(|key| sort_tensors(rows().collect(), key));
    match (sorted, is_terminal) {
        (Some(rows), true) => page.table(&table, || rows.iter().cloned()),
        (Some(rows), false) => table.write_rows(page.out, RowFormat::Tsv, rows),
        (None, true) => page.table(&table, rows),
        (None, false) => table.write_rows(page.out, RowFormat::Tsv, rows()),
    }
}

fn sort_tensors(mut rows: Vec<TensorLine<'_>>, key: SortKey) -> Vec<TensorLine<'_>> {
    match key {
        SortKey::Name => rows.sort_by_key(|(name, ..)| *name),
        SortKey::Bytes => rows.sort_by_key(|(_, tensor, _)| Reverse(tensor.byte_length())),
        SortKey::Parameters | SortKey::Active => {
            rows.sort_by_key(|(_, tensor, _)| Reverse(tensor.elements()));
        }
    }
    rows
}

/// Writes the metadata of the index, then each distinct entry of the files.
pub(crate) fn write_metadata(page: &mut Page<'_>, weights: &Weights) -> io::Result<()> {
    page.heading(&weights.report().source)?;
    if let Weights::Safetensors(SafetensorsParseFromRepo::Sharded(shards)) = weights {
        for (key, value) in shards.index.metadata().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            writeln!(page.out, "{} = {}", escape(key), escape(&value))?;
        }
    }
    let files = weights.files().count();
    for ((key, value), paths) in paths_by_entry(weights.files()) {
        write!(page.out, "{} = {}", escape(key), escape(value))?;
        if paths.len() < files {
            write!(page.out, "  {DIM}({}){DIM:#}", escape(&paths.join(", ")))?;
        }
        writeln!(page.out)?;
    }
    Ok(())
}

/// Returns each key and value with the paths of the files that contain it.
fn paths_by_entry<'a>(
    files: impl Iterator<Item = (RepoPath, &'a FileHeader)>,
) -> BTreeMap<(&'a str, &'a str), Vec<String>> {
    let mut entries = BTreeMap::<_, Vec<String>>::new();
    for (path, header) in files {
        for (key, value) in header.metadata().into_iter().flatten() {
            entries.entry((key.as_str(), value.as_str())).or_default().push(path.to_string());
        }
    }
    entries
}
