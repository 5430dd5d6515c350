//! `hf-meta verify`: checks every file of a checkpoint, and prints the findings as text, JSON or SARIF.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use anstyle::Style;
use clap::ValueHint;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hf_meta::{Endpoint, Error, ErrorKind, Model, Source, VerifyReport, WeightSet, Weights};
use hf_meta_count::memory::MemoryOptions;
use hf_meta_count::results::text::{bytes, counted, escape, share, thousands};
use hf_meta_count::results::{Finding, Severity, ValueCheck, ValueReport};
use hf_meta_count::results::{ParameterSources, VerifiedSet, is_complete, is_valid};
use hf_meta_format::formats::WeightsKind;

use super::against::{self, AgainstArgs};
use super::context::{CommandContext, SelectionArgs, Sources, plans};
use super::engine::{self, PairArgs};
use super::error_report::{print_warning, severity_label};
use super::exit::{CommandError, CommandResult, ExitStatus};
use super::junit::JunitLog;
use super::memory::{self, ConditionArgs};
use super::output::{Page, joined, print_bytes, print_json};
use super::repos::{RepoArg, RepoListArgs};
use super::sarif::{SarifLog, not_compared};
use super::terminal::{BOLD, ColorArgs, GREEN, RED, YELLOW};

/// The maximum number of findings to print per kind. The JSON has up to 1,000.
const MAX_FINDINGS_PER_KIND: usize = 10;

/// The maximum number of unchecked sets to name. The JSON has all of them.
const MAX_UNCHECKED: usize = 12;

/// The files that list the components of a model in folders.
const PIPELINES: [&str; 2] = ["model_index.json", "modules.json"];

/// The result of weights without errors whose warnings are failures.
const FAILED_BY_STRICT: &str = "failed by --strict";

/// Check the weights that a loader of each repository loads
///
/// These are the main weight set, all components of a diffusers pipeline, or all modules of a
/// sentence-transformers model. `--all` checks every weight set. Reads all headers and continues after
/// invalid ones. Checks each header against its format and the file size, the index against the headers,
/// the declared totals, and the shard numbers. Reads config.json to distinguish a tied output embedding
/// from a missing one, and the configuration of an adapter. Compares the parameter count with the one that config.json implies and the one that
/// the Hub reports.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit status:
  0  no errors; there may be notes and, without --strict, warnings
  1  there are errors, no weights or, with --strict, warnings; or with --engine,
     the answer is not `yes`
  2  invalid arguments or environment variables
  3  the repository or revision was not found, access was denied, or the Hub or
     the network failed, so not everything was checked
  4  a local file could not be read or written, so not everything was checked
With several repositories, the highest of these codes.")]
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    repos: RepoListArgs,

    /// Print the report as JSON, one line per repository
    #[arg(long, short)]
    json: bool,

    /// Print the findings as SARIF, for code scanning annotations
    #[arg(long, conflicts_with = "json")]
    sarif: bool,

    /// Print the findings as JUnit XML, for the pages of CI systems
    #[arg(long, conflicts_with_all = ["json", "sarif"])]
    junit: bool,

    #[command(flatten)]
    pub(crate) color: ColorArgs,

    /// Check every weight set: components, variants, quantizations and checkpoints
    #[arg(long, conflicts_with = "engine")]
    all: bool,

    /// Compare the shapes of an adapter with its base model: anything that `hf-meta` can read
    #[arg(long, value_name = "REPO", value_hint = ValueHint::AnyPath)]
    base: Option<OsString>,

    /// Check values, too: small tensors and blocks of the others (sample, at most 32 MB), or all
    ///
    /// Finds NaN and infinite numbers, matrices of zeros or of one number, and scales that are negative or zero. A sample
    /// can prove that a file is corrupt, but never that it is not.
    #[arg(long, value_name = "PART", num_args = 0..=1, require_equals = true, default_missing_value = "sample")]
    #[arg(value_parser = value_checks())]
    values: Option<ValueCheck>,

    /// Exit with 1 on warnings as well
    #[arg(long)]
    strict: bool,

    /// Check the folders of changed files, as a hook does; folders without weights are skipped
    ///
    /// Each REPO is a local file. Of a pipeline, the whole folder is checked.
    #[arg(long, conflicts_with_all = ["revision", "path"])]
    changed: bool,

    #[command(flatten)]
    against: AgainstArgs,

    #[command(flatten)]
    conditions: ConditionArgs,

    #[command(flatten)]
    pairs: PairArgs,

    #[command(flatten)]
    selection: SelectionArgs,
}

