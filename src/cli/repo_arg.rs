//! A source on the command line: a repository, a URL or a path.

use std::path::PathBuf;

use hf_meta::{Endpoint, Source, SourceError};

/// A source on the command line, as it was typed and as it was parsed.
#[derive(Clone, Debug)]
pub(crate) struct RepoArg {
    pub(crate) source: Result<Source, SourceError>,
    /// The argument without passwords and signatures.
    pub(crate) shown: String,
}

impl RepoArg {
    pub(crate) fn new(text: &str, endpoint: &Endpoint) -> Self {
        let source = match expand_home(text) {
            Some(path) => Ok(Source::Local(path)),
            None => Source::parse(text, endpoint),
        };
        let shown = source.as_ref().map_or_else(|_| without_secrets(text), ToString::to_string);
        Self { source, shown }
    }

    /// Returns whether the source is a file or folder on this machine.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.source, Ok(Source::Local(_)))
    }

    /// Returns the address of a file of the source, or of the source itself: a URL, or a local path.
    pub(crate) fn file_url(&self, file: Option<&str>, endpoint: &Endpoint) -> String {
        match &self.source {
            Ok(Source::Repo { repo, revision, .. }) => {
                let (revision, kind) = (
                    revision.clone().unwrap_or_default(),
                    if file.is_some() { "blob" } else { "tree" },
                );
                let path = file.map(|file| format!("/{file}")).unwrap_or_default();
                format!("{endpoint}/{repo}/{kind}/{revision}{path}")
            }
            Ok(Source::Local(path)) => {
                let folder = if path.is_dir() { Some(&**path) } else { path.parent() };
                let path = match (folder, file) {
                    (Some(folder), Some(file)) => folder.join(file),
                    _ => path.clone(),
                };
                let shown = path.to_string_lossy().replace('\\', "/");
                shown.strip_prefix("./").map_or(shown.clone(), str::to_owned)
            }
            _ => self.shown.clone(),
        }
    }

    /// Returns the URL of the page that lists the files; `None` if the source is not a repository.
    pub(crate) fn page(&self, endpoint: &Endpoint) -> Option<String> {
        matches!(self.source, Ok(Source::Repo { .. })).then(|| self.file_url(None, endpoint))
    }
}

/// Expands `~` as a shell does. The shell leaves it as it is within quotes.
pub(super) fn expand_home(text: &str) -> Option<PathBuf> {
    let rest = text.strip_prefix('~')?;
    let home = std::env::home_dir()?;
    if rest.is_empty() {
        return Some(home);
    }
    Some(home.join(rest.strip_prefix(['/', '\\'])?))
}

/// Removes the query and the credentials from a text that is not a valid source but may be a URL.
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

    fn shown(text: &str) -> String {
        RepoArg::new(text, &Endpoint::default()).shown
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
    fn a_tilde_is_the_home_folder() {
        let home = std::env::home_dir().unwrap();
        assert_eq!(expand_home("~"), Some(home.clone()));
        assert_eq!(expand_home("~/gpt2"), Some(home.join("gpt2")));
        assert_eq!(expand_home("~bob/x"), None);
        assert_eq!(expand_home("gpt2"), None);
    }
}
