//! The settings of a client.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderValue;

use super::{Client, TokenSource};
use crate::backends::HeaderCache;
use crate::cache::Cache;
use crate::client::model::ClientContext;
use crate::count::Configs;
use crate::error::Error;
use crate::formats::clip;
use crate::formats::safetensors::{HeaderLength, SafetensorsIndexJson};
use crate::http::{AddressPolicy, EnvProxies, Http, HttpSettings, HttpTimeouts, RetryPolicy};
use crate::hub::{Endpoint, HubWarnings};
use crate::inspect::Limits;

/// The settings of a [`Client`].
///
/// ```
/// use std::time::Duration;
///
/// use hf_meta::{Client, DiskCache};
///
/// # fn main() -> Result<(), hf_meta::Error> {
/// let client = Client::builder()
///     .user_agent("badges/1.0")
///     .concurrency(32)
///     .header_cache(DiskCache::new(std::env::temp_dir().join("hf-meta-example")))
///     .branch_ttl(Duration::from_secs(60))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct ClientBuilder {
    endpoint: String,
    token: Option<String>,
    token_source: Option<TokenSource>,
    user_agent: Option<String>,
    addresses: AddressPolicy,
    proxy_from_env: bool,
    system_certificates: bool,
    timeouts: HttpTimeouts,
    retry: RetryPolicy,
    call_timeout: Duration,
    limits: Limits,
    header_cache: Option<Arc<dyn Cache>>,
    branch_ttl: Duration,
    stale_if_error: Duration,
    hub_cache: Option<PathBuf>,
    is_offline: bool,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            endpoint: Endpoint::HUGGING_FACE.to_owned(),
            token: None,
            token_source: None,
            user_agent: None,
            addresses: AddressPolicy::default(),
            proxy_from_env: false,
            system_certificates: false,
            timeouts: HttpTimeouts {
                connect: Duration::from_secs(10),
                read: Duration::from_secs(10),
                request: Duration::from_secs(60),
            },
            retry: RetryPolicy::default(),
            call_timeout: Duration::from_secs(360),
            limits: Limits {
                header: HeaderLength::DEFAULT_LIMIT,
                headers: 500_000_000,
                index: SafetensorsIndexJson::DEFAULT_LIMIT,
                config: Configs::DEFAULT_LIMIT,
                concurrency: 256,
            },
            hub_cache: None,
            header_cache: None,
            branch_ttl: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            is_offline: false,
        }
    }
}