/// Returns a parser of the parts of a model whose values are checked.
pub(crate) fn value_checks() -> impl TypedValueParser<Value = ValueCheck> {
    PossibleValuesParser::new(["sample", "all"]).map(|name| match &*name {
        "all" => ValueCheck::All,
        _ => ValueCheck::Sample,
    })
}

/// Removes the plan `hub` and the cache, with which the files are not read.
pub(crate) fn define(verify: clap::Command) -> clap::Command {
    memory::define_engine(verify).mut_args(|arg| match arg.get_id().as_str() {
        "plan" => arg.value_parser(plans(&["exact", "prefetch"])).help(
            "Requests for headers: two ranges per file (exact) or one (prefetch) [default: exact]",
        ),
        "offline" => arg.help("Read only downloaded files"),
        _ => arg,
    })
}

/// The formats that print one document about all sources.
#[derive(Default)]
struct FindingLogs {
    sarif: SarifLog,
    junit: JunitLog,
}

impl FindingLogs {
    fn add_report(
        &mut self,
        source: &RepoArg,
        endpoint: &Endpoint,
        report: &VerifyReport,
        failure: Severity,
    ) {
        self.sarif.add_report(source, endpoint, report);
        self.junit.add_report(source, report, failure);
    }

    fn print(self, is_sarif: bool) -> io::Result<()> {
        if is_sarif {
            return print_json(&self.sarif.finish());
        }
        print_bytes(self.junit.finish().as_bytes())
    }

    fn add_error(&mut self, source: &RepoArg, endpoint: &Endpoint, error: &Error) {
        self.sarif.add_error(source, endpoint, error);
        self.junit.add_error(source, error);
    }
}

/// Returns whether a source has no weights, so that a changed file in it means nothing.
fn has_no_weights(report: &Result<VerifyReport, Error>) -> bool {
    match report {
        Ok(report) => report.has_other_content(),
        Err(error) => error.kind() == ErrorKind::NoWeights,
    }
}

/// Compares an adapter with its base model, if one is given, or warns that the weights are not an adapter.
fn check_bases(source: &RepoArg, report: &mut VerifyReport, bases: &[(RepoArg, Weights)]) {
    let [(_, base)] = bases else { return };
    report.check_base(base);
    if report.adapter.is_none() {
        let text = "is not an adapter, so `--base` has no effect";
        print_warning(&format!("{} {text}", source.display));
    }
}

/// Reads the base model of adapters, if one is given.
async fn inspect_base(
    args: &VerifyArgs,
    context: &CommandContext,
) -> CommandResult<(Vec<(RepoArg, Weights)>, ExitStatus)> {
    let endpoint = context.client.endpoint();
    let base = args.base.as_ref().map(|repo| RepoArg::new(repo, None, endpoint));
    context.inspect_all(base.as_slice(), args.json).await
}

