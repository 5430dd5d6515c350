//! Answers of the Hub's API: file listings, page by page, and the parameter count that the Hub reports.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use hf_meta_format::formats::clip;
use hf_meta_format::formats::weight_sets::ListedFile;
use serde::{Deserialize, Serialize};
use url::Url;

use super::manifest::ManifestFile;
use crate::base::blocking::spawn_blocking_if_large;
use crate::http::{self, Http, HttpError, HttpErrorKind, ResponseChain};

/// The maximum number of files. The Hub recommends at most 100,000 per repository
/// (<https://huggingface.co/docs/hub/storage-limits>).
const MAX_FILES: usize = 100_000;

/// The maximum total length of their paths in bytes. Usual ones have below 100 bytes.
const MAX_PATH_BYTES: usize = 32_000_000;

/// The maximum size of one page in bytes. A page of the Hub has 1,000 entries of about 300 bytes.
const MAX_PAGE_BYTES: u64 = 16_000_000;

/// The maximum number of pages: enough for `MAX_FILES` in pages of 50 entries, far fewer than the Hub's.
const MAX_PAGES: usize = 2_000;

/// Returns the error for a list of files or for one of its pages.
fn invalid(page: &Url, kind: HttpErrorKind, reason: &str) -> HttpError {
    http::defect(page, (kind, reason.to_owned()))
}

/// Returns the URL of the next page, if any.
///
/// Only the query of the absolute URL in the `Link` header is used: a mirror forwards the Hub's own address, and no
/// server may choose who receives the token.
pub(crate) fn next_page(page: &Url, chain: &ResponseChain) -> Result<Option<Url>, HttpError> {
    let Some(target) = chain.header("link").and_then(next_target) else { return Ok(None) };
    let reason = "the link to the next page is invalid";
    let no_query = || invalid(page, HttpErrorKind::InvalidListing, reason);
    let (_, query) = target.split_once('?').ok_or_else(no_query)?;
    let mut next = page.clone();
    next.set_query(Some(query));
    Ok(Some(next))
}

/// Returns the target of the link with `rel="next"` in a `Link` header (RFC 8288).
fn next_target(link: &str) -> Option<&str> {
    let mut rest = link;
    while let Some((target, after)) =
        rest.split_once('<').and_then(|(_, rest)| rest.split_once('>'))
    {
        let parameters = after.split_once('<').map_or(after, |(parameters, _)| parameters);
        let is_next = parameters.split([';', ',']).any(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or_default();
            name.trim().eq_ignore_ascii_case("rel") && value.trim().trim_matches('"') == "next"
        });
        if is_next {
            return Some(target);
        }
        rest = after;
    }
    None
}

/// An entry of a page: a file or a folder.
#[derive(Deserialize)]
struct TreeEntry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    oid: Option<String>,
    #[serde(default)]
    lfs: Option<LfsEntry>,
}

/// The entry of a file that is stored outside of the Git repository.
#[derive(Deserialize)]
struct LfsEntry {
    #[serde(default)]
    oid: Option<String>,
}

/// Reads a whole listing, given the URL of its first page. Files with invalid paths are skipped with a warning.
/// The budget may end the call before every page but the first.
pub(crate) async fn list_files(
    http: &Http,
    mut url: Url,
) -> Result<(Vec<ManifestFile>, ResponseChain), HttpError> {
    let (mut files, mut pages, mut invalid_paths) = (Vec::new(), BTreeSet::new(), 0_usize);
    loop {
        let (json, chain) = http.read_all(&url, MAX_PAGE_BYTES).await?;
        let length = json.len();
        let (page, mut listed) = (url.clone(), take(&mut files));
        let add = move || add_page(&mut listed, &page, &json).map(|skipped| (listed, skipped));
        let (listed, skipped) = spawn_blocking_if_large(length, add).await?;
        (files, invalid_paths) = (listed, invalid_paths + skipped);
        let Some(next) = next_page(&url, &chain)? else {
            if invalid_paths > 0 {
                tracing::warn!(files = invalid_paths, "skipped files with invalid paths");
            }
            return Ok((files, chain));
        };
        if !pages.insert(url) || pages.contains(&next) || pages.len() >= MAX_PAGES {
            let reason = "the listing does not end";
            return Err(invalid(&next, HttpErrorKind::EndlessListing, reason));
        }
        url = next;
        let admitted = http.budget.admit_requests(1);
        admitted.map_err(|refusal| http::over_budget(&url, refusal))?;
    }
}

/// Adds the files of a page. Returns the number of files with invalid paths.
fn add_page(files: &mut Vec<ManifestFile>, page: &Url, json: &[u8]) -> Result<usize, HttpError> {
    let entries: Vec<TreeEntry> = serde_json::from_slice(json).map_err(|error| {
        let reason = clip(&format!("it is not a valid file listing: {error}"));
        invalid(page, HttpErrorKind::InvalidListing, &reason)
    })?;
    let mut invalid_paths = 0;
    for entry in entries.into_iter().filter(|entry| entry.kind == "file") {
        let TreeEntry { path, size, oid, lfs, .. } = entry;
        let Ok(path) = path.parse() else {
            invalid_paths += 1;
            continue;
        };
        let (sha256, file) = (lfs.and_then(|lfs| lfs.oid), ListedFile { path, size });
        files.push(ManifestFile::new(file, sha256, oid));
    }
    let is_too_long =
        files.iter().map(|file| file.path.as_str().len()).sum::<usize>() > MAX_PATH_BYTES;
    let reason = match files.len() {
        ..=MAX_FILES if !is_too_long => return Ok(invalid_paths),
        ..=MAX_FILES => format!("the paths in the listing have more than {MAX_PATH_BYTES} bytes"),
        _ => format!("the listing has more than {MAX_FILES} files"),
    };
    Err(invalid(page, HttpErrorKind::EndlessListing, &reason))
}

