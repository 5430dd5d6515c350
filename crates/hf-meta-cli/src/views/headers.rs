//! The view `--tensors`: one row per tensor.

use std::cmp::Reverse;
use std::io;

use glob::Pattern;
use hf_meta::{RepoPath, TensorInfo, Weights};
use hf_meta_count::results::text::{self, counted, escape, thousands};
use serde::Serialize;
use serde_json::Value;

use super::overview::SortKey;
use crate::output::Page;
use crate::table::{OutputFormat, Shrink, Table};

/// The minimum useful width of the name column.
const MIN_NAME_WIDTH: usize = 24;

/// A tensor's name, its description and the path of its file.
type TensorLine<'a> = (&'a str, TensorInfo, &'a RepoPath);

/// Returns the columns of a table of tensors. `is_terminal` is true for numbers that people read.
fn columns(source: &str, is_terminal: bool, has_source: bool) -> Table<'_, TensorLine<'_>> {
    Table::new()
        .text("repository", |_: &TensorLine<'_>| escape(source))
        .shown_if(has_source)
        .text("name", |(name, _, _)| escape(name))
        .shrink(Shrink::TruncateTo(MIN_NAME_WIDTH))
        .text("dtype", |(_, tensor, _)| escape(tensor.dtype.as_str()))
        .text("shape", |(_, tensor, _)| format!("{:?}", tensor.shape))
        .optional_number("bytes", move |(_, tensor, _)| match tensor.byte_length() {
            bytes if is_terminal => thousands(bytes),
            bytes => bytes.to_string(),
        })
        .text("shard", |(_, _, path)| escape(path.as_str()))
        .shrink(Shrink::Drop)
}

/// Writes every tensor whose name matches the filter: as a table on a terminal, otherwise as tab-separated values, which
/// are one table if there are several repositories.
pub(crate) fn write_tensors(
    page: &mut Page<'_>,
    weights: &Weights,
    filter: Option<&Pattern>,
    sort: Option<SortKey>,
    several: bool,
    is_first: bool,
) -> io::Result<()> {
    let source = &weights.report().source;
    let is_terminal = page.terminal.is_some();
    let files: Vec<_> = weights.files().collect();
    let matches = |name: &str| filter.is_none_or(|filter| filter.matches(name));
    let rows = || {
        files.iter().flat_map(move |(path, header)| {
            let tensors = header.tensors().iter().filter(move |(name, _)| matches(name));
            tensors.map(move |(name, tensor)| (name, tensor, path))
        })
    };
    let table = columns(source, is_terminal, several && !is_terminal);
    let sorted = sort.map(|key| sort_tensors(rows().collect(), key));
    if is_terminal {
        if !is_first {
            writeln!(page.out)?;
        }
        if several {
            page.heading(source)?;
        }
        if let Some(filter) = filter {
            let MatchedTensors { tensors, elements, bytes } = MatchedTensors::new(weights, filter);
            let (tensors, elements) = (counted(tensors, "tensor"), counted(elements, "element"));
            page.line(&format!("{tensors} matched, {elements}, {}", text::bytes(bytes)))?;
        }
    } else if is_first {
        write!(page.out, "{}", table.headings(OutputFormat::Tsv))?;
    }
    let write_line = |row| writeln!(page.out, "{}", table.line(OutputFormat::Tsv, &row));
    match (sorted, is_terminal) {
        (Some(rows), true) => page.table(&table, || rows.iter().cloned()),
        (Some(rows), false) => rows.into_iter().try_for_each(write_line),
        (None, true) => page.table(&table, rows),
        (None, false) => rows().try_for_each(write_line),
    }
}

/// The totals of the tensors whose names match a filter.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct MatchedTensors {
    tensors: u64,
    #[serde(rename = "elementTotal")]
    elements: u64,
    #[serde(rename = "byteTotal")]
    bytes: u64,
}

impl MatchedTensors {
    fn new(weights: &Weights, filter: &Pattern) -> Self {
        let tensors = weights.files().flat_map(|(_, header)| header.tensors());
        let matched = tensors.filter(|(name, _)| filter.matches(name));
        matched.fold(Self::default(), |total, (_, tensor)| {
            let elements =
                if tensor.is_scalar() { 0 } else { tensor.elements().unwrap_or(u64::MAX) };
            Self {
                tensors: total.tensors + 1,
                elements: total.elements.saturating_add(elements),
                bytes: total.bytes.saturating_add(tensor.byte_length()),
            }
        })
    }
}

/// Returns the JSON of a checkpoint with only the tensors that match a filter, and their totals.
pub(crate) fn filtered_json(weights: &Weights, filter: &Pattern) -> serde_json::Result<Value> {
    let mut document = serde_json::to_value(weights)?;
    let retain = |tensors: &mut Value| {
        if let Value::Object(tensors) = tensors {
            tensors.retain(|name, _| name == "__metadata__" || filter.matches(name));
        }
    };
    for at in ["/header", "/index/weight_map"] {
        document.pointer_mut(at).into_iter().for_each(retain);
    }
    let headers = document.get_mut("headers").and_then(Value::as_object_mut);
    headers.into_iter().flat_map(|headers| headers.values_mut()).for_each(retain);
    document["matched"] = serde_json::to_value(MatchedTensors::new(weights, filter))?;
    Ok(document)
}

fn sort_tensors(mut rows: Vec<TensorLine<'_>>, key: SortKey) -> Vec<TensorLine<'_>> {
    match key {
        SortKey::Name => rows.sort_by_key(|(name, ..)| *name),
        SortKey::Bytes => rows.sort_by_key(|(_, tensor, _)| Reverse(tensor.byte_length())),
        SortKey::Parameters | SortKey::Active | SortKey::Memory | SortKey::Context => {
            rows.sort_by_key(|(_, tensor, _)| Reverse(tensor.elements()));
        }
    }
    rows
}