pub(crate) async fn run(args: &VerifyArgs, context: &CommandContext) -> CommandResult {
    let mut logs = FindingLogs::default();
    let endpoint = context.client.endpoint();
    let listed = args.repos.list(endpoint)?;
    let repos = if args.changed { folders_of(&listed)? } else { listed };
    if args.against.is_selected() {
        return against::run(&args.against, &repos, &args.selection, args.json, context).await;
    }
    let (selection, is_json) = (&args.selection, args.json);
    let is_streamed = !(args.sarif || args.junit);
    let sources = Sources { repos: &repos, selection, is_json, is_streamed };
    let failure = if args.strict { Severity::Warning } else { Severity::Error };
    let least = if context.line.is_quiet { failure } else { Severity::Note };
    let (bases, status) = inspect_base(args, context).await?;
    if status != ExitStatus::Success {
        return Ok(status);
    }
    let (all, values, memory) = (args.all, args.values, args.pairs.conditions(&args.conditions)?);
    let pairs = match args.pairs.read(memory, context, args.json).await? {
        Ok(pairs) => pairs,
        Err(status) => return Ok(status),
    };
    let read = move |model: Model| {
        model.verify().all_sets(all).values(values).engine(memory).into_future()
    };
    let print = |source: &RepoArg, report: Result<VerifyReport, Error>| {
        if args.changed && has_no_weights(&report) {
            return Ok(ExitStatus::Success);
        }
        if let (Err(error), Some(options), true) = (&report, &memory, is_streamed && !is_json) {
            print_answer(context, source, options, error)?;
        }
        let mut report = report.inspect_err(|error| logs.add_error(source, endpoint, error))?;
        check_bases(source, &mut report, &bases);
        pairs.add_to(&mut report);
        let status = exit_status(failure, source, &report);
        match (is_streamed, is_json) {
            (false, _) => logs.add_report(source, endpoint, &report, failure),
            (true, true) => print_json(&report)?,
            _ if status == ExitStatus::Success && context.line.is_quiet => {}
            _ => context.print(|page| write(page, &report, failure, least, all))?,
        }
        Ok(status)
    };
    let status = context.for_each(sources, read, print).await?;
    if !is_streamed {
        logs.print(args.sarif)?;
    }
    Ok(status)
}

