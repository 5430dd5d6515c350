//! Hints about errors, printed after `help:`.

use std::path::Path;

use clap::CommandFactory;
use hf_meta::formats::safetensors::{DetectedFormat, HeaderError, IndexError};
use hf_meta::{
    Endpoint, Error, HttpError, HubCacheMiss, QuantizationNotFound, RangeError, RepoId, Source,
    TransportKind, WeightSet,
};

use super::args::Args;
use super::repo_arg::RepoArg;

/// The maximum number of sets of weights or quantizations in a hint.
const MAX_CHOICES: usize = 20;

/// The hint for a rate limit.
const RATE_LIMIT: &str =
    "authenticated requests have a higher rate limit: set --token or HF_TOKEN, or try again later";

/// The hint for an HTML page instead of a file.
const WEB_PAGE: &str =
    "the response came from a login page or a proxy; open the server's address in a browser";

/// Returns the hint for a client that cannot be set up.
pub(crate) fn for_client(error: &Error, token_source: Option<&str>) -> Option<String> {
    let hint = match error {
        Error::InvalidEndpoint { .. } => {
            "set --endpoint or HF_ENDPOINT to a URL such as https://huggingface.co"
        }
        Error::InvalidToken => {
            let source = token_source.unwrap_or("--token");
            return Some(format!("the token comes from {source}; set it to just the token, hf_…"));
        }
        Error::InvalidProxy(_) => {
            "set https_proxy to a URL such as http://proxy.example:8080, or unset it"
        }
        Error::MissingHubCache => "set HF_HUB_CACHE or HF_HOME to the cache folder",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Returns the hints for an error about a source.
pub(crate) fn for_source(
    source: &RepoArg,
    error: &Error,
    endpoint: &Endpoint,
    token_source: Option<&str>,
) -> Vec<String> {
    let hint = match error {
        Error::RejectedToken { .. } => {
            let source = token_source.unwrap_or("--token");
            let page = format!("{endpoint}/settings/tokens");
            Some(format!("the token comes from {source}; create a new one at {page}"))
        }
        error => for_error(source, error, endpoint),
    };
    hint.into_iter()
        .chain(local_path(source, error))
        .chain(misspelled_command(source, error))
        .collect()
}

fn for_error(source: &RepoArg, error: &Error, endpoint: &Endpoint) -> Option<String> {
    Some(match error {
        Error::InvalidSource(_) if source.source.is_err() => {
            "see `hf-meta --help` for the accepted forms".to_owned()
        }
        Error::RepoNotFound { .. } => "check the spelling; if the repository is private, set \
             --token or HF_TOKEN to a token that has access to it"
            .to_owned(),
        Error::RevisionNotFound { repo, .. } => {
            format!("see {endpoint}/{repo}/tree/main for its branches and tags")
        }
        Error::Gated { repo, .. } => format!(
            "accept the conditions at {endpoint}/{repo}, then set --token or HF_TOKEN to a token \
             of the same account"
        ),
        Error::NotCached { repo, .. } => download(repo),
        Error::FileNotFound { source: cause, .. } if cause.is::<QuantizationNotFound>() => {
            quantizations(cause.downcast_ref()?)
        }
        Error::NoWeights { other_formats, .. } if !other_formats.is_empty() => {
            other_format(source, endpoint)?
        }
        Error::NoWeights { source: cause, .. } | Error::FileNotFound { source: cause, .. } => {
            file_list(source, cause.is::<HubCacheMiss>(), endpoint)?
        }
        Error::SeveralSets { sets, .. } => weight_sets(sets),
        Error::ListingFailed { .. } => "set --path to the file or folder".to_owned(),
        Error::ShardNotFound { .. } => {
            format!("run `hf-meta verify {}` to list everything that is missing", source.shown)
        }
        Error::InvalidHeader { source: HeaderError::WrongFormat { detected, .. }, .. }
        | Error::InvalidIndex { source: IndexError::NotAnIndex { detected }, .. } => {
            other_content(source, *detected)
        }
        error if error.is_malformed() => invalid_files(source),
        error => return for_request(error),
    })
}

/// Returns the hint for a network or server error.
fn for_request(error: &Error) -> Option<String> {
    let hint = match error {
        Error::Refused { source, .. } if source.status == 429 => RATE_LIMIT,
        Error::RequestFailed { source, .. } => match &**source {
            HttpError::Transport { kind: TransportKind::Connect, .. } => {
                "check that this machine can reach the server; set https_proxy to use a proxy, \
                 --endpoint or HF_ENDPOINT to use another Hub, or --offline to read cached data"
            }
            HttpError::Transport { kind: TransportKind::Certificate, .. } => {
                "the system's certificates are trusted; set SSL_CERT_FILE to trust others"
            }
            HttpError::RateLimited { .. } => RATE_LIMIT,
            HttpError::UnexpectedResponse { source: RangeError::WebPage, .. } => WEB_PAGE,
            _ if error.is_transient() => "try again later",
            _ => return None,
        },
        Error::DeadlineExceeded { .. } => "set --timeout to a higher value",
        error if error.is_transient() => "try again later",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Points to the file list of a repository. Other servers have none.
fn file_list(source: &RepoArg, is_offline: bool, endpoint: &Endpoint) -> Option<String> {
    match &source.source {
        Ok(Source::Repo { repo, .. }) if is_offline => Some(download(repo)),
        _ => {
            let page = source.page(endpoint)?;
            Some(format!("see {page} for its files, and set --path to one of them"))
        }
    }
}

/// Points to converted weights. A bot of the Hub offers conversions as pull requests.
fn other_format(source: &RepoArg, endpoint: &Endpoint) -> Option<String> {
    let Ok(Source::Repo { repo, .. }) = &source.source else { return None };
    Some(format!(
        "only safetensors and GGUF are supported; look for a conversion at {endpoint}/{repo}/discussions \
         and read it with --revision refs/pr/N"
    ))
}

/// Explains how to get files that are not on this machine.
fn download(repo: &RepoId) -> String {
    format!(
        "run `hf download {repo}` to download it; to read it from the Hub, omit --offline and unset \
         HF_HUB_OFFLINE"
    )
}

/// Lists the sets of weights to choose from.
fn weight_sets(sets: &[WeightSet]) -> String {
    let paths = sets.iter().map(|set| set.path.as_str());
    format!("set --path to one of them, or to its folder: {}", choices(paths))
}

/// Lists the quantizations to choose from.
fn quantizations(missing: &QuantizationNotFound) -> String {
    let names = missing.quantizations.iter().map(String::as_str);
    format!("set --path to one of them: {}", choices(names))
}

/// Lists names up to a limit.
fn choices<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(MAX_CHOICES);
    let listed = names.take(MAX_CHOICES).collect::<Vec<_>>().join(", ");
    if more == 0 { listed } else { format!("{listed}, and {more} more") }
}

/// Points to a local file with the same name, because a bare name always means a repository.
fn local_path(source: &RepoArg, error: &Error) -> Option<String> {
    let is_missing = matches!(error, Error::RepoNotFound { .. } | Error::NoWeights { .. });
    // Shells complete folder names with a slash, which no repository name ends with.
    let could_be_local = match source.source {
        Ok(Source::Repo { .. }) => is_missing,
        Ok(_) => false,
        Err(_) => true,
    };
    (could_be_local && Path::new(&source.shown).exists())
        .then(|| format!("to read the local file or folder with that name, use ./{}", source.shown))
}

/// Suggests the command that was probably meant by the name of a missing repository.
fn misspelled_command(source: &RepoArg, error: &Error) -> Option<String> {
    const MOST_TYPOS: usize = 2;

    if !matches!(error, Error::RepoNotFound { .. }) {
        return None;
    }
    let is_meant = |name: &&str| strsim::damerau_levenshtein(name, &source.shown) <= MOST_TYPOS;
    let commands = Args::command();
    let command = commands.get_subcommands().map(clap::Command::get_name).find(is_meant)?;
    Some(format!("did you mean the command `hf-meta {command}`?"))
}

/// Explains a file in another format.
fn other_content(source: &RepoArg, detected: DetectedFormat) -> String {
    match detected {
        DetectedFormat::GitLfsPointer => {
            "this is only a Git LFS pointer; in a clone, run `git lfs pull`".to_owned()
        }
        DetectedFormat::Html if !source.is_local() => WEB_PAGE.to_owned(),
        _ => invalid_files(source),
    }
}

/// Explains what to do about invalid files. A local file is often an incomplete download.
fn invalid_files(source: &RepoArg) -> String {
    let hint = if source.is_local() {
        "the files are incomplete or invalid; download them again"
    } else {
        "the files are invalid; report this to their author"
    };
    hint.to_owned()
}