impl ClientBuilder {
    /// Sets the address of the Hub, `https://huggingface.co` by default. It may have a path.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = endpoint.into();
        self
    }

    /// Sets the token. It is sent to the endpoint's origin only. An empty token means none.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into()).filter(|token| !token.is_empty());
        self.token_source = None;
        self
    }

    /// Sets the place of the token, for warnings.
    pub(super) fn token_source(mut self, source: TokenSource) -> Self {
        self.token_source = Some(source);
        self
    }

    /// Sets the name of the program that uses this library, such as `badges/1.0`. It follows
    /// `hf-meta/<version>` in the `User-Agent` header.
    pub fn user_agent(mut self, program: impl Into<String>) -> Self {
        self.user_agent = Some(program.into());
        self
    }

    /// Sets which addresses may be requested; [`AddressPolicy::Any`] by default.
    pub fn addresses(mut self, policy: AddressPolicy) -> Self {
        self.addresses = policy;
        self
    }

    /// Sets whether the proxies of the environment are used (`https_proxy`, `http_proxy`, `all_proxy`,
    /// `no_proxy`); `false` by default.
    pub fn proxy_from_env(mut self, yes: bool) -> Self {
        self.proxy_from_env = yes;
        self
    }

    /// Sets whether the certificates of the system are trusted, such as the authority of a company; `false` by
    /// default. On Linux, the environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR` can name others.
    ///
    /// By default, and on a system without certificates, Mozilla's root certificates are trusted. They are part of
    /// this library.
    pub fn system_certificates(mut self, yes: bool) -> Self {
        self.system_certificates = yes;
        self
    }

    /// Sets how many requests of all calls are in flight at once, at least one; 256 by default. They share one
    /// connection to each HTTP/2 server. All HTTP/1.1 servers together get at most 64 connections.
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.limits.concurrency = requests.max(1);
        self
    }

    /// Sets the timeout for a connection: name resolution, TCP and TLS. 10 seconds by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.connect = timeout;
        self
    }

    /// Sets the timeout between two reads of a response. 10 seconds by default.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.read = timeout;
        self
    }

    /// Sets the timeout of one request with its body. 60 seconds by default.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.request = timeout;
        self
    }

    /// Sets the retries after transient failures.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Sets the timeout of a whole call, without its waits for rate limits; 360 seconds by default.
    /// [`RetryPolicy::max_wait`] limits the waits.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Sets the limit of one header, in bytes; [`HeaderLength::DEFAULT_LIMIT`] by default.
    pub fn header_limit(mut self, bytes: u64) -> Self {
        self.limits.header = bytes;
        self
    }

    /// Sets the limit of all headers of one call, in bytes; 500,000,000 by default. The largest known sets
    /// of weights, with 497,000 tensors, need about an eighth of it.
    pub fn headers_limit(mut self, bytes: u64) -> Self {
        self.limits.headers = bytes;
        self
    }

    /// Sets the limit of an index, in bytes; [`SafetensorsIndexJson::DEFAULT_LIMIT`] by default.
    pub fn index_limit(mut self, bytes: u64) -> Self {
        self.limits.index = bytes;
        self
    }

    /// Sets the limit of `config.json`, in bytes; [`Configs::DEFAULT_LIMIT`] by default. It is read only
    /// if it could change the count.
    pub fn config_limit(mut self, bytes: u64) -> Self {
        self.limits.config = bytes;
        self
    }

    /// Sets the cache for headers of repositories on the Hub, such as a [`DiskCache`](crate::DiskCache);
    /// none by default.
    ///
    /// A cached commit costs no request. A cached branch costs one request, which resolves the branch to its
    /// commit. Cached results differ from others in their [`FetchStats`](crate::FetchStats) only.
    ///
    /// An entry that was read with a token is returned to clients with this token only. A hit for a commit
    /// sends no request, so it succeeds even if the Hub has revoked the token since then.
    pub fn header_cache(mut self, cache: impl Cache) -> Self {
        self.header_cache = Some(Arc::new(cache));
        self
    }

    /// Sets the time to live of a cached branch; zero by default. Within this time, a call for the branch
    /// uses the cached commit and sends no request. It needs a [`header_cache`](Self::header_cache).
    pub fn branch_ttl(mut self, ttl: Duration) -> Self {
        self.branch_ttl = ttl;
        self
    }

    /// Sets the age up to which a cached branch is used while the Hub does not answer or refuses further
    /// requests; zero by default, so that such a call fails. It needs a
    /// [`header_cache`](Self::header_cache).
    pub fn stale_if_error(mut self, age: Duration) -> Self {
        self.stale_if_error = age;
        self
    }

    /// Sets the cache folder of `huggingface_hub`; none by default. An [offline](Self::offline) client reads
    /// repositories from it.
    pub fn hub_cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.hub_cache = Some(folder.into());
        self
    }

    /// Sets whether the client is offline; `false` by default. An offline client sends no requests. It reads
    /// repositories from the [`hub_cache`](Self::hub_cache), at the commit of their last download, else from the
    /// [`header_cache`](Self::header_cache). A URL is an error.
    pub fn offline(mut self, yes: bool) -> Self {
        self.is_offline = yes;
        self
    }

    /// Builds the client.
    ///
    /// # Errors
    ///
    /// - [`Error::NoCache`] for an offline client without a cache folder
    /// - [`Error::Endpoint`] if the endpoint is not the address of a Hub
    /// - [`Error::MalformedToken`] and [`Error::UserAgent`] for text that cannot be sent in an HTTP header
    /// - [`Error::Proxy`] for a proxy of the environment that cannot be used
    /// - [`Error::NoTlsProvider`] with the feature `rustls-no-provider` if the program has not installed a provider
    pub fn build(self) -> Result<Client, Error> {
        let invalid = |source| Error::Endpoint { text: shown(&self.endpoint), source };
        let endpoint = Endpoint::parse(&self.endpoint).map_err(invalid)?;
        if !has_tls_provider() {
            return Err(Error::NoTlsProvider);
        }
        let proxies = self.proxy_from_env.then(|| EnvProxies::from_env(endpoint.url()));
        let offline = self.is_offline.then(|| self.hub_cache.clone().ok_or(Error::NoCache));
        let token = self.token.as_deref().map(bearer).transpose()?;
        let settings = HttpSettings {
            endpoint: endpoint.url().clone(),
            token,
            user_agent: user_agent(self.user_agent.as_deref())?,
            addresses: self.addresses,
            proxies: proxies.transpose()?,
            system_certificates: self.system_certificates,
            timeouts: self.timeouts,
            retry: self.retry,
            concurrency: self.limits.concurrency,
        };
        let (branch_ttl, stale_if_error) = (self.branch_ttl, self.stale_if_error);
        let context = ClientContext {
            http: Http::new(settings),
            endpoint,
            warnings: Arc::new(HubWarnings::new(
                self.token_source.map(|source| source.to_string()),
            )),
            limits: self.limits,
            call_timeout: self.call_timeout,
            header_cache: self.header_cache.map(|cache| HeaderCache {
                cache,
                branch_ttl,
                stale_if_error,
            }),
            offline: offline.transpose()?,
        };
        Ok(Client { context: Arc::new(context) })
    }
}

