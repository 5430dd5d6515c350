//! The repositories of a subcommand, from arguments and lists. Each is a repository, a URL or a path.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::ValueHint;
use hf_meta::{Endpoint, Source, SourceError};
#[cfg(feature = "census")]
use hf_meta_census::read_names;
use hf_meta_repo_list::ListedName;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::exit::{CommandError, CommandResult};

/// The options that name repositories.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RepoListArgs {
    /// Repositories on the Hub, URLs, or local files and folders; `-` reads a list from stdin
    ///
    /// Each REPO is a repository (`org/name`, `name`, `org/name@revision`, `datasets/org/name`,
    /// `hf://org/name@revision/path`), the URL of its page on huggingface.co, the URL of a
    /// safetensors, GGUF or PyTorch file or an index on any server, a local file, or a local folder
    /// written with a slash (`./folder` or `folder/`). `org/name:Q4_K_M` selects a quantization.
    /// Lists contain one REPO per line.
    #[arg(value_name = "REPO", value_hint = ValueHint::AnyPath)]
    #[arg(required_unless_present = "from")]
    repos: Vec<OsString>,

    /// Read repositories from a file: one per line, or a table
    ///
    /// The table is a .csv or .tsv file or, in builds with `census`, a Parquet file. Can be repeated.
    #[arg(long, value_name = "FILE", help_heading = "Selection")]
    from: Vec<PathBuf>,

    /// Column that contains the names, for --from [default: repo, id, modelId or repository]
    #[arg(long, hide_short_help = true, value_name = "NAME", requires = "from")]
    #[arg(help_heading = "Selection")]
    column: Option<String>,
}

impl RepoListArgs {
    /// Returns the repositories from the arguments, followed by those from the file.
    pub(crate) fn list(&self, endpoint: &Endpoint) -> CommandResult<Vec<RepoArg>> {
        let listed = |name: ListedName| RepoArg::new(name.name.as_ref(), name.line, endpoint);
        let mut repos = Vec::new();
        for repo in &self.repos {
            if repo == "-" {
                repos.extend(read_names(Path::new("-"), None)?.into_iter().map(listed));
            } else {
                repos.push(RepoArg::new(repo, None, endpoint));
            }
        }
        for from in &self.from {
            repos.extend(read_names(from, self.column.as_deref())?.into_iter().map(listed));
        }
        if repos.is_empty() {
            return Err(CommandError::usage("the list contains no repositories"));
        }
        Ok(repos)
    }
}

/// Returns the names in a text file, or in stdin if its name is `-`.
#[cfg(not(feature = "census"))]
fn read_names(file: &Path, column: Option<&str>) -> CommandResult<Vec<ListedName>> {
    use hf_meta_repo_list::{open, parse, read};

    let text = open(file).and_then(read);
    let text = text.map_err(super::exit::failed_to(format!("read `{}`", file.display())))?;
    let names = parse(file, &text, column);
    names.map_err(|error| CommandError::usage(format!("the list `{}` {error}", file.display())))
}

/// A source on the command line, in parsed and displayable form.
#[derive(Clone, Debug)]
pub(crate) struct RepoArg {
    pub(crate) source: Result<Source, SourceError>,
    /// The argument as it was given, without passwords and signatures.
    pub(crate) display: String,
    /// The number of its line, if it comes from a list.
    pub(crate) line: Option<u64>,
}

impl RepoArg {
    pub(crate) fn new(argument: &OsStr, line: Option<u64>, endpoint: &Endpoint) -> Self {
        let Some(text) = argument.to_str() else {
            // Only a path can contain other bytes.
            return Self { line, ..Self::local(Path::new(argument)) };
        };
        let source = Source::parse(text, endpoint);
        let display =
            source.as_ref().map_or_else(|_| without_secrets(text), |source| source.as_given(text));
        Self { source, display, line }
    }

    /// Returns a local file or folder.
    pub(crate) fn local(path: &Path) -> Self {
        let source = Source::Local(path.into());
        Self { display: source.to_string(), source: Ok(source), line: None }
    }

    /// Applies the revision and path options to the source, for use in messages.
    pub(super) fn with_selection(mut self, revision: Option<&str>, path: Option<&str>) -> Self {
        match &mut self.source {
            Ok(Source::Repo { revision: named, path: place, .. }) => {
                *named = revision.and_then(|text| text.parse().ok()).or(named.take());
                *place = path.and_then(|text| text.parse().ok()).or(place.take());
            }
            Ok(Source::Local(folder)) => folder.extend(path),
            _ => {}
        }
        self
    }

