//! How a text names a source: by its scheme, its start, and what stands where in it.

use percent_encoding::percent_decode_str;
use url::Url;

use super::{Source, SourceError};
use crate::formats::names_index;
use crate::hub::Endpoint;

/// Hosts that are the Hub whatever the endpoint is, so that an address copied from a browser works
/// through a mirror too.
const HUB_HOSTS: [&str; 3] = ["huggingface.co", "www.huggingface.co", "hf.co"];

/// The source that a text names, where `endpoint` is the Hub that is asked.
pub(super) fn parse(text: &str, endpoint: &Endpoint) -> Result<Source, SourceError> {
    let text = text.trim();
    let Some((scheme, rest)) = text.split_once("://") else {
        return if is_local(text) { Ok(Source::Local(text.into())) } else { parse_repo(text) };
    };
    match scheme.to_ascii_lowercase().as_str() {
        "hf" => parse_hf(rest),
        "file" => parse_file(text),
        "http" | "https" => parse_url(text, endpoint),
        _ => Err(SourceError::Url { reason: "its scheme is not hf, https, http or file" }),
    }
}

/// Whether a text without a scheme is a local path: by its start, or by the name of its file.
fn is_local(text: &str) -> bool {
    let starts = ["/", "./", "../", "~", ".\\", "..\\", "\\"];
    let is_on_a_drive = text.as_bytes().get(1) == Some(&b':');
    matches!(text, "." | "..")
        || is_on_a_drive
        || starts.iter().any(|start| text.starts_with(start))
        || is_weights(text)
}

fn parse_file(text: &str) -> Result<Source, SourceError> {
    let path = Url::parse(text).ok().and_then(|url| url.to_file_path().ok());
    path.map(Source::Local).ok_or(SourceError::Url { reason: "it is not the URL of a local file" })
}

/// `org/name` or `org/name@revision`, where the revision is all that follows.
fn parse_repo(text: &str) -> Result<Source, SourceError> {
    let (repo, revision) = match text.split_once('@') {
        Some((_, "")) => return Err(SourceError::NoRevision),
        Some((repo, revision)) => (repo, Some(revision.parse()?)),
        None => (text, None),
    };
    Ok(Source::Repo { repo: repo.parse()?, revision, path: None })
}

/// `org/name[@revision][/path]`. Without a revision the first two parts are the name, so a repo of
/// one part with a path needs the `@`.
fn parse_hf(text: &str) -> Result<Source, SourceError> {
    let text = text.strip_prefix("models/").unwrap_or(text).trim_end_matches('/');
    let (name, path) = split_after(text, 2 + kind_parts(text));
    // Behind the name an `@` is a character like any other.
    if !name.contains('@') {
        return repo_source(name, None, path);
    }
    let (repo, rest) = text.split_once('@').unwrap_or((text, ""));
    let (revision, path) = split_revision(rest);
    repo_source(repo, Some(revision), path)
}

/// A URL of a repo on a Hub, else of a file.
fn parse_url(text: &str, endpoint: &Endpoint) -> Result<Source, SourceError> {
    let url = Url::parse(text).map_err(|_| SourceError::Url { reason: "it is malformed" })?;
    match hub_path(&url, endpoint) {
        Some(path) => parse_page(path.trim_matches('/')),
        None => Ok(Source::Url(url)),
    }
}

/// A page of a repo: `org/name`, then a view, a revision and a path.
fn parse_page(page: &str) -> Result<Source, SourceError> {
    let is_view = |part: &str| matches!(part, "tree" | "blob" | "resolve" | "raw");
    let longest = 2 + kind_parts(page);
    // The files of a model whose name has one part are at `/gpt2/tree/main`.
    let has_short_name = page.split('/').nth(longest - 1).is_some_and(is_view);
    let (repo, rest) = split_after(page, longest - usize::from(has_short_name));
    match rest.and_then(|rest| rest.split_once('/')) {
        Some((view, rest)) if is_view(view) => {
            let (revision, path) = split_revision(rest);
            let names_weights = |path: &&str| view == "tree" || is_weights(path);
            repo_source(repo, Some(revision), path.filter(names_weights))
        }
        // Other pages of a repo, such as its discussions, name the repo.
        _ => repo_source(repo, None, None),
    }
}

fn is_weights(path: &str) -> bool {
    path.ends_with(".safetensors") || names_index(path)
}

/// How many parts stand before the name of a repo that is not a model.
fn kind_parts(text: &str) -> usize {
    usize::from(text.starts_with("datasets/") || text.starts_with("spaces/"))
}

/// The path of a URL below the endpoint, or below the Hub itself.
fn hub_path<'a>(url: &'a Url, endpoint: &Endpoint) -> Option<&'a str> {
    if url.origin() == endpoint.origin() {
        let below = url.path().strip_prefix(endpoint.path())?;
        return (below.is_empty() || below.starts_with('/')).then_some(below);
    }
    HUB_HOSTS.contains(&url.host_str()?).then(|| url.path())
}

/// Splits a revision from the path after it. A revision is one part, with its slashes encoded, but
/// for the Hub's own refs, which people write as they are.
fn split_revision(text: &str) -> (&str, Option<&str>) {
    let parts =
        if text.starts_with("refs/pr/") || text.starts_with("refs/convert/") { 3 } else { 1 };
    split_after(text, parts)
}

/// Splits a text after so many parts; the second half is `None` where nothing is left.
fn split_after(text: &str, parts: usize) -> (&str, Option<&str>) {
    match text.match_indices('/').nth(parts - 1) {
        Some((at, _)) => (&text[..at], Some(&text[at + 1..]).filter(|rest| !rest.is_empty())),
        None => (text, None),
    }
}

fn repo_source(
    repo: &str,
    revision: Option<&str>,
    path: Option<&str>,
) -> Result<Source, SourceError> {
    if revision == Some("") {
        return Err(SourceError::NoRevision);
    }
    let revision = revision.map(|revision| decode(revision)?.parse().map_err(SourceError::from));
    let path =
        path.map(|path| decode(path)?.trim_end_matches('/').parse().map_err(SourceError::from));
    Ok(Source::Repo {
        repo: repo.parse()?,
        revision: revision.transpose()?,
        path: path.transpose()?,
    })
}

fn decode(text: &str) -> Result<String, SourceError> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| SourceError::Url { reason: "it is not UTF-8 when decoded" })
}
