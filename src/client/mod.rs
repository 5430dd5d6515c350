//! The client: the start of every call.

mod builder;
mod call_timeout;
mod env;
mod many;
mod model;

use std::sync::Arc;

pub use self::builder::ClientBuilder;
pub use self::env::TokenSource;
pub use self::many::ResultOrder;
use self::model::ClientContext;
pub use self::model::Model;
use crate::error::Error;
use crate::hub::Source;
use crate::hub::{Endpoint, RepoId};

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
