//! A result as text for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anstyle::Style;
use comfy_table::{Cell, CellAlignment, Table, presets};
use hf_meta::safetensors::DtypeCount;
use hf_meta::{RepoPath, SafetensorsFileHeader, SafetensorsParseFromRepo};

use super::text::{bytes, counted, escape, shape, share, thousands};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// The parameters per dtype, what they add up to, and what it took to know.
pub(crate) fn counts(parsed: &SafetensorsParseFromRepo) -> String {
    let count = parsed.parameter_count();
    let totals = count.totals();
    let mut rows: Vec<_> = count.rows().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.parameters));
    let mut table = table(&["dtype", "parameters", "bytes", "share"]);
    for (dtype, row) in rows {
        table.add_row(figures(&escape(dtype.as_str()), row, totals));
    }
    if count.rows().len() > 1 {
        table.add_row(figures("total", totals, totals));
    }
    let mut text =
        format!("{BOLD}{}{BOLD:#}\n{}\n", escape(&parsed.facts().source), table.trim_fmt());
    let _ = writeln!(text, "{}", contents(parsed));
    let _ = writeln!(text, "{DIM}{}{DIM:#}", cost(parsed));
    text
}

fn figures(name: &str, row: &DtypeCount, totals: &DtypeCount) -> Vec<Cell> {
    let share = share(row.parameters, totals.parameters);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    vec![Cell::new(name), right(thousands(row.parameters)), right(bytes(row.bytes)), right(share)]
}

/// How many files and tensors there are, and of which commit.
fn contents(parsed: &SafetensorsParseFromRepo) -> String {
    let totals = parsed.parameter_count().totals();
    let files = match parsed {
        SafetensorsParseFromRepo::Single(_) => "1 file".to_owned(),
        SafetensorsParseFromRepo::Sharded(shards) => counted(shards.headers.len() as u64, "shard"),
    };
    let mut text = format!("{files}, {}", counted(totals.tensors, "tensor"));
    if totals.scalars > 0 {
        let _ = write!(text, " ({} not counted)", counted(totals.scalars, "scalar"));
    }
    if let Some(commit) = &parsed.facts().commit {
        let _ = write!(text, ", commit {commit}");
    }
    text
}

fn cost(parsed: &SafetensorsParseFromRepo) -> String {
    let cost = parsed.facts().cost;
    let read = format!("{} read of {}", bytes(cost.bytes_read), bytes(cost.bytes_total));
    let seconds = cost.elapsed.as_secs_f64();
    match cost.requests {
        0 => format!("{read}, {seconds:.2} s"),
        requests => format!("{}, {read}, {seconds:.2} s", counted(requests, "request")),
    }
}

/// Every tensor that the filter lets through, one a line.
pub(crate) fn tensors(parsed: &SafetensorsParseFromRepo, filter: Option<&glob::Pattern>) -> String {
    let mut table = table(&["name", "dtype", "shape", "bytes", "shard"]);
    for (path, header) in parsed.files() {
        let wanted = |name: &str| filter.is_none_or(|filter| filter.matches(name));
        for (name, tensor) in header.tensors().filter(|(name, _)| wanted(name)) {
            table.add_row([
                Cell::new(escape(name)),
                Cell::new(escape(tensor.dtype.as_str())),
                Cell::new(shape(&tensor.shape)),
                Cell::new(thousands(tensor.byte_length())).set_alignment(CellAlignment::Right),
                Cell::new(escape(path.as_str())),
            ]);
        }
    }
    table.trim_fmt() + "\n"
}

/// The metadata of the files: that of an index, then what every shard says, said once.
pub(crate) fn metadata(parsed: &SafetensorsParseFromRepo) -> String {
    let mut text = format!("{BOLD}{}{BOLD:#}\n", escape(&parsed.facts().source));
    if let SafetensorsParseFromRepo::Sharded(shards) = parsed {
        for (key, value) in shards.index.metadata().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let _ = writeln!(text, "{} = {}", escape(key), escape(&value));
        }
    }
    for ((key, value), paths) in by_entry(parsed.files()) {
        let _ = write!(text, "{} = {}", escape(key), escape(value));
        if paths.len() < parsed.files().count() {
            let _ = write!(text, "  {DIM}({}){DIM:#}", escape(&paths.join(", ")));
        }
        text.push('\n');
    }
    text
}

/// Each key and value of the files' metadata with the files that say so.
fn by_entry<'a>(
    files: impl Iterator<Item = (RepoPath, &'a SafetensorsFileHeader)>,
) -> BTreeMap<(&'a str, &'a str), Vec<String>> {
    let mut entries = BTreeMap::<_, Vec<String>>::new();
    for (path, header) in files {
        for (key, value) in header.metadata().into_iter().flatten() {
            entries.entry((key.as_str(), value.as_str())).or_default().push(path.to_string());
        }
    }
    entries
}

/// An empty table with these columns, two spaces apart.
fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(columns.iter().map(|name| {
        let figures = matches!(*name, "parameters" | "bytes" | "share");
        let alignment = if figures { CellAlignment::Right } else { CellAlignment::Left };
        Cell::new(name).set_alignment(alignment)
    }));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}
