//! The settings of a client for HTTP: proxies, certificates, headers, connections and timeouts.

use std::fmt;
use std::time::Duration;

use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, RANGE, USER_AGENT,
};
use url::Url;

use super::ClientBuilder;
use crate::error::Error;
use crate::http::{AddressPolicy, ConnectionSettings, HttpSettings, Proxies, RetryPolicy};

/// The headers that the client sets itself.
const OWN_HEADERS: [HeaderName; 5] = [ACCEPT_ENCODING, AUTHORIZATION, HOST, RANGE, USER_AGENT];

/// The settings of a [`ClientBuilder`] for HTTP.
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
    /// Returns the number of requests that are in flight at once.
    pub(super) fn concurrency(&self) -> usize {
        self.connection.concurrency
    }

    /// Returns whether only creating an HTTP client shows that the settings can be used.
    pub(super) fn needs_check(&self) -> bool {
        #[cfg(feature = "rustls-no-provider")]
        if !self.root_certificates.is_empty() {
            return true;
        }
        self.connection.hook.is_some()
    }

    /// Checks the settings.
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
    /// Sets the name of the program that uses this library, such as `badges/1.0`. It follows
    /// `hf-meta/<version>` in the `User-Agent` header.
    pub fn user_agent(mut self, program: impl Into<String>) -> Self {
        self.http.user_agent = Some(program.into());
        self
    }

    /// Sets which addresses may be requested; [`AddressPolicy::Any`] by default.
    pub fn addresses(mut self, policy: AddressPolicy) -> Self {
        self.http.connection.addresses = policy;
        self
    }

    /// Sets an HTTP proxy for all servers, such as `http://user:password@proxy.example:8080`; none by default. It
    /// takes precedence over [`proxy_from_env`](Self::proxy_from_env).
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.http.proxy = Some(url.into());
        self
    }

    /// Sets whether the proxies of the environment are used (`https_proxy`, `http_proxy`, `all_proxy`,
    /// `no_proxy`); `false` by default.
    pub fn proxy_from_env(mut self, yes: bool) -> Self {
        self.http.proxy_from_env = yes;
        self
    }

    /// Adds root certificates in PEM, such as the authority of a company. They are trusted besides Mozilla's or those
    /// of the [system](Self::system_certificates).
    #[cfg(feature = "rustls-no-provider")]
    pub fn root_certificate_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.http.root_certificates.push(pem.into());
        self
    }

    /// Sets whether the certificates of the system are trusted, such as the authority of a company; `false` by
    /// default. On Linux, the environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR` can name others.
    ///
    /// By default, and on a system without certificates, Mozilla's root certificates are trusted. They are part of
    /// this library.
    pub fn system_certificates(mut self, yes: bool) -> Self {
        self.http.connection.system_certificates = yes;
        self
    }

    /// Adds a header to every request to the endpoint, such as the key of a gateway. Like the token, it is sent to the
    /// endpoint's origin only, and never logged. Headers that the client sets itself are an error.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.http.headers.push((name.into(), value.into()));
        self
    }

    /// Sets how many requests of all calls are in flight at once, at least one; 256 by default. They share one
    /// connection to each HTTP/2 server.
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.http.connection.concurrency = requests.max(1);
        self
    }

    /// Sets the part of each quota of a server that is used, from 0 to 1; 1 by default. The rest is left to other
    /// programs with the same token or address. Each of several processes that share a quota gets an equal part with
    /// 1 divided by their number.
    pub fn quota_share(mut self, share: f64) -> Self {
        self.http.connection.quota_share = if share.is_nan() { 1.0 } else { share.clamp(0.0, 1.0) };
        self
    }

    /// Sets the limit of connections to all HTTP/1.1 servers together, at least one; 64 by default. A request over
    /// HTTP/1.1 needs a connection of its own.
    pub fn http1_connections(mut self, connections: usize) -> Self {
        self.http.connection.http1_connections = connections;
        self
    }

    /// Sets the timeout for a connection: name resolution, TCP and TLS. 10 seconds by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.http.connection.timeouts.connect = timeout;
        self
    }

    /// Sets the timeout between two reads of a response. 10 seconds by default.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.http.connection.timeouts.read = timeout;
        self
    }

    /// Sets the timeout of one request with its body. 60 seconds by default.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.http.connection.timeouts.request = timeout;
        self
    }

    /// Sets the retries after transient failures.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.http.connection.retry = policy;
        self
    }

    /// Sets a function that changes the HTTP client of the library [`reqwest`], for settings that this builder lacks.
    ///
    /// It runs after the settings of this builder. Redirects, retries, decompression and the
    /// [`AddressPolicy`] are set again afterwards: a client that follows redirects by itself would send the token to
    /// other servers. Default headers are sent to every server, so use [`header`](Self::header) for secrets.
    ///
    /// A new version of `reqwest` may come with a minor version of this library.
    #[cfg(feature = "reqwest-hook")]
    pub fn reqwest_hook(
        mut self,
        hook: impl Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder + Send + Sync + 'static,
    ) -> Self {
        self.http.connection.hook = Some(crate::http::HttpHook(std::sync::Arc::new(hook)));
        self
    }
}

/// Parses certificates. A text without any is an error.
#[cfg(feature = "rustls-no-provider")]
fn certificates(texts: &[Vec<u8>]) -> Result<Vec<reqwest::Certificate>, Error> {
    let mut certificates = Vec::new();
    for pem in texts {
        let parsed = reqwest::Certificate::from_pem_bundle(pem).map_err(Error::http_client)?;
        if parsed.is_empty() {
            return Err(Error::http_client("no certificate in the PEM text"));
        }
        certificates.extend(parsed);
    }
    Ok(certificates)
}

/// Returns a header, marked as secret for logs of headers.
fn header((name, value): &(String, String)) -> Result<(HeaderName, HeaderValue), Error> {
    let invalid = |reason| Error::RequestHeader { name: crate::formats::clip(name), reason };
    let name: HeaderName = name.parse().map_err(|_| invalid("its name is not valid"))?;
    if OWN_HEADERS.contains(&name) {
        return Err(invalid("the client sets it"));
    }
    let value = HeaderValue::from_str(value);
    let mut value = value.map_err(|_| invalid("its value has characters that are not allowed"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Returns the `User-Agent` header: this library, and the program that uses it.
fn user_agent(user: Option<&str>) -> Result<HeaderValue, Error> {
    let library = concat!("hf-meta/", env!("CARGO_PKG_VERSION"));
    let agent = user.map_or_else(|| library.to_owned(), |user| format!("{library} {user}"));
    HeaderValue::from_str(&agent).map_err(|_| Error::UserAgent)
}

/// The proxy and the values of headers are left out: they may be secrets.
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
