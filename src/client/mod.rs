//! The client: the entry point of every call.

mod api_page;
mod blocking;
mod builder;
mod call_timeout;
mod context;
mod env;
mod many;
mod model;
mod model_call;
mod shared_calls;

use std::sync::Arc;
use std::time::Duration;

pub use self::blocking::block_on;
pub use self::builder::ClientBuilder;
pub use self::builder::TokenSource;
use self::builder::bearer;
use self::context::ClientContext;
pub use self::env::environment_token;
pub use self::many::ResultOrder;
pub use self::model::Model;
use crate::base::meter::{CallMeter, ClientStats};
use crate::error::Error;
use crate::http::RemainingQuota;
use crate::hub::{Endpoint, HubWarnings, RepoId, Source};

/// A client that reads the headers of weight files from a Hub, from other servers and from disk.
///
/// A client is cheap to clone, and clones share connections. Calls must run on a tokio runtime with time and I/O
/// enabled. Only [`Client::from_env`] reads environment variables.
///
/// ```no_run
/// # async fn example() -> Result<(), hf_meta::Error> {
/// let client = hf_meta::Client::builder().max_concurrent_requests(16).build()?;
/// let parsed = client.model("bigscience/bloom").parse_safetensors_metadata().await?;
/// println!("{} parameters", parsed.parameter_count().total());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    context: Arc<ClientContext>,
}

impl Client {
    /// Creates a client for `https://huggingface.co` with the default settings and no token.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ClientBuilder::build`].
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Creates a client configured from environment variables; see [`ClientBuilder::from_env`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ClientBuilder::build`].
    pub fn from_env() -> Result<Self, Error> {
        ClientBuilder::from_env().build()
    }

    /// Returns a client with a different token that shares everything else with this one. An empty token means none.
    ///
    /// A service that acts on behalf of its users builds one client and derives one per user from it. Connections,
    /// limits, the header cache and [statistics](Client::stats) are shared. Rate limits are tracked per token,
    /// because the Hub grants each account its own quota. Cached headers are returned for a token only after the Hub
    /// has let that token read the files.
    ///
    /// ```no_run
    /// # async fn example(client: &hf_meta::Client, token: &str) -> Result<(), hf_meta::Error> {
    /// let report = client.with_token(token)?.model("org/private").count().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`Error::InvalidToken`] if the token cannot be sent in an HTTP header.
    pub fn with_token(&self, token: impl AsRef<str>) -> Result<Self, Error> {
        let token = Some(token.as_ref()).filter(|token| !token.is_empty());
        let http = self.context.http.with_token(token.map(bearer).transpose()?);
        let warnings = Arc::new(HubWarnings::new(None));
        Ok(Self {
            context: Arc::new(ClientContext {
                http,
                warnings,
                ..ClientContext::clone(&self.context)
            }),
        })
    }

    /// Starts a meter for one call, or for several calls that belong together. The [totals](Self::stats) of the client
    /// include it, as one call. See [`Model::meter`].
    ///
    /// ```
    /// # async fn example(client: &hf_meta::Client) -> Result<(), hf_meta::Error> {
    /// let meter = client.start_call();
    /// let result = client.model("bigscience/bloom").meter(&meter).count().await;
    /// println!("{} requests, {} bytes", meter.requests(), meter.bytes());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn start_call(&self) -> CallMeter {
        self.context.totals.start_call()
    }

    /// Returns the totals of all calls made through this client, its clones, and clients derived from it by
    /// [`with_token`](Self::with_token).
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.context.totals.stats()
    }

    /// Returns the remaining quota for file requests, as last reported by the Hub, or `None` if it is unknown.
    #[must_use]
    pub fn remaining_quota(&self) -> Option<RemainingQuota> {
        self.context.http.quota()
    }

    /// Returns the timeout of calls, if [`ClientBuilder::call_timeout`] has set it.
    #[must_use]
    pub fn call_timeout(&self) -> Option<Duration> {
        self.context.call_timeout
    }

    /// Returns the share of quotas that this client uses, from [`ClientBuilder::quota_share`].
    #[must_use]
    pub fn quota_share(&self) -> f64 {
        self.context.http.quota_share()
    }

    /// Returns the endpoint of the Hub that this client reads from.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.context.endpoint
    }

    /// Selects a repository on the Hub by name: `org/name`, `name`, `datasets/org/name` or `spaces/org/name`.
    ///
    /// Only names are accepted, never URLs or local paths, so untrusted input is safe here. An invalid name is
    /// reported when the call is made.
    pub fn model(&self, repo: impl AsRef<str>) -> Model {
        let repo = repo.as_ref().parse::<RepoId>();
        let source = repo.map(Source::from).map_err(Into::into);
        Model::new(Arc::clone(&self.context), source)
    }

    /// Selects the weights of a [`Source`]: a repository, a URL, or a local file or folder.
    ///
    /// Do not pass a source that was parsed from untrusted input: it can name any file on this machine and any server
    /// that it can reach. Use [`Client::model`] for untrusted input.
    pub fn source(&self, source: Source) -> Model {
        Model::new(Arc::clone(&self.context), Ok(source))
    }
}

impl ClientBuilder {
    /// Builds the client.
    ///
    /// # Errors
    ///
    /// - [`Error::MissingHubCache`] if the client is offline and has no [`hub_cache`](Self::hub_cache)
    /// - [`Error::InvalidEndpoint`] if the endpoint is not a valid Hub URL
    /// - [`Error::InvalidToken`] if the token cannot be sent in an HTTP header
    /// - [`Error::InvalidRequestHeader`] if a header is invalid or reserved
    /// - [`Error::InvalidSetting`] if a number or a timeout is out of range, two formats have the same name or
    ///   extension, or the user agent cannot be sent in an HTTP header
    /// - [`Error::InvalidProxy`] if a proxy setting is invalid
    /// - [`Error::HttpClient`] if a root certificate cannot be parsed or the HTTP library rejects another setting
    /// - [`Error::NoTlsProvider`] if the feature `rustls-no-provider` is enabled and no provider has been installed
    pub fn build(self) -> Result<Client, Error> {
        Ok(Client { context: Arc::new(self.context()?) })
    }
}
