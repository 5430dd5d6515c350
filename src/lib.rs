//! Inspect safetensors, GGUF and PyTorch models on the Hugging Face Hub without downloading them.
//!
//! A [`Client`] reads the headers of a repository with HTTP range requests, validates them, and counts parameters per
//! dtype. For BLOOM, a 352 GB checkpoint, it reads 156 kB.
//!
//! ```no_run
//! use hf_meta::{Client, Error, SafetensorsParseFromRepo};
//!
//! async fn show(client: &Client, repo: &str) -> Result<(), Error> {
//!     let model = client.model(repo).revision("main");
//!     let parsed = model.parse_safetensors_metadata().await?;
//!     let files = match &parsed {
//!         SafetensorsParseFromRepo::Single(_) => 1,
//!         SafetensorsParseFromRepo::Sharded(shards) => shards.headers.len(),
//!     };
//!     println!("{files} files");
//!     for (dtype, parameters) in parsed.parameter_count().iter() {
//!         println!("{dtype}\t{parameters}");
//!     }
//!     Ok(())
//! }
//! ```
//!
//! Create one [`Client`] and clone it: clones share connections and rate limits. Calls must run on a tokio runtime.
//! Their futures are `Send`, and dropping one cancels the call. Only [`Client::from_env`] and
//! [`ClientBuilder::from_env`] read environment variables.
//!
//! # Starting points
//!
//! | task | item |
//! |---|---|
//! | read all headers of a checkpoint | [`Model::parse_safetensors_metadata`] |
//! | read any format: safetensors, GGUF, PyTorch or a custom format | [`Model::inspect`] |
//! | count parameters without keeping headers in memory | [`Model::count`] |
//! | validate files and the index | [`Model::verify`]; all weight sets: [`Verify::all_sets`] |
//! | compute the memory of weights and cache | [`Count::memory`] |
//! | list the weight sets in a repository | [`Model::weight_sets`] |
//! | read the data of selected tensors | [`Model::tensors`]; their ranges: [`Tensors::read_plan`] |
//! | list the files of a repository with their hashes | [`Model::manifest`] |
//! | compare two results | [`Diff`] |
//! | group tensors by module | [`Tree`] |
//! | serialize to JSON | `serde_json::to_string(&parsed)`, or [`CountReport`] to omit the headers |
//! | use a different token for each user | [`Client::with_token`] |
//! | collect request statistics | [`Client::stats`] |
//! | read URLs and local files | [`Client::source`] |
//! | read a bucket or another store | [`FileStore`] and [`Model::store`] |
//! | read `config.json` or another small file | [`Model::read_file`] |
//! | call from synchronous code | [`block_on`] |
//! | read the JSON of a result | [`CountSummary`] |
//! | cache headers across calls | [`DiskCache`], [`MemoryCache`], or your own [`Cache`] |
//! | read many repositories | [the library guide](docs::library#many-repositories) |
//! | parse headers from other storage, without I/O | [`SafetensorsFileHeader`], [`hf_meta_format`] and [`hf_meta_count`] |
//!
//! # Errors
//!
//! Every call returns [`Error`]. Match on its variants, or use its predicates:
//!
//! ```no_run
//! async fn describe(client: &hf_meta::Client, repo: &str) -> String {
//!     match client.model(repo).parse_safetensors_metadata().await {
//!         Ok(parsed) => format!("{} parameters", parsed.parameter_count().total()),
//!         Err(error) if error.is_not_found() => "not found".to_owned(),
//!         Err(error) if error.has_no_weights() => "no weights".to_owned(),
//!         Err(error) if error.is_denied() => format!("no access: {error}"),
//!         Err(error) if error.is_malformed() => format!("invalid files: {error}"),
//!         Err(error) if error.is_transient() => match error.retry_after() {
//!             Some(wait) => format!("try again in {wait:?}"),
//!             None => "try again later".to_owned(),
//!         },
//!         Err(error) => format!("failed: {error}"),
//!     }
//! }
//! ```
//!
//! An error message never repeats the message of its [source](std::error::Error::source), so print the whole chain.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `rustls-aws-lc` (default) | TLS with `aws-lc-rs` |
//! | `rustls-no-provider` | TLS with the `rustls` provider that your program installs, such as `ring` |
//! | `reqwest-hook` | access to `reqwest` settings that [`ClientBuilder`] does not expose |
//!
//! When a process opens its first connection, `aws-lc-sys` collects its own entropy, which takes 35 to 50 ms of CPU time.
//! Build your program with `AWS_LC_SYS_NO_JITTER_ENTROPY=1` to use random numbers of the operating system alone.
//!
//! Without features, the client reads `http` URLs only. For a different TLS provider, write:
//!
//! ```toml
//! [dependencies]
//! hf-meta = { version = "0.1", default-features = false, features = ["rustls-no-provider"] }
//! ```
//!
//! # Related crates
//!
//! | crate | content |
//! |---|---|
//! | `hf-meta-format` | [`formats`](hf_meta_format::formats): containers, dtypes, tensor tables, indexes and weight sets |
//! | `hf-meta-count` | parameters, memory and [`results`](hf_meta_count::results) of headers, without I/O |
//! | `hf-meta-inspect` | one call, for any transport |
//! | `hf-meta-cli` | the `hf-meta` command |
//! | `hf-meta-badge` | badges as SVG and as shields.io JSON |
//! | `hf-meta-server` | the badge service and a Redis cache |
//! | `hf-meta-census` | many repositories as Arrow record batches and Parquet files |
//! | `hf-meta-edit` | edits of the metadata of local safetensors files |
//! | `hf-meta-repo-list` | lists of repositories: lines of text, or a column of a CSV file |
//! | `hf-meta-testing` | a mock Hub for your tests |
//!
//! # Guides
//!
//! [Tutorial](docs::tutorial) · [Library](docs::library) · [Requests](docs::reading) ·
//! [Caching and offline use](docs::cache) · [Counting](docs::counting) · [Quantization](docs::quantization) ·
//! [Memory](docs::memory) · [Validation](docs::validity) · [Tensors](docs::tensors) · [Repository layouts](docs::layouts) · [GGUF](docs::gguf) ·
//! [PyTorch](docs::pytorch) · [JSON](docs::json) · [Error handling in a service](docs::errors) ·
//! [Installation](docs::install) · [Command line](docs::command) · [Continuous integration](docs::ci) ·
//! [Questions](docs::faq) · [Python](docs::python) · [Census](docs::census) · [Badge service](docs::service) ·
//! [Performance](docs::speed) · [Glossary](docs::glossary) · [Architecture](docs::architecture)

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backends;
mod base;
mod cache;
mod call;
mod client;
pub mod docs;
mod error;
mod http;
mod hub;

