//! Formats errors and findings for people: `error: what failed`, `caused by: why`, `help: what to do next`.

use std::io::{self, Write};
use std::path::Path;

use anstyle::Style;
use hf_meta::formats::safetensors::{DetectedFormat, HeaderError, IndexError};
use hf_meta::report::Finding;
use hf_meta::report::text::escape;
use hf_meta::{
    Endpoint, Error, ErrorKind, HttpError, HubCacheMiss, QuantizationNotFound, RangeError, RepoId,
    Source, TransportKind,
};

use super::exit::CommandError;
use super::output::causes;
use super::repos::RepoArg;
use super::terminal::{BOLD, RED, TerminalSize, YELLOW, wrap_after_label};

/// The maximum number of findings to print. The JSON has all of them.
const MAX_FINDINGS: usize = 5;

/// The maximum number of sets of weights or quantizations in a hint.
const MAX_CHOICES: usize = 20;

/// The maximum number of typing errors in the name of a subcommand.
const MAX_TYPOS: usize = 2;

/// The hint for a rate limit.
const RATE_LIMIT: &str =
    "authenticated requests have a higher rate limit: set --token or HF_TOKEN, or try again later";

/// The hint for an HTML page instead of a file.
const WEB_PAGE: &str =
    "the response came from a login page or a proxy; open the server's address in a browser";

/// The settings of the command that hints refer to.
pub(crate) struct HintContext {
    pub(crate) endpoint: Endpoint,
    /// The origin of the token.
    pub(crate) token_source: Option<String>,
    pub(crate) subcommands: Vec<String>,
}

/// An error with its causes and hints.
pub(crate) struct ErrorReport {
    message: String,
    causes: Vec<String>,
    hints: Vec<String>,
}

impl ErrorReport {
    /// Creates the report of an error about one source.
    pub(crate) fn for_source(source: &RepoArg, error: &Error, context: &HintContext) -> Self {
        let (mut message, mut causes) = (error.to_string(), causes(error));
        if source.source.is_err() {
            causes.insert(0, message);
            message = format!("`{}` is not a repository, URL or path", source.display);
        }
        let hint = hint(source, error, context);
        let hints = hint.into_iter().chain(local_path(source, error));
        let hints = hints.chain(misspelled_command(source, error, context)).collect();
        Self { message, causes, hints }
    }

    /// Creates the report of an error that is not about a source.
    pub(crate) fn for_command(error: &CommandError, token_source: Option<&str>) -> Self {
        let client = error.error.downcast_ref();
        let hint = client.and_then(|error| client_hint(error, token_source));
        let error = &*error.error;
        Self { message: error.to_string(), causes: causes(error), hints: Vec::from_iter(hint) }
    }

    /// Prints the report to stderr, with the name of the source if it is one of many.
    pub(crate) fn print(&self, source: Option<&RepoArg>) -> io::Result<()> {
        let terminal = TerminalSize::from_stderr();
        let mut stderr = anstream::stderr().lock();
        let mut line = |indent: &str, style: Style, label: &str, text: &str| {
            let width = indent.len() + label.len() + 2;
            let text = wrap_after_label(width, &escape(text), terminal);
            writeln!(stderr, "{indent}{style}{label}{style:#}: {text}")
        };
        let source = source.filter(|source| source.source.is_ok());
        let source = source.map_or_else(String::new, |source| format!("{}: ", source.display));
        line("", RED, "error", &format!("{source}{}", self.message))?;
        self.causes.iter().try_for_each(|cause| line("  ", Style::new(), "caused by", cause))?;
        self.hints.iter().try_for_each(|hint| line("  ", BOLD, "help", hint))
    }
}

/// Prints the findings of a source to stderr as warnings.
pub(crate) fn print_warnings(source: &RepoArg, findings: &[Finding]) -> io::Result<()> {
    let source = escape(&source.display);
    let terminal = TerminalSize::from_stderr();
    let warning = |text: &str| {
        let text = wrap_after_label("warning: ".len(), &format!("{source}: {text}"), terminal);
        format!("{YELLOW}warning{YELLOW:#}: {text}\n")
    };
    let listed = findings.iter().take(MAX_FINDINGS);
    let mut text: String = listed.map(|finding| warning(&escape(&finding.to_string()))).collect();
    if let more @ 1.. = findings.len().saturating_sub(MAX_FINDINGS) {
        text += &warning(&format!("{more} more; --json lists them all"));
    }
    anstream::stderr().write_all(text.as_bytes())
}

