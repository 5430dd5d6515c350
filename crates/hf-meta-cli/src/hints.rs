//! Hints: what to do about an error, for people who use the command or the Python module.

use std::path::Path;

use hf_meta::{
    Endpoint, Error, ErrorKind, HttpErrorKind, HubCacheMiss, QuantizationNotFound, Source,
    UnsupportedWeights,
};
use hf_meta_count::results::text::duration;
use hf_meta_format::formats::safetensors::{
    DetectedFormat, HeaderError, HeaderErrorKind, IndexError, IndexErrorKind,
};
use hf_meta_format::formats::weight_sets::{SPLIT_FILE, is_part_of_file};

use super::output::joined;
use super::repos::RepoArg;

/// The maximum number of sets of weights or quantizations in a hint.
const MAX_CHOICES: usize = 20;

/// The maximum number of typing errors in the name of a subcommand.
const MAX_TYPOS: usize = 2;

/// Names that other programs give to what is here the command without a subcommand.
const INSPECTION_WORDS: [&str; 4] = ["count", "info", "inspect", "show"];

const UNKNOWN_FORMAT: &str =
    "only safetensors, GGUF and PyTorch files and their indexes can be read";

/// The hint for a file that was cut into parts.
const JOIN: &str =
    "the file was cut into parts: download all of them, and join them in order with `cat`";

/// The hint for an HTML page instead of a file.
const WEB_PAGE: &str =
    "the response came from a login page or a proxy; open the server's address in a browser";

/// The hint for files that are not on this machine.
const DOWNLOAD: &str = "run `hf download {repo}` to download it; to read it from the Hub, unset HF_HUB_OFFLINE, and \
                        omit --offline if it is given";

/// The conditions of a call that hints depend on.
#[derive(Clone, Debug)]
pub(crate) struct Hints {
    /// Returns the definition of all arguments; `None` for calls of the Python module, whose options are arguments.
    pub(crate) definition: Option<fn() -> clap::Command>,
    pub(crate) endpoint: Endpoint,
    /// The origin of the token.
    pub(crate) token_source: Option<String>,
    /// True if the call has the option `--path`.
    pub(crate) has_path: bool,
    /// True if the call reads cached headers.
    pub(crate) uses_cache: bool,
}

/// Returns the hint for an error of a call of the Python module that reads `source`. `token_source` is the origin of the
/// token; `has_path` is `true` if the function has the argument `path`.
pub fn module_hint(
    source: &str,
    error: &Error,
    endpoint: &Endpoint,
    token_source: Option<String>,
    has_path: bool,
) -> Option<String> {
    let (endpoint, source) = (endpoint.clone(), RepoArg::new(source.as_ref(), None, endpoint));
    let hints = Hints { definition: None, endpoint, token_source, has_path, uses_cache: true };
    hints.hint(&source, error)
}

impl Hints {
    /// Returns the hint for an error about a source.
    pub(crate) fn hint(&self, source: &RepoArg, error: &Error) -> Option<String> {
        // If the repository was read, it is probably the one that was meant.
        let is_read = matches!(
            error.kind(),
            ErrorKind::RevisionNotFound | ErrorKind::FileNotFound | ErrorKind::SeveralSets
        );
        let twin = if is_read { None } else { local_twin(source) };
        let twin =
            twin.map(|path| format!("to read the local file or folder with that name, use {path}"));
        let hint = twin
            .or_else(|| misspelled_command(source, error, self))
            .or_else(|| choices(source, error, self))
            .or_else(|| self.filled(source, error))?;
        Some(with_options(&hint, self.definition.is_none()))
    }

    /// Returns the hint for an error about a source: from its details, or else from its kind. Its names in braces are
    /// replaced by values of the call.
    fn filled(&self, source: &RepoArg, error: &Error) -> Option<String> {
        let hint = detail_hint(source, error).or_else(|| kind_hint(source, error, self))?;
        let repo = match &source.source {
            Ok(Source::Repo { repo, .. }) => repo.to_string(),
            _ => String::new(),
        };
        let wait = error.retry_after().map(|wait| format!("in {}", duration(wait)));
        // The last value comes from the user and may contain any name.
        let values = [
            ("{endpoint}", self.endpoint.to_string()),
            ("{repo}", repo),
            ("{token}", self.token_source.as_deref().unwrap_or("{--token}").to_owned()),
            ("{wait}", wait.unwrap_or_else(|| "later".to_owned())),
            ("{select}", select(source, self)),
            ("{page}", source.file_url(None, &self.endpoint)),
            ("{source}", source.display.clone()),
        ];
        let fill = |hint: String, (name, value): (&str, String)| hint.replace(name, &value);
        Some(values.into_iter().fold(hint.to_owned(), fill))
    }
}

/// Replaces names such as `{--path}` by the options of the command, or by the arguments of the module.
fn with_options(hint: &str, is_module: bool) -> String {
    let offline = if is_module { "HF_HUB_OFFLINE=1" } else { "--offline" };
    let names = ["endpoint", "path", "timeout", "token", "weights"];
    let replace = |hint: String, name: &&str| {
        let option = if is_module { format!("`{name}`") } else { format!("--{name}") };
        hint.replace(&format!("{{--{name}}}"), &option)
    };
    let repo_file =
        if is_module { "pass its repository and {--path}" } else { "use REPO {--path} FILE" };
    let hint = hint.replace("{offline}", offline).replace("{repo_file}", repo_file);
    names.iter().fold(hint, replace)
}

