//! `hf-meta verify`: checks every file of a checkpoint.

use std::io::{self, BufWriter, Write};

use anstyle::Style;
use hf_meta::report::text::{counted, escape, thousands};
use hf_meta::report::verify::ParameterSources;
use hf_meta::report::{Finding, Severity};
use hf_meta::{Error, Model, Plan, VerifyReport};

use super::context::{CommandContext, OutputForm, SelectionArgs, Sources};
use super::exit::{CommandError, ExitStatus, failed_to};
use super::json;
use super::output::ColorArgs;
use super::repo_arg::RepoArg;
use super::repo_list::RepoListArgs;
use super::sarif::SarifLog;
use super::style::{BOLD, CYAN, GREEN, RED, YELLOW};
use super::terminal::{TerminalSize, fitted_after};

/// The maximum number of findings to print per kind. The JSON has up to 1,000.
const MAX_FINDINGS_PER_KIND: usize = 10;

/// Check every shard and the index of each repository
///
/// Reads all headers and continues after invalid ones. Checks each header against its format and the file
/// size, the index against the headers, the declared totals, and the shard numbers. Reads config.json to
/// distinguish a tied output embedding from a missing one. Compares the parameter count with the one that
/// config.json implies and the one that the Hub reports.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_STATUS)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    repos: RepoListArgs,

    #[command(flatten)]
    selection: SelectionArgs,

    /// Print the report as JSON, one line per repository
    #[arg(long, short)]
    json: bool,

    /// Print the findings as SARIF, for code scanning annotations
    #[arg(long, conflicts_with = "json")]
    sarif: bool,

    #[command(flatten)]
    pub(crate) color: ColorArgs,

    /// Exit with 1 on warnings as well
    #[arg(long)]
    strict: bool,
}

const EXIT_STATUS: &str = "\
Exit status:
  0  no errors; there may be notes and, without --strict, warnings
  1  errors were found, or warnings with --strict, or there are no weights
  2  invalid arguments or environment variables
  3  the repository or revision was not found, access was denied, or the Hub or
     the network failed, so not everything was checked
  4  a local file could not be read or written, so not everything was checked
With several repositories, the highest of these codes.";

pub(crate) async fn run(
    args: &VerifyArgs,
    context: &CommandContext,
) -> Result<ExitStatus, CommandError> {
    if args.selection.plan() == Plan::Hub {
        return Err(CommandError::Usage(
            "`verify` checks the bytes of every file, so it cannot use `--plan hub`",
        ));
    }
    let read = |model: Model| async move { model.verify().await };
    let form = match (args.json, args.sarif) {
        (true, _) => OutputForm::Json,
        (_, true) => OutputForm::Other,
        _ => OutputForm::Text,
    };
    let repos = args.repos.list()?;
    let sources = Sources { repos: &repos, selection: &args.selection, form };
    if !args.sarif {
        let print = |source: &RepoArg, report: VerifyReport| {
            print(args, &report)?;
            Ok(status(args, source, &report))
        };
        return Ok(context.for_each(sources, read, print).await?);
    }
    let (mut log, endpoint) = (SarifLog::default(), context.client.endpoint());
    let collect = |source: &RepoArg, result: Result<VerifyReport, Error>| match result {
        Ok(report) => {
            log.add_report(source, endpoint, &report);
            Ok(status(args, source, &report))
        }
        Err(error) => {
            log.add_error(source, endpoint, &error);
            context.report(source, sources, &error)
        }
    };
    let status = context.for_each_result(sources, read, collect).await?;
    json::print(&log.finish()).map_err(failed_to("write to stdout"))?;
    Ok(status)
}

fn print(args: &VerifyArgs, report: &VerifyReport) -> io::Result<()> {
    if args.json {
        return json::print(report);
    }
    let mut stdout = BufWriter::new(anstream::stdout().lock());
    write(&mut stdout, report, TerminalSize::from_stdout())?;
    stdout.flush()
}