/// Returns the hint for a client that cannot be set up.
fn client_hint(error: &Error, token_source: Option<&str>) -> Option<String> {
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

/// Returns the hint for an error about a source: from its details, or else from its kind.
fn hint(source: &RepoArg, error: &Error, context: &HintContext) -> Option<String> {
    let endpoint = &context.endpoint;
    match error {
        Error::RevisionNotFound { repo, .. } => {
            Some(format!("see {endpoint}/{repo}/tree/main for its branches and tags"))
        }
        Error::Gated { repo, .. } => Some(format!(
            "accept the conditions at {endpoint}/{repo}, then set --token or HF_TOKEN to a token \
             of the same account"
        )),
        Error::NotCached { repo, .. } => Some(download(repo)),
        Error::NoWeights { other_formats, .. } if !other_formats.is_empty() => {
            other_format(source, endpoint)
        }
        Error::NoWeights { source: cause, .. } | Error::FileNotFound { source: cause, .. } => {
            match cause.downcast_ref::<QuantizationNotFound>() {
                Some(missing) => {
                    Some(choices("", missing.quantizations.iter().map(|name| &**name)))
                }
                None => file_list(source, cause.is::<HubCacheMiss>(), endpoint),
            }
        }
        Error::SeveralSets { sets, .. } => {
            Some(choices(", or to its folder", sets.iter().map(|set| set.path.as_str())))
        }
        Error::ShardNotFound { .. } => Some(format!(
            "run `hf-meta verify {}` to list everything that is missing",
            source.display
        )),
        Error::InvalidHeader { source: HeaderError::WrongFormat { detected, .. }, .. }
        | Error::InvalidIndex { source: IndexError::NotAnIndex { detected }, .. } => {
            Some(other_content(source, *detected).to_owned())
        }
        Error::RequestFailed { source: cause, .. } => {
            request_hint(cause).or_else(|| kind_hint(source, error, context))
        }
        Error::DeadlineExceeded { .. } => Some("set --timeout to a higher value".to_owned()),
        error => kind_hint(source, error, context),
    }
}

/// Returns the hint for a failed request, if its cause has a remedy.
fn request_hint(error: &HttpError) -> Option<String> {
    let hint = match error {
        HttpError::Transport { kind: TransportKind::Connect, .. } => {
            "check that this machine can reach the server; set https_proxy to use a proxy, \
             --endpoint or HF_ENDPOINT to use another Hub, or --offline to read cached data"
        }
        HttpError::Transport { kind: TransportKind::Certificate, .. } => {
            "the system's certificates are trusted; set SSL_CERT_FILE to trust others"
        }
        HttpError::UnexpectedResponse { source: RangeError::WebPage, .. } => WEB_PAGE,
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Returns the hint for a kind of error.
fn kind_hint(source: &RepoArg, error: &Error, context: &HintContext) -> Option<String> {
    let hint = match error.kind() {
        ErrorKind::InvalidSource if source.source.is_err() => {
            "see `hf-meta --help` for the accepted forms"
        }
        ErrorKind::RejectedToken => {
            let (origin, endpoint) = (context.token_source.as_deref(), &context.endpoint);
            return Some(format!(
                "the token comes from {}; create a new one at {endpoint}/settings/tokens",
                origin.unwrap_or("--token")
            ));
        }
        ErrorKind::RepoNotFound => {
            "check the spelling; if the repository is private, set --token or HF_TOKEN to a token \
             that has access to it"
        }
        ErrorKind::MalformedListing => "set --path to the file or folder",
        ErrorKind::RateLimited => RATE_LIMIT,
        _ if error.is_malformed() => invalid_files(source),
        _ if error.is_transient() => "try again later",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Points to the file list of a repository. Other servers have none.
fn file_list(source: &RepoArg, is_offline: bool, endpoint: &Endpoint) -> Option<String> {
    let Ok(Source::Repo { repo, .. }) = &source.source else { return None };
    if is_offline {
        return Some(download(repo));
    }
    let page = source.file_url(None, endpoint);
    Some(format!("see {page} for its files, and set --path to one of them"))
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

/// Lists values of `--path` up to a limit.
fn choices<'a>(alternative: &str, names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = match names.len().saturating_sub(MAX_CHOICES) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let listed = names.take(MAX_CHOICES).collect::<Vec<_>>().join(", ");
    format!("set --path to one of them{alternative}: {listed}{more}")
}

/// Points to a local file with the same name, because a bare name always means a repository.
fn local_path(source: &RepoArg, error: &Error) -> Option<String> {
    // Shells complete folder names with a slash, which no repository name ends with.
    let could_be_local = match source.source {
        Ok(Source::Repo { .. }) => {
            matches!(error.kind(), ErrorKind::RepoNotFound | ErrorKind::NoWeights)
        }
        Ok(_) => false,
        Err(_) => true,
    };
    let name = &source.display;
    (could_be_local && Path::new(name).exists())
        .then(|| format!("to read the local file or folder with that name, use ./{name}"))
}

/// Suggests the subcommand that the user probably meant, if a repository is missing.
fn misspelled_command(source: &RepoArg, error: &Error, context: &HintContext) -> Option<String> {
    if error.kind() != ErrorKind::RepoNotFound {
        return None;
    }
    let is_meant = |name: &&String| strsim::damerau_levenshtein(name, &source.display) <= MAX_TYPOS;
    let command = context.subcommands.iter().find(is_meant)?;
    Some(format!("did you mean the command `hf-meta {command}`?"))
}

/// Explains a file in another format.
fn other_content(source: &RepoArg, detected: DetectedFormat) -> &'static str {
    match detected {
        DetectedFormat::GitLfsPointer => {
            "this is only a Git LFS pointer; in a clone, run `git lfs pull`"
        }
        DetectedFormat::Html if !source.is_local() => WEB_PAGE,
        _ => invalid_files(source),
    }
}

/// Explains what to do about invalid files. A local file is often an incomplete download.
fn invalid_files(source: &RepoArg) -> &'static str {
    if source.is_local() {
        "the files are incomplete or invalid; download them again"
    } else {
        "the files are invalid; report this to their author"
    }
}