/// Returns the hint for a client that cannot be set up.
pub(crate) fn client_hint(error: &Error, token_source: Option<&str>) -> Option<String> {
    let hint = setting_hint(error)?.replace("{token}", token_source.unwrap_or("--token"));
    Some(with_options(&hint, false))
}

/// Returns the template of the hint for a setting that cannot be used.
fn setting_hint(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::InvalidSetting { setting: "endpoint", .. } => {
            "set {--endpoint} or HF_ENDPOINT to a URL such as https://huggingface.co"
        }
        Error::InvalidOption { option: "token", .. } => {
            "the token comes from {token}; set it to just the token, hf_…"
        }
        Error::InvalidSetting { setting: "proxy", .. } => {
            "set it to a URL such as http://proxy.example:8080 or socks5h://127.0.0.1:1080, or unset it"
        }
        Error::InvalidSetting { setting: "hub_cache", .. } => {
            "set HF_HUB_CACHE or HF_HOME to the cache folder"
        }
        _ => return None,
    })
}

/// Returns the hint about files in other formats next to missing weights.
fn other_format_hint(found: &[UnsupportedWeights], is_repo: bool) -> Option<&'static str> {
    let has = |format| found.iter().any(|weights| weights.format.starts_with(format));
    Some(if has(SPLIT_FILE) {
        JOIN
    } else if has("GGUF") {
        "omit {--weights}, or set it to gguf"
    } else if has("PyTorch") {
        "omit {--weights}, or set it to pytorch"
    } else if is_repo && !found.is_empty() {
        // A bot of the Hub offers conversions as pull requests.
        "only safetensors, GGUF and PyTorch are supported; look for a conversion at \
         {endpoint}/{repo}/discussions, and read it as {repo}@refs/pr/N"
    } else {
        return None;
    })
}

/// Returns the hint for a request that reached no server.
fn connection_hint(kind: &HttpErrorKind) -> Option<&'static str> {
    Some(match kind {
        HttpErrorKind::Connect => {
            "check that this machine can reach the server; set https_proxy to use a proxy, \
             {--endpoint} or HF_ENDPOINT to use another Hub, or {offline} to read cached data"
        }
        HttpErrorKind::Certificate => {
            "the system's certificates are trusted; set SSL_CERT_FILE to trust others"
        }
        HttpErrorKind::WebPage => WEB_PAGE,
        _ => return None,
    })
}

/// Returns the hint for the details of an error.
fn detail_hint(source: &RepoArg, error: &Error) -> Option<&'static str> {
    let is_repo = matches!(source.source, Ok(Source::Repo { .. }));
    if let Error::NoWeights { other_formats, .. } = error
        && let Some(hint) = other_format_hint(other_formats, is_repo)
    {
        return Some(hint);
    }
    Some(match error {
        Error::InvalidHeader { file, .. } if is_part_of_file(file) => JOIN,
        Error::NoWeights { source: cause, .. } | Error::FileNotFound { source: cause, .. }
            if is_repo && cause.is::<HubCacheMiss>() =>
        {
            DOWNLOAD
        }
        // Other servers have no list of files.
        Error::NoWeights { .. } | Error::FileNotFound { .. } if is_repo => {
            "see {page} for its files, and {select} one of them"
        }
        Error::FileNotFound { .. } if source.is_local() && !source.display.starts_with('.') => {
            "this is the path of a local file; for a file on the Hub, {repo_file}"
        }
        Error::ShardNotFound { .. } => {
            "run `hf-meta verify {source}` to list everything that is missing"
        }
        Error::InvalidHeader {
            source: HeaderError { kind: HeaderErrorKind::WrongFormat(detected), .. },
            ..
        }
        | Error::InvalidIndex {
            source: IndexError { kind: IndexErrorKind::WrongFormat(detected), .. },
            ..
        } => other_content(source, *detected),
        Error::InvalidIndex { .. } => {
            "run `hf-meta verify {source}` to list everything that is wrong"
        }
        Error::InvalidHeader { .. } if error.kind() == ErrorKind::TooLarge => {
            "convert the checkpoint to safetensors, or save it in several shards"
        }
        Error::RequestFailed { source: cause, .. } => return connection_hint(&cause.kind),
        Error::Refused { source: response, .. } if response.is_foreign() => {
            "the server does not look like a Hub; check HF_ENDPOINT or {--endpoint}: {endpoint}"
        }
        Error::DeadlineExceeded { .. } => "set {--timeout} to a higher value",
        _ => return setting_hint(error),
    })
}

