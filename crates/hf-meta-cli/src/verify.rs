//! `hf-meta verify`: checks every file of a checkpoint, and prints the findings as text, JSON or SARIF.

use std::collections::BTreeSet;
use std::io;

use hf_meta::formats::weight_sets::shard_pattern;
use hf_meta::report::text::{counted, escape, thousands};
use hf_meta::report::verify::ParameterSources;
use hf_meta::report::{Finding, Severity};
use hf_meta::{Endpoint, Error, Model, VerifyReport};
use serde_json::{Value, json};

use super::context::{CommandContext, SelectionArgs, Sources, file_plans};
use super::error_report::severity_label;
use super::exit::{CommandError, ExitStatus};
use super::output::{Page, message_with_causes, print_json};
use super::repos::{RepoArg, RepoListArgs};
use super::terminal::{ColorArgs, GREEN, RED, wrap_after_label};

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
  1  there are errors, no weights or, with --strict, warnings
  2  invalid arguments or environment variables
  3  the repository or revision was not found, access was denied, or the Hub or
     the network failed, so not everything was checked
  4  a local file could not be read or written, so not everything was checked
With several repositories, the highest of these codes.";

/// Removes the plan `hub`, which does not read the files.
pub(crate) fn define(verify: clap::Command) -> clap::Command {
    verify.mut_args(|arg| if arg.get_id() == "plan" { file_plans(arg) } else { arg })
}

pub(crate) async fn run(
    args: &VerifyArgs,
    context: &CommandContext,
) -> Result<ExitStatus, CommandError> {
    let repos = args.repos.list()?;
    let sources = Sources { repos: &repos, selection: &args.selection, is_json: args.json };
    let (mut sarif, endpoint) = (SarifLog::default(), context.client.endpoint());
    let read = |model: Model| async move { model.verify().await };
    let print = |source: &RepoArg, report: Result<VerifyReport, Error>| match report {
        Ok(report) => {
            if args.sarif {
                sarif.add_report(source, endpoint, &report);
            } else if args.json {
                print_json(&report)?;
            } else {
                context.print(|page| write(page, &report))?;
            }
            Ok(status(args, source, &report))
        }
        Err(error) => {
            if args.sarif {
                sarif.add_error(source, endpoint, &error);
            }
            context.report(source, sources, &error)
        }
    };
    let status = context.for_each(sources, read, print).await?;
    if args.sarif {
        print_json(&sarif.finish())?;
    }
    Ok(status)
}

fn status(args: &VerifyArgs, source: &RepoArg, report: &VerifyReport) -> ExitStatus {
    let has_warnings = report.findings.iter().any(|found| found.severity() == Severity::Warning);
    match (report.is_complete(), report.is_valid()) {
        (false, _) if source.is_local() => ExitStatus::LocalIo,
        (false, _) => ExitStatus::Remote,
        (true, false) => ExitStatus::CheckFailed,
        (true, true) if args.strict && has_warnings => ExitStatus::CheckFailed,
        (true, true) => ExitStatus::Success,
    }
}

/// Writes the findings by kind, then a summary.
fn write(page: &mut Page<'_>, report: &VerifyReport) -> io::Result<()> {
    page.heading(&report.source)?;
    for kind in by_kind(report) {
        let (style, label) = severity_label(kind[0].severity());
        let mut line = |text: &str| {
            let text = wrap_after_label(label.len() + 2, text, page.terminal);
            writeln!(page.out, "{style}{label}{style:#}: {text}")
        };
        for finding in kind.iter().take(MAX_FINDINGS_PER_KIND) {
            line(&escape(&finding.to_string()))?;
        }
        if let more @ 1.. = count(kind).saturating_sub(MAX_FINDINGS_PER_KIND as u64) {
            line(&format!("{} more of this kind; --json lists more", thousands(more)))?;
        }
    }
    write_summary(page, report)
}

