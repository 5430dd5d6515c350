//! The client: the start of every call.

mod builder;
mod call_timeout;
mod env;
mod http_options;
mod known_servers;
mod many;
mod model;
#[cfg(feature = "census")]
mod models_page;
#[cfg(feature = "census")]
mod record;

use std::sync::Arc;

pub use self::builder::ClientBuilder;
use self::builder::bearer;
pub use self::env::TokenSource;
pub use self::many::ResultOrder;
use self::model::ClientContext;
pub use self::model::Model;
use crate::error::Error;
#[cfg(feature = "server")]
use crate::http::transfer::RequestMeter;
use crate::http::{ClientStats, RemainingQuota};
use crate::hub::{Endpoint, HubWarnings, RepoId, Source};

/// A client that reads the headers of safetensors files on a Hub, on any other server and on disk.
///
/// A client is cheap to clone, and clones share their connections. Calls need a tokio runtime with time and
/// I/O enabled. Only [`Client::from_env`] reads the environment.
///
/// ```no_run
/// # async fn example() -> Result<(), hf_meta::Error> {
/// let client = hf_meta::Client::builder().concurrency(16).build()?;
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
    /// Returns a client of `https://huggingface.co` without a token, with the defaults of [`ClientBuilder`].
    ///
    /// # Errors
    ///
    /// The errors of [`ClientBuilder::build`].
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// Returns the default settings of a client, to change before it is built.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Returns a client with the settings of the environment; see [`ClientBuilder::from_env`].
    ///
    /// # Errors
    ///
    /// The errors of [`ClientBuilder::build`].
    pub fn from_env() -> Result<Self, Error> {
        ClientBuilder::from_env().build()
    }

    /// Returns a client that shares everything with this one, except for its token. An empty token means none.
    ///
    /// A service that reads with the tokens of its users builds one client and gives each call the token of its user:
    /// connections, limits, the cache of headers and [statistics](Client::stats) are shared. Rate limits are kept for
    /// each token, because the Hub gives each account a quota. The cache never returns to one token what another has
    /// read.
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
    /// [`Error::MalformedToken`] for a token that cannot be sent in an HTTP header.
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

    /// Connects to the endpoint, so that the first call need not. It sends one request, and accepts every response.
    /// An offline client does nothing.
    ///
    /// # Errors
    ///
    /// If no response arrives.
    pub async fn warm_up(&self) -> Result<(), Error> {
        self.context.warm_up().await
    }

    /// Starts the meter of a call, which is a part of the totals.
    #[cfg(feature = "server")]
    pub(crate) fn start_call(&self) -> RequestMeter {
        self.context.totals.start_call()
    }

    /// Returns the totals of all calls of this client, of its clones, and of the clients [with another
    /// token](Self::with_token), since it was built.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.context.totals.stats()
    }

    /// Returns the quota of the Hub for files, by its last response; `None` if it has named none.
    #[must_use]
    pub fn remaining_quota(&self) -> Option<RemainingQuota> {
        self.context.http.quota()
    }

    /// Returns the Hub of this client.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.context.endpoint
    }

    /// Returns a repository on the Hub by its name: `org/name`, `name`, `datasets/org/name` or
    /// `spaces/org/name`.
    ///
    /// It accepts names only, never a URL or a local path, so it is safe for the input of users. A text
    /// that is not a name is an error of the call.
    pub fn model(&self, repo: impl AsRef<str>) -> Model {
        let repo = repo.as_ref().parse::<RepoId>();
        let source = repo.map(Source::from).map_err(Into::into);
        Model::new(Arc::clone(&self.context), source)
    }

    /// Returns the weights of a [`Source`]: a repository, a URL, a local file or folder.
    ///
    /// A source that a stranger typed can be any file of this machine and any server that this machine
    /// reaches; the input of [`Client::model`] cannot.
    pub fn source(&self, source: Source) -> Model {
        Model::new(Arc::clone(&self.context), Ok(source))
    }
}
