//! Errors and findings for people: what happened, why, and what to do next.

use std::error::Error as StdError;
use std::path::Path;

use hf_meta::report::Finding;

use hf_meta::formats::safetensors::{DetectedFormat, HeaderError};
use hf_meta::report::text::escape;
use hf_meta::{
    Endpoint, Error, HttpError, RepoId, SnapshotError, Source, TransportKind, WeightSet,
};

use super::repo_arg::RepoArg;
use super::style::{BOLD, RED, YELLOW};

/// The most findings that are listed; the JSON has them all.
const MOST_FINDINGS: usize = 5;

/// The most sets of weights that are offered to choose from.
const MOST_SETS: usize = 20;

/// How a call ended, in the order in which one exit code outweighs another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// All went well.
    #[default]
    Fine = 0,
    /// The answer is no: there are no valid weights, or a command looked for faults or differences and
    /// found some.
    Negative = 1,
    /// The call itself was wrong.
    Usage = 2,
    /// The Hub refused, or the network failed.
    Failed = 3,
}

impl From<&Error> for Outcome {
    fn from(error: &Error) -> Self {
        let has_no_model = matches!(
            error,
            Error::NoSafetensors { .. } | Error::FileNotFound { .. } | Error::SeveralSets { .. }
        );
        if error.is_usage() {
            Self::Usage
        } else if error.is_malformed() || has_no_model {
            Self::Negative
        } else {
            Self::Failed
        }
    }
}

/// An error of a repo with its causes, and what to do about it. Where several were asked for, it says
/// which of them it is about.
pub(crate) fn error(
    asked: &RepoArg,
    is_one_of_many: bool,
    error: &Error,
    endpoint: &Endpoint,
) -> String {
    let mut said: Vec<_> = std::iter::once(error.to_string()).chain(causes(error)).collect();
    if asked.source.is_err() {
        said.insert(0, format!("`{}` names nothing that can be read", asked.shown));
    } else if is_one_of_many {
        said[0] = format!("{}: {}", asked.shown, said[0]);
    }
    let hints = hint(asked, error, endpoint).into_iter().chain(local_hint(asked, error));
    block(&said, hints)
}

/// An error before anything was asked for.
pub(crate) fn setup_error(error: &Error) -> String {
    let said: Vec<_> = std::iter::once(error.to_string()).chain(causes(error)).collect();
    let hint = match error {
        Error::Endpoint { .. } => {
            Some("give --endpoint or HF_ENDPOINT a URL such as https://huggingface.co")
        }
        Error::MalformedToken => Some("give --token or HF_TOKEN the token alone, hf_…"),
        _ => None,
    };
    block(&said, hint.map(str::to_owned).into_iter())
}

fn block(said: &[String], hints: impl Iterator<Item = String>) -> String {
    let mut lines = vec![format!("{RED}error{RED:#}: {}", escape(&said[0]))];
    lines.extend(said[1..].iter().map(|cause| format!("  caused by: {}", escape(cause))));
    lines.extend(hints.map(|hint| format!("  {BOLD}help{BOLD:#}: {}", escape(&hint))));
    lines.join("\n") + "\n"
}

/// Why an error came about: what we say of it, and the root cause. Between the two are only the
/// layers of the HTTP library.
fn causes(error: &Error) -> Vec<String> {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.truncate(1);
        causes.push(cause.to_string());
        next = cause.source();
    }
    causes
}

/// What is odd about files whose counts are right.
pub(crate) fn findings(asked: &RepoArg, findings: &[Finding]) -> String {
    let shown = escape(&asked.shown);
    let warn = |text: &str| format!("{YELLOW}warning{YELLOW:#}: {shown}: {text}\n");
    let shown = findings.iter().take(MOST_FINDINGS);
    let mut text: String = shown.map(|finding| warn(&escape(&finding.to_string()))).collect();
    if let more @ 1.. = findings.len().saturating_sub(MOST_FINDINGS) {
        text += &warn(&format!("{more} more; --json lists them all"));
    }
    text
}

