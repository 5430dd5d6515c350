//! HTTP proxies: one for all servers, or those of the environment.

use std::sync::Arc;

use ::url::{Origin, Url};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{ClientBuilder, Proxy};
use thiserror::Error;

use super::SafeUrl;

/// The setting of [`ClientBuilder::proxy`](crate::ClientBuilder::proxy), for messages.
const PROXY_SETTING: &str = "ClientBuilder::proxy";

/// The proxies of a client, by the rules of the HTTP library: it uses the same matcher.
#[derive(Clone, Debug)]
pub(crate) struct Proxies {
    matcher: Arc<Matcher>,
    /// The proxy of all servers; `None` if the environment names the proxies.
    for_all: Option<Proxy>,
}

/// The error of a proxy that cannot be used. The proxy itself is left out, because it may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the proxy in `{setting}` cannot be used: {reason}")]
#[non_exhaustive]
pub struct ProxyError {
    /// The environment variable, or `ClientBuilder::proxy`.
    pub setting: &'static str,
    /// The rule that its value breaks.
    pub reason: &'static str,
}

impl Proxies {
    /// Uses one proxy for all servers.
    ///
    /// # Errors
    ///
    /// If the text is not the URL of an HTTP proxy.
    pub(crate) fn for_all(proxy: &str) -> Result<Self, ProxyError> {
        check(PROXY_SETTING, proxy)?;
        let invalid = |_| ProxyError { setting: PROXY_SETTING, reason: NOT_A_URL };
        let for_all = Some(Proxy::all(proxy).map_err(invalid)?);
        Ok(Self { matcher: Arc::new(Matcher::builder().all(proxy).build()), for_all })
    }

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
        Ok(Self { matcher: Arc::new(Matcher::from_env()), for_all: None })
    }

    /// Sets the proxies of an HTTP client, which reads the environment by default.
    pub(super) fn apply(&self, builder: ClientBuilder) -> ClientBuilder {
        match &self.for_all {
            Some(proxy) => builder.proxy(proxy.clone()),
            None => builder,
        }
    }

    /// Returns the names of the proxies for HTTP and HTTPS, in lower case.
    pub(super) fn hosts(&self) -> Vec<String> {
        let servers = ["http://server.invalid", "https://server.invalid"];
        let proxies = servers.iter().filter_map(|server| {
            let proxy = self.matcher.intercept(&server.parse().ok()?)?;
            Some(proxy.uri().host()?.to_ascii_lowercase())
        });
        proxies.collect()
    }

    /// Returns the proxy for a server, if there is one.
    pub(super) fn proxy_for(&self, origin: &Origin) -> Option<SafeUrl> {
        let server = origin.ascii_serialization().parse().ok()?;
        let proxy = self.matcher.intercept(&server)?.uri().to_string();
        Some(SafeUrl::from(&Url::parse(&proxy).ok()?))
    }
}

const NOT_A_URL: &str = "it is not the URL of a proxy";

fn check(setting: &'static str, value: &str) -> Result<(), ProxyError> {
    let invalid = |reason| Err(ProxyError { setting, reason });
    let used = Matcher::builder().all(value).build();
    let server = "http://server.invalid".parse().ok().and_then(|server| used.intercept(&server));
    match server.as_ref().map(|proxy| proxy.uri().scheme_str()) {
        Some(Some("http" | "https")) => Ok(()),
        Some(_) => invalid("only HTTP proxies are supported"),
        None => invalid(NOT_A_URL),
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
            assert!(Proxies::for_all(value).is_err(), "{value}");
        }
    }
}
