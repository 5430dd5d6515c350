//! Which redirects are followed.

use ::url::Url;
use reqwest::Response;
use reqwest::header::{HeaderValue, LOCATION};

use super::{HttpError, SafeUrl};

/// The most redirects that one answer may take. The Hub itself needs two (another spelling of the
/// repo, then the CDN), a mirror before it one more.
const MAX_REDIRECTS: usize = 6;

/// Where an answer leads on to; `None` if it is the last. `hops` counts the answers so far.
pub(super) fn target(response: &Response, hops: usize) -> Result<Option<Url>, HttpError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = response.headers().get(LOCATION).map(HeaderValue::as_bytes);
    match follow(response.url(), location, hops) {
        Ok(url) => Ok(Some(url)),
        Err(reason) => Err(HttpError::Redirect { url: SafeUrl::from(response.url()), reason }),
    }
}

/// The target of a redirect, or why it is not one.
fn follow(from: &Url, location: Option<&[u8]>, hops: usize) -> Result<Url, &'static str> {
    if hops > MAX_REDIRECTS {
        return Err("too often");
    }
    let location = location.ok_or("without saying where to")?;
    let location = std::str::from_utf8(location).map_err(|_| "to something that is not a URL")?;
    let target = from.join(location).map_err(|_| "to something that is not a URL")?;
    match target.scheme() {
        "https" => Ok(target),
        "http" if from.scheme() == "http" => Ok(target),
        "http" => Err("from https to http"),
        _ => Err("to something that is not HTTP"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let cases = [
            ("https://hub.example/a/b", "/api/c?d=e", Ok("https://hub.example/api/c?d=e")),
            ("https://hub.example/a/b", "https://cdn.example/x", Ok("https://cdn.example/x")),
            ("https://hub.example/a/b", "//cdn.example/x", Ok("https://cdn.example/x")),
            ("http://127.0.0.1:1/a", "http://127.0.0.1:2/x", Ok("http://127.0.0.1:2/x")),
            ("http://127.0.0.1:1/a", "https://cdn.example/x", Ok("https://cdn.example/x")),
            ("https://hub.example/a/b", "http://cdn.example/x", Err("from https to http")),
            ("https://hub.example/a/b", "file:///etc/passwd", Err("to something that is not HTTP")),
            ("https://hub.example/a/b", "https://[", Err("to something that is not a URL")),
            ("https://hub.example/a/b", "\u{ff}", Ok("https://hub.example/a/%C3%BF")),
        ];
        for (from, location, target) in cases {
            let found = follow(&Url::parse(from).unwrap(), Some(location.as_bytes()), 1);
            assert_eq!(
                found.as_ref().map(Url::as_str).map_err(|reason| *reason),
                target,
                "{location}"
            );
        }
        let from = Url::parse("https://hub.example/").unwrap();
        assert!(follow(&from, None, 1).is_err());
        assert!(follow(&from, Some(b"\xff"), 1).is_err());
        assert!(follow(&from, Some(b"/"), MAX_REDIRECTS).is_ok());
        assert!(follow(&from, Some(b"/"), MAX_REDIRECTS + 1).is_err());
    }
}