/// What to do about an error.
fn hint(asked: &RepoArg, error: &Error, endpoint: &Endpoint) -> Option<String> {
    Some(match error {
        Error::Source(_) if asked.source.is_err() => {
            "what can be asked for is in `hf-meta --help`".to_owned()
        }
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
        Error::RejectedToken { .. } => format!("make a new token at {endpoint}/settings/tokens"),
        Error::NotCached { repo, .. } => cache_hint(repo),
        Error::NoSafetensors { instead, .. } if !instead.is_empty() => {
            other_format_hint(asked, endpoint)?
        }
        Error::NoSafetensors { source, .. } | Error::FileNotFound { source, .. } => {
            files_hint(asked, source.is::<SnapshotError>(), endpoint)?
        }
        Error::SeveralSets { sets, .. } => sets_hint(asked, sets),
        Error::Listing { .. } => "give the file or the folder to --path".to_owned(),
        Error::NoCache => "name it by HF_HUB_CACHE or HF_HOME".to_owned(),
        Error::Header { source, .. } if is_pointer(source) => {
            "the file itself is elsewhere; in a clone, `git lfs pull` fetches it".to_owned()
        }
        error if error.is_malformed() => {
            "the files themselves are wrong; only their author can mend that".to_owned()
        }
        error => return passing_hint(error),
    })
}

/// What to do about an error that is not about what was asked for, but about getting it.
fn passing_hint(error: &Error) -> Option<String> {
    let text = match error {
        Error::Refused { source, .. } if source.status == 429 => {
            "readers with a token may ask more often: --token or HF_TOKEN"
        }
        Error::Refused { .. } | Error::Changed { .. } | Error::OtherCommit { .. } => {
            "try again later"
        }
        Error::Fetch { source, .. } => match &**source {
            HttpError::Transport { kind: TransportKind::Connect, .. } => {
                "is that server reachable from here? a proxy is taken from https_proxy, another Hub \
                 from --endpoint or HF_ENDPOINT"
            }
            HttpError::Transport { kind: TransportKind::Certificate, .. } => {
                "certificates are those of the system; SSL_CERT_FILE names others"
            }
            HttpError::Transport { .. } | HttpError::RateLimited { .. } => "try again later",
            _ => return None,
        },
        Error::DeadlineExceeded { .. } => "give it more seconds by --timeout",
        _ => return None,
    };
    Some(text.to_owned())
}

/// Where to look for other names; a bare web server answers everything as if the file were missing.
fn files_hint(asked: &RepoArg, is_offline: bool, endpoint: &Endpoint) -> Option<String> {
    match &asked.source {
        Ok(Source::Repo { repo, .. }) if is_offline => Some(cache_hint(repo)),
        _ => {
            let page = asked.page(endpoint)?;
            Some(format!("its files are listed at {page}; give the path of one of them to --path"))
        }
    }
}

/// What becomes of weights in other formats: a bot of the Hub offers conversions as pull requests.
fn other_format_hint(asked: &RepoArg, endpoint: &Endpoint) -> Option<String> {
    let Ok(Source::Repo { repo, .. }) = &asked.source else { return None };
    Some(format!(
        "other formats are not read; a conversion may be offered at {endpoint}/{repo}/discussions, \
         and is read by --revision refs/pr/N"
    ))
}

/// How to come by what is not on this machine.
fn cache_hint(repo: &RepoId) -> String {
    format!(
        "`hf download {repo}` fetches it; without --offline and HF_HUB_OFFLINE, the Hub is asked"
    )
}

/// The sets of weights to choose from.
fn sets_hint(asked: &RepoArg, sets: &[WeightSet]) -> String {
    let paths = sets.iter().take(MOST_SETS).map(|set| set.path.as_str());
    let listed = paths.collect::<Vec<_>>().join(", ");
    let more = match sets.len().saturating_sub(MOST_SETS) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let how = match &asked.source {
        Ok(Source::Local(_)) => "name one of them, or its folder".to_owned(),
        _ => "give one of them, or its folder, to --path".to_owned(),
    };
    format!("{how}: {listed}{more}")
}

/// A bare name is never a local folder, which may surprise in a folder full of models.
fn local_hint(asked: &RepoArg, error: &Error) -> Option<String> {
    let is_missing = matches!(error, Error::RepoNotFound { .. } | Error::NoSafetensors { .. });
    let is_repo = matches!(asked.source, Ok(Source::Repo { .. }));
    (is_missing && is_repo && Path::new(&asked.shown).exists())
        .then(|| format!("for the local file or folder of that name, write ./{}", asked.shown))
}

fn is_pointer(error: &HeaderError) -> bool {
    matches!(error, HeaderError::NotSafetensors { impostor: DetectedFormat::GitLfsPointer })
}
