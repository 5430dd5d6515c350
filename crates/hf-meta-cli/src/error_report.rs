//! Formats errors and findings for people: `error: what failed`, `caused by: why`, `help: what to do next`.

use std::io;
use std::mem::take;

use anstyle::Style;
use hf_meta::Error;
use hf_meta_count::results::text::{escape, thousands};
use hf_meta_count::results::{Finding, Severity};

use super::exit::CommandError;
use super::hints::client_hint;
use super::output::causes;
use super::repos::RepoArg;
use super::stderr::print_to_stderr;
use super::terminal::{BOLD, CYAN, RED, TerminalSize, YELLOW, wrap_after_label};

/// The maximum number of findings to print. The JSON has all of them.
const MAX_FINDINGS: usize = 5;

/// Prints the error of a source to stderr, in one line if there are several sources.
pub(crate) fn print_source_error(
    source: &RepoArg,
    error: &Error,
    several: bool,
    hint: Option<&str>,
) {
    let (mut message, mut causes) = (error.to_string(), causes(error));
    if source.source.is_err() {
        causes.insert(0, message);
        message = format!("`{}` is not a repository, URL or path", source.display);
    } else if several {
        message = format!("{}: {message}", source.display);
    }
    if several {
        message = [vec![message], take(&mut causes)].concat().join(": ");
    }
    if let Some(line) = source.line {
        message = format!("line {line}: {message}");
    }
    print_error(&message, &causes, hint);
}

/// Prints an error that is not about a source to stderr.
pub(crate) fn print_command_error(error: &CommandError, token_source: Option<&str>) {
    let hint = error.error.downcast_ref().and_then(|error| client_hint(error, token_source));
    print_error(&error.error.to_string(), &causes(&*error.error), hint.as_deref());
}

fn print_error(message: &str, causes: &[String], hint: Option<&str>) {
    print_labeled("", RED, "error", message);
    for cause in causes {
        print_labeled("  ", Style::new(), "caused by", cause);
    }
    if let Some(hint) = hint {
        print_labeled("  ", BOLD, "help", hint);
    }
}

/// Prints the findings of a source to stderr. What is an error of a checkpoint is a warning about its count.
pub(crate) fn print_warnings(source: &RepoArg, findings: &[Finding]) {
    for finding in findings.iter().take(MAX_FINDINGS) {
        let (style, label) = severity_label(finding.severity().min(Severity::Warning));
        print_labeled("", style, label, &format!("{}: {finding}", source.display));
    }
    if let more @ 1.. = findings.len().saturating_sub(MAX_FINDINGS) as u64 {
        let more = thousands(more);
        print_warning(&format!("{}: {more} more; --json lists them all", source.display));
    }
}

/// Prints a note to stderr.
pub(crate) fn print_note(text: &str) {
    print_labeled("", CYAN, "note", text);
}

/// Prints a warning to stderr.
pub(crate) fn print_warning(text: &str) {
    print_labeled("", YELLOW, "warning", text);
}

/// Prints a text after a label to stderr, wrapped to the terminal.
fn print_labeled(indent: &str, style: Style, label: &str, text: &str) {
    let width = indent.len() + label.len() + 2;
    let text = wrap_after_label(width, &escape(text), TerminalSize::of(&io::stderr()));
    print_to_stderr(&format!("{indent}{style}{label}{style:#}: {text}"));
}

/// Returns the label of a severity.
pub(crate) fn severity_label(severity: Severity) -> (Style, &'static str) {
    match severity {
        Severity::Error => (RED, "error"),
        Severity::Warning => (YELLOW, "warning"),
        Severity::Note => (CYAN, "note"),
    }
}
