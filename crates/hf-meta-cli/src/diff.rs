//! `hf-meta diff`: the differences between two checkpoints.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;

use anstyle::Style;
use clap::ValueHint;
use hf_meta::{TensorDifference, ValueCheck, ValueDiff};
use hf_meta_count::results::CountReport;
use hf_meta_count::results::diff::{
    ChangeGroup, ChangeKind, Diff, QuantizedLinear, RenamedPrefix, TensorChange, TensorState,
};
use hf_meta_count::results::text::{bytes, counted, escape, share, thousands};

use super::context::{CommandContext, SelectionArgs, Sources};
use super::exit::{CommandResult, ExitStatus};
use super::output::{Page, joined, print_json};
use super::repos::RepoArg;
use super::table::{Shrink, Table};
use super::terminal::{BOLD, CYAN, ColorArgs, DIM, GREEN, RED, YELLOW};
use super::verify::value_checks;

/// The maximum number of rows per kind of change. The JSON has every tensor.
const MAX_ROWS: usize = 40;

/// The maximum number of modules to name that are not quantized. The JSON has more.
const MAX_PLAIN: usize = 10;

/// The maximum number of tensors to name in the first line.
const MAX_DIFFERING: usize = 5;

/// The minimum useful width of the name column.
const MIN_NAME_WIDTH: usize = 20;

/// The minimum useful width of the difference column.
const MIN_DIFFERENCE_WIDTH: usize = 24;

/// Compare the tensors of two repositories, revisions or files
///
/// Compares the names, dtypes, shapes and shards of all tensors, and the totals. Values are compared only
/// with --values: otherwise, only headers are read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hf-meta diff org/name@v1 org/name             two revisions
  hf-meta diff gpt2 ./model.safetensors         a repository and a local file
  hf-meta diff hf://org/name/7b hf://org/name/13b
  hf-meta diff --values org/name ./folder       a sample of the values, too

Exit status:
  0  no differences
  1  differences were found
  2  invalid arguments or environment variables, or one of the two sources has
     no valid weights
  3  a repository or revision was not found, access was denied, or the Hub or
     the network failed
  4  a local file could not be read")]
pub(crate) struct DiffArgs {
    /// Old checkpoint: anything that `hf-meta` can read, such as `org/name@revision`
    #[arg(value_name = "BEFORE", value_hint = ValueHint::AnyPath)]
    before: OsString,

    /// New checkpoint
    #[arg(value_name = "AFTER", value_hint = ValueHint::AnyPath)]
    after: OsString,

    #[command(flatten)]
    pub(crate) color: ColorArgs,

    /// Ignore which file contains each tensor, for checkpoints that were only split differently
    #[arg(long)]
    ignore_shards: bool,

    /// Compare values, too: small tensors and blocks of the others (sample, at most 32 MB), or all
    ///
    /// Nothing is read of files whose hashes on the Hub are equal.
    #[arg(long, value_name = "PART", num_args = 0..=1, require_equals = true, default_missing_value = "sample")]
    #[arg(value_parser = value_checks())]
    values: Option<ValueCheck>,

    /// Print JSON that lists every changed tensor
    #[arg(long, short)]
    json: bool,
}

pub(crate) async fn run(args: &DiffArgs, context: &CommandContext) -> CommandResult {
    let endpoint = context.client.endpoint();
    let repos = [&args.before, &args.after].map(|repo| RepoArg::new(repo, None, endpoint));
    let (sides, status) = context.inspect_all(&repos, args.json).await?;
    // As in other programs of this name, 1 means only that there are differences.
    let [(_, before), (_, after)] = &sides[..] else { return Ok(status.max(ExitStatus::Usage)) };
    let values = match args.values {
        None => None,
        Some(check) => match compare_values(&repos, check, args.json, context).await? {
            Ok(values) => Some(values),
            Err(status) => return Ok(status.max(ExitStatus::Usage)),
        },
    };
    let diff = Diff::new(before, after, args.ignore_shards).with_values(values);
    if args.json {
        print_json(&diff)?;
    } else {
        Page::print(|page| write(page, &diff))?;
    }
    for (source, weights) in &sides {
        context.warn(source, &weights.report().findings);
    }
    Ok(if diff.is_empty() { ExitStatus::Success } else { ExitStatus::CheckFailed })
}

