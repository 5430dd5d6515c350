//! An HTTP client for byte ranges and small files.
//!
//! This module knows neither safetensors nor repositories. [`Http`] has three operations ([`request`]):
//! [`Http::read_range`] reads a range of a file, [`Http::read_file`] (and [`Http::read_all`], built on it) reads a small
//! file, and [`Http::head`] requests one response header. All of them are sent in the same way.
//!
//! # The life of a range request
//!
//! 1. [`Http::read_range`] connects early to the CDN if its origin is known ([`client`]) and starts the retry
//!    loop. Each attempt has counters ([`attempt`]), and goes through [`send`].
//! 2. The address policy rejects disallowed IP literals. Hostnames are checked by the DNS resolver, which drops
//!    disallowed addresses ([`address`]).
//! 3. The rate limit gate delays the request while its bucket at the origin is on hold ([`rate_limit_gate`]). Then
//!    the request waits for one of the client's permits for requests in flight.
//! 4. The request uses an HTTP/2 connection, or takes a permit for an HTTP/1.1 connection, as most data do ([`clients`]).
//!    It carries a `Range` header, and the token if the URL is on the endpoint's origin.
//! 5. If the response has a `RateLimit` or `Retry-After` header, the gate applies it to later requests
//!    ([`rate_limit`]).
//! 6. A redirect restarts at step 2 with the new URL.
//! 7. The status, `Content-Range` and `Content-Length` of the final response are compared with the range
//!    ([`range`]). Then the body is read, up to the last requested byte ([`body`]).
//! 8. After a transient error, the retry loop waits and starts over with the original URL.
//!
//! # Why redirects are followed manually
//!
//! If the HTTP library followed redirects, four things would be lost:
//!
//! - The Hub sends `X-Repo-Commit` with its redirect; the CDN does not send it with the file.
//!   [`ResponseChain`] keeps the headers of every response.
//! - A signed CDN URL is valid for one range and a limited time, so each range starts at the Hub.
//! - The token is sent to one origin only, even if redirects lead away and back.
//! - The address policy and the rate limit gate apply to every redirect.

mod address;
mod attempt;
mod body;
mod client;
mod clients;
mod error;
mod range;
mod rate_limit;
mod rate_limit_gate;
mod request;
mod send;
mod settings;
mod tls;

pub use address::AddressPolicy;
pub(crate) use address::Proxies;
pub(crate) use attempt::{ResponseChain, transfer_time};
pub(crate) use client::{Http, KnownServers};
pub(crate) use error::{defect, over_budget};
pub(crate) use hf_meta_inspect::{HttpError, HttpErrorKind, HubError};
pub(crate) use request::PartialFile;
pub(crate) use settings::HttpSettings;
pub use settings::RetryPolicy;
pub(crate) use tls::has_tls_provider;
#[cfg(feature = "rustls-no-provider")]
pub(crate) use tls::parse_certificates;

use std::fmt;

use ::url::{Position, Url};

/// The maximum length of a displayed path in bytes.
const MAX_PATH: usize = 500;

/// A URL without user, password, query and fragment, safe for messages and logs.
///
/// The query is omitted because it may contain the signature of a signed URL; `…` marks an omitted query. Long paths
/// are truncated.
#[derive(Clone, Debug)]
pub(crate) struct SafeUrl(String);

impl From<&Url> for SafeUrl {
    fn from(url: &Url) -> Self {
        let server = &url[Position::BeforeHost..Position::AfterPort];
        let path = url.path();
        let path = path.get(..MAX_PATH).unwrap_or(path);
        let rest = if url.query().is_some() || path.len() < url.path().len() { "…" } else { "" };
        Self(format!("{}://{server}{path}{rest}", url.scheme()))
    }
}

impl fmt::Display for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
pub(crate) mod proptest_config;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_long_paths_are_removed() {
        let cases = [
            (
                "https://huggingface.co/gpt2/resolve/main/x",
                "https://huggingface.co/gpt2/resolve/main/x",
            ),
            ("https://user:pass@example.org:8080/x", "https://example.org:8080/x"),
            ("socks5h://user:pass@example.org", "socks5h://example.org"),
            (
                "https://cdn.example.org/x?Signature=s3cr3t&Expires=1#f",
                "https://cdn.example.org/x…",
            ),
        ];
        for (url, shown) in cases {
            let safe = SafeUrl::from(&Url::parse(url).unwrap());
            assert_eq!(safe.to_string(), shown);
            assert!(!format!("{safe:?}").contains("s3cr3t"));
        }
        let long = Url::parse(&format!("https://example.org/{}", "a".repeat(10_000))).unwrap();
        assert!(SafeUrl::from(&long).to_string().len() < 600);
    }
}
