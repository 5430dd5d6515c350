#![doc = include_str!("../README.md")]

#[cfg(feature = "client")]
mod backends;
#[cfg(feature = "badge")]
pub mod badge;
#[cfg(feature = "client")]
mod cache;
#[cfg(feature = "client")]
mod client;
pub mod count;
#[cfg(feature = "client")]
mod error;
pub mod formats;
#[cfg(feature = "client")]
mod http;
mod hub;
#[cfg(feature = "client")]
mod inspect;
pub mod report;
#[cfg(feature = "server")]
pub mod server;

pub use count::ParameterCount;
pub use formats::safetensors::{SafetensorsFileHeader, SafetensorsIndexJson};
pub use formats::weight_sets::{OtherWeights, WeightSet};
pub use formats::{Dtype, RepoPath, TensorInfo};
pub use hub::{CommitSha, IdError, RepoId, RepoKind, Revision};
pub use report::diff::Diff;

pub use report::tree::Tree;
pub use report::verify::VerifyReport;
pub use report::{
    CountReport, FetchStats, SafetensorsFile, SafetensorsParseFromRepo, SafetensorsShards,
};

#[cfg(feature = "server")]
pub use self::cache::{RedisCache, RedisCacheError};
#[cfg(feature = "client")]
pub use self::{
    cache::{Cache, CacheKey, DiskCache, DiskUsage, FillLease},
    client::{Client, ClientBuilder, Model},
    error::{Error, SnapshotError},
    http::{
        AddressPolicy, HttpError, RangeError, ResponseHeaders, RetryPolicy, SafeUrl, TransportKind,
    },
    hub::{
        Endpoint, EndpointError, HubError, HubErrorKind, HubReportedCount, ListingError, Source,
        SourceError,
    },
    inspect::Progress,
};

/// Reads the safetensors headers of a repo on the Hub, with the defaults of [`Client`].
///
/// For more than one repo, make a [`Client`] and keep it: it keeps its connections.
///
/// # Errors
///
/// As [`Client::new`] and [`Model::parse_safetensors_metadata`].
#[cfg(feature = "client")]
pub async fn parse_safetensors_metadata(repo: &str) -> Result<SafetensorsParseFromRepo, Error> {
    Client::new()?.model(repo).parse_safetensors_metadata().await
}
