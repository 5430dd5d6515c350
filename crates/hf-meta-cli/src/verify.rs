//! `hf-meta verify`: checks every file of a checkpoint, and prints the findings as text, JSON or SARIF.

use std::collections::BTreeSet;
use std::io;

use clap::ValueHint;
use hf_meta::formats::WeightsKind;
use hf_meta::report::text::{counted, escape, thousands};
use hf_meta::report::verify::{ParameterSources, VerifiedSet, is_complete, is_valid};
use hf_meta::report::{Finding, Severity};
use hf_meta::{Endpoint, Error, Model, RepoPath, VerifyReport, WeightSet};
use serde_json::{Value, json};

use super::context::{CommandContext, SelectionArgs, Sources, file_plans};
use super::error_report::{print_warning, severity_label};
use super::exit::{CommandError, ExitStatus};
use super::output::{Page, joined, message_with_causes, print_json};
use super::repos::{RepoArg, RepoListArgs, RepoText};
use super::terminal::{ColorArgs, GREEN, RED, YELLOW, wrap_after_label};

/// The maximum number of findings to print per kind. The JSON has up to 1,000.
const MAX_FINDINGS_PER_KIND: usize = 10;

/// The maximum number of unchecked sets to name. The JSON has all of them.
const MAX_UNCHECKED: usize = 12;

/// Check the weights that a loader of each repository loads
///
/// These are the main weight set, all components of a diffusers pipeline, or all modules of a
/// sentence-transformers model. `--all` checks every weight set. Reads all headers and continues after
/// invalid ones. Checks each header against its format and the file size, the index against the headers,
/// the declared totals, and the shard numbers. Reads config.json to distinguish a tied output embedding
/// from a missing one, and the configuration of an adapter. Compares the parameter count with the one that config.json implies and the one that
/// the Hub reports.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_STATUS)]
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

    #[command(flatten)]
    pub(crate) color: ColorArgs,

    /// Check every weight set: components, variants, quantizations and checkpoints
    #[arg(long)]
    all: bool,

    /// Compare the shapes of an adapter with its base model: anything that `hf-meta` can read
    #[arg(long, value_name = "REPO", value_hint = ValueHint::AnyPath)]
    base: Option<RepoText>,

    /// Exit with 1 on warnings as well
    #[arg(long)]
    strict: bool,

    #[command(flatten)]
    selection: SelectionArgs,
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

/// Removes the plan `hub` and the cache, with which the files are not read.
pub(crate) fn define(verify: clap::Command) -> clap::Command {
    verify.mut_args(|arg| match arg.get_id().as_str() {
        "plan" => file_plans(arg),
        "offline" => arg.help("Read only downloaded files"),
        _ => arg,
    })
}

