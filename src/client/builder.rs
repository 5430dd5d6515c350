//! Client settings.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hf_meta_format::formats::{Format, Formats, clip};
use hf_meta_inspect::Limits;
use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderName, HeaderValue, RANGE, USER_AGENT,
};

use super::context::ClientContext;
use crate::base::budget::client_ram;
use crate::base::environment::{self, environment_token};
use crate::base::meter::CallMeter;
use crate::cache::{Cache, HeaderCache};
use crate::error::{Error, shared};
use crate::http::{AddressPolicy, Http, HttpSettings, Proxies, RetryPolicy, has_tls_provider};
use crate::hub::Endpoint;

#[cfg(feature = "rustls-no-provider")]
use crate::http::parse_certificates;

/// The maximum timeout. The HTTP library panics on a `Duration::MAX`.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Headers that the client sets and callers cannot override.
const OWN_HEADERS: [HeaderName; 5] = [ACCEPT_ENCODING, AUTHORIZATION, HOST, RANGE, USER_AGENT];

/// A builder for a [`Client`](super::Client).
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
    endpoint: Result<Endpoint, Error>,
    token: Result<Option<HeaderValue>, Error>,
    proxy_from_env: bool,
    http: HttpSettings,
    /// The first error of a header or a certificate.
    invalid: Option<Error>,
    call_timeout: Option<Duration>,
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
            endpoint: Ok(Endpoint::default()),
            token: Ok(None),
            proxy_from_env: false,
            http: HttpSettings::default(),
            invalid: None,
            call_timeout: None,
            limits: Limits::default(),
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
    /// Returns a builder configured from environment variables, following the conventions of `huggingface_hub`:
    ///
    /// | variable | setting |
    /// |---|---|
    /// | `HF_ENDPOINT` | the endpoint |
    /// | `HF_TOKEN`, else `HUGGING_FACE_HUB_TOKEN` | the token |
    /// | `HF_TOKEN_PATH`, else `token` in `HF_HOME` | the file that contains the token |
    /// | `HF_HUB_CACHE`, else `HUGGINGFACE_HUB_CACHE`, else `hub` in `HF_HOME` | the cache of `huggingface_hub` |
    /// | `HF_HUB_OFFLINE`, else `TRANSFORMERS_OFFLINE` | offline mode |
    /// | `HF_HUB_DISABLE_IMPLICIT_TOKEN` | disables all of the above token sources |
    /// | `https_proxy`, `http_proxy`, `all_proxy`, `no_proxy`, in lower or upper case | the proxies |
    /// | `SSL_CERT_FILE`, `SSL_CERT_DIR` | on Linux, the [system certificates](Self::system_certificates) |
    ///
    /// `HF_HOME` defaults to `huggingface` in `XDG_CACHE_HOME`, or else in `~/.cache`. No
    /// [`header_cache`](Self::header_cache) is set; see [`DiskCache::from_env`](crate::DiskCache::from_env).
    ///
    /// ```no_run
    /// let client = hf_meta::ClientBuilder::from_env().max_concurrent_requests(16).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn from_env() -> Self {
        let (is_offline, hub_cache) = (environment::is_offline(), environment::hub_cache());
        let endpoint = environment::endpoint();
        let endpoint = endpoint.unwrap_or_else(|| Endpoint::HUGGING_FACE.to_owned());
        let token = environment_token().map(|found| found.token).unwrap_or_default();
        Self { proxy_from_env: true, is_offline, hub_cache, ..Self::default() }
            .system_certificates(true)
            .endpoint(endpoint)
            .token(token)
    }

    /// Sets the URL of the Hub; `https://huggingface.co` by default. It may include a path.
    ///
    /// ```
    /// use hf_meta::Client;
    ///
    /// let client = Client::builder().endpoint("https://hub.example/models").build()?;
    /// assert_eq!(client.endpoint().to_string(), "https://hub.example/models");
    /// // An invalid setting is reported when the client is built.
    /// assert!(Client::builder().endpoint("hub.example").build().unwrap_err().is_usage());
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn endpoint(self, endpoint: impl AsRef<str>) -> Self {
        let text = endpoint.as_ref();
        let invalid = |source| Error::InvalidSetting {
            setting: "endpoint",
            message: format!("cannot use the endpoint `{}`", without_secrets(text)),
            source: Some(shared(source)),
        };
        Self { endpoint: Endpoint::parse(text).map_err(invalid), ..self }
    }

    /// Sets the access token. It is sent only to the endpoint's origin. An empty token means none.
    ///
    /// ```
    /// use hf_meta::Client;
    ///
    /// let client = Client::builder().token("hf_abc").build()?;
    /// // A line break cannot be sent in a header.
    /// assert!(Client::builder().token("hf_abc\n").build().unwrap_err().is_usage());
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn token(self, token: impl Into<String>) -> Self {
        let token = Some(token.into()).filter(|token| !token.is_empty());
        Self { token: token.as_deref().map(bearer).transpose(), ..self }
    }

    /// Sets the timeout of a whole call, including retries and waits for rate limits. A call that would have to wait
    /// for a rate limit beyond it fails immediately.
    ///
    /// Without it, a call takes at most 360 seconds in addition to its waits for rate limits, which
    /// [`RetryPolicy::max_wait`](crate::RetryPolicy::max_wait) limits.
    ///
    /// `None` restores the default.
    ///
    /// ```
    /// let timeout = std::time::Duration::from_secs(30);
    /// let client = hf_meta::Client::builder().call_timeout(timeout).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn call_timeout(self, timeout: impl Into<Option<Duration>>) -> Self {
        Self { call_timeout: timeout.into(), ..self }
    }

    /// Sets the maximum size of one header, in bytes; [`DEFAULT_HEADER_LIMIT`](hf_meta_format::formats::safetensors::DEFAULT_HEADER_LIMIT) by default.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// let client = hf_meta::Client::builder().endpoint(hub.endpoint()).max_header_bytes(10).build()?;
    /// let error = client.model("org/model").count().await.unwrap_err();
    /// assert!(error.is_malformed(), "{error}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_header_bytes(mut self, bytes: u64) -> Self {
        self.limits.header = bytes;
        self
    }

    /// Sets the maximum total size of all headers in one call, in bytes; 500,000,000 by default. The largest known
    /// checkpoints, with 497,000 tensors, need about an eighth of that.
    ///
    /// ```
    /// let client = hf_meta::Client::builder().max_total_header_bytes(50_000_000).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn max_total_header_bytes(mut self, bytes: u64) -> Self {
        self.limits.headers = bytes;
        self
    }

    /// Sets the maximum size of an index, in bytes; [`SafetensorsIndexJson::DEFAULT_LIMIT`](crate::SafetensorsIndexJson::DEFAULT_LIMIT) by default.
    ///
    /// ```
    /// let client = hf_meta::Client::builder().max_index_bytes(10_000_000).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn max_index_bytes(mut self, bytes: u64) -> Self {
        self.limits.index = bytes;
        self
    }

    /// Registers a format in addition to safetensors, GGUF and PyTorch. Its parser reads the files with its extension. No other
    /// format may have the same name or extension.
    ///
    /// The example `tensorsafe` in this repository implements one.
    pub fn format(self, format: impl Format + 'static) -> Self {
        Self { formats: self.formats.with(Arc::new(format)), ..self }
    }

    /// Sets the cache for the headers of Hub repositories, such as a [`DiskCache`](crate::DiskCache); none by
    /// default.
    ///
    /// Reading a cached commit costs no request; reading a cached branch costs one, which resolves the branch to a
    /// commit. Cached results differ from fresh ones only in their [`FetchStats`](crate::FetchStats).
    ///
    /// Clients with different tokens share entries, but each token needs one request to the Hub first, which shows that
    /// it may read the files. From then on, a cache hit for a commit sends no request, so it succeeds even if the token
    /// has been revoked in the meantime.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// use hf_meta::{Client, MemoryCache};
    ///
    /// let cache = MemoryCache::new(64 << 20);
    /// let client = Client::builder().endpoint(hub.endpoint()).header_cache(cache).build()?;
    /// let first = client.model("org/model").count().await?;
    /// let second = client.model("org/model").count().await?;
    /// assert_eq!(second.parameter_count, first.parameter_count);
    /// // One request shows that the branch still has the same commit.
    /// assert_eq!(second.fetch.requests, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn header_cache(self, cache: impl Cache) -> Self {
        Self { header_cache: Some(Arc::new(cache)), ..self }
    }

    /// Sets the time to live of a cached branch; zero by default. Until it expires, a call for the branch uses the
    /// cached commit without sending a request. Requires a [`header_cache`](Self::header_cache).
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// use std::time::Duration;
    ///
    /// use hf_meta::{Client, MemoryCache};
    ///
    /// let builder = Client::builder().endpoint(hub.endpoint()).header_cache(MemoryCache::new(64 << 20));
    /// let client = builder.branch_ttl(Duration::from_secs(600)).build()?;
    /// client.model("org/model").count().await?;
    /// assert_eq!(client.model("org/model").count().await?.fetch.requests, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn branch_ttl(self, ttl: Duration) -> Self {
        Self { branch_ttl: ttl, ..self }
    }

    /// Sets the maximum age of a cached branch that may be used when the Hub is unreachable or refuses requests. The
    /// default is zero: such a call fails. Requires a [`header_cache`](Self::header_cache).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use hf_meta::{Client, MemoryCache};
    ///
    /// let builder = Client::builder().header_cache(MemoryCache::new(64 << 20));
    /// let client = builder.stale_if_error(Duration::from_secs(24 * 3_600)).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn stale_if_error(self, age: Duration) -> Self {
        Self { stale_if_error: age, ..self }
    }

    /// Sets the cache folder of `huggingface_hub`; none by default. An [offline](Self::offline) client reads
    /// repositories from it and cannot be built without it.
    ///
    /// ```
    /// let builder = hf_meta::Client::builder().hub_cache("/home/me/.cache/huggingface/hub");
    /// let client = builder.offline(true).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn hub_cache(self, folder: impl Into<PathBuf>) -> Self {
        Self { hub_cache: Some(folder.into()), ..self }
    }

    /// Sets whether the client is offline; `false` by default. An offline client sends no requests. It reads
    /// repositories from the [`hub_cache`](Self::hub_cache), at the commit that was downloaded last, or else from the
    /// [`header_cache`](Self::header_cache). Reading a URL is an error. The endpoint and the proxies may be invalid.
    ///
    /// ```
    /// use hf_meta::Client;
    ///
    /// let client = Client::builder().hub_cache("/home/me/.cache/huggingface/hub").offline(true).build()?;
    /// // Without a cache, an offline client has nothing to read.
    /// assert!(Client::builder().offline(true).build().unwrap_err().is_usage());
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn offline(self, enabled: bool) -> Self {
        Self { is_offline: enabled, ..self }
    }

    /// Sets the name and version of your program, such as `badges/1.0`. It is appended to `hf-meta/<version>` in the
    /// `User-Agent` header.
    ///
    /// ```
    /// let client = hf_meta::Client::builder().user_agent("badges/1.0").build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn user_agent(mut self, program: impl AsRef<str>) -> Self {
        if let Some(agent) = self.valid(user_agent(program.as_ref())) {
            self.http.user_agent = agent;
        }
        self
    }

    /// Sets the policy for the IP addresses that may be contacted; [`AddressPolicy::Any`] by default.
    ///
    /// ```
    /// use hf_meta::{AddressPolicy, Client};
    ///
    /// // A service whose users name repositories must not reach servers in its own network.
    /// let client = Client::builder().address_policy(AddressPolicy::Public).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn address_policy(mut self, policy: AddressPolicy) -> Self {
        self.http.address_policy = policy;
        self
    }

    /// Adds PEM-encoded root certificates, such as the certificate of a corporate CA. They are trusted in addition to
    /// the certificates of Mozilla or of the [system](Self::system_certificates).
    ///
    /// ```
    /// use hf_meta::Client;
    ///
    /// let error = Client::builder().root_certificate_pem("not a certificate").build().unwrap_err();
    /// assert!(error.is_usage());
    /// ```
    #[cfg(feature = "rustls-no-provider")]
    pub fn root_certificate_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        let certificates = parse_certificates(pem.as_ref()).map_err(Error::http_client);
        let certificates = self.valid(certificates).unwrap_or_default();
        self.http.root_certificates.extend(certificates);
        self
    }

    /// Sets whether to trust the system's root certificates, which may include a corporate CA; `false` by default. On
    /// Linux, the environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR` override their location.
    ///
    /// Otherwise, and on systems without certificates, Mozilla's root certificates are trusted. They are bundled with
    /// this library.
    ///
    /// ```
    /// let client = hf_meta::Client::builder().system_certificates(true).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn system_certificates(mut self, enabled: bool) -> Self {
        self.http.system_certificates = enabled;
        self
    }

    /// Adds a header to every request to the endpoint, such as a gateway key. Like the token, it is sent only to the
    /// endpoint's origin and is never logged. Headers that the client sets itself are rejected by
    /// [`build`](Self::build).
    ///
    /// ```
    /// use hf_meta::Client;
    ///
    /// let client = Client::builder().request_header("x-gateway-key", "secret").build()?;
    /// // The client sets this one itself.
    /// assert!(Client::builder().request_header("range", "bytes=0-1").build().unwrap_err().is_usage());
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn request_header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        if let Some((name, value)) = self.valid(header(name.as_ref(), value.as_ref())) {
            self.http.headers.append(name, value);
        }
        self
    }

    /// Sets the maximum number of requests in flight across all calls; 256 by default, and at least 1. Requests to the
    /// same HTTP/2 server share one connection; data of [tensors](super::Model::tensors) have up to 64 more.
    ///
    /// ```
    /// let client = hf_meta::Client::builder().max_concurrent_requests(16).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn max_concurrent_requests(mut self, requests: usize) -> Self {
        self.http.max_concurrent_requests = requests;
        self
    }

    /// Sets the fraction of each server quota to use, above 0 and at most 1; 1 by default. The rest is left to other programs
    /// that use the same token or IP address. To split a quota evenly among `n` processes, set `1 / n` in each of
    /// them.
    ///
    /// ```
    /// use hf_meta::Client;
    ///
    /// // One of four processes with the same token.
    /// let client = Client::builder().quota_share(1.0 / 4.0).build()?;
    /// assert!(Client::builder().quota_share(1.5).build().unwrap_err().is_usage());
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn quota_share(mut self, share: f64) -> Self {
        self.http.quota_share = share;
        self
    }

    /// Sets the timeout for establishing a connection (name resolution, TCP and TLS); 10 seconds by default.
    ///
    /// ```
    /// let timeout = std::time::Duration::from_secs(3);
    /// let client = hf_meta::Client::builder().connect_timeout(timeout).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.http.connect_timeout = timeout;
        self
    }

    /// Sets the timeout between two reads of a response; 10 seconds by default.
    ///
    /// ```
    /// let timeout = std::time::Duration::from_secs(3);
    /// let client = hf_meta::Client::builder().read_timeout(timeout).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.http.read_timeout = timeout;
        self
    }

    /// Sets the timeout of one request, including its response body; 60 seconds by default.
    ///
    /// ```
    /// let timeout = std::time::Duration::from_secs(20);
    /// let client = hf_meta::Client::builder().request_timeout(timeout).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.http.request_timeout = timeout;
        self
    }

    /// Sets the retry policy for transient failures.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// use hf_meta::{Client, RetryPolicy};
    /// use hf_meta_testing::Fault;
    ///
    /// let once = RetryPolicy::default().max_attempts(1);
    /// let client = Client::builder().endpoint(hub.endpoint()).retry_policy(once).build()?;
    /// hub.inject(|_, _| Some(Fault::Status(503, Vec::new())));
    /// assert!(client.model("org/model").count().await.unwrap_err().is_transient());
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.http.retry_policy = policy;
        self
    }

    /// Sets a function that customizes the underlying [`reqwest`] client builder, for settings that this builder
    /// lacks.
    ///
    /// It runs after this builder's settings have been applied. Redirects, retries, decompression and the
    /// [`AddressPolicy`] are then reset, because a client that follows redirects itself would leak the token to other
    /// servers. Default headers are sent to every server, so use [`request_header`](Self::request_header) for secrets.
    ///
    /// A minor release of this library may upgrade to a new major version of `reqwest`.
    #[cfg(feature = "reqwest-hook")]
    pub fn reqwest_hook(
        mut self,
        hook: impl Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder + Send + Sync + 'static,
    ) -> Self {
        self.http.hook = Some(crate::base::Callback(Arc::new(hook)));
        self
    }

    /// Checks the settings and creates the state that the calls of a client share.
    pub(super) fn context(self) -> Result<ClientContext, Error> {
        // An offline client sends no requests, so it needs neither a valid endpoint nor a proxy.
        let endpoint = match self.endpoint.clone() {
            Err(_) if self.is_offline => Endpoint::default(),
            endpoint => endpoint?,
        };
        if !has_tls_provider() {
            let message = "no TLS provider is installed; call \
                           `rustls::crypto::CryptoProvider::install_default`";
            return Err(Error::setting("tls_provider", message));
        }
        self.check_ranges()?;
        let no_cache = || Error::setting("hub_cache", "offline mode requires a cache folder");
        let offline = self.is_offline.then(|| self.hub_cache.clone().ok_or_else(no_cache));
        self.invalid.map_or(Ok(()), Err)?;
        let has_proxies = self.proxy_from_env && !self.is_offline;
        let proxies = has_proxies.then(|| Proxies::from_env(endpoint.url())).transpose();
        let proxies = proxies.map_err(|message| Error::setting("proxy", message))?.flatten();
        let settings = HttpSettings { proxies, ..self.http };
        let limits = Limits { concurrency: settings.max_concurrent_requests, ..self.limits };
        let needs_validation = !settings.root_certificates.is_empty() || settings.hook.is_some();
        let http = Http::new(endpoint.url().clone(), self.token?, settings);
        if needs_validation {
            http.validate().map_err(Error::http_client)?;
        }
        let Self { branch_ttl, stale_if_error, .. } = self;
        let header_cache =
            self.header_cache.map(|cache| HeaderCache { cache, branch_ttl, stale_if_error });
        Ok(ClientContext {
            http,
            endpoint,
            warnings: Arc::default(),
            ram: client_ram(),
            limits,
            totals: CallMeter::default(),
            formats: self.formats,
            call_timeout: self.call_timeout,
            header_cache,
            offline: offline.transpose()?,
            known_servers: Arc::default(),
        })
    }

    /// Checks the settings that have a range.
    fn check_ranges(&self) -> Result<(), Error> {
        let http = &self.http;
        let is_timeout = |timeout: Duration| !timeout.is_zero() && timeout <= MAX_TIMEOUT;
        let reason = "it must be longer than zero and at most 365 days";
        let is_share = http.quota_share > 0.0 && http.quota_share <= 1.0;
        let settings = [
            ("connect_timeout", is_timeout(http.connect_timeout), reason),
            ("read_timeout", is_timeout(http.read_timeout), reason),
            ("request_timeout", is_timeout(http.request_timeout), reason),
            ("call_timeout", self.call_timeout.is_none_or(is_timeout), reason),
            ("max_concurrent_requests", http.max_concurrent_requests > 0, "it must be at least 1"),
            ("quota_share", is_share, "it must be above 0 and at most 1"),
            ("format", self.formats.are_distinct(), "another format has this name or extension"),
        ];
        match settings.into_iter().find(|(_, is_valid, _)| !is_valid) {
            Some((setting, _, reason)) => Err(out_of_range(setting, reason)),
            None => Ok(()),
        }
    }

    /// Returns a valid value; otherwise, keeps the error for [`build`](Self::build).
    fn valid<T>(&mut self, value: Result<T, Error>) -> Option<T> {
        value.map_err(|error| self.invalid.get_or_insert(error).clone()).ok()
    }
}