/// Compares the values of two sources. Returns the exit status if one of them cannot be read.
async fn compare_values(
    repos: &[RepoArg; 2],
    check: ValueCheck,
    is_json: bool,
    context: &CommandContext,
) -> CommandResult<Result<ValueDiff, ExitStatus>> {
    let selection = SelectionArgs::default();
    let [before, after] = repos.each_ref().map(|repo| selection.model(&context.client, repo));
    let after = after?;
    let sources =
        Sources { repos: &repos[..1], selection: &selection, is_json, is_streamed: false };
    let started = context.client.stats().bytes_read;
    let (client, name) = (context.client.clone(), escape(&repos[0].display));
    let line = context.line.show(None, move |_| {
        let read = client.stats().bytes_read.saturating_sub(started);
        format!("{name}  {} compared", bytes(read))
    });
    let compared = before?.compare_values(&after, check).await;
    drop(line);
    match compared {
        Ok(values) => Ok(Ok(values)),
        Err(error) => context.report(&repos[0], sources, error.into()).map(Err),
    }
}

/// Answers in one line whether two models have the same values. Only if all tensors of both are compared, they can be the
/// same.
fn value_summary(values: &ValueDiff) -> String {
    let (equal, some) = (values.identical + values.same, values.differing.len() as u64);
    let rest = not_compared(values);
    if equal + some == 0 {
        return match rest.split_once(' ') {
            Some((count, rest)) => format!(
                "no values were compared: {count} {} {rest}",
                if count == "1" { "tensor" } else { "tensors" }
            ),
            None => "no values were compared: there are no tensors".to_owned(),
        };
    }
    let all = equal + some + values.unchecked + values.other_shape + values.unmatched;
    let (all, part) = (counted(all, "tensor"), compared_part(values));
    if rest.is_empty() && values.same + some == 0 {
        return format!("{GREEN}same bytes{GREEN:#} in {all}{part}");
    }
    if rest.is_empty() && some == 0 {
        return format!("{GREEN}same weights{GREEN:#}, other files: {all}{part}");
    }
    if rest.is_empty() && equal == 0 && some > 1 {
        return format!("all {all} differ{part}");
    }
    let end = if rest.is_empty() { rest } else { format!("; {rest}") };
    if some == 0 {
        let verb = if equal == 1 { "is" } else { "are" };
        return format!("{} of {all} {verb} the same{part}{end}", thousands(equal));
    }
    let names = joined(values.differing.iter().map(|found| escape(&found.tensor)), MAX_DIFFERING);
    let verb = if some == 1 { "differs" } else { "differ" };
    format!("{} of {all} {verb}{part}: {names}{end}", thousands(some))
}

/// Describes the part of the values that a sample read.
fn compared_part(values: &ValueDiff) -> String {
    if matches!(values.check, ValueCheck::All) || values.bytes_compared == 0 {
        return String::new();
    }
    // Each byte is in both models.
    match values.bytes_compared.saturating_mul(2) {
        all if all == values.bytes_total => String::new(),
        part => format!(" in a sample of {}", share(part, values.bytes_total)),
    }
}

