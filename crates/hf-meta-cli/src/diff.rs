//! `hf-meta diff`: the differences between two checkpoints.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};

use anstyle::Style;
use clap::builder::NonEmptyStringValueParser;
use hf_meta::report::diff::{ChangeGroup, ChangeKind, Diff, DiffSide};
use hf_meta::report::text::{bytes, counted, escape, shape, thousands};
use hf_meta::{Model, RepoPath};

use super::context::{CommandContext, OutputForm, SelectionArgs, Sources};
use super::exit::{ExitStatus, failed_to};
use super::json;
use super::output::ColorArgs;
use super::style::{BOLD, CYAN, DIM, GREEN, RED, YELLOW};
use super::table::Table;
use super::terminal::{TerminalSize, fitted, width, wrap};

/// The maximum number of rows per kind of change. The JSON has every tensor.
const MAX_ROWS: usize = 40;

/// The minimum useful width of the name column.
const MIN_NAME_WIDTH: usize = 20;

/// The minimum useful width of the difference column.
const MIN_DIFFERENCE_WIDTH: usize = 24;

/// Compare the tensors of two repositories, revisions or files
///
/// Compares the names, dtypes, shapes and shards of all tensors, and the totals. Values are not compared,
/// because only headers are read.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct DiffArgs {
    /// Old checkpoint: anything that `hf-meta` can read, such as `org/name@revision`
    #[arg(value_name = "BEFORE", value_parser = NonEmptyStringValueParser::new())]
    before: String,

    /// New checkpoint
    #[arg(value_name = "AFTER", value_parser = NonEmptyStringValueParser::new())]
    after: String,

    #[command(flatten)]
    pub(crate) color: ColorArgs,

    /// Print JSON that lists every changed tensor
    #[arg(long, short)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  hf-meta diff org/name@v1 org/name             two revisions
  hf-meta diff gpt2 ./model.safetensors         a repository and a local file
  hf-meta diff hf://org/name/7b hf://org/name/13b

Exit status:
  0  no differences
  1  differences were found, or one of the two has no valid weights
  2  invalid arguments or environment variables
  3  a repository or revision was not found, access was denied, or the Hub or
     the network failed
  4  a local file could not be read";

pub(crate) async fn run(args: &DiffArgs, context: &CommandContext) -> io::Result<ExitStatus> {
    let repos = [args.before.clone(), args.after.clone()];
    let read = |model: Model| async move { model.inspect().await };
    let mut sides = Vec::new();
    let form = if args.json { OutputForm::Json } else { OutputForm::Other };
    let sources = Sources { repos: &repos, selection: &SelectionArgs::default(), form };
    let status = context.for_each(sources, read, |source, parsed| {
        sides.push((source.clone(), parsed));
        Ok(ExitStatus::Success)
    });
    let status = status.await?;
    let [(_, before), (_, after)] = &sides[..] else { return Ok(status) };
    let diff = Diff::new(before, after);
    print(args, &diff).map_err(failed_to("write to stdout"))?;
    for (source, parsed) in &sides {
        context.warn(source, &parsed.report().findings);
    }
    Ok(if diff.is_empty() { ExitStatus::Success } else { ExitStatus::Negative })
}

fn print(args: &DiffArgs, diff: &Diff) -> io::Result<()> {
    if args.json {
        return json::print(diff);
    }
    let mut stdout = BufWriter::new(anstream::stdout().lock());
    write(&mut stdout, diff, TerminalSize::from_stdout())?;
    stdout.flush()
}

fn write(out: &mut impl Write, diff: &Diff, terminal: Option<TerminalSize>) -> io::Result<()> {
    for (name, side) in [("before", &diff.before), ("after ", &diff.after)] {
        heading(out, name, side, terminal)?;
    }
    let groups = diff.groups();
    for section in groups.chunk_by(|a, b| a.kinds == b.kinds) {
        write_section(out, section, terminal)?;
    }
    writeln!(out)?;
    write_totals(out, diff)?;
    writeln!(out, "{}", fitted(&summary(diff), terminal))
}

/// Writes the source of one side, followed by its files and tensors on the same line if they fit.
fn heading(
    out: &mut impl Write,
    name: &str,
    side: &DiffSide,
    terminal: Option<TerminalSize>,
) -> io::Result<()> {
    let totals = side.parameter_count.totals();
    let files = counted(side.files as u64, "file");
    let commit = side.commit.as_ref();
    let commit = commit.map_or_else(String::new, |commit| format!(", commit {commit}"));
    let tensors = counted(totals.tensors, "tensor");
    let (source, details) = (escape(&side.source), format!("{files}, {tensors}{commit}"));
    let one_line = width(&format!("{name}  {source}  {details}"));
    write!(out, "{name}  {BOLD}{source}{BOLD:#}")?;
    match terminal {
        Some(TerminalSize { width: columns, .. }) if one_line > columns => {
            let indent = width(name) + 2;
            let lines = wrap(&details, columns.saturating_sub(indent));
            let indented = |line| format!("\n{:indent$}{DIM}{line}{DIM:#}", "");
            writeln!(out, "{}", lines.into_iter().map(indented).collect::<String>())
        }
        _ => writeln!(out, "  {DIM}{details}{DIM:#}"),
    }
}

