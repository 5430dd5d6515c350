//! The client, from which every call starts.

mod builder;
mod env;
mod model;

use std::sync::Arc;

pub use self::builder::ClientBuilder;
use self::model::Context;
pub use self::model::Model;
use crate::error::Error;
use crate::hub::Source;
use crate::hub::{Endpoint, RepoId};

/// Reads the headers of safetensors files on a Hub, on any other server and on disk.
///
/// Cheap to clone: clones share their connections. Its calls are made on a tokio runtime with time and
/// IO enabled. Reads nothing of the environment unless made by [`Client::from_env`].
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
    context: Arc<Context>,
}

impl Client {
    /// A client of `https://huggingface.co` without a token, with the defaults of [`ClientBuilder`].
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::build`].
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// The settings of a client, to be changed before it is built.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A client as the environment describes it; see [`ClientBuilder::from_env`].
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::build`].
    pub fn from_env() -> Result<Self, Error> {
        ClientBuilder::from_env().build()
    }

    /// The Hub that this client asks.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.context.endpoint
    }

    /// A repo on the Hub by its name: `org/name`, `name`, `datasets/org/name`, `spaces/org/name`.
    ///
    /// Takes names only, never a URL or a local path, so it is safe to be handed what users type. A
    /// text that is no name is an error when the call is made.
    pub fn model(&self, repo: impl AsRef<str>) -> Model {
        let repo = repo.as_ref().parse::<RepoId>();
        let source = repo.map(Source::from).map_err(Into::into);
        Model::new(Arc::clone(&self.context), source)
    }

    /// Whatever a [`Source`] names: a repo, a URL, a local file or folder.
    ///
    /// A source parsed from what a stranger typed can name any file of this machine and any server
    /// that it reaches; [`Client::model`] cannot.
    pub fn source(&self, source: Source) -> Model {
        Model::new(Arc::clone(&self.context), Ok(source))
    }
}
