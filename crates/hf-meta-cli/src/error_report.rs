//! Formats errors and findings for people: `error: what failed`, `caused by: why`, `help: what to do next`.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anstyle::Style;
use hf_meta::formats::safetensors::{
    DetectedFormat, HeaderError, HeaderErrorKind, IndexError, IndexErrorKind,
};
use hf_meta::report::text::{duration, escape, thousands};
use hf_meta::report::{Finding, Severity};
use hf_meta::{
    Endpoint, Error, ErrorKind, HttpError, HubCacheMiss, QuantizationNotFound, RangeError, RepoId,
    Source, TransportKind, UnsupportedWeights,
};

use super::exit::CommandError;
use super::output::causes;
use super::repos::RepoArg;
use super::terminal::{BOLD, CYAN, RED, TerminalSize, YELLOW, wrap_after_label};

/// The maximum number of findings to print. The JSON has all of them.
const MAX_FINDINGS: usize = 5;

/// The maximum number of sets of weights or quantizations in a hint.
const MAX_CHOICES: usize = 20;

/// The maximum number of typing errors in the name of a subcommand.
const MAX_TYPOS: usize = 2;

/// Names that other programs give to what is here the command without a subcommand.
const INSPECTION_WORDS: [&str; 5] = ["count", "get", "info", "inspect", "show"];

const UNKNOWN_FORMAT: &str =
    "only safetensors, GGUF and PyTorch files and their indexes can be read";

/// The hint for an HTML page instead of a file.
const WEB_PAGE: &str =
    "the response came from a login page or a proxy; open the server's address in a browser";

/// The settings of the command that hints refer to.
pub(crate) struct HintContext {
    pub(crate) endpoint: Endpoint,
    /// The origin of the token.
    pub(crate) token_source: Option<String>,
    pub(crate) subcommands: Vec<String>,
    /// The options without a subcommand, without their dashes.
    pub(crate) options: Vec<String>,
    /// True if the subcommand has the option `--path`.
    pub(crate) has_path: bool,
}

/// An error with its causes and a hint.
pub(crate) struct ErrorReport {
    /// The place of the source in a list.
    position: Option<String>,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
}

impl ErrorReport {
    /// Creates the report of an error about one source.
    pub(crate) fn for_source(source: &RepoArg, error: &Error, context: &HintContext) -> Self {
        let (mut message, mut causes) = (error.to_string(), causes(error));
        if source.source.is_err() {
            causes.insert(0, message);
            message = format!("`{}` is not a repository, URL or path", source.display);
        }
        let position = source.line.map(|line| format!("line {line}"));
        let hint = local_path(source, error)
            .or_else(|| misspelled_command(source, error, context))
            .or_else(|| hint(source, error, context));
        Self { position, message, causes, hint }
    }

    /// Creates the report of an error that is not about a source.
    pub(crate) fn for_command(error: &CommandError, token_source: Option<&str>) -> Self {
        let client = error.error.downcast_ref();
        let hint = client.and_then(|error| client_hint(error, token_source));
        let error = &*error.error;
        let (message, causes) = (error.to_string(), causes(error));
        Self { position: None, message, causes, hint }
    }

    /// Prints the report to stderr.
    pub(crate) fn print(&self) -> io::Result<()> {
        let texts: Vec<_> =
            self.position.iter().chain([&self.message]).map(String::as_str).collect();
        print_labeled("", RED, "error", &texts.join(": "))?;
        let mut causes = self.causes.iter();
        causes.try_for_each(|cause| print_labeled("  ", Style::new(), "caused by", cause))?;
        self.print_hint()
    }

    /// Prints the report about one of many sources to stderr: one line, and the hint if it is new.
    pub(crate) fn print_line(&self, source: &RepoArg, has_hint: bool) -> io::Result<()> {
        let name = source.source.is_ok().then(|| source.display.clone());
        let texts = self.position.iter().chain(&name).chain([&self.message]).chain(&self.causes);
        let texts: Vec<_> = texts.map(String::as_str).collect();
        print_labeled("", RED, "error", &texts.join(": "))?;
        if has_hint { self.print_hint() } else { Ok(()) }
    }

