//! The client: the entry point of every call.

mod builder;
mod checked_sets;
mod compare;
mod context;
mod data_hash;
pub(crate) mod internal;
mod model;
mod model_call;
mod ranges;
mod tensors;
mod values;
mod verify;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

pub use self::builder::ClientBuilder;
use self::builder::bearer;
use self::context::ClientContext;
pub use self::model::{Count, Inspect, Model};
pub use self::tensors::{Tensor, TensorChunk, TensorReader, Tensors};
pub use self::verify::Verify;
use crate::base::meter::{CallMeter, ClientStats};
use crate::error::Error;
use crate::hub::{Endpoint, RepoId, Source};

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
    /// ```
    /// let client = hf_meta::Client::new()?;
    /// assert_eq!(client.endpoint().to_string(), "https://huggingface.co");
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ClientBuilder::build`].
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// Returns a builder with the default settings.
    ///
    /// ```
    /// let client = hf_meta::Client::builder().max_concurrent_requests(16).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Creates a client configured from environment variables; see [`ClientBuilder::from_env`].
    ///
    /// ```no_run
    /// let client = hf_meta::Client::from_env()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
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
    /// Returns [`Error::InvalidOption`] if the token cannot be sent in an HTTP header.
    pub fn with_token(&self, token: impl AsRef<str>) -> Result<Self, Error> {
        let token = Some(token.as_ref()).filter(|token| !token.is_empty());
        let http = self.context.http.with_token(token.map(bearer).transpose()?);
        let (warnings, context) = (Arc::default(), ClientContext::clone(&self.context));
        Ok(Self { context: Arc::new(ClientContext { http, warnings, ..context }) })
    }

    /// Starts a meter for one call, or for several calls that belong together. The [totals](Self::stats) of the client
    /// include it, as one call. See [`Model::meter`].
    ///
    /// ```
    /// # async fn example(client: &hf_meta::Client) -> Result<(), hf_meta::Error> {
    /// let meter = client.meter();
    /// let result = client.model("bigscience/bloom").meter(&meter).count().await;
    /// let stats = meter.stats();
    /// println!("{} requests, {} bytes", stats.requests, stats.bytes_read);
    /// # Ok(())
    /// # }
    /// ```
    pub fn meter(&self) -> CallMeter {
        self.context.totals.meter()
    }

    /// Returns the totals of all calls made through this client, its clones, and clients derived from it by
    /// [`with_token`](Self::with_token).
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// client.model("org/model").count().await?;
    /// assert_eq!(client.stats().calls, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stats(&self) -> ClientStats {
        self.context.totals.stats()
    }

    /// Returns the time for which a rate limit holds back requests with the token of this client, or `None` if none
    /// does.
    ///
    /// ```no_run
    /// # fn example(client: &hf_meta::Client) {
    /// // In the task that draws the progress:
    /// if let Some(wait) = client.paused_for() {
    ///     println!("waiting for the rate limit, {} s", wait.as_secs());
    /// }
    /// # }
    /// ```
    pub fn paused_for(&self) -> Option<Duration> {
        self.context.http.paused_for()
    }

    /// Returns the endpoint of the Hub that this client reads from.
    ///
    /// ```
    /// let client = hf_meta::Client::builder().endpoint("https://hub.example").build()?;
    /// assert_eq!(client.endpoint().to_string(), "https://hub.example");
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn endpoint(&self) -> &Endpoint {
        &self.context.endpoint
    }

    /// Selects a repository on the Hub by name: `org/name`, `name`, `datasets/org/name` or `spaces/org/name`.
    ///
    /// Only names are accepted, never URLs or local paths, so untrusted input is safe here. An invalid name is
    /// reported when the call is made.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// let report = client.model("org/model").count().await?;
    /// assert_eq!(report.parameter_count.total(), 6);
    /// // A path is not a name, so this reads no file of this machine.
    /// assert!(client.model("../etc/passwd").count().await.unwrap_err().is_usage());
    /// # Ok(())
    /// # }
    /// ```
    pub fn model(&self, repo: impl AsRef<str>) -> Model {
        let repo = repo.as_ref().parse::<RepoId>();
        let source = repo.map(Source::from).map_err(Into::into);
        Model::new(Arc::clone(&self.context), source)
    }

    /// Selects the weights of a [`Source`]: a repository, a URL, or a local file or folder.
    ///
    /// Do not pass a source that was parsed from untrusted input: it can name any file on this machine and any server
    /// that it can reach. Use [`Client::model`] for untrusted input.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// let source = hf_meta::Source::parse("hf://org/model@main", client.endpoint())?;
    /// assert_eq!(client.source(source).count().await?.parameter_count.total(), 6);
    /// # Ok(())
    /// # }
    /// ```
    pub fn source(&self, source: Source) -> Model {
        Model::new(Arc::clone(&self.context), Ok(source))
    }
}

impl ClientBuilder {
    /// Builds the client.
    ///
    /// ```
    /// use hf_meta::Client;
    ///
    /// let client = Client::builder().max_concurrent_requests(16).build()?;
    /// let error = Client::builder().quota_share(0.0).build().unwrap_err();
    /// assert!(error.is_usage(), "{error}");
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidOption`] if the token cannot be sent in an HTTP header
    /// - [`Error::InvalidSetting`] if a setting is out of range, cannot be parsed, is rejected by the HTTP library, or
    ///   contradicts another one; if an offline client has no [`hub_cache`](Self::hub_cache); and if no TLS provider is
    ///   installed although this library is built without one
    pub fn build(self) -> Result<Client, Error> {
        Ok(Client { context: Arc::new(self.context()?) })
    }
}

/// Runs a call and blocks the current thread until its result is available. For programs without an async runtime.
///
/// One background thread, which is started by the first call, drives the connections, so that a
/// [`Client`](crate::Client) keeps them. To run several calls concurrently, join their futures.
///
/// ```no_run
/// let client = hf_meta::Client::new()?;
/// let report = hf_meta::block_on(client.model("bigscience/bloom").count())?;
/// println!("{} parameters", report.parameter_count.total());
/// # Ok::<(), hf_meta::Error>(())
/// ```
///
/// # Errors
///
/// Returns the errors of the call, and [`Error::InvalidSetting`] if the background thread cannot be started.
///
/// # Panics
///
/// Panics if the call panics, and within an async runtime.
pub fn block_on<T: Send + 'static>(
    call: impl IntoFuture<Output = Result<T, Error>, IntoFuture: Send + 'static>,
) -> Result<T, Error> {
    static RUNTIME: LazyLock<Result<Runtime, Error>> = LazyLock::new(|| {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("hf-meta").enable_all().build();
        runtime.map_err(Error::http_client)
    });
    RUNTIME.as_ref().map_err(Error::clone)?.block_on(call.into_future())
}