pub use hf_meta_count::memory::MemoryOptions;
pub use hf_meta_count::results::{Finding, Severity, ValueCheck, ValueReport};
pub use hf_meta_count::results::{TensorDifference, ValueDiff};
pub use hf_meta_count::{
    CountReport, CountSummary, Diff, FetchStats, ParameterCount, Plan, SafetensorsFile,
    SafetensorsParseFromRepo, SafetensorsShards, Tree, VerifyReport, WeightFiles, Weights,
};
pub use hf_meta_format::formats::weight_sets::ListedFile;
pub use hf_meta_format::read_plan::{
    PlanOptions, PlannedFile, PlannedTensor, ReadPlan, ReadRange, TensorOrder, TensorSelection,
};
pub use hf_meta_format::{
    CommitSha, Dtype, RepoId, RepoPath, Revision, SafetensorsFileHeader, SafetensorsIndexJson,
    SourceError, TensorInfo, UnsupportedWeights, WeightSet,
};
pub use hf_meta_inspect::{
    Error, ErrorKind, HttpError, HttpErrorKind, HubCacheMiss, HubError, QuantizationNotFound,
};

pub use self::{
    backends::{FileStore, RangeBytes},
    base::Progress,
    base::budget::{Budget, Demand, LargeCallLimit},
    base::meter::{CallMeter, ClientStats},
    cache::{Cache, CacheKey, CacheMode, DiskCache, DiskUsage, MemoryCache},
    client::{
        Client, ClientBuilder, Count, Inspect, Model, Tensor, TensorChunk, TensorReader, Tensors,
        Verify, block_on,
    },
    http::{AddressPolicy, RetryPolicy},
    hub::{Endpoint, EndpointError, HubReportedCount, Manifest, ManifestFile, Source},
};

/// Used by the crates of this project. It may change in any version.
#[doc(hidden)]
pub mod internal {
    pub use crate::base::environment::environment_token;
    pub use crate::cache::{HeaderBytes, HeaderFile};
    pub use crate::client::internal::{
        api_page, count_and_record, loaded_with, quota_share, recount,
    };
}

/// Types from other crates that appear in this crate's public API.
pub use {bytes::Bytes, futures::future::BoxFuture, futures::stream::BoxStream, url::Url};

/// The HTTP library used by [`ClientBuilder::reqwest_hook`].
#[cfg(feature = "reqwest-hook")]
pub use reqwest;

/// Reads the safetensors headers of a repository on the Hub with a default [`Client`].
///
/// To read more than one repository, create a [`Client`] and reuse it, so that connections are shared.
///
/// # Errors
///
/// Returns the errors of [`Client::new`] and [`Model::parse_safetensors_metadata`].
pub async fn parse_safetensors_metadata(repo: &str) -> Result<SafetensorsParseFromRepo, Error> {
    Client::new()?.model(repo).parse_safetensors_metadata().await
}

/// The examples in the README, compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