fn out_of_range(setting: &'static str, reason: &str) -> Error {
    Error::setting(setting, format!("invalid `{setting}`: {reason}"))
}

/// Parses a header and marks its value as sensitive.
fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Error> {
    let invalid = |reason| {
        let message = format!("cannot set the header `{}`: {reason}", clip(name));
        Error::setting("request_header", message)
    };
    let name: HeaderName = name.parse().map_err(|_| invalid("the name is invalid"))?;
    if OWN_HEADERS.contains(&name) {
        return Err(invalid("it is reserved for the client"));
    }
    let value = sensitive(value).ok_or_else(|| invalid("the value contains invalid characters"))?;
    Ok((name, value))
}

/// Returns a header value that is never logged, or `None` if the text cannot be sent in a header.
fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the `User-Agent` header, which names this library and the program that uses it.
fn user_agent(program: &str) -> Result<HeaderValue, Error> {
    let agent = concat!("hf-meta/", env!("CARGO_PKG_VERSION"), " ").to_owned() + program;
    let reason = "it contains characters that are invalid in an HTTP header";
    HeaderValue::from_str(&agent).map_err(|_| out_of_range("user_agent", reason))
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
    sensitive(&format!("Bearer {token}")).ok_or_else(|| {
        let message = "the token contains invalid characters".to_owned();
        Error::InvalidOption { option: "token", message }
    })
}

#[cfg(all(test, feature = "rustls-no-provider", not(feature = "rustls-aws-lc")))]
mod tests {
    use super::*;
    use crate::Client;

    #[test]
    fn a_missing_tls_provider_is_an_error() {
        assert!(matches!(
            Client::new(),
            Err(Error::InvalidSetting { setting: "tls_provider", .. })
        ));
    }
}