/// Returns the hint for a kind of error.
fn kind_hint(source: &RepoArg, error: &Error, context: &Hints) -> Option<&'static str> {
    let has_token = context.token_source.is_some();
    Some(match error.kind() {
        ErrorKind::InvalidSource if source.source.is_ok() => return None,
        ErrorKind::InvalidSource
            if source.display.contains(',') && context.definition.is_some() =>
        {
            "for a table with commas, use --from FILE (`-` for stdin) and set --column to the \
             column that contains the names"
        }
        ErrorKind::InvalidSource => "see `hf-meta --help` for the accepted forms",
        ErrorKind::RepoNotFound if has_token => {
            "check the spelling; the Hub gives the same response for a private repository that the \
             token from {token} has no access to"
        }
        ErrorKind::RepoNotFound => {
            "check the spelling; the Hub gives the same response for a private repository without a \
             token: set {--token} or HF_TOKEN"
        }
        ErrorKind::RevisionNotFound => "see {endpoint}/{repo}/tree/main for its branches and tags",
        ErrorKind::Gated if has_token => {
            "the token from {token} has no access; request access at {endpoint}/{repo}"
        }
        ErrorKind::Gated => {
            "no token was sent; accept the conditions at {endpoint}/{repo}, then set {--token} or \
             HF_TOKEN to a token of the same account"
        }
        ErrorKind::RejectedToken => {
            "the token comes from {token}; create a new one at {endpoint}/settings/tokens"
        }
        ErrorKind::NoWeights if !matches!(error, Error::NoWeights { .. }) => UNKNOWN_FORMAT,
        ErrorKind::MalformedListing => "{select} the file or folder",
        ErrorKind::RateLimited if has_token => "try again {wait}",
        ErrorKind::RateLimited => {
            "authenticated requests have a higher rate limit: set {--token} or HF_TOKEN, or try again \
             {wait}"
        }
        ErrorKind::NotCached if !context.uses_cache => {
            "offline, only downloaded files are verified, not cached headers: run `hf download {repo}`"
        }
        ErrorKind::NotCached => DOWNLOAD,
        _ if error.is_malformed() => invalid_files(source),
        _ if error.is_transient() => "try again later",
        _ => return None,
    })
}

/// Begins a hint that selects a part of a source.
fn select(source: &RepoArg, context: &Hints) -> String {
    match &source.source {
        Ok(Source::Repo { repo, .. }) if !context.has_path => {
            format!("use hf://{repo}/PATH with")
        }
        _ if !context.has_path => "append".to_owned(),
        _ => "set {--path} to".to_owned(),
    }
}

/// Lists values of `--path` up to a limit, if one has to be chosen.
fn choices(source: &RepoArg, error: &Error, context: &Hints) -> Option<String> {
    let (names, alternative) = match error {
        Error::SeveralSets { sets, .. } => {
            let paths = sets.iter().map(|set| set.path.to_string());
            (joined(paths, MAX_CHOICES), ", or to its folder")
        }
        // Weights in another format are worth more than a list of quantizations.
        Error::NoWeights { other_formats, .. } if !other_formats.is_empty() => return None,
        Error::NoWeights { source: cause, .. } | Error::FileNotFound { source: cause, .. } => {
            let missing = cause.downcast_ref::<QuantizationNotFound>()?;
            let names = missing.quantizations.iter().map(ToString::to_string);
            (joined(names, MAX_CHOICES), "")
        }
        _ => return None,
    };
    let alternative = if context.has_path { alternative } else { "" };
    Some(format!("{} one of them{alternative}: {names}", select(source, context)))
}

/// Returns a local file or folder with the name of a repository, because a bare name always means a repository.
pub(crate) fn local_twin(source: &RepoArg) -> Option<String> {
    let name = &source.display;
    let could_be_local = matches!(source.source, Ok(Source::Repo { .. }) | Err(_));
    (could_be_local && Path::new(name).exists()).then(|| format!("./{name}"))
}

/// Suggests the subcommand that the user probably meant, if a repository is missing.
fn misspelled_command(source: &RepoArg, error: &Error, context: &Hints) -> Option<String> {
    let name = &source.display;
    if error.kind() != ErrorKind::RepoNotFound || name.contains('/') {
        return None;
    }
    let definition = context.definition?();
    let mut options = definition.get_arguments().filter_map(clap::Arg::get_long);
    if options.any(|option| option == name) {
        return Some(format!("did you mean the option `--{name}`?"));
    }
    if INSPECTION_WORDS.contains(&&**name) {
        return Some("to inspect a repository, omit the command: `hf-meta REPO`".to_owned());
    }
    let is_meant = |command: &&str| strsim::damerau_levenshtein(command, name) <= MAX_TYPOS;
    let mut commands = definition.get_subcommands().map(clap::Command::get_name);
    let command = commands.find(is_meant)?;
    Some(format!("did you mean the command `hf-meta {command}`?"))
}

/// Explains a file in another format.
fn other_content(source: &RepoArg, detected: DetectedFormat) -> &'static str {
    match detected {
        DetectedFormat::GitLfsPointer => {
            "this is only a Git LFS pointer; in a clone, run `git lfs pull`"
        }
        DetectedFormat::Html if !source.is_local() => WEB_PAGE,
        DetectedFormat::Tar => {
            "only archives of torch 1.6 or later and pickles are read: load the file with `torch.load`, and save it again"
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