/// Returns whether TLS can be set up. Without a provider, the HTTP library would panic.
#[cfg(all(feature = "rustls-no-provider", not(feature = "client")))]
fn has_tls_provider() -> bool {
    rustls::crypto::CryptoProvider::get_default().is_some()
}

#[cfg(any(not(feature = "rustls-no-provider"), feature = "client"))]
fn has_tls_provider() -> bool {
    true
}

/// Returns an invalid endpoint for messages, without user, password and query.
fn shown(endpoint: &str) -> String {
    let endpoint = endpoint.split(['?', '#']).next().unwrap_or_default();
    match endpoint.rsplit_once('@') {
        Some((_, host)) => clip(&format!("…@{host}")),
        None => clip(endpoint),
    }
}

/// Returns the `Authorization` header of a token, marked as secret for logs of headers.
fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let mut value =
        HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Error::MalformedToken)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the `User-Agent` header: this library, and the program that uses it.
fn user_agent(user: Option<&str>) -> Result<HeaderValue, Error> {
    let library = concat!("hf-meta/", env!("CARGO_PKG_VERSION"));
    let agent = user.map_or_else(|| library.to_owned(), |user| format!("{library} {user}"));
    HeaderValue::from_str(&agent).map_err(|_| Error::UserAgent)
}

/// The token is left out, and so is the text of an invalid endpoint: it may hold a password.
impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("endpoint", &Endpoint::parse(&self.endpoint))
            .field("token", &self.token.is_some())
            .field("token_source", &self.token_source)
            .field("user_agent", &self.user_agent)
            .field("addresses", &self.addresses)
            .field("proxy_from_env", &self.proxy_from_env)
            .field("system_certificates", &self.system_certificates)
            .field("timeouts", &self.timeouts)
            .field("retry", &self.retry)
            .field("call_timeout", &self.call_timeout)
            .field("limits", &self.limits)
            .field("hub_cache", &self.hub_cache)
            .field("header_cache", &self.header_cache)
            .field("branch_ttl", &self.branch_ttl)
            .field("stale_if_error", &self.stale_if_error)
            .field("is_offline", &self.is_offline)
            .finish()
    }
}

#[cfg(all(test, feature = "rustls-no-provider", not(feature = "client")))]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tls_provider_is_an_error() {
        assert!(matches!(Client::new(), Err(Error::NoTlsProvider)));
    }
}