/// Groups the findings by kind. A count of unlisted findings belongs to the kind before it.
fn by_kind(report: &VerifyReport) -> impl Iterator<Item = &[Finding]> {
    report.findings.chunk_by(|a, b| matches!(b, Finding::MoreFindings { .. }) || a.is_same_kind(b))
}

/// Counts findings, including unlisted ones.
fn count(findings: &[Finding]) -> u64 {
    let count = |finding: &Finding| match finding {
        Finding::MoreFindings { findings } => *findings,
        _ => 1,
    };
    findings.iter().map(count).sum()
}

fn write_summary(page: &mut Page<'_>, report: &VerifyReport) -> io::Result<()> {
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
    let pattern = shard_pattern(&report.filepaths).filter(|_| report.filepaths.len() > 1);
    let path = pattern.as_ref().or(report.filepaths.first());
    let path = path.map_or_else(String::new, |path| format!(" of {}", escape(path.as_str())));
    let counts = format!("{files} {tensors}{path} checked, {errors}, {warnings}");
    page.line(&format!("{style}{word}{style:#}: {counts}"))?;
    write_parameters(page, report.parameters)
}

/// Writes the parameter counts from each source that has one.
fn write_parameters(page: &mut Page<'_>, sources: ParameterSources) -> io::Result<()> {
    let ParameterSources { counted: Some(counted), exact, declared, config, hub, .. } = sources
    else {
        return Ok(());
    };
    let others = [("declared", declared), ("config.json", config), ("Hub", hub)];
    let others = others.into_iter().filter_map(|(source, count)| {
        Some(match count? {
            equal if equal == counted => format!("; {source}: same"),
            other => format!("; {source}: {}", thousands(other)),
        })
    });
    let mark = if exact == Some(true) { "" } else { "~" };
    writeln!(
        page.out,
        "parameters: {mark}{} counted{}",
        thousands(counted),
        others.collect::<String>()
    )
}

/// The findings as SARIF 2.1.0, which code hosts show as annotations: the results and their kinds.
#[derive(Debug, Default)]
struct SarifLog {
    results: Vec<Value>,
    rules: BTreeSet<String>,
}

impl SarifLog {
    /// Adds the findings of a report.
    fn add_report(&mut self, source: &RepoArg, endpoint: &Endpoint, report: &VerifyReport) {
        for finding in &report.findings {
            let (_, level) = severity_label(finding.severity());
            let (kind, file) = kind_and_file(finding);
            let uri = source.file_url(file.as_deref(), endpoint);
            self.add(kind, level, &finding.to_string(), &uri);
        }
    }

    /// Adds a source that could not be read.
    fn add_error(&mut self, source: &RepoArg, endpoint: &Endpoint, error: &Error) {
        let (message, uri) = (message_with_causes(error), source.file_url(None, endpoint));
        self.add(error.code().to_owned(), "error", &message, &uri);
    }

    fn add(&mut self, rule: String, level: &str, message: &str, uri: &str) {
        self.results.push(json!({
            "ruleId": rule,
            "level": level,
            "message": { "text": message },
            "locations": [{ "physicalLocation": { "artifactLocation": { "uri": uri } } }],
        }));
        self.rules.insert(rule);
    }

    /// Returns the document.
    fn finish(self) -> Value {
        let rules: Vec<_> = self.rules.iter().map(|id| json!({ "id": id })).collect();
        let driver = json!({
            "name": "hf-meta",
            "semanticVersion": env!("CARGO_PKG_VERSION"),
            "rules": rules,
        });
        json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{ "tool": { "driver": driver }, "results": self.results }],
        })
    }
}

/// Returns the kind of a finding and the file it is about.
fn kind_and_file(finding: &Finding) -> (String, Option<String>) {
    let fields = serde_json::to_value(finding).unwrap_or_default();
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    (text("kind").unwrap_or_default(), text("file").or_else(|| text("shard")))
}