/// The parameter count that the Hub reports for a repository.
///
/// It is not verified against the files, and the Hub's counting rules have changed more than once. Prefer a count
/// from the headers. This one is useful for repositories whose files cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[non_exhaustive]
pub struct HubReportedCount {
    /// The number of parameters per dtype.
    #[serde(rename(serialize = "parameterCount"))]
    pub parameters: BTreeMap<String, u64>,
    /// The total number of parameters.
    #[serde(rename(serialize = "parameterTotal"))]
    pub total: u64,
}

#[derive(Deserialize)]
struct RevisionInfo {
    safetensors: Option<HubReportedCount>,
}

impl HubReportedCount {
    /// The maximum size of the JSON in bytes. The Hub sends a few hundred bytes.
    pub(crate) const MAX_BYTES: u64 = 1 << 16;

    /// Parses the response from [`Endpoint::reported_count_url`](super::Endpoint::reported_count_url). Returns `None`
    /// if it has no count.
    pub(crate) fn from_json(json: &[u8]) -> Option<Self> {
        serde_json::from_slice::<RevisionInfo>(json).ok()?.safetensors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url() -> Url {
        "https://hub.example/api".parse().unwrap()
    }

    #[test]
    fn the_next_page_is_the_link_with_rel_next() {
        let cases = [
            (
                r#"<https://huggingface.co/api/models/a/b/tree/main?recursive=true&cursor=x%3D>; rel="next""#,
                Some("https://huggingface.co/api/models/a/b/tree/main?recursive=true&cursor=x%3D"),
            ),
            (r#"</x?a>; rel="prev", </y?b,c;d>; title="t"; rel=next"#, Some("/y?b,c;d")),
            (r#"</x?a>; rel="xet-auth", </y?b>; rel="last""#, None),
            ("", None),
            ("<", None),
            ("<>;rel", None),
        ];
        for (link, target) in cases {
            assert_eq!(next_target(link), target, "{link}");
        }
    }

    #[test]
    fn a_page_lists_the_files_with_valid_paths() {
        let mut files = Vec::new();
        let page = br#"[{"type":"directory","path":"a","size":0,"oid":"x"},
            {"type":"file","path":"a/b.safetensors","size":7,"lfs":{"size":7}},
            {"type":"file","path":"a/../b","size":1},{"type":"file","path":"c"}]"#;
        assert_eq!(add_page(&mut files, &url(), page).unwrap(), 1);
        let found: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.size)).collect();
        assert_eq!(found, [("a/b.safetensors", 7), ("c", 0)]);
        for page in ["{}", "[{}]", "[", r#"[{"type":"file","path":"a","size":-1}]"#] {
            let error = add_page(&mut files, &url(), page.as_bytes()).unwrap_err();
            assert_eq!(error.kind, HttpErrorKind::InvalidListing);
        }
    }

    #[test]
    fn more_files_than_the_limit_are_an_error() {
        let page = format!("[{}]", vec![r#"{"type":"file","path":"a"}"#; MAX_FILES].join(","));
        let mut files = Vec::new();
        assert_eq!(add_page(&mut files, &url(), page.as_bytes()).unwrap(), 0);
        let more = add_page(&mut files, &url(), br#"[{"type":"file","path":"b"}]"#);
        assert_eq!(more.unwrap_err().kind, HttpErrorKind::EndlessListing);
        let path = "a".repeat(1_000);
        let page = format!(
            "[{}]",
            vec![format!(r#"{{"type":"file","path":"{path}"}}"#); MAX_PATH_BYTES / 1_000 + 1]
                .join(",")
        );
        let error = add_page(&mut Vec::new(), &url(), page.as_bytes()).unwrap_err();
        assert_eq!(error.kind, HttpErrorKind::EndlessListing);
    }

    #[test]
    fn the_count_is_parsed_or_absent() {
        let json = br#"{"id":"a/b","safetensors":{"parameters":{"BF16":7},"total":7}}"#;
        let count = HubReportedCount { parameters: [("BF16".to_owned(), 7)].into(), total: 7 };
        assert_eq!(HubReportedCount::from_json(json), Some(count));
        for json in [
            "",
            "[]",
            "{}",
            r#"{"safetensors":null}"#,
            r#"{"safetensors":{"parameters":{"BF16":-1},"total":7}}"#,
            r#"{"safetensors":{"parameters":{"BF16":1},"total":1e300}}"#,
        ] {
            assert_eq!(HubReportedCount::from_json(json.as_bytes()), None, "{json}");
        }
    }
}
