//! How a client is set up.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderValue;

use super::Client;
use crate::backends::HeaderCache;
use crate::cache::Cache;
use crate::client::model::Context;
use crate::count::Configs;
use crate::error::Error;
use crate::formats::safetensors::{HeaderLength, SafetensorsIndexJson};
use crate::http::{AddressPolicy, Http, HttpSettings, HttpTimeouts, RetryPolicy};
use crate::hub::Endpoint;
use crate::inspect::Limits;

/// The settings of a [`Client`].
#[derive(Clone)]
#[must_use]
pub struct ClientBuilder {
    endpoint: String,
    token: Option<String>,
    user_agent: Option<String>,
    addresses: AddressPolicy,
    proxy_from_env: bool,
    timeouts: HttpTimeouts,
    retry: RetryPolicy,
    call_timeout: Duration,
    limits: Limits,
    header_cache: Option<Arc<dyn Cache>>,
    branch_ttl: Duration,
    cache: Option<PathBuf>,
    is_offline: bool,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            endpoint: Endpoint::HUGGING_FACE.to_owned(),
            token: None,
            user_agent: None,
            addresses: AddressPolicy::default(),
            proxy_from_env: false,
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
            cache: None,
            header_cache: None,
            branch_ttl: Duration::ZERO,
            is_offline: false,
        }
    }
}