fn status(args: &VerifyArgs, source: &RepoArg, report: &VerifyReport) -> ExitStatus {
    let has_warnings = report.findings.iter().any(|found| found.severity() == Severity::Warning);
    match (report.is_complete(), report.is_valid()) {
        (false, _) if source.is_local() => ExitStatus::LocalIo,
        (false, _) => ExitStatus::Remote,
        (true, false) => ExitStatus::Negative,
        (true, true) if args.strict && has_warnings => ExitStatus::Negative,
        (true, true) => ExitStatus::Success,
    }
}

/// Writes the findings by kind, then a summary.
fn write(
    out: &mut impl Write,
    report: &VerifyReport,
    terminal: Option<TerminalSize>,
) -> io::Result<()> {
    writeln!(out, "{BOLD}{}{BOLD:#}", escape(&report.source))?;
    for kind in by_kind(report) {
        let (style, label) = label(kind[0].severity());
        let mut line = |text: &str| {
            let text = fitted_after(label.len() + 2, text, terminal);
            writeln!(out, "{style}{label}{style:#}: {text}")
        };
        for finding in kind.iter().take(MAX_FINDINGS_PER_KIND) {
            line(&escape(&finding.to_string()))?;
        }
        if let more @ 1.. = count(kind).saturating_sub(MAX_FINDINGS_PER_KIND as u64) {
            line(&format!("{} more of this kind; --json lists more", thousands(more)))?;
        }
    }
    write_summary(out, report)
}

/// Groups the findings by kind. A count of unlisted findings belongs to the kind before it.
fn by_kind(report: &VerifyReport) -> impl Iterator<Item = &[Finding]> {
    report.findings.chunk_by(|a, b| {
        matches!(b, Finding::MoreFindings { .. })
            || std::mem::discriminant(a) == std::mem::discriminant(b)
    })
}

fn label(severity: Severity) -> (Style, &'static str) {
    match severity {
        Severity::Error => (RED, "error"),
        Severity::Warning => (YELLOW, "warning"),
        Severity::Note => (CYAN, "note"),
    }
}

/// Counts findings, including unlisted ones.
fn count(findings: &[Finding]) -> u64 {
    let count = |finding: &Finding| match finding {
        Finding::MoreFindings { findings } => *findings,
        _ => 1,
    };
    findings.iter().map(count).sum()
}

fn write_summary(out: &mut impl Write, report: &VerifyReport) -> io::Result<()> {
    let found = |severity| {
        let kinds = by_kind(report).filter(|kind| kind[0].severity() == severity);
        kinds.map(count).fold(0, u64::saturating_add)
    };
    let (style, word) = match (report.is_valid(), report.is_complete()) {
        (true, _) => (GREEN, "valid"),
        (false, true) => (RED, "not valid"),
        (false, false) => (RED, "not fully checked"),
    };
    let all = counted(report.files as u64, "file");
    let files = match report.valid_files {
        valid if valid == report.files => format!("{all} and"),
        valid => format!("{} of {all} valid,", thousands(valid as u64)),
    };
    let tensors = counted(report.tensors, "tensor");
    let errors = counted(found(Severity::Error), "error");
    let warnings = counted(found(Severity::Warning), "warning");
    writeln!(out, "{style}{word}{style:#}: {files} {tensors} checked, {errors}, {warnings}")?;
    write_parameters(out, report.parameters)
}

/// Writes the parameter counts from each source that has one.
fn write_parameters(out: &mut impl Write, figures: ParameterSources) -> io::Result<()> {
    let ParameterSources { counted: Some(counted), exact, declared, config, hub, .. } = figures
    else {
        return Ok(());
    };
    let others = [("declared", declared), ("config.json", config), ("Hub", hub)];
    let others = others.into_iter().filter_map(|(source, figure)| {
        Some(match figure? {
            equal if equal == counted => format!("; {source}: same"),
            other => format!("; {source}: {}", thousands(other)),
        })
    });
    let mark = if exact == Some(true) { "" } else { "~" };
    writeln!(out, "parameters: {mark}{} counted{}", thousands(counted), others.collect::<String>())
}
