#![doc = include_str!("../README.md")]

mod backends;
#[cfg(feature = "badge")]
pub mod badge;
mod cache;
mod client;
pub mod count;
mod error;
pub mod formats;
mod http;
mod hub;
mod inspect;
pub mod report;
#[cfg(feature = "server")]
pub mod server;

pub use backends::SnapshotError;
pub use cache::{Cache, CacheKey, DiskCache, DiskUsage, FillLease};
#[cfg(feature = "server")]
pub use cache::{RedisCache, RedisCacheError};
pub use client::{Client, ClientBuilder, Model};
pub use count::ParameterCount;
pub use error::Error;
pub use formats::safetensors::{SafetensorsFileHeader, SafetensorsIndexJson};
pub use formats::weight_sets::{OtherWeights, WeightSet};
pub use formats::{Dtype, RepoPath, TensorInfo};
pub use http::{
    AddressPolicy, HttpError, RangeError, ResponseHeaders, RetryPolicy, SafeUrl, TransportKind,
};
pub use hub::{
    CommitSha, Endpoint, EndpointError, HubError, HubErrorKind, HubReportedCount, IdError,
    ListingError, RepoId, RepoKind, Revision, Source, SourceError,
};
pub use inspect::Progress;
pub use report::diff::Diff;
pub use report::json::Summary;
pub use report::tree::Tree;
pub use report::verify::VerifyReport;
pub use report::{
    CountReport, Facts, FetchStats, SafetensorsFile, SafetensorsParseFromRepo, SafetensorsShards,
};

/// Reads the safetensors headers of a repo on the Hub, with the defaults of [`Client`].
///
/// For more than one repo, make a [`Client`] and keep it: it keeps its connections.
///
/// # Errors
///
/// As [`Client::new`] and [`Model::parse_safetensors_metadata`].
pub async fn parse_safetensors_metadata(repo: &str) -> Result<SafetensorsParseFromRepo, Error> {
    Client::new()?.model(repo).parse_safetensors_metadata().await
}
