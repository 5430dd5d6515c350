//! Errors and findings for people: what happened, why, and what to do next.

use std::error::Error as StdError;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use hf_meta::safetensors::{Finding, HeaderError, Impostor};
use hf_meta::{Endpoint, Error, HttpError, TransportKind};

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
    let mut said = vec![error.to_string()];
    if matches!(error, Error::Source(_)) {
        said.insert(0, format!("`{asked}` names nothing that can be read"));
    }
    let causes = causes(error);
    // Between what we say and what the system says are only the layers of the HTTP library.
    let shown = causes.first().into_iter().chain(causes.iter().skip(1).last());
    said.extend(shown.map(ToString::to_string));
    let mut lines = vec![format!("{RED}error{RED:#}: {}", escape(&said[0]))];
    lines.extend(said[1..].iter().map(|cause| format!("  caused by: {}", escape(cause))));
    let hints = hint(error, endpoint).into_iter().chain(local_hint(asked, error));
    lines.extend(hints.map(|hint| format!("  {BOLD}help{BOLD:#}: {}", escape(&hint))));
    lines.join("\n") + "\n"
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
    let warn = |text: &str| format!("{YELLOW}warning{YELLOW:#}: {}: {text}\n", escape(asked));
    let shown = findings.iter().take(MOST_FINDINGS);
    let mut text: String = shown.map(|finding| warn(&escape(&finding.to_string()))).collect();
    if let more @ 1.. = findings.len().saturating_sub(MOST_FINDINGS) {
        text += &warn(&format!("{more} more; --json lists them all"));
    }
    text
}

/// What to do about an error.
fn hint(error: &Error, endpoint: &Endpoint) -> Option<String> {
    Some(match error {
        Error::Source(_) => "what can be asked for is in `hf-meta --help`".to_owned(),
        Error::Endpoint { .. } => {
            "give --endpoint or HF_ENDPOINT a URL such as https://huggingface.co".to_owned()
        }
        Error::Token => "give --token or HF_TOKEN the token alone, hf_…".to_owned(),
        Error::RepoNotFound { .. } => "check the spelling; if the repository is private, give a \
             token that may read it to --token or HF_TOKEN"
            .to_owned(),
        Error::RevisionNotFound { repo, .. } => {
            format!("its branches and tags are listed at {endpoint}/{repo}/tree/main")
        }
        Error::Gated { repo, .. } => format!(
            "accept its conditions at {endpoint}/{repo}, then give a token of that account to \
             --token or HF_TOKEN"
        ),
        Error::BadToken { .. } => format!(
            "make a new token at {endpoint}/settings/tokens; a public repository needs none: set \
             HF_HUB_DISABLE_IMPLICIT_TOKEN=1"
        ),
        Error::NoSafetensors { .. } => {
            "if its weights have other names, name one of them, in a repository by --path"
                .to_owned()
        }
        Error::Header { source, .. } if is_pointer(source) => {
            "the file itself is elsewhere; in a clone, `git lfs pull` fetches it".to_owned()
        }
        Error::Fetch { source, .. } if is_unreachable(source) => format!(
            "is {endpoint} reachable from here? a proxy is taken from https_proxy, another Hub \
             from --endpoint or HF_ENDPOINT"
        ),
        Error::DeadlineExceeded { .. } => "give it more seconds by --timeout".to_owned(),
        _ => return None,
    })
}

/// A bare name is never a local folder, which may surprise in a folder full of models.
fn local_hint(asked: &str, error: &Error) -> Option<String> {
    let is_missing = matches!(error, Error::RepoNotFound { .. } | Error::NoSafetensors { .. });
    let is_bare = asked.starts_with(|c: char| c.is_ascii_alphanumeric());
    (is_missing && is_bare && Path::new(asked).exists())
        .then(|| format!("for the local file or folder of that name, write ./{asked}"))
}

fn is_pointer(error: &HeaderError) -> bool {
    matches!(error, HeaderError::NotSafetensors { impostor: Impostor::GitLfsPointer })
}

fn is_unreachable(error: &HttpError) -> bool {
    matches!(error, HttpError::Transport { kind: TransportKind::Connect, .. })
}