/// Returns the folders of local files without those below others. The folder of a component is replaced by the one of its
/// pipeline.
fn folders_of(files: &[RepoArg]) -> CommandResult<Vec<RepoArg>> {
    let mut folders = BTreeSet::new();
    for file in files {
        // A hook passes names such as `org/model.bin`, which are never repositories.
        let path = match &file.source {
            Ok(Source::Local(path)) => path,
            _ => Path::new(&file.display),
        };
        if !path.is_file() {
            let message = format!("`--changed` requires local files, not `{}`", file.display);
            return Err(CommandError::usage(message));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let is_pipeline = |folder: &&Path| PIPELINES.iter().any(|name| folder.join(name).is_file());
        folders.insert(folder.parent().filter(is_pipeline).unwrap_or(folder).to_owned());
    }
    // A folder sorts before the ones below it.
    let mut outer: Vec<PathBuf> = Vec::new();
    for folder in folders {
        if !outer.iter().any(|above| folder.starts_with(above)) {
            outer.push(folder);
        }
    }
    let folder = |folder: PathBuf| match folder.as_os_str() {
        name if name.is_empty() => RepoArg::local(Path::new("./")),
        _ => RepoArg::local(&folder.join("")),
    };
    Ok(outer.into_iter().map(folder).collect())
}

/// Prints the answer of an engine about a source that cannot be read.
fn print_answer(
    context: &CommandContext,
    source: &RepoArg,
    options: &MemoryOptions,
    error: &Error,
) -> io::Result<()> {
    let Some(answer) = engine::answer_of_error(options, error) else { return Ok(()) };
    context.print(|page| {
        page.heading(&source.display)?;
        engine::write(page, &answer)
    })
}

fn exit_status(failure: Severity, source: &RepoArg, report: &VerifyReport) -> ExitStatus {
    let findings = report.findings();
    let is_unreadable = |found: &Finding| matches!(found, Finding::Unreadable { .. });
    let is_loaded = report.engine.as_ref().is_none_or(|engine| engine.loads == Some(true));
    match (findings.iter().any(is_unreadable), fails(&findings, failure) || !is_loaded) {
        (true, _) if source.is_local() => ExitStatus::LocalIo,
        (true, _) => ExitStatus::Remote,
        (false, true) => ExitStatus::CheckFailed,
        (false, false) => ExitStatus::Success,
    }
}

/// Returns whether a finding has the severity of a failure.
fn fails(findings: &[Finding], failure: Severity) -> bool {
    findings.iter().any(|found| found.severity() >= failure)
}

/// Writes the findings of at least this severity and a summary of each set, and the sets that were not checked. Above a
/// note, only sets with a failure are written.
fn write(
    page: &mut Page<'_>,
    report: &VerifyReport,
    failure: Severity,
    least: Severity,
    is_all: bool,
) -> io::Result<()> {
    page.heading(&report.source)?;
    let is_brief = least > Severity::Note;
    if let Some(answer) = report.engine.as_deref() {
        engine::write(page, answer)?;
    }
    for set in report.sets.iter().filter(|set| !is_brief || fails(&set.findings, failure)) {
        if set.findings.is_empty() && report.sets.len() > 1 {
            let files = counted(set.files as u64, "file");
            let (path, tensors) = (escape(set.path.as_str()), counted(set.tensors, "tensor"));
            let note = not_compared(set).map_or_else(String::new, |text| format!("; {text}"));
            let text = format!("{path}, {files}, {tensors}{}", escape(&note));
            page.line(&format!("{GREEN}valid{GREEN:#}: {text}"))?;
            continue;
        }
        write_findings(page, &set.findings, least)?;
        // An error names a missing file.
        let text = if !is_brief && set.valid_files == set.files { not_compared(set) } else { None };
        if let Some(text) = text {
            page.labeled(Style::new(), "note", &escape(&text))?;
        }
        write_summary(page, set, failure)?;
    }
    if !is_brief && let Some(values) = report.values.as_deref() {
        page.line(&describe_values(values))?;
    }
    match &report.sets[..] {
        _ if is_brief => return Ok(()),
        [only] => write_parameters(page, only.parameters)?,
        sets => page.line(&set_counts(sets, failure))?,
    }
    write_unchecked(page, report.unchecked.as_deref().unwrap_or_default(), is_all)
}

/// Describes the part of a model whose values were checked.
fn describe_values(report: &ValueReport) -> String {
    if let Some(reason) = &report.reason {
        return format!("values: not checked: {}", escape(reason));
    }
    let (read, total) = (bytes(report.bytes_checked), bytes(report.bytes_total));
    let tensors = counted(report.tensors, "tensor");
    let ranges = counted(report.ranges, "range");
    let part = match report.check {
        ValueCheck::Sample if report.bytes_checked < report.bytes_total => {
            format!(
                "sampled {read}, {} of {total}",
                share(report.bytes_checked, report.bytes_total)
            )
        }
        _ => format!("checked {read} of {total}"),
    };
    let rest = match report.unchecked {
        0 => String::new(),
        unchecked => format!(", {} without a check", thousands(unchecked)),
    };
    format!("values: {part}, in {ranges} of {tensors}{rest}")
}

/// Describes the number of sets, and of those with errors.
fn set_counts(sets: &[VerifiedSet], failure: Severity) -> String {
    let count = |failure| sets.iter().filter(|set| fails(&set.findings, failure)).count() as u64;
    let invalid = count(Severity::Error);
    let (style, word) = match (invalid, count(failure)) {
        (0, 0) => (GREEN, "valid"),
        (0, _) => (RED, FAILED_BY_STRICT),
        _ => (RED, "not valid"),
    };
    let (sets, invalid) = (counted(sets.len() as u64, "weight set"), thousands(invalid));
    format!("{style}{word}{style:#}: {sets} checked, {invalid} with errors")
}

/// Writes the names of the sets that were not checked: quantizations, or paths. With `--all`, they contain no model.
fn write_unchecked(page: &mut Page<'_>, sets: &[WeightSet], is_all: bool) -> io::Result<()> {
    if sets.is_empty() {
        return Ok(());
    }
    let name = |set: &WeightSet| match &set.quantization {
        Some(quantization) if set.kind == WeightsKind::Model => escape(quantization),
        _ => escape(set.path.as_str()),
    };
    let names = joined(sets.iter().map(name), MAX_UNCHECKED);
    let hint = if is_all { "" } else { "; --all checks them" };
    page.line(&format!("not checked: {names}{hint}"))
}

/// Writes the findings of at least this severity by kind, each with what to do.
fn write_findings(page: &mut Page<'_>, findings: &[Finding], least: Severity) -> io::Result<()> {
    let mut kinds = by_kind(findings).filter(|kind| kind[0].severity() >= least).peekable();
    while let Some(kind) = kinds.next() {
        let (style, label) = severity_label(kind[0].severity());
        for finding in kind.iter().take(MAX_FINDINGS_PER_KIND) {
            page.labeled(style, label, &escape(&finding.to_string()))?;
        }
        if let more @ 1.. = count(kind).saturating_sub(MAX_FINDINGS_PER_KIND as u64) {
            let text = format!("{} more of this kind; --json lists more", thousands(more));
            page.labeled(style, label, &text)?;
        }
        // Once, if several kinds have the same advice.
        let next = kinds.peek().and_then(|kind| kind[0].help());
        if let Some(help) = kind[0].help().filter(|help| next != Some(help)) {
            page.labeled(BOLD, "  help", help)?;
        }
    }
    Ok(())
}

/// Groups the findings by kind. A count of unlisted findings belongs to the kind before it.
fn by_kind(findings: &[Finding]) -> impl Iterator<Item = &[Finding]> {
    findings.chunk_by(|a, b| matches!(b, Finding::MoreFindings { .. }) || a.is_same_kind(b))
}

/// Counts findings, including unlisted ones.
fn count(findings: &[Finding]) -> u64 {
    let count = |finding: &Finding| match finding {
        Finding::MoreFindings { findings } => *findings,
        _ => 1,
    };
    findings.iter().map(count).sum()
}

/// Writes the numbers of one set.
fn write_summary(page: &mut Page<'_>, set: &VerifiedSet, failure: Severity) -> io::Result<()> {
    let findings = &set.findings[..];
    let found = |severity| {
        let kinds = by_kind(findings).filter(|kind| kind[0].severity() == severity);
        kinds.map(count).fold(0, u64::saturating_add)
    };
    let single = findings.iter().find_map(|finding| match finding {
        Finding::SingleShard { number, total, .. } => Some(format!("shard {number} of {total}")),
        _ => None,
    });
    let (style, word) = match (is_valid(findings), is_complete(findings), &single) {
        (true, ..) if fails(findings, failure) => (RED, FAILED_BY_STRICT),
        (true, _, None) => (GREEN, "valid"),
        (true, _, Some(single)) => (YELLOW, &**single),
        (false, false, None) => (RED, "not fully checked"),
        (false, ..) => (RED, "not valid"),
    };
    let all = counted(set.files as u64, "file");
    let files = match set.valid_files {
        valid if valid == set.files => format!("{all} and"),
        valid => format!("{} of {all} valid,", thousands(valid as u64)),
    };
    let tensors = counted(set.tensors, "tensor");
    let errors = counted(found(Severity::Error), "error");
    let warnings = counted(found(Severity::Warning), "warning");
    let path = escape(set.path.as_str());
    let counts = format!("{files} {tensors} of {path} checked, {errors}, {warnings}");
    page.line(&format!("{style}{word}{style:#}: {counts}"))
}

/// Writes the parameter counts from each source that has one.
fn write_parameters(page: &mut Page<'_>, sources: ParameterSources) -> io::Result<()> {
    let ParameterSources { counted: Some(counted), exact, declared, hub, .. } = sources else {
        return Ok(());
    };
    let others = [("declared", declared), ("Hub", hub)];
    let others = others.into_iter().filter_map(|(source, count)| {
        Some(match count? {
            equal if equal == counted => format!("; {source}: same"),
            other => format!("; {source}: {}", thousands(other)),
        })
    });
    let mark = if exact == Some(true) { "" } else { "~" };
    let (others, counted) = (others.collect::<String>(), thousands(counted));
    writeln!(page.out, "parameters: {mark}{counted} counted{others}")
}