    fn print_hint(&self) -> io::Result<()> {
        self.hint.iter().try_for_each(|hint| print_labeled("  ", BOLD, "help", hint))
    }
}

/// Prints the findings of a source to stderr. Findings of severity `note` are labeled as notes.
pub(crate) fn print_warnings(source: &RepoArg, findings: &[Finding]) -> io::Result<()> {
    for finding in findings.iter().take(MAX_FINDINGS) {
        let (style, label) = severity_label(finding.severity());
        print_labeled("", style, label, &format!("{}: {finding}", source.display))?;
    }
    match findings.len().saturating_sub(MAX_FINDINGS) as u64 {
        0 => Ok(()),
        more => print_warning(&format!(
            "{}: {} more; --json lists them all",
            source.display,
            thousands(more)
        )),
    }
}

/// Prints a warning to stderr.
pub(crate) fn print_warning(text: &str) -> io::Result<()> {
    print_labeled("", YELLOW, "warning", text)
}

/// Prints a text after a label to stderr, wrapped to the terminal.
fn print_labeled(indent: &str, style: Style, label: &str, text: &str) -> io::Result<()> {
    let width = indent.len() + label.len() + 2;
    let text = wrap_after_label(width, &escape(text), TerminalSize::from_stderr());
    writeln!(anstream::stderr(), "{indent}{style}{label}{style:#}: {text}")
}

/// Returns the label of a severity.
pub(crate) fn severity_label(severity: Severity) -> (Style, &'static str) {
    match severity {
        Severity::Error => (RED, "error"),
        Severity::Warning => (YELLOW, "warning"),
        Severity::Note => (CYAN, "note"),
    }
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
        Error::Gated { repo, .. } => Some(match &context.token_source {
            Some(origin) => format!(
                "the token from {origin} has no access; request access at {endpoint}/{repo}"
            ),
            None => format!(
                "no token was sent; accept the conditions at {endpoint}/{repo}, then set --token \
                 or HF_TOKEN to a token of the same account"
            ),
        }),
        Error::NotCached { repo, .. } => Some(download(repo)),
        Error::NoWeights { other_formats, .. } if !other_formats.is_empty() => {
            other_format(source, other_formats, context)
        }
        Error::NoWeights { source: cause, .. } | Error::FileNotFound { source: cause, .. } => {
            match cause.downcast_ref::<QuantizationNotFound>() {
                Some(missing) => {
                    let names = missing.quantizations.iter().map(|name| &**name);
                    Some(choices(source, "", names, context))
                }
                None => file_list(source, cause.is::<HubCacheMiss>(), context),
            }
        }
        Error::SeveralSets { sets, .. } => {
            let paths = sets.iter().map(|set| set.path.as_str());
            Some(choices(source, ", or to its folder", paths, context))
        }
        Error::ShardNotFound { .. } => Some(format!(
            "run `hf-meta verify {}` to list everything that is missing",
            source.display
        )),
        Error::InvalidHeader {
            source: HeaderError { kind: HeaderErrorKind::WrongFormat(detected), .. },
            ..
        }
        | Error::InvalidIndex {
            source: IndexError { kind: IndexErrorKind::NotAnIndex(detected), .. },
            ..
        } => Some(other_content(source, *detected).to_owned()),
        Error::RequestFailed { source: cause, .. } => {
            request_hint(cause).or_else(|| kind_hint(source, error, context))
        }
        Error::Refused { source: response, .. } if response.is_foreign() => Some(format!(
            "the server does not look like a Hub; check HF_ENDPOINT or --endpoint: {}",
            context.endpoint
        )),
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
        ErrorKind::InvalidSource if source.source.is_err() && source.display.contains(',') => {
            "for a table with commas, use --from FILE (`-` for stdin) and set --column to the \
             column that contains the names"
        }
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
            let reason = match &context.token_source {
                Some(origin) => format!("that the token from {origin} has no access to"),
                None => "without a token: set --token or HF_TOKEN".to_owned(),
            };
            return Some(format!(
                "check the spelling; the Hub gives the same response for a private repository \
                 {reason}"
            ));
        }
        ErrorKind::MalformedListing => {
            return Some(format!("{} the file or folder", select(source, context)));
        }
        ErrorKind::NoWeights => UNKNOWN_FORMAT,
        ErrorKind::TooLarge if matches!(error, Error::InvalidHeader { .. }) => {
            "convert the checkpoint to safetensors, or save it in several shards"
        }
        ErrorKind::RateLimited => return Some(rate_limit_hint(error.retry_after(), context)),
        _ if error.is_malformed() => invalid_files(source),
        _ if error.is_transient() => "try again later",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Returns the hint for a rate limit.
