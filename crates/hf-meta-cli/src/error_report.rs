//! Formats errors and findings for people: `error: what failed`, `caused by: why`, `help: what to do next`.

use std::error::Error as StdError;
use std::io::{self, Write};

use hf_meta::report::Finding;
use hf_meta::report::text::escape;
use hf_meta::{Endpoint, Error};

use super::exit::CommandError;
use super::hints;
use super::repo_arg::RepoArg;
use super::style::{BOLD, RED, YELLOW};
use super::terminal::{TerminalSize, fitted_after};

/// The maximum number of findings to print. The JSON has all of them.
const MAX_FINDINGS: usize = 5;

/// An error with its causes and hints.
pub(crate) struct ErrorReport {
    message: String,
    causes: Vec<String>,
    hints: Vec<String>,
}

impl ErrorReport {
    /// Creates the report of an error about one source. `client` is the endpoint and the origin of the token. The
    /// report names the source if it is one of many.
    pub(crate) fn for_source(
        source: &RepoArg,
        is_one_of_many: bool,
        error: &Error,
        client: (&Endpoint, Option<&str>),
    ) -> Self {
        let (endpoint, token_source) = client;
        let hints = hints::for_source(source, error, endpoint, token_source);
        let (mut message, mut causes) = (error.to_string(), causes(error));
        if source.source.is_err() {
            causes.insert(0, message);
            message = format!("`{}` is not a repository, URL or path", source.shown);
        } else if is_one_of_many {
            message = format!("{}: {message}", source.shown);
        }
        Self { message, causes, hints }
    }

    /// Creates the report of an error that is not about a source.
    pub(crate) fn for_command(error: &CommandError, token_source: Option<&str>) -> Self {
        let hint = match error {
            CommandError::Client(error) => hints::for_client(error, token_source),
            #[cfg(not(feature = "server"))]
            CommandError::NoServer => Some("install it with `--features server`".to_owned()),
            CommandError::Usage(_) | CommandError::List { .. } | CommandError::Io(_) => None,
            #[cfg(feature = "census")]
            CommandError::Census(_) => None,
        };
        Self { message: error.to_string(), causes: causes(error), hints: Vec::from_iter(hint) }
    }

    /// Prints the report to stderr.
    pub(crate) fn print(&self) -> io::Result<()> {
        let terminal = TerminalSize::from_stderr();
        let after = |label: &str, text: &str| fitted_after(label.len(), &escape(text), terminal);
        let mut stderr = anstream::stderr().lock();
        writeln!(stderr, "{RED}error{RED:#}: {}", after("error: ", &self.message))?;
        for cause in &self.causes {
            writeln!(stderr, "  caused by: {}", after("  caused by: ", cause))?;
        }
        for hint in &self.hints {
            writeln!(stderr, "  {BOLD}help{BOLD:#}: {}", after("  help: ", hint))?;
        }
        Ok(())
    }
}

/// Returns the first cause and the root cause. The causes between them are layers of the HTTP library.
pub(super) fn causes(error: &dyn StdError) -> Vec<String> {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.truncate(1);
        causes.push(cause.to_string());
        next = cause.source();
    }
    causes
}

/// Formats the findings of a source as warnings.
pub(crate) fn warnings(source: &RepoArg, findings: &[Finding]) -> String {
    let source = escape(&source.shown);
    let terminal = TerminalSize::from_stderr();
    let warning = |text: &str| {
        let text = fitted_after("warning: ".len(), &format!("{source}: {text}"), terminal);
        format!("{YELLOW}warning{YELLOW:#}: {text}\n")
    };
    let listed = findings.iter().take(MAX_FINDINGS);
    let mut text: String = listed.map(|finding| warning(&escape(&finding.to_string()))).collect();
    if let more @ 1.. = findings.len().saturating_sub(MAX_FINDINGS) {
        text += &warning(&format!("{more} more; --json lists them all"));
    }
    text
}