/// Writes all groups of changes of one kind, one row each.
fn write_section(
    out: &mut impl Write,
    groups: &[ChangeGroup],
    terminal: Option<TerminalSize>,
) -> io::Result<()> {
    let tensors = |groups: &[ChangeGroup]| groups.iter().map(|group| group.tensors).sum();
    let kinds = &groups[0].kinds;
    let names: Vec<_> = kinds.iter().map(|kind| kind_name(*kind)).collect();
    let (sign, style) = sign(kinds);
    let heading = format!("{style}{}{style:#}", names.join(", "));
    writeln!(out, "\n{heading}: {}", counted(tensors(groups), "tensor"))?;
    let (shown, hidden) = groups.split_at(groups.len().min(MAX_ROWS));
    let table = Table::new()
        .text("", |_: &&ChangeGroup| sign.to_owned())
        .style(style)
        .text("", |group| escape(&group.name))
        .gap(1)
        .can_shrink_to(MIN_NAME_WIDTH)
        .number("", |group| times(group.tensors))
        .text("", |group| difference(group))
        .wrapped_to(MIN_DIFFERENCE_WIDTH);
    table.fit(terminal).write(out, || shown)?;
    match tensors(hidden) {
        0 => Ok(()),
        more => {
            let more = counted(more, "more tensor");
            writeln!(out, "{DIM}  … and {more}; --json lists them all{DIM:#}")
        }
    }
}

fn kind_name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Removed => "removed",
        ChangeKind::Added => "added",
        ChangeKind::Reshaped => "reshaped",
        ChangeKind::Retyped => "retyped",
        ChangeKind::Moved => "moved",
    }
}

fn sign(kinds: &[ChangeKind]) -> (&'static str, Style) {
    match kinds {
        [ChangeKind::Removed] => ("-", RED),
        [ChangeKind::Added] => ("+", GREEN),
        [ChangeKind::Moved] => (">", CYAN),
        _ => ("~", YELLOW),
    }
}

fn times(tensors: u64) -> String {
    if tensors > 1 { format!("×{}", thousands(tensors)) } else { String::new() }
}

/// Formats the dtype and shape, or the shards, before and after.
fn difference(group: &ChangeGroup) -> String {
    let (Some((dtype, lengths)), Some((new_dtype, new_lengths))) = (&group.before, &group.after)
    else {
        let only = group.before.as_ref().or(group.after.as_ref());
        return only.map_or_else(String::new, |(dtype, lengths)| {
            format!("{} {}", escape(dtype.as_str()), shape(lengths))
        });
    };
    let arrow = |before: String, after: String| {
        if before == after { before } else { format!("{before} → {after}") }
    };
    let dtypes = arrow(escape(dtype.as_str()), escape(new_dtype.as_str()));
    let shapes = arrow(shape(lengths), shape(new_lengths));
    if group.kinds == [ChangeKind::Moved] {
        arrow(files(&group.files_before), files(&group.files_after))
    } else {
        format!("{dtypes} {shapes}")
    }
}

fn files(files: &BTreeSet<RepoPath>) -> String {
    match files.first() {
        Some(only) if files.len() == 1 => escape(only.as_str()),
        _ => counted(files.len() as u64, "shard"),
    }
}

/// A number for both checkpoints, and the function that formats it.
struct TotalsRow<'a> {
    name: &'a str,
    before: u64,
    after: u64,
    format: fn(u64) -> String,
}

/// Writes the parameters per dtype, the total, and the bytes of both checkpoints.
fn write_totals(out: &mut impl Write, diff: &Diff) -> io::Result<()> {
    let [before, after] = [&diff.before, &diff.after].map(|side| &side.parameter_count);
    let mut dtypes = BTreeMap::<_, [u64; 2]>::new();
    for (side, count) in [before, after].into_iter().enumerate() {
        for (dtype, row) in count.rows() {
            dtypes.entry(dtype).or_default()[side] = row.parameters;
        }
    }
    let row =
        |name, [before, after]: [u64; 2]| TotalsRow { name, before, after, format: thousands };
    let mut rows: Vec<_> =
        dtypes.iter().map(|(dtype, counts)| row(dtype.as_str(), *counts)).collect();
    if dtypes.len() > 1 {
        rows.push(row("total", [before.total(), after.total()]));
    }
    let (before, after) = (before.totals(), after.totals());
    let elements = [before.elements, after.elements];
    if elements != [before.parameters, after.parameters] {
        rows.push(row("elements", elements));
    }
    rows.push(TotalsRow { format: bytes, ..row("bytes", [before.bytes, after.bytes]) });
    let table = Table::new()
        .text("parameters", |row: &&TotalsRow<'_>| escape(row.name))
        .number("before", |row| (row.format)(row.before))
        .number("after", |row| (row.format)(row.after))
        .number("change", |row| change(row));
    table.write(out, || &rows)
}

fn change(row: &TotalsRow<'_>) -> String {
    match row.after.cmp(&row.before) {
        Ordering::Less => format!("-{}", (row.format)(row.before - row.after)),
        Ordering::Equal => "=".to_owned(),
        Ordering::Greater => format!("+{}", (row.format)(row.after - row.before)),
    }
}

fn summary(diff: &Diff) -> String {
    let unchanged = counted(diff.unchanged, "tensor");
    if diff.is_empty() {
        return format!("{GREEN}no differences{GREEN:#} in {unchanged}; values are not compared");
    }
    let kinds = [
        ChangeKind::Removed,
        ChangeKind::Added,
        ChangeKind::Reshaped,
        ChangeKind::Retyped,
        ChangeKind::Moved,
    ];
    let counts = kinds.map(|kind| (diff.count(kind), kind_name(kind))).into_iter();
    let counts = counts.filter(|(count, _)| *count > 0);
    let counts: Vec<_> =
        counts.map(|(count, name)| format!("{} {name}", thousands(count))).collect();
    format!("{}; {unchanged} unchanged; values are not compared", counts.join(", "))
}