fn rate_limit_hint(wait: Option<Duration>, context: &HintContext) -> String {
    let retry = wait.map_or_else(
        || "try again later".to_owned(),
        |wait| format!("try again in {}", duration(wait)),
    );
    match &context.token_source {
        Some(_) => retry,
        None => format!(
            "authenticated requests have a higher rate limit: set --token or HF_TOKEN, or {retry}"
        ),
    }
}

/// Points to the file list of a repository. Other servers have none.
fn file_list(source: &RepoArg, is_offline: bool, context: &HintContext) -> Option<String> {
    let Ok(Source::Repo { repo, .. }) = &source.source else { return None };
    if is_offline {
        return Some(download(repo));
    }
    let page = source.file_url(None, &context.endpoint);
    Some(format!("see {page} for its files, and {} one of them", select(source, context)))
}

/// Points to weights in another format of the repository, or to converted ones. A bot of the Hub offers conversions as
/// pull requests.
fn other_format(
    source: &RepoArg,
    found: &[UnsupportedWeights],
    context: &HintContext,
) -> Option<String> {
    for (start, name) in [("GGUF", "gguf"), ("PyTorch", "pytorch")] {
        if found.iter().any(|weights| weights.format.starts_with(start)) {
            return Some(format!("omit --weights, or set it to {name}"));
        }
    }
    let Ok(Source::Repo { repo, .. }) = &source.source else { return None };
    Some(format!(
        "only safetensors, GGUF and PyTorch are supported; look for a conversion at {}/{repo}/discussions, \
         and read it as {repo}@refs/pr/N",
        context.endpoint
    ))
}

/// Begins a hint that selects a part of a source.
fn select(source: &RepoArg, context: &HintContext) -> String {
    match &source.source {
        Ok(Source::Repo { repo, .. }) if !context.has_path => {
            format!("use hf://{repo}/PATH with")
        }
        _ if !context.has_path => "append".to_owned(),
        _ => "set --path to".to_owned(),
    }
}

/// Explains how to get files that are not on this machine.
fn download(repo: &RepoId) -> String {
    format!(
        "run `hf download {repo}` to download it; to read it from the Hub, omit --offline and unset \
         HF_HUB_OFFLINE"
    )
}

/// Lists values of `--path` up to a limit.
fn choices<'a>(
    source: &RepoArg,
    alternative: &str,
    names: impl ExactSizeIterator<Item = &'a str>,
    context: &HintContext,
) -> String {
    let more = match names.len().saturating_sub(MAX_CHOICES) {
        0 => String::new(),
        more => format!(", and {} more", thousands(more as u64)),
    };
    let listed = names.take(MAX_CHOICES).collect::<Vec<_>>().join(", ");
    let alternative = if context.has_path { alternative } else { "" };
    format!("{} one of them{alternative}: {listed}{more}", select(source, context))
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
    let name = &source.display;
    if context.options.contains(name) {
        return Some(format!("did you mean the option `--{name}`?"));
    }
    if INSPECTION_WORDS.contains(&&**name) {
        return Some("to inspect a repository, omit the command: `hf-meta REPO`".to_owned());
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
        DetectedFormat::Zip | DetectedFormat::Pickle => {
            "the extension selects the format: checkpoints of PyTorch end with .bin, .pt, .pth or .ckpt"
        }
        DetectedFormat::Html | DetectedFormat::Json | DetectedFormat::Text => UNKNOWN_FORMAT,
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
