#![doc = include_str!("../README.md")]

#[cfg(feature = "badge")]
pub mod badge;
mod cache;
mod client;
pub mod diff;
mod disk;
mod env;
mod error;
mod http;
mod hub;
mod json;
mod layout;
mod load;
mod model;
#[cfg(feature = "server")]
mod page;
mod parse;
pub mod quantization;
mod read;
pub mod safetensors;
#[cfg(feature = "server")]
pub mod server;
mod snapshot;
mod source;
mod store;
pub mod text;
pub mod tree;
mod verdict;

pub use cache::{Cache, CacheKey, DiskCache, DiskUsage, Turn};
#[cfg(feature = "server")]
pub use cache::{RedisCache, RedisCacheError};
pub use client::{Client, ClientBuilder};
pub use diff::Diff;
pub use error::Error;
pub use http::{
    AddressPolicy, HttpError, RangeError, ResponseHeaders, RetryPolicy, SafeUrl, TransportKind,
};
pub use hub::{
    Claim, CommitSha, Endpoint, EndpointError, IdError, ListingError, Refusal, RefusalKind, RepoId,
    RepoKind, Revision,
};
pub use json::Summary;
pub use layout::{OtherWeights, WeightSet};
pub use load::Progress;
pub use model::Model;
pub use parse::{
    Cost, Counts, Facts, SafetensorsFile, SafetensorsParseFromRepo, SafetensorsShards,
};
pub use safetensors::{
    Dtype, ParameterCount, RepoPath, SafetensorsFileHeader, SafetensorsIndexJson, TensorInfo,
};
pub use snapshot::SnapshotError;
pub use source::{Source, SourceError};
pub use tree::Tree;
pub use verdict::Verdict;

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
