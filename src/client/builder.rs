//! Client settings.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderValue;

use super::http_options::{header, sensitive, user_agent};
use super::{Client, TokenSource};
use crate::cache::Cache;
use crate::client::model::ClientContext;
use crate::count::Configs;
use crate::error::Error;
use crate::formats::safetensors::{HeaderLength, SafetensorsIndexJson};
use crate::formats::{Format, Formats, clip};
use crate::http::transfer::CallMeter;
use crate::http::{Http, HttpSettings, Proxies, RootCertificates, has_tls_provider};
use crate::hub::{Endpoint, EndpointError, HubWarnings};
use crate::inspect::{ClientMemory, HeaderCache, Limits};

/// A builder for a [`Client`].
///
/// ```
/// use std::time::Duration;
///
/// use hf_meta::{Client, DiskCache};
///
/// # fn main() -> Result<(), hf_meta::Error> {
/// let client = Client::builder()
///     .user_agent("badges/1.0")
///     .max_concurrent_requests(32)
///     .header_cache(DiskCache::new(std::env::temp_dir().join("hf-meta-example")))
///     .branch_ttl(Duration::from_secs(60))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientBuilder {
    /// An invalid endpoint is stored without user, password, query and fragment.
    endpoint: Result<Endpoint, (String, EndpointError)>,
    token: Option<Secret>,
    token_source: Option<TokenSource>,
    pub(super) user_agent: Option<String>,
    pub(super) proxy: Option<Secret>,
    pub(super) proxy_from_env: bool,
    pub(super) headers: Vec<(String, Secret)>,
    /// PEM texts.
    pub(super) root_certificates: Vec<Vec<u8>>,
    /// The settings that need no validation.
    pub(super) http: HttpSettings,
    call_timeout: Duration,
    limits: Limits,
    formats: Formats,
    header_cache: Option<Arc<dyn Cache>>,
    branch_ttl: Duration,
    stale_if_error: Duration,
    hub_cache: Option<PathBuf>,
    is_offline: bool,
}

/// A text that may contain a password or a token, which `Debug` omits.
#[derive(Clone)]
pub(super) struct Secret(pub(super) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            endpoint: Ok(Endpoint::default()),
            token: None,
            token_source: None,
            user_agent: None,
            proxy: None,
            proxy_from_env: false,
            headers: Vec::new(),
            root_certificates: Vec::new(),
            http: HttpSettings::default(),
            call_timeout: Duration::from_secs(360),
            limits: Limits {
                header: HeaderLength::DEFAULT_LIMIT,
                headers: 500_000_000,
                index: SafetensorsIndexJson::DEFAULT_LIMIT,
                config: Configs::DEFAULT_LIMIT,
                concurrency: 1,
            },
            formats: Formats::built_in().clone(),
            hub_cache: None,
            header_cache: None,
            branch_ttl: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            is_offline: false,
        }
    }
}

impl ClientBuilder {
    /// Sets the URL of the Hub; `https://huggingface.co` by default. It may include a path.
    pub fn endpoint(mut self, endpoint: impl AsRef<str>) -> Self {
        let text = endpoint.as_ref();
        self.endpoint = Endpoint::parse(text).map_err(|error| (without_secrets(text), error));
        self
    }