/// Lists the tensors whose values were not compared; empty if all were.
fn not_compared(values: &ValueDiff) -> String {
    let counts = [
        (values.other_shape, "of another dtype or shape"),
        (values.unmatched, "of one model only"),
        (values.unchecked, "left out"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<_> =
        counts.map(|(count, kind)| format!("{} {kind}", thousands(*count))).collect();
    counts.join(", ")
}

/// Writes the tensors whose values differ.
fn write_values(page: &mut Page<'_>, values: &ValueDiff) -> io::Result<()> {
    if values.differing.is_empty() {
        return Ok(());
    }
    let number =
        |number: Option<f64>| number.map_or_else(String::new, |number| format!("{number:.3e}"));
    let table = Table::new()
        .text("values", |found: &&TensorDifference| escape(&found.tensor))
        .shrink(Shrink::TruncateTo(MIN_NAME_WIDTH))
        .number("differ", |found| share(found.differing, found.compared))
        .optional_number("largest", move |found| number(found.largest))
        .optional_number("mean", move |found| number(found.mean));
    writeln!(page.out)?;
    let shown = &values.differing[..values.differing.len().min(MAX_ROWS)];
    page.table(&table, || shown)?;
    match values.differing.len().saturating_sub(MAX_ROWS) as u64 {
        0 => Ok(()),
        more => {
            let more = counted(more, "more tensor");
            writeln!(page.out, "{DIM}and {more}; --json lists them all{DIM:#}")
        }
    }
}

fn write(page: &mut Page<'_>, diff: &Diff) -> io::Result<()> {
    if let Some(values) = &diff.values {
        page.line(&value_summary(values))?;
    }
    write_side(page, "before", &diff.before)?;
    write_side(page, "after ", &diff.after)?;
    for section in diff.groups().chunk_by(|a, b| a.kinds == b.kinds) {
        write_section(page, section)?;
    }
    writeln!(page.out)?;
    write_matches(page, diff)?;
    write_totals(page, diff)?;
    if let Some(values) = &diff.values {
        write_values(page, values)?;
    }
    page.line(&summary(diff))
}

/// Writes the renamed prefix and the quantized modules.
fn write_matches(page: &mut Page<'_>, diff: &Diff) -> io::Result<()> {
    if let Some(RenamedPrefix { before, after, tensors, .. }) = &diff.renamed {
        let tensors = counted(*tensors, "tensor");
        let [before, after] = [before, after].map(|prefix| escape(prefix));
        page.line(&format!("renamed: {tensors}, `{before}` → `{after}`"))?;
    }
    let Some(QuantizedLinear { quantized, modules, plain, .. }) = &diff.quantized else {
        return Ok(());
    };
    let plain = match joined(plain.iter().map(|name| escape(name)), MAX_PLAIN) {
        names if names.is_empty() => names,
        names => format!("; plain: {names}"),
    };
    let modules = counted(*modules, "linear module");
    page.line(&format!("quantized: {} of {modules}{plain}", thousands(*quantized)))
}

/// Writes the source of one side, its files and its tensors.
fn write_side(page: &mut Page<'_>, name: &str, side: &CountReport) -> io::Result<()> {
    let files = counted(side.file_count() as u64, "file");
    let tensors = counted(side.parameter_count.totals().tensors, "tensor");
    let commit = side.commit.as_ref();
    let commit = commit.map_or_else(String::new, |commit| format!(", commit {commit}"));
    let (source, details) = (escape(&side.source), format!("{files}, {tensors}{commit}"));
    page.line(&format!("{name}  {BOLD}{source}{BOLD:#}  {DIM}{details}{DIM:#}"))
}

/// The kinds of changes with their names, signs and styles.
const CHANGES: [(ChangeKind, &str, &str, Style); 5] = [
    (ChangeKind::Removed, "removed", "-", RED),
    (ChangeKind::Added, "added", "+", GREEN),
    (ChangeKind::Reshaped, "reshaped", "~", YELLOW),
    (ChangeKind::Retyped, "retyped", "~", YELLOW),
    (ChangeKind::Moved, "moved", ">", CYAN),
];

/// Writes all groups of changes of one kind, one row each.
fn write_section(page: &mut Page<'_>, groups: &[ChangeGroup<'_>]) -> io::Result<()> {
    let tensors = |group: &ChangeGroup<'_>| group.changes.len() as u64;
    let all_tensors = |groups: &[ChangeGroup<'_>]| groups.iter().map(tensors).sum();
    let kinds = CHANGES.iter().filter(|(kind, ..)| groups[0].kinds.contains(kind));
    let kinds: Vec<_> = kinds.collect();
    let (sign, style) = match kinds[..] {
        [(_, _, sign, style)] => (*sign, *style),
        _ => ("~", YELLOW),
    };
    let names: Vec<_> = kinds.iter().map(|(_, name, ..)| *name).collect();
    let (names, tensor_count) = (names.join(", "), counted(all_tensors(groups), "tensor"));
    writeln!(page.out, "\n{style}{names}{style:#}: {tensor_count}")?;
    let (shown, hidden) = groups.split_at(groups.len().min(MAX_ROWS));
    let table = Table::new()
        .text("", |_: &&ChangeGroup<'_>| format!("{style}{sign}{style:#}"))
        .text("", |group| escape(&group.name))
        .shrink(Shrink::TruncateTo(MIN_NAME_WIDTH))
        .number("", |group| times(tensors(group)))
        .text("", |group| difference(group))
        .shrink(Shrink::WrapTo(MIN_DIFFERENCE_WIDTH));
    page.table(&table, || shown)?;
    match all_tensors(hidden) {
        0 => Ok(()),
        more => {
            let more = counted(more, "more tensor");
            writeln!(page.out, "{DIM}  and {more}; --json lists them all{DIM:#}")
        }
    }
}

fn times(tensors: u64) -> String {
    if tensors > 1 { format!("×{}", thousands(tensors)) } else { String::new() }
}

/// Formats the dtype and shape, or the shards, before and after.
fn difference(group: &ChangeGroup<'_>) -> String {
    if group.kinds == [ChangeKind::Moved] {
        return arrow(
            &files(group, |change| &change.before),
            &files(group, |change| &change.after),
        );
    }
    let TensorChange { before, after, .. } = group.changes[0];
    // A tensor that was added or removed has one side.
    let sides: Vec<_> = [before, after].into_iter().flatten().collect();
    let (Some(before), Some(after)) = (sides.first(), sides.last()) else { return String::new() };
    let dtypes = arrow(&escape(before.dtype.as_str()), &escape(after.dtype.as_str()));
    format!("{dtypes} {}", arrow(&format!("{:?}", before.shape), &format!("{:?}", after.shape)))
}

fn arrow(before: &str, after: &str) -> String {
    if before == after { before.to_owned() } else { format!("{before} → {after}") }
}

/// Formats the files that contain the tensors of one side.
fn files(group: &ChangeGroup<'_>, side: fn(&TensorChange) -> &Option<TensorState>) -> String {
    let tensors = group.changes.iter().filter_map(|change| side(change).as_ref());
    let files: BTreeSet<_> = tensors.map(|tensor| &tensor.file).collect();
    match files.first() {
        Some(only) if files.len() == 1 => escape(only.as_str()),
        _ => counted(files.len() as u64, "shard"),
    }
}

/// The name of a number, its values before and after, and their format.
type TotalsRow<'a> = (&'a str, [u64; 2], fn(u64) -> String);

/// Writes the parameters per dtype, the total, and the bytes of both checkpoints.
fn write_totals(page: &mut Page<'_>, diff: &Diff) -> io::Result<()> {
    let sides = [&diff.before, &diff.after].map(|side| &side.parameter_count);
    let mut dtypes = BTreeMap::<_, [u64; 2]>::new();
    for (side, count) in sides.into_iter().enumerate() {
        for (dtype, row) in count.rows() {
            dtypes.entry(dtype).or_default()[side] = row.parameters;
        }
    }
    let mut rows: Vec<TotalsRow<'_>> =
        dtypes.iter().map(|(dtype, counts)| (dtype.as_str(), *counts, thousands as _)).collect();
    let totals = sides.map(hf_meta::ParameterCount::totals);
    let parameters = totals.map(|totals| totals.parameters);
    if dtypes.len() > 1 {
        rows.push(("total", parameters, thousands));
    }
    let elements = totals.map(|totals| totals.elements);
    if elements != parameters {
        rows.push(("elements", elements, thousands));
    }
    rows.push(("bytes", totals.map(|totals| totals.bytes), bytes));
    let table = Table::new()
        .text("parameters", |(name, ..): &&TotalsRow<'_>| escape(name))
        .optional_number("before", |(_, [before, _], format)| format(*before))
        .number("after", |(_, [_, after], format)| format(*after))
        .number("change", |(_, [before, after], format)| change(*before, *after, *format));
    page.table(&table, || &rows)
}

fn change(before: u64, after: u64, format: fn(u64) -> String) -> String {
    match after.cmp(&before) {
        Ordering::Less => format!("-{}", format(before - after)),
        Ordering::Equal => "=".to_owned(),
        Ordering::Greater => format!("+{}", format(after - before)),
    }
}

fn summary(diff: &Diff) -> String {
    let unchanged = counted(diff.unchanged, "tensor");
    let is_compared =
        |values: &ValueDiff| values.identical + values.same > 0 || !values.differing.is_empty();
    let has_values = diff.values.as_ref().is_some_and(is_compared);
    let note = if has_values { "" } else { "; values are not compared" };
    if diff.has_same_tensors() && diff.values.is_some() {
        return format!("no other differences in {unchanged}{note}");
    }
    if diff.has_same_tensors() {
        return format!("{GREEN}no differences{GREEN:#} in {unchanged}{note}");
    }
    let counts = CHANGES.iter().map(|(kind, name, ..)| (diff.count(*kind), *name));
    let renamed = diff.renamed.as_ref().map_or(0, |renamed| renamed.tensors);
    let quantized = diff.quantized.as_ref().map_or(0, |quantized| quantized.quantized);
    let counts = counts.chain([(renamed, "renamed"), (quantized, "quantized")]);
    let counts = counts.filter(|(count, _)| *count > 0);
    let counts: Vec<_> =
        counts.map(|(count, name)| format!("{} {name}", thousands(count))).collect();
    format!("{}; {unchanged} unchanged{note}", counts.join(", "))
}
