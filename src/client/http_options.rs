//! HTTP settings of a client: proxies, certificates, headers, connections and timeouts.

use std::fmt;
use std::time::Duration;

use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, RANGE, USER_AGENT,
};
use url::Url;

use super::ClientBuilder;
use crate::error::Error;
use crate::http::{AddressPolicy, ConnectionSettings, HttpSettings, Proxies, RetryPolicy};

/// Headers that the client sets and callers cannot override.
const OWN_HEADERS: [HeaderName; 5] = [ACCEPT_ENCODING, AUTHORIZATION, HOST, RANGE, USER_AGENT];

/// The HTTP settings of a [`ClientBuilder`].
#[derive(Clone, Default)]
pub(super) struct HttpOptions {
    user_agent: Option<String>,
    proxy: Option<String>,
    proxy_from_env: bool,
    #[cfg(feature = "rustls-no-provider")]
    root_certificates: Vec<Vec<u8>>,
    headers: Vec<(String, String)>,
    connection: ConnectionSettings,
}

impl HttpOptions {
    /// Returns the maximum number of requests in flight.
    pub(super) fn concurrency(&self) -> usize {
        self.connection.concurrency
    }

    /// Returns whether validating the settings requires creating an HTTP client.
    pub(super) fn needs_check(&self) -> bool {
        #[cfg(feature = "rustls-no-provider")]
        if !self.root_certificates.is_empty() {
            return true;
        }
        self.connection.hook.is_some()
    }

    /// Validates the settings.
    pub(super) fn settings(
        self,
        endpoint: &Url,
        token: Option<HeaderValue>,
    ) -> Result<HttpSettings, Error> {
        let from_env = || self.proxy_from_env.then(|| Proxies::from_env(endpoint));
        let proxies = self.proxy.as_deref().map(Proxies::for_all).or_else(from_env);
        Ok(HttpSettings {
            endpoint: endpoint.clone(),
            token,
            user_agent: user_agent(self.user_agent.as_deref())?,
            headers: self.headers.iter().map(header).collect::<Result<HeaderMap, _>>()?,
            proxies: proxies.transpose()?,
            #[cfg(feature = "rustls-no-provider")]
            root_certificates: certificates(&self.root_certificates)?,
            connection: self.connection,
        })
    }
}

impl ClientBuilder {
    /// Sets the name and version of your program, such as `badges/1.0`. It is appended to `hf-meta/<version>` in the
    /// `User-Agent` header.
    pub fn user_agent(mut self, program: impl Into<String>) -> Self {
        self.http.user_agent = Some(program.into());
        self
    }

    /// Sets the policy for the IP addresses that may be contacted; [`AddressPolicy::Any`] by default.
    pub fn addresses(mut self, policy: AddressPolicy) -> Self {
        self.http.connection.addresses = policy;
        self
    }