    /// Sets the access token. It is sent only to the endpoint's origin. An empty token means none.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into()).filter(|token| !token.is_empty()).map(Secret);
        self.token_source = None;
        self
    }

    /// Sets the origin of the token, which warnings name.
    pub(super) fn token_source(mut self, source: TokenSource) -> Self {
        self.token_source = Some(source);
        self
    }

    /// Sets the timeout of a whole call, excluding time spent waiting for rate limits; 360 seconds by default.
    /// [`RetryPolicy::max_wait`](crate::RetryPolicy::max_wait) limits those waits.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Sets the maximum size of one header, in bytes; [`HeaderLength::DEFAULT_LIMIT`] by default.
    pub fn max_header_bytes(mut self, bytes: u64) -> Self {
        self.limits.header = bytes;
        self
    }

    /// Sets the maximum total size of all headers in one call, in bytes; 500,000,000 by default. The largest known
    /// checkpoints, with 497,000 tensors, need about an eighth of that.
    pub fn max_total_header_bytes(mut self, bytes: u64) -> Self {
        self.limits.headers = bytes;
        self
    }

    /// Sets the maximum size of an index, in bytes; [`SafetensorsIndexJson::DEFAULT_LIMIT`] by default.
    pub fn max_index_bytes(mut self, bytes: u64) -> Self {
        self.limits.index = bytes;
        self
    }

    /// Sets the maximum size of `config.json`, in bytes; [`Configs::DEFAULT_LIMIT`] by default. The file is read only
    /// if it could affect the count.
    pub fn max_config_bytes(mut self, bytes: u64) -> Self {
        self.limits.config = bytes;
        self
    }

    /// Registers a format in addition to safetensors and GGUF. Its parser reads the files with its extension.
    ///
    /// The example `tensorsafe` in this repository implements one.
    pub fn format(mut self, format: impl Format + 'static) -> Self {
        self.formats = self.formats.with(Arc::new(format));
        self
    }

    /// Sets the cache for the headers of Hub repositories, such as a [`DiskCache`](crate::DiskCache); none by
    /// default.
    ///
    /// Reading a cached commit costs no request; reading a cached branch costs one, which resolves the branch to a
    /// commit. Cached results differ from fresh ones only in their [`FetchStats`](crate::FetchStats).
    ///
    /// An entry that was read with a token is returned only to clients with the same token. A cache hit for a commit
    /// sends no request, so it succeeds even if the token has been revoked in the meantime.
    pub fn header_cache(mut self, cache: impl Cache) -> Self {
        self.header_cache = Some(Arc::new(cache));
        self
    }

    /// Sets the time to live of a cached branch; zero by default. Until it expires, a call for the branch uses the
    /// cached commit without sending a request. Requires a [`header_cache`](Self::header_cache).
    pub fn branch_ttl(mut self, ttl: Duration) -> Self {
        self.branch_ttl = ttl;
        self
    }

    /// Sets the maximum age of a cached branch that may be used when the Hub is unreachable or refuses requests. The
    /// default is zero: such a call fails. Requires a [`header_cache`](Self::header_cache).
    pub fn stale_if_error(mut self, age: Duration) -> Self {
        self.stale_if_error = age;
        self
    }

    /// Sets the cache folder of `huggingface_hub`; none by default. An [offline](Self::offline) client reads
    /// repositories from it and cannot be built without it.
    pub fn hub_cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.hub_cache = Some(folder.into());
        self
    }

    /// Sets whether the client is offline; `false` by default. An offline client sends no requests. It reads
    /// repositories from the [`hub_cache`](Self::hub_cache), at the commit that was downloaded last, or else from the
    /// [`header_cache`](Self::header_cache). Reading a URL is an error.
    pub fn offline(mut self, enabled: bool) -> Self {
        self.is_offline = enabled;
        self
    }

    /// Builds the client.
    ///
    /// # Errors
    ///
    /// - [`Error::MissingHubCache`] if the client is offline and has no [`hub_cache`](Self::hub_cache)
    /// - [`Error::InvalidEndpoint`] if the endpoint is not a valid Hub URL
    /// - [`Error::InvalidToken`] or [`Error::InvalidUserAgent`] if the text cannot be sent in an HTTP header
    /// - [`Error::InvalidRequestHeader`] if a header is invalid or reserved
    /// - [`Error::InvalidProxy`] if a proxy setting is invalid
    /// - [`Error::HttpClient`] if a root certificate cannot be parsed or the HTTP library rejects another setting
    /// - [`Error::NoTlsProvider`] if the feature `rustls-no-provider` is enabled and no provider has been installed
    pub fn build(self) -> Result<Client, Error> {
        let endpoint = self.endpoint.clone();
        let endpoint =
            endpoint.map_err(|(text, source)| Error::InvalidEndpoint { text, source })?;
        if !has_tls_provider() {
            return Err(Error::NoTlsProvider);
        }
        let offline = self.is_offline.then(|| self.hub_cache.clone().ok_or(Error::MissingHubCache));
        let token = self.token.as_ref().map(|token| bearer(&token.0)).transpose()?;
        let settings = self.http_settings(&endpoint)?;
        let limits = Limits { concurrency: settings.max_concurrent_requests, ..self.limits };
        let needs_validation = !self.root_certificates.is_empty() || settings.hook.is_some();
        let http = Http::new(endpoint.url().clone(), token, settings);
        if needs_validation {
            http.validate().map_err(Error::http_client)?;
        }
        let token_source = self.token_source.map(|source| source.to_string());
        let (branch_ttl, stale_if_error) = (self.branch_ttl, self.stale_if_error);
        let context = ClientContext {
            http,
            endpoint,
            warnings: Arc::new(HubWarnings::new(token_source)),
            memory: ClientMemory::default(),
            limits,
            totals: CallMeter::default(),
            formats: self.formats,
            call_timeout: self.call_timeout,
            header_cache: self.header_cache.map(|cache| HeaderCache {
                cache,
                branch_ttl,
                stale_if_error,
            }),
            offline: offline.transpose()?,
            known_servers_loaded: Arc::default(),
        };
        Ok(Client { context: Arc::new(context) })
    }

    /// Validates the HTTP settings.
    fn http_settings(&self, endpoint: &Endpoint) -> Result<HttpSettings, Error> {
        let from_env = || self.proxy_from_env.then(|| Proxies::from_env(endpoint.url()));
        let proxies = self.proxy.as_ref().map(|proxy| Proxies::for_all(&proxy.0)).or_else(from_env);
        let headers = self.headers.iter().map(|(name, value)| header(name, &value.0));
        Ok(HttpSettings {
            user_agent: user_agent(self.user_agent.as_deref())?,
            headers: headers.collect::<Result<_, _>>()?,
            proxies: proxies.transpose()?,
            root_certificates: RootCertificates::from_pem(&self.root_certificates)
                .map_err(Error::http_client)?,
            ..self.http.clone()
        })
    }
}

/// Formats an invalid endpoint for an error message, without user, password and query.
fn without_secrets(endpoint: &str) -> String {
    let endpoint = endpoint.split(['?', '#']).next().unwrap_or_default();
    match endpoint.rsplit_once('@') {
        Some((_, host)) => clip(&format!("…@{host}")),
        None => clip(endpoint),
    }
}

/// Returns the `Authorization` header for a token.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, Error> {
    sensitive(&format!("Bearer {token}")).ok_or(Error::InvalidToken)
}

#[cfg(all(test, feature = "rustls-no-provider", not(feature = "rustls-aws-lc")))]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tls_provider_is_an_error() {
        assert!(matches!(Client::new(), Err(Error::NoTlsProvider)));
    }
}
