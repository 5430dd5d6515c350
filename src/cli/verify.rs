//! `hf-meta verify`: what is wrong or odd with the weights of a repository.

use std::io::{self, BufWriter, Write};

use clap::builder::NonEmptyStringValueParser;
use hf_meta::report::text::{counted, escape, thousands};
use hf_meta::report::{Finding, Severity};
use hf_meta::{Error, VerifyReport};

use super::json;
use super::repo_arg::RepoArg;
use super::report::{self, Outcome};
use super::session::{Place, Session};
use super::style::{BOLD, CYAN, GREEN, RED, YELLOW};

/// The most findings of a kind that are listed; the JSON has more.
const MOST_OF_A_KIND: usize = 10;

/// Check every shard of a repository, and its index against them
///
/// Reads all headers and goes on where one is wrong. Checks each against the format and the size of
/// its file, the index against the headers, totals that are declared, and the numbers of shards; asks
/// for config.json to see whether an output embedding is tied or lost.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_STATUS)]
pub(crate) struct VerifyArgs {
    /// Repository on the Hub, URL, or local file or folder
    #[arg(value_name = "REPO", value_parser = NonEmptyStringValueParser::new())]
    repo: String,

    #[command(flatten)]
    place: Place,

    /// Print the verdict as JSON
    #[arg(long, short)]
    json: bool,
}

const EXIT_STATUS: &str = "\
Exit status:
  0  no error was found; there may be warnings and notes
  1  an error was found, or there are no safetensors weights
  2  wrong usage
  3  the Hub refused, or the network failed: not everything was checked";

pub(crate) async fn run(args: &VerifyArgs, session: &Session) -> io::Result<Outcome> {
    let asked = RepoArg::new(&args.repo, session.client.endpoint());
    let call = |model: hf_meta::Model| async move { model.verify().await };
    let verdict = session.read(&asked, &args.place, call).await?;
    session.print(|| print(args, session, &asked, &verdict))
}

fn print(
    args: &VerifyArgs,
    session: &Session,
    asked: &RepoArg,
    verdict: &Result<VerifyReport, Error>,
) -> io::Result<Outcome> {
    let verdict = match verdict {
        Ok(verdict) => verdict,
        Err(error) => {
            let report = report::error(asked, false, error, session.client.endpoint());
            anstream::stderr().write_all(report.as_bytes())?;
            return Ok(Outcome::from(error));
        }
    };
    if args.json {
        json::print(verdict)?;
    } else {
        let mut stdout = BufWriter::new(anstream::stdout().lock());
        render(&mut stdout, verdict)?;
        stdout.flush()?;
    }
    Ok(match (verdict.is_complete(), verdict.is_valid()) {
        (false, _) => Outcome::Failed,
        (true, false) => Outcome::Negative,
        (true, true) => Outcome::Fine,
    })
}

/// The findings by kind, then what they come to.
fn render(out: &mut impl Write, verdict: &VerifyReport) -> io::Result<()> {
    writeln!(out, "{BOLD}{}{BOLD:#}", escape(&verdict.source))?;
    for kind in kinds(verdict) {
        let label = label(kind[0].severity());
        for finding in kind.iter().take(MOST_OF_A_KIND) {
            writeln!(out, "{label}: {}", escape(&finding.to_string()))?;
        }
        if let more @ 1.. = number(kind).saturating_sub(MOST_OF_A_KIND as u64) {
            writeln!(out, "{label}: {} more of that kind; --json lists more", thousands(more))?;
        }
    }
    conclusion(out, verdict)
}

/// The findings of each kind, together with how many more there are.
fn kinds(verdict: &VerifyReport) -> impl Iterator<Item = &[Finding]> {
    verdict.findings.chunk_by(|a, b| {
        matches!(b, Finding::MoreFindings { .. })
            || std::mem::discriminant(a) == std::mem::discriminant(b)
    })
}

fn label(severity: Severity) -> String {
    let (style, name) = match severity {
        Severity::Error => (RED, "error"),
        Severity::Warning => (YELLOW, "warning"),
        Severity::Note => (CYAN, "note"),
    };
    format!("{style}{name}{style:#}")
}

/// How many findings there are, those among them that are not listed.
fn number(findings: &[Finding]) -> u64 {
    let number = |finding: &Finding| match finding {
        Finding::MoreFindings { findings } => *findings,
        _ => 1,
    };
    findings.iter().map(number).sum()
}

fn conclusion(out: &mut impl Write, verdict: &VerifyReport) -> io::Result<()> {
    let found = |severity| {
        let kinds = kinds(verdict).filter(|kind| kind[0].severity() == severity);
        kinds.map(number).fold(0, u64::saturating_add)
    };
    let (style, word) = match (verdict.is_valid(), verdict.is_complete()) {
        (true, _) => (GREEN, "valid"),
        (false, true) => (RED, "not valid"),
        (false, false) => (RED, "not fully checked"),
    };
    let all = counted(verdict.files as u64, "file");
    let files = match verdict.valid_files {
        valid if valid == verdict.files => all,
        valid => format!("{} of {all}", thousands(valid as u64)),
    };
    let tensors = counted(verdict.tensors, "tensor");
    let errors = counted(found(Severity::Error), "error");
    let warnings = counted(found(Severity::Warning), "warning");
    writeln!(out, "{style}{word}{style:#}: {files} and {tensors} checked, {errors}, {warnings}")
}
