//! `hf-meta diff`: what two sets of weights differ in.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};

use anstyle::Style;
use clap::builder::NonEmptyStringValueParser;
use hf_meta::report::diff::{ChangeGroup, ChangeKind, Diff, DiffSide};
use hf_meta::report::text::{bytes, counted, escape, shape, thousands};
use hf_meta::{Error, Model, RepoPath, SafetensorsParseFromRepo};

use super::columns::{self, Columns};
use super::json;
use super::repo_arg::RepoArg;
use super::report::{self, Outcome};
use super::session::{Place, Session};
use super::style::{BOLD, CYAN, DIM, GREEN, RED, YELLOW};

/// The most rows of a kind of change; the JSON has every tensor.
const MOST_ROWS: usize = 40;

/// Compare the tensors of two repositories, revisions or files
///
/// Compares what headers tell: which tensors there are, their dtypes, shapes and shards, and what they
/// add up to. Values are not compared.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct DiffArgs {
    /// What to compare with: whatever can be given without a command, such as `org/name@revision`
    #[arg(value_name = "A", value_parser = NonEmptyStringValueParser::new())]
    before: String,

    /// What to compare
    #[arg(value_name = "B", value_parser = NonEmptyStringValueParser::new())]
    after: String,

    /// Print JSON, with every tensor that differs
    #[arg(long, short)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  hf-meta diff org/name@v1 org/name             two revisions
  hf-meta diff gpt2 ./model.safetensors         a repository and a local file
  hf-meta diff hf://org/name/7b hf://org/name/13b

Exit status:
  0  nothing differs
  1  something differs, or one of the two holds no valid safetensors weights
  2  wrong usage
  3  the Hub refused, or the network failed";

type Parsed = Result<SafetensorsParseFromRepo, Error>;

pub(crate) async fn run(args: &DiffArgs, session: &Session) -> io::Result<Outcome> {
    let asked =
        [&args.before, &args.after].map(|text| RepoArg::new(text, session.client.endpoint()));
    let place = Place::default();
    let call = |model: Model| async move { model.parse_safetensors_metadata().await };
    let [before, after] = asked.each_ref().map(|asked| session.read(asked, &place, call));
    let (before, after) = futures::future::try_join(before, after).await?;
    session.print(|| print(args, session, &asked, [&before, &after]))
}

fn print(
    args: &DiffArgs,
    session: &Session,
    asked: &[RepoArg; 2],
    sides: [&Parsed; 2],
) -> io::Result<Outcome> {
    let [Ok(before), Ok(after)] = sides else {
        return complain(session, asked, sides);
    };
    let diff = Diff::new(before, after);
    if args.json {
        json::print(&diff)?;
    } else {
        let mut stdout = BufWriter::new(anstream::stdout().lock());
        render(&mut stdout, &diff)?;
        stdout.flush()?;
    }
    for (asked, side) in asked.iter().zip([before, after]) {
        let notes = report::findings(asked, &side.report().findings);
        anstream::stderr().write_all(notes.as_bytes())?;
    }
    Ok(if diff.is_empty() { Outcome::Fine } else { Outcome::Negative })
}

/// Says what keeps the two from being compared.
fn complain(session: &Session, asked: &[RepoArg; 2], sides: [&Parsed; 2]) -> io::Result<Outcome> {
    let mut outcome = Outcome::Fine;
    for (asked, side) in asked.iter().zip(sides) {
        let Err(error) = side else { continue };
        let report = report::error(asked, true, error, session.client.endpoint());
        anstream::stderr().write_all(report.as_bytes())?;
        outcome = outcome.max(Outcome::from(error));
    }
    Ok(outcome)
}

fn render(out: &mut impl Write, diff: &Diff) -> io::Result<()> {
    for (name, side) in [("before", &diff.before), ("after ", &diff.after)] {
        writeln!(out, "{}", heading(name, side))?;
    }
    let groups = diff.groups();
    for section in groups.chunk_by(|a, b| a.kinds == b.kinds) {
        changes(out, section)?;
    }
    writeln!(out)?;
    figures(out, diff)?;
    writeln!(out, "{}", conclusion(diff))
}

fn heading(name: &str, side: &DiffSide) -> String {
    let totals = side.parameter_count.totals();
    let files = counted(side.files as u64, "file");
    let commit = side.commit.as_ref();
    let commit = commit.map_or_else(String::new, |commit| format!(", commit {commit}"));
    let tensors = counted(totals.tensors, "tensor");
    format!(
        "{name}  {BOLD}{}{BOLD:#}  {DIM}{files}, {tensors}{commit}{DIM:#}",
        escape(&side.source)
    )
}