pub(crate) async fn run(
    args: &VerifyArgs,
    context: &CommandContext,
) -> Result<ExitStatus, CommandError> {
    let repos = args.repos.list()?;
    let sources = Sources { repos: &repos, selection: &args.selection, is_json: args.json };
    let (mut sarif, endpoint) = (SarifLog::default(), context.client.endpoint());
    let all = args.all;
    let (bases, status) = context.inspect_all(args.base.as_slice(), args.json).await?;
    if status != ExitStatus::Success {
        return Ok(status);
    }
    let read = move |model: Model| async move { model.all_sets(all).verify().await };
    let print = |source: &RepoArg, report: Result<VerifyReport, Error>| match report {
        Ok(mut report) => {
            if let [(_, base)] = &bases[..] {
                report.check_base(base);
                if report.adapter.is_none() {
                    let text = "is not an adapter, so `--base` has no effect";
                    // A failure to write to stderr must not affect the results.
                    let _ = print_warning(&format!("{} {text}", source.display));
                }
            }
            if args.sarif {
                sarif.add_report(source, endpoint, &report);
            } else if args.json {
                print_json(&report)?;
            } else {
                context.print(|page| write(page, &report))?;
            }
            Ok(exit_status(args, source, &report))
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

fn exit_status(args: &VerifyArgs, source: &RepoArg, report: &VerifyReport) -> ExitStatus {
    let findings = report.findings();
    let has_warnings = findings.iter().any(|found| found.severity() == Severity::Warning);
    let is_unreadable = |found: &Finding| matches!(found, Finding::Unreadable { .. });
    match (findings.iter().any(is_unreadable), report.is_valid()) {
        (true, _) if source.is_local() => ExitStatus::LocalIo,
        (true, _) => ExitStatus::Remote,
        (false, false) => ExitStatus::CheckFailed,
        (false, true) if args.strict && has_warnings => ExitStatus::CheckFailed,
        (false, true) => ExitStatus::Success,
    }
}

/// Writes the findings and a summary of each set, and the sets that were not checked.
fn write(page: &mut Page<'_>, report: &VerifyReport) -> io::Result<()> {
    page.heading(&report.source)?;
    for set in &report.sets {
        if set.findings.is_empty() && report.sets.len() > 1 {
            let files = counted(set.files as u64, "file");
            let (path, tensors) = (escape(set.path.as_str()), counted(set.tensors, "tensor"));
            page.line(&format!("{GREEN}valid{GREEN:#}: {path}, {files}, {tensors}"))?;
            continue;
        }
        write_findings(page, &set.findings)?;
        write_config_check(page, set)?;
        write_summary(page, set)?;
    }
    match &report.sets[..] {
        [only] => write_parameters(page, only.parameters)?,
        sets => {
            let is_invalid = |set: &&VerifiedSet| !is_valid(&set.findings);
            let invalid = sets.iter().filter(is_invalid).count() as u64;
            let (style, word) = if invalid == 0 { (GREEN, "valid") } else { (RED, "not valid") };
            let sets = counted(sets.len() as u64, "weight set");
            let invalid = thousands(invalid);
            page.line(&format!("{style}{word}{style:#}: {sets} checked, {invalid} with errors"))?;
        }
    }
    write_unchecked(page, report.unchecked.as_deref().unwrap_or_default())
}

/// Writes the names of the sets that were not checked: quantizations, or paths.
fn write_unchecked(page: &mut Page<'_>, sets: &[WeightSet]) -> io::Result<()> {
    if sets.is_empty() {
        return Ok(());
    }
    let name = |set: &WeightSet| match &set.quantization {
        Some(quantization) if set.kind == WeightsKind::Model => escape(quantization),
        _ => escape(set.path.as_str()),
    };
    let names = joined(sets.iter().map(name), MAX_UNCHECKED);
    page.line(&format!("not checked: {names}; --all checks them"))
}

/// Writes the findings by kind.
fn write_findings(page: &mut Page<'_>, findings: &[Finding]) -> io::Result<()> {
    for kind in by_kind(findings) {
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
    Ok(())
}

/// Writes why the tensors were not compared with `config.json`.
fn write_config_check(page: &mut Page<'_>, set: &VerifiedSet) -> io::Result<()> {
    let reason = set.config_check.reason.as_ref();
    // An error names the missing file.
    let Some(reason) = reason.filter(|_| set.valid_files == set.files) else { return Ok(()) };
    let (label, text) = ("note: ", format!("config.json was not compared: {}", escape(reason)));
    writeln!(page.out, "{label}{}", wrap_after_label(label.len(), &text, page.terminal))
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
fn write_summary(page: &mut Page<'_>, set: &VerifiedSet) -> io::Result<()> {
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
        for set in &report.sets {
            // The first file represents a set without an index.
            let start = set.path.as_str().split('*').next().unwrap_or_default();
            let first = report.filepaths.iter().find(|path| path.as_str().starts_with(start));
            for finding in &set.findings {
                let (_, level) = severity_label(finding.severity());
                let (kind, file) = kind_and_file(finding);
                let file = file.as_deref().or(first.map(RepoPath::as_str));
                self.add(kind, level, &finding.to_string(), &source.file_url(file, endpoint));
            }
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
    let file = ["file", "shard", "second", "found"].into_iter().find_map(text);
    (text("kind").unwrap_or_default(), file)
}
