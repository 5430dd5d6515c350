//! Client settings.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderValue;

use super::http_options::HttpOptions;
use super::{Client, TokenSource};
use crate::backends::HeaderCache;
use crate::cache::Cache;
use crate::client::model::ClientContext;
use crate::count::Configs;
use crate::error::Error;
use crate::formats::safetensors::{HeaderLength, SafetensorsIndexJson};
use crate::formats::{Format, Formats, clip};
use crate::http::Http;
use crate::http::transfer::CallMeter;
use crate::hub::{Endpoint, HubWarnings};
use crate::inspect::{ClientMemory, Limits};

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
    pub(super) http: HttpOptions,
    call_timeout: Duration,
    limits: Limits,
    formats: Formats,
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
            http: HttpOptions::default(),
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
        endpoint.as_ref().clone_into(&mut self.endpoint);
        self
    }

    /// Sets the access token. It is sent only to the endpoint's origin. An empty token means none.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into()).filter(|token| !token.is_empty());
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
    pub fn offline(mut self, yes: bool) -> Self {
        self.is_offline = yes;
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
        let invalid = |source| Error::InvalidEndpoint { text: shown(&self.endpoint), source };
        let endpoint = Endpoint::parse(&self.endpoint).map_err(invalid)?;
        if !has_tls_provider() {
            return Err(Error::NoTlsProvider);
        }
        let offline = self.is_offline.then(|| self.hub_cache.clone().ok_or(Error::MissingHubCache));
        let token = self.token.as_deref().map(bearer).transpose()?;
        let (needs_check, concurrency) = (self.http.needs_check(), self.http.concurrency());
        let http = Http::new(self.http.settings(endpoint.url(), token)?);
        if needs_check {
            http.check().map_err(Error::http_client)?;
        }
        let (branch_ttl, stale_if_error) = (self.branch_ttl, self.stale_if_error);
        let context = ClientContext {
            http,
            endpoint,
            warnings: Arc::new(HubWarnings::new(
                self.token_source.map(|source| source.to_string()),
            )),
            memory: ClientMemory::default(),
            limits: Limits { concurrency, ..self.limits },
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
}

/// Returns whether a TLS provider is installed. Without one, reqwest panics.
#[cfg(all(feature = "rustls-no-provider", not(feature = "rustls-aws-lc")))]
fn has_tls_provider() -> bool {
    rustls::crypto::CryptoProvider::get_default().is_some()
}

#[cfg(any(not(feature = "rustls-no-provider"), feature = "rustls-aws-lc"))]
fn has_tls_provider() -> bool {
    true
}

/// Formats an invalid endpoint for an error message, without user, password and query.
fn shown(endpoint: &str) -> String {
    let endpoint = endpoint.split(['?', '#']).next().unwrap_or_default();
    match endpoint.rsplit_once('@') {
        Some((_, host)) => clip(&format!("…@{host}")),
        None => clip(endpoint),
    }
}

/// Returns the `Authorization` header for a token, marked as sensitive.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let mut value =
        HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Error::InvalidToken)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Omits the token. Also omits the text of an invalid endpoint, which may contain a password.
impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("endpoint", &Endpoint::parse(&self.endpoint))
            .field("token", &self.token.is_some())
            .field("token_source", &self.token_source)
            .field("http", &self.http)
            .field("call_timeout", &self.call_timeout)
            .field("limits", &self.limits)
            .field("formats", &self.formats)
            .field("hub_cache", &self.hub_cache)
            .field("header_cache", &self.header_cache)
            .field("branch_ttl", &self.branch_ttl)
            .field("stale_if_error", &self.stale_if_error)
            .field("is_offline", &self.is_offline)
            .finish()
    }
}

#[cfg(all(test, feature = "rustls-no-provider", not(feature = "rustls-aws-lc")))]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tls_provider_is_an_error() {
        assert!(matches!(Client::new(), Err(Error::NoTlsProvider)));
    }
}
