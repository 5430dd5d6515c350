//! Redirects: which ones are followed, and the headers of every response on the way.

use ::url::Url;
use reqwest::Response;
use reqwest::header::{HeaderMap, HeaderValue, LOCATION};

use super::{HttpError, SafeUrl};

/// The maximum number of redirects per request. The Hub needs two (to the canonical repository name, then to the
/// CDN), and a mirror in front of it needs one more.
const MAX_REDIRECTS: usize = 6;

/// The headers of all responses to one request: the redirects in order, then the final response.
#[derive(Debug, Default)]
pub(crate) struct ResponseChain(Vec<HeaderMap>);

impl ResponseChain {
    /// Returns the value of a header in the first response that has it.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|headers| headers.get(name)?.to_str().ok())
    }

    /// Adds a response. Returns the target if it is a redirect, or `None` if it is final.
    pub(super) fn push(&mut self, response: &Response) -> Result<Option<Url>, HttpError> {
        self.0.push(response.headers().clone());
        target(response, self.0.len())
    }
}

/// Returns the target of a redirect, or `None` for a final response. `responses` counts the responses so far,
/// including this one.
pub(super) fn target(response: &Response, responses: usize) -> Result<Option<Url>, HttpError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = response.headers().get(LOCATION).map(HeaderValue::as_bytes);
    match resolve(response.url(), location, responses) {
        Ok(url) => Ok(Some(url)),
        Err(reason) => Err(HttpError::Redirect { url: SafeUrl::from(response.url()), reason }),
    }
}

/// Resolves a `Location` header (RFC 9110, section 10.2.2), or returns the reason not to follow it.
fn resolve(from: &Url, location: Option<&[u8]>, responses: usize) -> Result<Url, &'static str> {
    if responses > MAX_REDIRECTS {
        return Err("too many redirects");
    }
    let location = location.ok_or("no `Location` header")?;
    let location = std::str::from_utf8(location).map_err(|_| "the target is not a URL")?;
    let target = from.join(location).map_err(|_| "the target is not a URL")?;
    match target.scheme() {
        "https" => Ok(target),
        "http" if from.scheme() == "http" => Ok(target),
        "http" => Err("the target is `http`, not `https`"),
        _ => Err("the target is not HTTP"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_within_http_and_never_leave_https() {
        let cases = [
            ("https://hub.example/a/b", "/api/c?d=e", Ok("https://hub.example/api/c?d=e")),
            ("https://hub.example/a/b", "https://cdn.example/x", Ok("https://cdn.example/x")),
            ("https://hub.example/a/b", "//cdn.example/x", Ok("https://cdn.example/x")),
            ("http://127.0.0.1:1/a", "http://127.0.0.1:2/x", Ok("http://127.0.0.1:2/x")),
            ("http://127.0.0.1:1/a", "https://cdn.example/x", Ok("https://cdn.example/x")),
            (
                "https://hub.example/a/b",
                "http://cdn.example/x",
                Err("the target is `http`, not `https`"),
            ),
            ("https://hub.example/a/b", "file:///etc/passwd", Err("the target is not HTTP")),
            ("https://hub.example/a/b", "https://[", Err("the target is not a URL")),
            ("https://hub.example/a/b", "\u{ff}", Ok("https://hub.example/a/%C3%BF")),
        ];
        for (from, location, target) in cases {
            let found = resolve(&Url::parse(from).unwrap(), Some(location.as_bytes()), 1);
            assert_eq!(
                found.as_ref().map(Url::as_str).map_err(|reason| *reason),
                target,
                "{location}"
            );
        }
        let from = Url::parse("https://hub.example/").unwrap();
        assert!(resolve(&from, None, 1).is_err());
        assert!(resolve(&from, Some(b"\xff"), 1).is_err());
        assert!(resolve(&from, Some(b"/"), MAX_REDIRECTS).is_ok());
        assert!(resolve(&from, Some(b"/"), MAX_REDIRECTS + 1).is_err());
    }
}