/// The changes of one kind, those that are alike in one row.
fn changes(out: &mut impl Write, groups: &[ChangeGroup]) -> io::Result<()> {
    let tensors = |groups: &[ChangeGroup]| groups.iter().map(|group| group.tensors).sum();
    let kinds = &groups[0].kinds;
    let named: Vec<_> = kinds.iter().map(|kind| word(*kind)).collect();
    let (sign, style) = sign(kinds);
    writeln!(
        out,
        "\n{style}{}{style:#}: {}",
        named.join(", "),
        counted(tensors(groups), "tensor")
    )?;
    let (shown, hidden) = groups.split_at(groups.len().min(MOST_ROWS));
    let rows: Vec<_> = shown.iter().map(row).collect();
    let mut columns = Columns::new([false, true, false]);
    for row in &rows {
        columns.fit(row);
    }
    for row in &rows {
        write!(out, "{style}{sign}{style:#} ")?;
        columns.write(out, row)?;
    }
    match tensors(hidden) {
        0 => Ok(()),
        more => writeln!(
            out,
            "{DIM}  … and {}; --json lists them all{DIM:#}",
            counted(more, "more tensor")
        ),
    }
}

fn word(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Removed => "removed",
        ChangeKind::Added => "added",
        ChangeKind::Reshaped => "reshaped",
        ChangeKind::Retyped => "retyped",
        ChangeKind::Moved => "moved",
    }
}

fn sign(kinds: &[ChangeKind]) -> (char, Style) {
    match kinds {
        [ChangeKind::Removed] => ('-', RED),
        [ChangeKind::Added] => ('+', GREEN),
        [ChangeKind::Moved] => ('>', CYAN),
        _ => ('~', YELLOW),
    }
}

/// The name, how many there are of it, and what was and is.
fn row(group: &ChangeGroup) -> [String; 3] {
    let times =
        if group.tensors > 1 { format!("×{}", thousands(group.tensors)) } else { String::new() };
    [escape(&group.name), times, difference(group)]
}

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

/// Parameters per dtype and bytes, before and after.
fn figures(out: &mut impl Write, diff: &Diff) -> io::Result<()> {
    let [before, after] = [&diff.before, &diff.after].map(|side| &side.parameter_count);
    let mut dtypes = BTreeMap::<_, [u64; 2]>::new();
    for (side, count) in [before, after].into_iter().enumerate() {
        for (dtype, row) in count.rows() {
            dtypes.entry(dtype).or_default()[side] = row.parameters;
        }
    }
    let mut rows = vec![["parameters", "before", "after", "change"].map(str::to_owned)];
    let row = |name: &str, [before, after]: [u64; 2], show: fn(u64) -> String| {
        [escape(name), show(before), show(after), change(before, after, show)]
    };
    rows.extend(dtypes.iter().map(|(dtype, counts)| row(dtype.as_str(), *counts, thousands)));
    if dtypes.len() > 1 {
        rows.push(row("total", [before.total(), after.total()], thousands));
    }
    let elements = [before.totals().elements, after.totals().elements];
    if elements != [before.total(), after.total()] {
        rows.push(row("elements", elements, thousands));
    }
    rows.push(row("bytes", [before.totals().bytes, after.totals().bytes], bytes));
    columns::table(out, [false, true, true, true], &rows)
}

fn change(before: u64, after: u64, show: fn(u64) -> String) -> String {
    match after.cmp(&before) {
        Ordering::Less => format!("-{}", show(before - after)),
        Ordering::Equal => "=".to_owned(),
        Ordering::Greater => format!("+{}", show(after - before)),
    }
}

fn conclusion(diff: &Diff) -> String {
    let unchanged = counted(diff.unchanged, "tensor");
    if diff.is_empty() {
        return format!("{GREEN}no difference{GREEN:#} in {unchanged}; values are not compared");
    }
    let kinds = [
        ChangeKind::Removed,
        ChangeKind::Added,
        ChangeKind::Reshaped,
        ChangeKind::Retyped,
        ChangeKind::Moved,
    ];
    let counts = kinds.map(|kind| (diff.count(kind), word(kind))).into_iter();
    let counts = counts.filter(|(count, _)| *count > 0);
    let counts: Vec<_> =
        counts.map(|(count, word)| format!("{} {word}", thousands(count))).collect();
    format!("{}; {unchanged} unchanged; values are not compared", counts.join(", "))
}
