//! What the Hub lists of a repo, page by page.

use std::collections::BTreeSet;

use serde::Deserialize;
use thiserror::Error;
use url::Url;

use crate::formats::weight_sets::ListedFile;
use crate::http::transfer::RequestMeter;
use crate::http::{Http, RequestFailure, ResponseChain};

/// The most files that are listed. The Hub advises to have fewer than 100,000 in a repo.
const MOST_FILES: usize = 100_000;

/// The most bytes of one page. A page of the Hub has 1,000 entries of some 300 bytes.
const LONGEST_PAGE: u64 = 16_000_000;

/// The most pages. Those of the Hub are seldom shorter than 50 entries.
const MOST_PAGES: usize = 2_000;

/// Why the files of a repo or a folder could not be listed, though they may be there.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ListingError {
    /// There are more files than are listed.
    #[error("it has more than {limit} files")]
    TooManyFiles {
        /// The most that are listed.
        limit: usize,
    },
    /// A page that leads to itself, or to more pages than there can be.
    #[error("its pages have no end")]
    Endless,
    /// The answer is not JSON, or not of this kind.
    #[error("the answer is not a listing")]
    Json {
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Why there is no listing: nothing to read, or nothing that makes sense.
pub(crate) enum ListFilesError {
    Fetch(RequestFailure),
    Listing(ListingError),
}

/// Where the next page is. The Hub says so by an absolute URL, of which the query is taken alone: a
/// mirror passes on the Hub's own address, and whoever answers has no say in whom the token goes to.
fn next(page: &Url, trail: &ResponseChain) -> Option<Url> {
    let query = next_query(trail.header("link")?)?;
    let mut next = page.clone();
    next.set_query(Some(&query));
    Some(next)
}

/// The query of the link with `rel="next"` in a `Link` header (RFC 8288).
fn next_query(link: &str) -> Option<String> {
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
            return target.split_once('?').map(|(_, query)| query.to_owned());
        }
        rest = after;
    }
    None
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
}

/// Every file below a folder of a repo, whose first page is at `url`. A file whose path could not be asked
/// for is left out, which is logged.
pub(crate) async fn files(
    http: &Http,
    mut url: Url,
    meter: &RequestMeter,
) -> Result<(Vec<ListedFile>, ResponseChain), ListFilesError> {
    let (mut files, mut pages, mut passed_over) = (Vec::new(), BTreeSet::new(), 0_usize);
    loop {
        let (json, trail) =
            http.read_all(&url, LONGEST_PAGE, meter).await.map_err(ListFilesError::Fetch)?;
        passed_over += add(&mut files, &json).map_err(ListFilesError::Listing)?;
        let Some(next) = next(&url, &trail) else {
            if passed_over > 0 {
                tracing::warn!(files = passed_over, "passed over: their paths are not plain");
            }
            return Ok((files, trail));
        };
        if !pages.insert(url) || pages.contains(&next) || pages.len() >= MOST_PAGES {
            return Err(ListFilesError::Listing(ListingError::Endless));
        }
        url = next;
    }
}

/// Adds the files of a page, and says how many of them have no path that could be asked for.
fn add(files: &mut Vec<ListedFile>, json: &[u8]) -> Result<usize, ListingError> {
    let entries: Vec<Entry> =
        serde_json::from_slice(json).map_err(|source| ListingError::Json { source })?;
    let mut passed_over = 0;
    for Entry { path, size, .. } in entries.into_iter().filter(|entry| entry.kind == "file") {
        match path.parse() {
            Ok(path) => files.push(ListedFile { path, size }),
            Err(_) => passed_over += 1,
        }
    }
    if files.len() > MOST_FILES {
        return Err(ListingError::TooManyFiles { limit: MOST_FILES });
    }
    Ok(passed_over)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links() {
        let cases = [
            (
                r#"<https://huggingface.co/api/models/a/b/tree/main?recursive=true&cursor=x%3D>; rel="next""#,
                Some("recursive=true&cursor=x%3D"),
            ),
            (r#"</x?a>; rel="prev", </y?b,c;d>; title="t"; rel=next"#, Some("b,c;d")),
            (r#"</x?a>; rel="xet-auth", </y?b>; rel="last""#, None),
            (r#"</x>; rel="next""#, None),
            ("", None),
            ("<", None),
            ("<>;rel", None),
        ];
        for (link, query) in cases {
            assert_eq!(next_query(link).as_deref(), query, "{link}");
        }
    }

    #[test]
    fn pages() {
        let mut files = Vec::new();
        let page = br#"[{"type":"directory","path":"a","size":0,"oid":"x"},
            {"type":"file","path":"a/b.safetensors","size":7,"lfs":{"size":7}},
            {"type":"file","path":"a/../b","size":1},{"type":"file","path":"c"}]"#;
        assert_eq!(add(&mut files, page).unwrap(), 1);
        let found: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.size)).collect();
        assert_eq!(found, [("a/b.safetensors", 7), ("c", 0)]);
        for page in ["{}", "[{}]", "[", r#"[{"type":"file","path":"a","size":-1}]"#] {
            assert!(matches!(add(&mut files, page.as_bytes()), Err(ListingError::Json { .. })));
        }
    }

    #[test]
    fn there_is_an_end_of_files() {
        let page = format!("[{}]", vec![r#"{"type":"file","path":"a"}"#; MOST_FILES].join(","));
        let mut files = Vec::new();
        assert_eq!(add(&mut files, page.as_bytes()).unwrap(), 0);
        let more = add(&mut files, br#"[{"type":"file","path":"b"}]"#);
        assert!(matches!(more, Err(ListingError::TooManyFiles { limit: MOST_FILES })));
    }
}
