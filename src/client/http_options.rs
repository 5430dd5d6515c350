//! HTTP settings of a client: proxies, certificates, headers, connections and timeouts.

use std::time::Duration;

use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderName, HeaderValue, RANGE, USER_AGENT,
};

use super::ClientBuilder;
use super::builder::Secret;
use crate::error::Error;
use crate::http::{AddressPolicy, RetryPolicy};

/// Headers that the client sets and callers cannot override.
const OWN_HEADERS: [HeaderName; 5] = [ACCEPT_ENCODING, AUTHORIZATION, HOST, RANGE, USER_AGENT];

impl ClientBuilder {
    /// Sets the name and version of your program, such as `badges/1.0`. It is appended to `hf-meta/<version>` in the
    /// `User-Agent` header.
    pub fn user_agent(mut self, program: impl Into<String>) -> Self {
        self.user_agent = Some(program.into());
        self
    }

    /// Sets the policy for the IP addresses that may be contacted; [`AddressPolicy::Any`] by default.
    pub fn address_policy(mut self, policy: AddressPolicy) -> Self {
        self.http.address_policy = policy;
        self
    }

    /// Sets an HTTP proxy for all servers, such as `http://user:password@proxy.example:8080`; none by default. Takes
    /// precedence over [`proxy_from_env`](Self::proxy_from_env).
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.proxy = Some(Secret(url.into()));
        self
    }

    /// Sets whether to use the proxies from the environment (`https_proxy`, `http_proxy`, `all_proxy`, `no_proxy`);
    /// `false` by default.
    pub fn proxy_from_env(mut self, enabled: bool) -> Self {
        self.proxy_from_env = enabled;
        self
    }

    /// Adds PEM-encoded root certificates, such as that of a corporate CA. They are trusted in addition to Mozilla's
    /// or those of the [system](Self::system_certificates).
    #[cfg(feature = "rustls-no-provider")]
    pub fn root_certificate_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificates.push(pem.into());
        self
    }

    /// Sets whether to trust the system's root certificates, which may include a corporate CA; `false` by default. On
    /// Linux, the environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR` override their location.
    ///
    /// Otherwise, and on systems without certificates, Mozilla's root certificates are trusted. They are bundled with
    /// this library.
    pub fn system_certificates(mut self, enabled: bool) -> Self {
        self.http.system_certificates = enabled;
        self
    }

    /// Adds a header to every request to the endpoint, such as a gateway key. Like the token, it is sent only to the
    /// endpoint's origin and is never logged. Headers that the client sets itself are rejected by
    /// [`build`](Self::build).
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), Secret(value.into())));
        self
    }

    /// Sets the maximum number of requests in flight across all calls, at least 1; 256 by default. Requests to the
    /// same HTTP/2 server share one connection.
    pub fn max_concurrent_requests(mut self, requests: usize) -> Self {
        self.http.max_concurrent_requests = requests.max(1);
        self
    }

    /// Sets the fraction of each server quota to use, from 0 to 1; 1 by default. The rest is left to other programs
    /// that use the same token or IP address. To split a quota evenly among `n` processes, set `1 / n` in each of
    /// them.
    pub fn quota_share(mut self, share: f64) -> Self {
        self.http.quota_share = if share.is_nan() { 1.0 } else { share.clamp(0.0, 1.0) };
        self
    }

    /// Sets the maximum number of connections to all HTTP/1.1 servers together, at least 1; 64 by default. Over
    /// HTTP/1.1, each request in flight occupies a connection.
    pub fn max_http1_connections(mut self, connections: usize) -> Self {
        self.http.max_http1_connections = connections;
        self
    }

    /// Sets the timeout for establishing a connection (name resolution, TCP and TLS); 10 seconds by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.http.connect_timeout = timeout;
        self
    }

    /// Sets the timeout between two reads of a response; 10 seconds by default.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.http.read_timeout = timeout;
        self
    }

    /// Sets the timeout of one request, including its response body; 60 seconds by default.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.http.request_timeout = timeout;
        self
    }

    /// Sets the retry policy for transient failures.
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.http.retry_policy = policy;
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
        self.http.hook = Some(crate::http::HttpHook(std::sync::Arc::new(hook)));
        self
    }
}

/// Parses a header and marks its value as sensitive.
pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Error> {
    let invalid = |reason| Error::InvalidRequestHeader { name: crate::formats::clip(name), reason };
    let name: HeaderName = name.parse().map_err(|_| invalid("the name is invalid"))?;
    if OWN_HEADERS.contains(&name) {
        return Err(invalid("it is reserved for the client"));
    }
    let value = sensitive(value).ok_or_else(|| invalid("the value contains invalid characters"))?;
    Ok((name, value))
}

/// Returns a header value that is never logged, or `None` if the text cannot be sent in a header.
pub(super) fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the `User-Agent` header, which names this library and the program that uses it.
pub(super) fn user_agent(user: Option<&str>) -> Result<HeaderValue, Error> {
    let library = concat!("hf-meta/", env!("CARGO_PKG_VERSION"));
    let agent = user.map_or_else(|| library.to_owned(), |user| format!("{library} {user}"));
    HeaderValue::from_str(&agent).map_err(|_| Error::InvalidUserAgent)
}
