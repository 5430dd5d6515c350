//! A result as text for people.

use std::collections::BTreeMap;
use std::io::{self, Write};

use hf_meta::count::DtypeCount;
use hf_meta::report::text::{bytes, counted, escape, shape, share, thousands};
use hf_meta::{
    CountReport, ParameterCount, RepoPath, SafetensorsFileHeader, SafetensorsParseFromRepo,
    TensorInfo, Tree,
};

use super::columns::{self, Columns};
use super::explain;
use super::style::{BOLD, DIM};
use super::tree::{self, Screen};

/// The most other sets of weights that are listed; the JSON has them all.
const MOST_SETS: usize = 20;

/// The parameters per dtype, what they add up to, and what it took to know. Elements stand beside the
/// parameters where they are not the same number.
pub(crate) fn counts(out: &mut impl Write, counts: &CountReport) -> io::Result<()> {
    let count = &counts.parameter_count;
    let whole = count.totals().parameters;
    writeln!(out, "{BOLD}{}{BOLD:#}", escape(&counts.source))?;
    if count.rows().all(|(_, row)| row.parameters == row.elements) {
        by_dtype(out, count, ["dtype", "parameters", "bytes", "share"], |name, row| {
            let share = share(row.parameters, whole);
            [name, thousands(row.parameters), bytes(row.bytes), share]
        })?;
    } else {
        let head = ["dtype", "parameters", "elements", "bytes", "share"];
        by_dtype(out, count, head, |name, row| {
            let (parameters, elements) = (thousands(row.parameters), thousands(row.elements));
            [name, parameters, elements, bytes(row.bytes), share(row.parameters, whole)]
        })?;
    }
    if let Some(moe) = &counts.breakdown.moe {
        writeln!(out, "{}", explain::active(moe))?;
    }
    writeln!(out, "{}", contents(counts))?;
    other_sets(out, counts)?;
    writeln!(out, "{DIM}{}{DIM:#}\n", cost(counts))
}

/// A row for each dtype, those with most parameters first, and one for all of them.
fn by_dtype<const N: usize>(
    out: &mut impl Write,
    count: &ParameterCount,
    head: [&str; N],
    cells: impl Fn(String, &DtypeCount) -> [String; N],
) -> io::Result<()> {
    let mut rows: Vec<_> = count.rows().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.parameters));
    let mut table = vec![head.map(str::to_owned)];
    table.extend(rows.iter().map(|(dtype, row)| cells(escape(dtype.as_str()), row)));
    if rows.len() != 1 {
        table.push(cells("total".to_owned(), count.totals()));
    }
    columns::table(out, std::array::from_fn(|at| at > 0), &table)
}

/// How many files and tensors there are, and of which commit.
fn contents(counts: &CountReport) -> String {
    let totals = counts.parameter_count.totals();
    let what = if counts.sharded { "shard" } else { "file" };
    let files = counted(counts.files() as u64, what);
    let scalars = match totals.scalars {
        0 => String::new(),
        scalars => format!(" ({} not counted)", counted(scalars, "scalar")),
    };
    let commit = counts.commit.as_ref();
    let commit = commit.map_or_else(String::new, |commit| format!(", commit {commit}"));
    format!("{files}, {}{scalars}{commit}", counted(totals.tensors, "tensor"))
}

/// The sets of weights that are there, too, and which was counted.
fn other_sets(out: &mut impl Write, counts: &CountReport) -> io::Result<()> {
    let Some(sets) = &counts.other_sets else { return Ok(()) };
    let what = if sets.is_empty() { "no other weights" } else { "not counted, but there, too" };
    let path = counts.filepaths.first().map_or("", RepoPath::as_str);
    writeln!(out, "read from {}; {what}", escape(path))?;
    let rows = sets.iter().take(MOST_SETS);
    let rows: Vec<_> =
        rows.map(|set| [format!("  {}", escape(set.path.as_str())), bytes(set.bytes)]).collect();
    columns::table(out, [false, true], &rows)?;
    match sets.len().saturating_sub(MOST_SETS) {
        0 => Ok(()),
        more => writeln!(out, "  {more} more; --json lists them all"),
    }
}

fn cost(counts: &CountReport) -> String {
    let cost = counts.fetch;
    let read = format!("{} read of {}", bytes(cost.bytes_read), bytes(cost.bytes_total));
    let seconds = cost.elapsed.as_secs_f64();
    match cost.requests {
        0 => format!("{read}, {seconds:.2} s"),
        requests => format!("{}, {read}, {seconds:.2} s", counted(requests, "request")),
    }
}

/// The modules, and what they add up to.
pub(crate) fn tree(
    out: &mut impl Write,
    parsed: &SafetensorsParseFromRepo,
    screen: Option<Screen>,
) -> io::Result<()> {
    writeln!(out, "{BOLD}{}{BOLD:#}", escape(&parsed.report().source))?;
    tree::draw(out, &Tree::new(parsed), screen)?;
    writeln!(out, "{}", contents(parsed.report()))?;
    let totals = parsed.parameter_count().totals();
    if totals.parameters != totals.elements {
        let parameters = thousands(totals.parameters);
        writeln!(
            out,
            "{DIM}elements are as stored, and hold {parameters} parameters; see --explain{DIM:#}"
        )?;
    }
    writeln!(out)
}

/// Every tensor that the filter lets through, one a line, written as it is made: there may be very
/// many.
pub(crate) fn tensors(
    out: &mut impl Write,
    parsed: &SafetensorsParseFromRepo,
    filter: Option<&glob::Pattern>,
) -> io::Result<()> {
    let header = ["name", "dtype", "shape", "bytes", "shard"].map(str::to_owned);
    let files: Vec<_> = parsed.files().collect();
    let rows = || {
        let wanted = |name: &str| filter.is_none_or(|filter| filter.matches(name));
        files.iter().flat_map(move |(path, header)| {
            let tensors = header.tensors().filter(move |(name, _)| wanted(name));
            tensors.map(move |(name, tensor)| tensor_row(name, &tensor, path))
        })
    };
    let mut columns = Columns::new([false, false, false, true, false]);
    columns.fit(&header);
    rows().for_each(|row| columns.fit(&row));
    columns.write(out, &header)?;
    rows().try_for_each(|row| columns.write(out, &row))
}

fn tensor_row(name: &str, tensor: &TensorInfo, path: &RepoPath) -> [String; 5] {
    [
        escape(name),
        escape(tensor.dtype.as_str()),
        shape(&tensor.shape),
        thousands(tensor.byte_length()),
        escape(path.as_str()),
    ]
}

/// The metadata of the files: that of an index, then what every shard says, said once.
pub(crate) fn metadata(out: &mut impl Write, parsed: &SafetensorsParseFromRepo) -> io::Result<()> {
    writeln!(out, "{BOLD}{}{BOLD:#}", escape(&parsed.report().source))?;
    if let SafetensorsParseFromRepo::Sharded(shards) = parsed {
        for (key, value) in shards.index.metadata().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            writeln!(out, "{} = {}", escape(key), escape(&value))?;
        }
    }
    let files = parsed.files().count();
    for ((key, value), paths) in by_entry(parsed.files()) {
        write!(out, "{} = {}", escape(key), escape(value))?;
        if paths.len() < files {
            write!(out, "  {DIM}({}){DIM:#}", escape(&paths.join(", ")))?;
        }
        writeln!(out)?;
    }
    Ok(())
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