    /// Returns whether the source is a file or folder on this machine.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.source, Ok(Source::Local(_)))
    }

    /// Returns the address of a file in the source, or of the source itself: a URL or a local path.
    pub(crate) fn file_url(&self, file: Option<&str>, endpoint: &Endpoint) -> String {
        match &self.source {
            Ok(Source::Repo { repo, revision, .. }) => {
                // The revision is one segment, as in `refs%2Fpr%2F1`.
                let revision = revision.clone().unwrap_or_default();
                let revision = encoded(revision.as_str()).replace('/', "%2F");
                let kind = if file.is_some() { "blob" } else { "tree" };
                let file = file.map(|file| format!("/{}", encoded(file)));
                format!("{endpoint}/{repo}/{kind}/{revision}{}", file.unwrap_or_default())
            }
            _ => self.file_path(file).map_or_else(|| self.display.clone(), |path| encoded(&path)),
        }
    }

    /// Returns the path of a file in a local source, or of the source itself.
    pub(crate) fn file_path(&self, file: Option<&str>) -> Option<String> {
        let Ok(Source::Local(path)) = &self.source else { return None };
        let folder = if path.is_dir() { Some(&**path) } else { path.parent() };
        let path = match (folder, file) {
            (Some(folder), Some(file)) => folder.join(file),
            _ => path.clone(),
        };
        let shown = path.to_string_lossy();
        let shown = if cfg!(windows) { shown.replace('\\', "/") } else { shown.into_owned() };
        Some(shown.strip_prefix("./").unwrap_or(&shown).to_owned())
    }
}

/// Encodes a path as a URI reference (RFC 3986).
fn encoded(path: &str) -> String {
    const SET: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

    utf8_percent_encode(path, SET).to_string()
}

/// Removes the query and the credentials from a text that may be an invalid URL.
fn without_secrets(text: &str) -> String {
    let text =
        text.split_once('?').map_or_else(|| text.to_owned(), |(text, _)| format!("{text}?…"));
    match text.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?.1)))
    {
        Some((scheme, rest)) if scheme != "hf" => format!("{scheme}://…@{rest}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> RepoArg {
        RepoArg::new(text.as_ref(), None, &Endpoint::default())
    }

    fn shown(text: &str) -> String {
        parsed(text).display
    }

    #[test]
    fn passwords_and_signatures_are_not_shown() {
        for text in [
            "https://example.org/x.safetensors?sig=s3cr3t",
            "https://user:s3cr3t@example.org/x.safetensors",
            "ftp://user:s3cr3t@example.org/x:y?sig=s3cr3t",
            "https://[?sig=s3cr3t",
        ] {
            assert!(!shown(text).contains("s3cr3t"), "{}", shown(text));
        }
        assert_eq!(shown("hf://org/name@main/x"), "hf://org/name@main/x");
    }

    #[test]
    fn the_address_of_a_file_has_the_revision() {
        let address = |text: &str, revision, path, file| {
            let source = parsed(text).with_selection(revision, path);
            source.file_url(file, &Endpoint::default()).replace("https://huggingface.co/", "")
        };
        for (text, path) in [("org/m", Some("7b")), ("hf://org/m/7b", None), ("org/m:Q8_0", None)] {
            assert_eq!(address(text, None, path, Some("7b/x")), "org/m/blob/main/7b/x");
        }
        assert_eq!(address("gpt2", Some("v1"), None, None), "gpt2/tree/v1");
        assert_eq!(address("gpt2", None, None, Some("a#b?c")), "gpt2/blob/main/a%23b%3Fc");
        assert_eq!(address("./a b", None, Some("c"), None), "a%20b/c");
    }

    /// A missing folder must not be looked up on the Hub.
    #[test]
    fn a_name_with_a_slash_at_its_end_is_a_folder() {
        for text in ["gpt2/", "org/model/", "runs/last/model/"] {
            assert!(parsed(text).is_local(), "{text}");
        }
        for text in ["gpt2", "https://huggingface.co/gpt2/", "huggingface.co/gpt2/"] {
            assert!(!parsed(text).is_local(), "{text}");
        }
    }
}