    /// Sets an HTTP proxy for all servers, such as `http://user:password@proxy.example:8080`; none by default. Takes
    /// precedence over [`proxy_from_env`](Self::proxy_from_env).
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.http.proxy = Some(url.into());
        self
    }

    /// Sets whether to use the proxies from the environment (`https_proxy`, `http_proxy`, `all_proxy`, `no_proxy`);
    /// `false` by default.
    pub fn proxy_from_env(mut self, yes: bool) -> Self {
        self.http.proxy_from_env = yes;
        self
    }

    /// Adds PEM-encoded root certificates, such as that of a corporate CA. They are trusted in addition to Mozilla's
    /// or those of the [system](Self::system_certificates).
    #[cfg(feature = "rustls-no-provider")]
    pub fn root_certificate_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.http.root_certificates.push(pem.into());
        self
    }

    /// Sets whether to trust the system's root certificates, which may include a corporate CA; `false` by default. On
    /// Linux, the environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR` override their location.
    ///
    /// Otherwise, and on systems without certificates, Mozilla's root certificates are trusted. They are bundled with
    /// this library.
    pub fn system_certificates(mut self, yes: bool) -> Self {
        self.http.connection.system_certificates = yes;
        self
    }

    /// Adds a header to every request to the endpoint, such as a gateway key. Like the token, it is sent only to the
    /// endpoint's origin and is never logged. Headers that the client sets itself are rejected by
    /// [`build`](Self::build).
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.http.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the maximum number of requests in flight across all calls, at least 1; 256 by default. Requests to the
    /// same HTTP/2 server share one connection.
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.http.connection.concurrency = requests.max(1);
        self
    }

    /// Sets the fraction of each server quota to use, from 0 to 1; 1 by default. The rest is left to other programs
    /// that use the same token or IP address. To split a quota evenly among `n` processes, set `1 / n` in each of
    /// them.
    pub fn quota_share(mut self, share: f64) -> Self {
        self.http.connection.quota_share = if share.is_nan() { 1.0 } else { share.clamp(0.0, 1.0) };
        self
    }

    /// Sets the maximum number of connections to all HTTP/1.1 servers together, at least 1; 64 by default. Over
    /// HTTP/1.1, each request in flight occupies a connection.
    pub fn max_http1_connections(mut self, connections: usize) -> Self {
        self.http.connection.max_http1_connections = connections;
        self
    }

    /// Sets the timeout for establishing a connection (name resolution, TCP and TLS); 10 seconds by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.http.connection.timeouts.connect = timeout;
        self
    }

    /// Sets the timeout between two reads of a response; 10 seconds by default.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.http.connection.timeouts.read = timeout;
        self
    }

    /// Sets the timeout of one request, including its response body; 60 seconds by default.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.http.connection.timeouts.request = timeout;
        self
    }

    /// Sets the retry policy for transient failures.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.http.connection.retry = policy;
        self
    }

    /// Sets a function that customizes the underlying [`reqwest`] client builder, for settings that this builder
    /// lacks.
    ///
    /// It runs after this builder's settings have been applied. Redirects, retries, decompression and the
    /// [`AddressPolicy`] are then reset, because a client that follows redirects itself would leak the token to other
    /// servers. Default headers are sent to every server, so use [`header`](Self::header) for secrets.
    ///
    /// A minor release of this library may upgrade to a new major version of `reqwest`.
    #[cfg(feature = "reqwest-hook")]
    pub fn reqwest_hook(
        mut self,
        hook: impl Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder + Send + Sync + 'static,
    ) -> Self {
        self.http.connection.hook = Some(crate::http::HttpHook(std::sync::Arc::new(hook)));
        self
    }
}

/// Parses PEM certificates. A text without a certificate is an error.
#[cfg(feature = "rustls-no-provider")]
fn certificates(texts: &[Vec<u8>]) -> Result<Vec<reqwest::Certificate>, Error> {
    let mut certificates = Vec::new();
    for pem in texts {
        let parsed = reqwest::Certificate::from_pem_bundle(pem).map_err(Error::http_client)?;
        if parsed.is_empty() {
            return Err(Error::http_client("the PEM text contains no certificate"));
        }
        certificates.extend(parsed);
    }
    Ok(certificates)
}

/// Parses a header and marks its value as sensitive.
fn header((name, value): &(String, String)) -> Result<(HeaderName, HeaderValue), Error> {
    let invalid = |reason| Error::InvalidRequestHeader { name: crate::formats::clip(name), reason };
    let name: HeaderName = name.parse().map_err(|_| invalid("the name is invalid"))?;
    if OWN_HEADERS.contains(&name) {
        return Err(invalid("it is reserved for the client"));
    }
    let value = HeaderValue::from_str(value);
    let mut value = value.map_err(|_| invalid("the value contains invalid characters"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Returns the `User-Agent` header, which names this library and the program that uses it.
fn user_agent(user: Option<&str>) -> Result<HeaderValue, Error> {
    let library = concat!("hf-meta/", env!("CARGO_PKG_VERSION"));
    let agent = user.map_or_else(|| library.to_owned(), |user| format!("{library} {user}"));
    HeaderValue::from_str(&agent).map_err(|_| Error::InvalidUserAgent)
}

/// Omits the proxy and the header values, which may be secrets.
impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("HttpOptions")
            .field("user_agent", &self.user_agent)
            .field("proxy", &self.proxy.is_some())
            .field("proxy_from_env", &self.proxy_from_env)
            .field("headers", &headers)
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}