impl ClientBuilder {
    /// The address of the Hub, `https://huggingface.co` by default. It may have a path.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = endpoint.into();
        self
    }

    /// The token that goes to the endpoint's origin, and to no other. An empty one is none.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into()).filter(|token| !token.is_empty());
        self
    }

    /// What to say of the program that uses this library, such as `badges/1.0`. It follows our own
    /// `hf-meta/<version>` in `User-Agent`.
    pub fn user_agent(mut self, program: impl Into<String>) -> Self {
        self.user_agent = Some(program.into());
        self
    }

    /// Which addresses may be asked; [`AddressPolicy::Any`] by default.
    pub fn addresses(mut self, policy: AddressPolicy) -> Self {
        self.addresses = policy;
        self
    }

    /// Whether the proxies of the environment are used (`https_proxy`, `http_proxy`, `all_proxy`,
    /// `no_proxy`). They are not by default.
    pub fn proxy_from_env(mut self, yes: bool) -> Self {
        self.proxy_from_env = yes;
        self
    }

    /// How many shards are read side by side, at least one; 256 by default. They share a connection to
    /// each server that speaks HTTP/2; to others there are at most 64 connections.
    pub fn concurrency(mut self, shards: usize) -> Self {
        self.limits.concurrency = shards.max(1);
        self
    }

    /// How long it may take to connect: name, TCP and TLS. 10 seconds by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.connect = timeout;
        self
    }

    /// How long the next bytes of an answer may take. 10 seconds by default.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.read = timeout;
        self
    }

    /// How long one request may take, body included. 60 seconds by default.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.request = timeout;
        self
    }

    /// How often and how long after a failure a request is made again.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// How long a whole call may take. 360 seconds by default, enough to wait for the Hub's quota once.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// The longest header that is read, in bytes; [`HeaderLength::DEFAULT_LIMIT`] by default.
    pub fn header_limit(mut self, bytes: u64) -> Self {
        self.limits.header = bytes;
        self
    }

    /// The most bytes of headers that are read for one repo; 500,000,000 by default. The largest known
    /// sets of weights, of 497,000 tensors, need about an eighth of it.
    pub fn headers_limit(mut self, bytes: u64) -> Self {
        self.limits.headers = bytes;
        self
    }

    /// The longest index that is read, in bytes; [`SafetensorsIndexJson::DEFAULT_LIMIT`] by default.
    pub fn index_limit(mut self, bytes: u64) -> Self {
        self.limits.index = bytes;
        self
    }

    /// Where the headers of repos on the Hub are kept, such as in a [`DiskCache`](crate::DiskCache).
    /// Nothing is kept by default.
    ///
    /// What is kept of a commit costs no request, and what is kept of a branch one small one, which
    /// tells whether the branch has moved. Results are the same but for their
    /// [`FetchStats`](crate::FetchStats). What was read with a token is found with the same token alone; of a commit
    /// asked for by its hash it is found even when the Hub would refuse that token by now.
    pub fn header_cache(mut self, cache: impl Cache) -> Self {
        self.header_cache = Some(Arc::new(cache));
        self
    }

    /// How long a branch is taken to be where the cache says that it was, without asking. Not at all by
    /// default.
    pub fn branch_ttl(mut self, lifetime: Duration) -> Self {
        self.branch_ttl = lifetime;
        self
    }

    /// The folder in which `huggingface_hub` keeps what it has downloaded, which is where repos are read
    /// offline; none by default.
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = Some(folder.into());
        self
    }

    /// Whether no server is asked for anything: repos are read from [`ClientBuilder::cache`], of the
    /// commit that they had when they were downloaded, and URLs not at all.
    pub fn offline(mut self, yes: bool) -> Self {
        self.is_offline = yes;
        self
    }

    /// The longest `config.json` that is read, in bytes; [`Configs::DEFAULT_LIMIT`] by default. It is
    /// asked for only where a tensor [calls for it](crate::count::needs_config).
    pub fn config_limit(mut self, bytes: u64) -> Self {
        self.limits.config = bytes;
        self
    }

    /// The client.
    ///
    /// # Errors
    ///
    /// When it is to be offline and has no cache, when the endpoint is no address of a Hub, when the
    /// token or the name of the program could not stand in a header.
    pub fn build(self) -> Result<Client, Error> {
        let endpoint =
            Endpoint::parse(&self.endpoint).map_err(|source| Error::Endpoint { source })?;
        let offline = self.is_offline.then(|| self.cache.clone().ok_or(Error::NoCache));
        let token = self.token.as_deref().map(bearer).transpose()?;
        let settings = HttpSettings {
            endpoint: endpoint.url().clone(),
            token,
            user_agent: user_agent(self.user_agent.as_deref())?,
            addresses: self.addresses,
            proxy_from_env: self.proxy_from_env,
            timeouts: self.timeouts,
            retry: self.retry,
        };
        let http = Http::new(settings);
        let branch_ttl = self.branch_ttl;
        let context = Context {
            http,
            endpoint,
            warnings: Arc::default(),
            limits: self.limits,
            call_timeout: self.call_timeout,
            header_cache: self.header_cache.map(|cache| HeaderCache { cache, branch_ttl }),
            offline: offline.transpose()?,
        };
        Ok(Client { context: Arc::new(context) })
    }
}

/// The header that carries a token, which no log of headers shows.
fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let mut value =
        HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Error::MalformedToken)?;
    value.set_sensitive(true);
    Ok(value)
}

/// This library, and who uses it.
fn user_agent(user: Option<&str>) -> Result<HeaderValue, Error> {
    let library = concat!("hf-meta/", env!("CARGO_PKG_VERSION"));
    let agent = user.map_or_else(|| library.to_owned(), |user| format!("{library} {user}"));
    HeaderValue::from_str(&agent).map_err(|_| Error::UserAgent)
}

/// The token is left out, and so is the text of an endpoint that is none: it may hold a password.
impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("endpoint", &Endpoint::parse(&self.endpoint))
            .field("token", &self.token.is_some())
            .field("user_agent", &self.user_agent)
            .field("addresses", &self.addresses)
            .field("proxy_from_env", &self.proxy_from_env)
            .field("timeouts", &self.timeouts)
            .field("retry", &self.retry)
            .field("call_timeout", &self.call_timeout)
            .field("limits", &self.limits)
            .field("cache", &self.cache)
            .field("header_cache", &self.header_cache)
            .field("branch_ttl", &self.branch_ttl)
            .field("is_offline", &self.is_offline)
            .finish()
    }
}
