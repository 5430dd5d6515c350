//! The default view: parameters per dtype, files, commit and requests.

use std::cmp::Reverse;
use std::io::{self, Write};

use hf_meta::count::DtypeCount;
use hf_meta::report::text::{bytes, counted, escape, share, short, short_bytes, thousands};
use hf_meta::{CountReport, RepoPath, WeightSet};

use super::{bits_per_parameter, explain, heading, variants};
use crate::style::DIM;
use crate::table::Table;
use crate::terminal::{TerminalSize, fitted};

/// The maximum number of other sets of weights to list. The JSON has all of them.
const MAX_SETS: usize = 20;

/// The minimum useful width of the path column.
const MIN_PATH_WIDTH: usize = 20;

/// Writes the parameters per dtype, and the totals of the whole checkpoint.
pub(crate) fn write(
    out: &mut impl Write,
    report: &CountReport,
    terminal: Option<TerminalSize>,
) -> io::Result<()> {
    heading(out, &report.source)?;
    dtype_table(out, report, terminal)?;
    if let Some(line) = size(report) {
        writeln!(out, "{}", fitted(&line, terminal))?;
    }
    if let Some(moe) = &report.breakdown.moe {
        writeln!(out, "{}", fitted(&explain::active_parameters(moe), terminal))?;
    }
    if let Some(model) = &report.model {
        writeln!(out, "{}", fitted(&variants::description(model), terminal))?;
    }
    writeln!(out, "{}", fitted(&files_and_tensors(report), terminal))?;
    other_sets(out, report, terminal)?;
    writeln!(out, "{DIM}{}{DIM:#}", fitted(&fetch_stats(report), terminal))
}

/// Writes a row per dtype in descending order of parameters, and a total. There is a column for elements if they
/// differ from the parameters, as in a quantized model. A `~` marks uncertain parameters.
fn dtype_table(
    out: &mut impl Write,
    report: &CountReport,
    terminal: Option<TerminalSize>,
) -> io::Result<()> {
    let count = &report.parameter_count;
    let mark = if report.breakdown.is_exact() { "" } else { "~" };
    let total = count.totals();
    let is_packed = count.rows().any(|(_, row)| row.parameters != row.elements);
    let mut rows: Vec<_> = count.rows().map(|(dtype, row)| (dtype.as_str(), row)).collect();
    rows.sort_by_key(|(_, row)| Reverse(row.parameters));
    if rows.len() != 1 {
        rows.push(("total", total));
    }
    let table = Table::new()
        .text("dtype", |(name, _): &(&str, &DtypeCount)| escape(name))
        .number("parameters", |(_, row)| format!("{mark}{}", thousands(row.parameters)))
        .number("of parameters", |(_, row)| share(row.parameters, total.parameters))
        .dropped_first()
        .number("elements", |(_, row)| thousands(row.elements))
        .shown_if(is_packed)
        .number("bits each", |(_, row)| bits_per_parameter(row.bytes, row.parameters))
        .shown_if(report.model.is_some())
        .number("bytes", |(_, row)| bytes(row.bytes));
    table.fit(terminal).write(out, || rows.iter().copied())
}

/// Formats the size for people: parameters, buffers, and the memory of the weights alone in common dtypes. Returns
/// `None` without parameters.
fn size(report: &CountReport) -> Option<String> {
    let (totals, breakdown) = (report.parameter_count.totals(), &report.breakdown);
    let parameters = Some(totals.parameters).filter(|parameters| *parameters > 0)?;
    let mark = if breakdown.is_exact() { "" } else { "~" };
    let buffers = breakdown.groups.iter().filter(|group| group.buffer.is_some());
    let buffers = match buffers.map(|group| group.count.parameters).fold(0, u64::saturating_add) {
        0 => String::new(),
        buffers => format!(", of which {} are buffers", short(buffers)),
    };
    let bits = bits_per_parameter(totals.bytes, parameters);
    let [bf16, int8, int4] = [parameters.saturating_mul(2), parameters, parameters.div_ceil(2)];
    let [bf16, int8, int4] = [bf16, int8, int4].map(short_bytes);
    let noun = if parameters == 1 { "parameter" } else { "parameters" };
    Some(format!(
        "{mark}{} {noun}{buffers}, {bits} bits each; weights only: {bf16} in bf16, {int8} in int8, {int4} in int4",
        short(parameters)
    ))
}

/// Formats the number of files and tensors, and the commit.
pub(super) fn files_and_tensors(report: &CountReport) -> String {
    let totals = report.parameter_count.totals();
    let noun = if report.sharded { "shard" } else { "file" };
    let files = counted(report.files() as u64, noun);
    let scalars = match totals.scalars {
        0 => String::new(),
        scalars => format!(" ({} not counted)", counted(scalars, "scalar")),
    };
    let commit = report.commit.as_ref();
    let commit = commit.map_or_else(String::new, |commit| format!(", commit {commit}"));
    format!("{files}, {}{scalars}{commit}", counted(totals.tensors, "tensor"))
}

/// Writes the path that was read and the other sets of weights in the repository.
fn other_sets(
    out: &mut impl Write,
    report: &CountReport,
    terminal: Option<TerminalSize>,
) -> io::Result<()> {
    let Some(sets) = &report.other_sets else { return Ok(()) };
    if report.model.is_some() {
        return variants::write(out, report, sets, terminal);
    }
    let others = if sets.is_empty() { "no other weights" } else { "other weights, not counted:" };
    let path = report.filepaths.first().map_or("", RepoPath::as_str);
    writeln!(out, "{}", fitted(&format!("read from {}; {others}", escape(path)), terminal))?;
    let table = Table::new()
        .text("", |set: &&WeightSet| format!("  {}", escape(set.path.as_str())))
        .can_shrink_to(MIN_PATH_WIDTH)
        .number("", |set| bytes(set.bytes));
    table.fit(terminal).write(out, || sets.iter().take(MAX_SETS))?;
    match sets.len().saturating_sub(MAX_SETS) {
        0 => Ok(()),
        more => writeln!(out, "  {more} more; --json lists them all"),
    }
}

/// Formats the requests, bytes and seconds of the call.
fn fetch_stats(report: &CountReport) -> String {
    let stats = report.fetch;
    let read = format!("{} read of {}", bytes(stats.bytes_read), bytes(stats.weight_bytes));
    let seconds = stats.elapsed.as_secs_f64();
    match stats.requests {
        0 => format!("{read}, {seconds:.2} s"),
        requests => format!("{}, {read}, {seconds:.2} s", counted(requests, "request")),
    }
}
