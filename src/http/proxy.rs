//! The proxies that are set in the environment.

use std::fmt;
use std::sync::Arc;

use ::url::{Origin, Url};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

use super::SafeUrl;

/// The proxies of the environment. They are matched by the HTTP library's own matcher.
#[derive(Clone)]
pub(crate) struct Proxies(Arc<Matcher>);

/// Omits the URLs, which may contain a password.
impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxies").finish_non_exhaustive()
    }
}

impl Proxies {
    /// Reads the proxies from the environment.
    ///
    /// # Errors
    ///
    /// If the proxy for `endpoint` is invalid. The HTTP library would silently ignore it.
    pub(crate) fn from_env(endpoint: &Url) -> Result<Self, String> {
        let names = match endpoint.scheme() {
            "https" => ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
            _ => ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"],
        };
        let values = names.map(|name| (name, std::env::var(name).unwrap_or_default()));
        if let Some((variable, value)) = values.iter().find(|(_, value)| !value.is_empty()) {
            check(variable, value)?;
        }
        Ok(Self(Arc::new(Matcher::from_env())))
    }

    /// Returns the hostnames of the HTTP and HTTPS proxies, in lower case.
    pub(super) fn hosts(&self) -> Vec<String> {
        let servers = ["http://server.invalid", "https://server.invalid"];
        let proxies = servers.iter().filter_map(|server| intercept(&self.0, server));
        proxies.filter_map(|proxy| Some(proxy.uri().host()?.to_ascii_lowercase())).collect()
    }

    /// Returns the proxy for a server, if any.
    pub(super) fn proxy_for(&self, origin: &Origin) -> Option<SafeUrl> {
        let proxy = intercept(&self.0, &origin.ascii_serialization())?;
        Some(SafeUrl::from(&Url::parse(&proxy.uri().to_string()).ok()?))
    }
}

fn intercept(matcher: &Matcher, server: &str) -> Option<Intercept> {
    matcher.intercept(&server.parse().ok()?)
}

/// Checks that the HTTP library would use a proxy. The message omits the value, which may contain a password.
fn check(variable: &str, value: &str) -> Result<(), String> {
    let proxy = intercept(&Matcher::builder().all(value).build(), "http://server.invalid");
    let reason = "it is not the URL of an HTTP or SOCKS proxy";
    proxy.map(|_| ()).ok_or_else(|| format!("invalid proxy in `{variable}`: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Proxies {
        /// Returns the proxy for all servers.
        pub(in crate::http) fn for_test(proxy: &str) -> Self {
            Self(Arc::new(Matcher::builder().all(proxy).build()))
        }
    }

    #[test]
    fn a_proxy_that_the_http_library_would_ignore_is_an_error() {
        for value in [
            "http://127.0.0.1:1",
            "https://u:p@proxy.example",
            "proxy.example:8080",
            "socks5h://u:p@proxy.example",
        ] {
            assert_eq!(check("https_proxy", value), Ok(()), "{value}");
        }
        for value in ["http://[bad", "ftp://proxy.example", " ", "/x"] {
            assert!(check("https_proxy", value).is_err(), "{value}");
        }
    }
}
