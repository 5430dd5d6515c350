//! Errors and findings for people: what happened, why, and what to do next.

use std::error::Error as StdError;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use hf_meta::safetensors::{Finding, HeaderError, Impostor};
use hf_meta::{Endpoint, Error, TransportKind};

use super::text::escape;

const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
const BOLD: Style = Style::new().bold();

/// The most findings that are listed; the JSON has them all.
const MOST_FINDINGS: usize = 5;

/// How a call ended, in the order in which one exit code outweighs another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// All went well.
    #[default]
    Fine = 0,
    /// What was asked holds no valid weights.
    NoWeights = 1,
    /// The call itself was wrong.
    Usage = 2,
    /// The Hub refused, or the network failed.
    Failed = 3,
}

impl From<&Error> for Outcome {
    fn from(error: &Error) -> Self {
        let is_missing_file =
            matches!(error, Error::NoSafetensors { .. } | Error::FileNotFound { .. });
        if error.is_usage() {
            Self::Usage
        } else if error.is_malformed() || is_missing_file {
            Self::NoWeights
        } else {
            Self::Failed
        }
    }
}

/// An error with its causes, and what to do about it.
pub(crate) fn error(asked: &str, error: &Error, endpoint: &Endpoint) -> String {
    let mut text = format!("{RED}error{RED:#}: {}\n", escape(&error.to_string()));
    let causes = causes(error);
    // Between what we say and what the system says are only the layers of the HTTP library.
    for cause in causes.iter().take(1).chain(causes.iter().skip(1).last()) {
        text += &format!("  caused by: {}\n", escape(&cause.to_string()));
    }
    for hint in hints(asked, error, endpoint) {
        text += &format!("  {BOLD}help{BOLD:#}: {}\n", escape(&hint));
    }
    text
}

/// Why an error came about, the root cause last.
fn causes(error: &Error) -> Vec<&dyn StdError> {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause);
        next = cause.source();
    }
    causes
}

/// What is odd about files whose counts are right.
pub(crate) fn findings(asked: &str, findings: &[Finding]) -> String {
    let asked = escape(asked);
    let mut text = String::new();
    for finding in findings.iter().take(MOST_FINDINGS) {
        text += &format!("{YELLOW}warning{YELLOW:#}: {asked}: {}\n", escape(&finding.to_string()));
    }
    if let more @ 1.. = findings.len().saturating_sub(MOST_FINDINGS) {
        text +=
            &format!("{YELLOW}warning{YELLOW:#}: {asked}: {more} more; --json lists them all\n");
    }
    text
}

/// What to do about an error.
fn hints(asked: &str, error: &Error, endpoint: &Endpoint) -> Vec<String> {
    let hint = match error {
        Error::Source(_) => "what can be asked for is in `hf-meta --help`".to_owned(),
        Error::Endpoint { .. } => "give a URL such as https://huggingface.co to --endpoint or HF_ENDPOINT".to_owned(),
        Error::Token => "pass the token alone, as in HF_TOKEN=hf_…".to_owned(),
        Error::RepoNotFound { .. } => {
            let mut hints = vec![
                "check the spelling; if the repository is private, pass a token that may read it, by HF_TOKEN or --token".to_owned(),
            ];
            if Path::new(asked).exists() {
                hints.push(format!("there is a local file or folder of that name: write ./{asked}"));
            }
            return hints;
        }
        Error::RevisionNotFound { repo, .. } => {
            format!("its branches and tags are listed at {endpoint}/{repo}/tree/main")
        }
        Error::Gated { repo, .. } => format!(
            "accept its conditions at {endpoint}/{repo}, then pass a token of that account, by HF_TOKEN or --token"
        ),
        Error::BadToken { .. } => format!(
            "make a new one at {endpoint}/settings/tokens; a public repository needs none: HF_HUB_DISABLE_IMPLICIT_TOKEN=1"
        ),
        Error::NoSafetensors { .. } => "if its weights have other names, give one of them to --path".to_owned(),
        Error::Header { source: HeaderError::NotSafetensors { impostor: Impostor::GitLfsPointer }, .. } => {
            "the file itself was never downloaded or uploaded; in a clone, `git lfs pull` fetches it".to_owned()
        }
        Error::Fetch { source, .. } => match &**source {
            hf_meta::HttpError::Transport { kind: TransportKind::Connect, .. } => format!(
                "is {endpoint} reachable from here? a proxy is taken from https_proxy, another Hub from HF_ENDPOINT"
            ),
            _ => return Vec::new(),
        },
        Error::DeadlineExceeded { .. } => "--timeout gives it more seconds".to_owned(),
        _ => return Vec::new(),
    };
    vec![hint]
}
