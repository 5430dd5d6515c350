//! The HTTP proxies of the environment.

use ::url::{Origin, Url};
use hyper_util::client::proxy::matcher::Matcher;
use thiserror::Error;

use super::SafeUrl;

/// The proxies of the environment, by the rules of the HTTP library: it uses the same matcher.
#[derive(Clone, Debug)]
pub(crate) struct EnvProxies(std::sync::Arc<Matcher>);

/// The error of a proxy in the environment that cannot be used. The proxy itself is left out, because it may
/// contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the proxy in `{variable}` cannot be used: {reason}")]
#[non_exhaustive]
pub struct ProxyError {
    /// The environment variable.
    pub variable: &'static str,
    /// The rule that its value breaks.
    pub reason: &'static str,
}

impl EnvProxies {
    /// Reads the environment.
    ///
    /// # Errors
    ///
    /// If the proxy for `endpoint` cannot be used. The HTTP library would ignore it.
    pub(crate) fn from_env(endpoint: &Url) -> Result<Self, ProxyError> {
        let names = match endpoint.scheme() {
            "https" => ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
            _ => ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"],
        };
        let values = names.map(|name| (name, std::env::var(name).unwrap_or_default()));
        if let Some((variable, value)) = values.iter().find(|(_, value)| !value.is_empty()) {
            check(variable, value)?;
        }
        Ok(Self(Matcher::from_env().into()))
    }

    /// Returns the proxy for a server, if there is one.
    pub(super) fn proxy_for(&self, origin: &Origin) -> Option<SafeUrl> {
        let server = origin.ascii_serialization().parse().ok()?;
        let proxy = self.0.intercept(&server)?.uri().to_string();
        Some(SafeUrl::from(&Url::parse(&proxy).ok()?))
    }
}

fn check(variable: &'static str, value: &str) -> Result<(), ProxyError> {
    let invalid = |reason| Err(ProxyError { variable, reason });
    let used = Matcher::builder().all(value).build();
    let server = "http://server.invalid".parse().ok().and_then(|server| used.intercept(&server));
    match server.as_ref().map(|proxy| proxy.uri().scheme_str()) {
        Some(Some("http" | "https")) => Ok(()),
        Some(_) => invalid("only HTTP proxies are supported"),
        None => invalid("it is not the URL of a proxy"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_the_http_library_would_ignore_is_an_error() {
        for value in ["http://127.0.0.1:1", "https://u:p@proxy.example", "proxy.example:8080"] {
            assert_eq!(check("https_proxy", value), Ok(()), "{value}");
        }
        for value in ["http://[bad", "ftp://proxy.example", "socks5://proxy.example", " ", "/x"] {
            assert!(check("https_proxy", value).is_err(), "{value}");
        }
    }
}
