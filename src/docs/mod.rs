//! Guides. Each page explains one subject, with examples.
//!
//! | page | subject |
//! |---|---|
//! | [`tutorial`] | your own model, from a folder to a checked upload |
//! | [`library`] | the calls of the library, and when to use each |
//! | [`reading`] | HTTP requests, retries, rate limits, timeouts, logs |
//! | [`counting`] | parameters, elements, buffers, experts |
//! | [`quantization`] | quantized models: methods, exactness, the counts of the Hub |
//! | [`validity`] | rules that files and indexes must meet, and the findings of `verify` |
//! | [`layouts`] | names of weight files, and repositories with several sets of weights |
//! | [`gguf`] | quantized models in GGUF, and custom formats |
//! | [`pytorch`] | checkpoints of `torch.save`, and the safety of pickles |
//! | [`metadata`] | titles, thumbnails and training settings: shown, checked and edited in place |
//! | [`tensors`] | the data of selected tensors, checks of values, and comparisons with the Hub |
//! | [`memory`] | the memory of weights and cache, and what fits |
//! | [`ci`] | checks of checkpoints in continuous integration |
//! | [`cache`] | the header cache, and offline mode |
//! | [`json`] | the JSON output of every command |
//! | [`install`] | packages, systems, and the programs in each package |
//! | [`command`] | sources, output, exit codes and environment variables of `hf-meta` |
//! | [`faq`] | other counts, access, mirrors, lists, and what stays stable |
//! | [`python`] | the Python module |
//! | [`errors`] | error codes, and the HTTP status to return for each |
//! | [`census`] | many repositories as tables, on one machine or many |
//! | [`service`] | badges, their options, and `hf-meta serve` |
//! | [`speed`] | measurements, and the commands that reproduce them |
//! | [`glossary`] | terms of these pages |
//! | [`architecture`] | the code: the life of a request, the layers, where to add features |

/// [`Client::model`]: crate::Client::model
/// [`Cache`]: crate::Cache
/// [`FetchStats`]: crate::FetchStats
/// [`Error`]: crate::Error
/// [`FileStore`]: crate::FileStore
/// [`Files`]: hf_meta_inspect::Files
/// [`CountReport`]: crate::CountReport
/// [`Budget`]: crate::Budget
#[doc = include_str!("architecture.md")]
pub mod architecture {}

/// [`branch_ttl`]: crate::ClientBuilder::branch_ttl
/// [`stale_if_error`]: crate::ClientBuilder::stale_if_error
/// [`Model::cache_mode`]: crate::Model::cache_mode
/// [`Client`]: crate::Client
/// [`DiskCache`]: crate::DiskCache
/// [connect ahead]: crate::docs::reading#connections
/// [`Cache`]: crate::Cache
/// [`ClientBuilder::offline`]: crate::ClientBuilder::offline
/// [pytorch]: crate::docs::pytorch#requests
/// [command]: crate::docs::command#environment
#[doc = include_str!("cache.md")]
pub mod cache {}

/// [install]: crate::docs::install
/// [`hf_meta.census`]: crate::docs::python#a-census
/// [command]: crate::docs::command
#[doc = include_str!("census.md")]
pub mod census {}

/// [glossary]: crate::docs::glossary
/// [`command`]: crate::docs::command
/// [`validity`]: crate::docs::validity
#[doc = include_str!("ci.md")]
pub mod ci {}

/// [error code]: crate::docs::errors
/// [`ci`]: crate::docs::ci
/// [census]: crate::docs::census
/// [counting rules]: crate::docs::counting
/// [memory]: crate::docs::memory#several-models
/// [values]: crate::docs::tensors
#[doc = include_str!("command.md")]
pub mod command {}

/// [`ListedWeights`]: hf_meta_format::formats::weight_sets::ListedWeights
/// [`read_header`]: hf_meta_format::formats::read_header
/// [`ReportBuilder`]: hf_meta_count::steps::ReportBuilder
/// [`formats`]: hf_meta_format::formats
/// [`count`]: hf_meta_count::count
/// [quantization]: crate::docs::quantization
/// [glossary]: crate::docs::glossary
#[doc = include_str!("counting.md")]
pub mod counting {}

/// [`Error`]: crate::Error
/// [`Error::kind`]: crate::Error::kind
/// [`Error::code`]: crate::Error::code
/// [`Error::http_status`]: crate::Error::http_status
/// [`Error::retry_after_secs`]: crate::Error::retry_after_secs
/// [`Error::chain`]: crate::Error::chain
#[doc = include_str!("errors.md")]
pub mod errors {}

/// [quantization]: crate::docs::quantization
/// [error codes]: crate::docs::errors
/// [`ClientBuilder::root_certificate_pem`]: crate::ClientBuilder::root_certificate_pem
/// [`ParameterCount`]: crate::ParameterCount
/// [`TensorInfo`]: crate::TensorInfo
#[doc = include_str!("faq.md")]
pub mod faq {}

/// [`Model::inspect`]: crate::Model::inspect
/// [`Model::count`]: crate::Model::count
/// [`Model::format`]: crate::Model::format
/// [`validity`]: crate::docs::validity
/// [`ClientBuilder::format`]: crate::ClientBuilder::format
/// [`Format`]: hf_meta_format::formats::Format
/// [`HeaderParser`]: hf_meta_format::formats::HeaderParser
#[doc = include_str!("gguf.md")]
pub mod gguf {}

/// [counting]: crate::docs::counting
/// [validity]: crate::docs::validity
/// [quantization]: crate::docs::quantization
/// [memory]: crate::docs::memory
/// [reading]: crate::docs::reading
/// [layouts]: crate::docs::layouts
#[doc = include_str!("glossary.md")]
pub mod glossary {}

#[doc = include_str!("install.md")]
pub mod install {}

/// [`counting`]: crate::docs::counting
/// [`Error::code`]: crate::Error::code
/// [`validity`]: crate::docs::validity
/// [errors]: crate::docs::errors
/// [schema]: https://github.com/OWNER/hf-meta/blob/main/src/docs/schema.json
#[doc = include_str!("json.md")]
pub mod json {}

/// [`Model::path`]: crate::Model::path
/// [`Model::other_sets`]: crate::Model::other_sets
/// [glossary]: crate::docs::glossary
/// [GGUF]: crate::docs::gguf
/// [PyTorch checkpoint]: crate::docs::pytorch
#[doc = include_str!("layouts.md")]
pub mod layouts {}

/// [`Client`]: crate::Client
/// [`block_on`]: crate::block_on
/// [`Model::count`]: crate::Model::count
/// [`Model::inspect`]: crate::Model::inspect
/// [`Model::parse_safetensors_metadata`]: crate::Model::parse_safetensors_metadata
/// [`Model::verify`]: crate::Model::verify
/// [`Model::weight_sets`]: crate::Model::weight_sets
/// [`Model::path`]: crate::Model::path
/// [`Model::read_file`]: crate::Model::read_file
/// [`CountReport`]: crate::CountReport
/// [`Weights`]: crate::Weights
/// [`VerifyReport`]: crate::VerifyReport
/// [`CountSummary`]: crate::CountSummary
/// [`Diff`]: crate::Diff
/// [`Tree`]: crate::Tree
/// [command]: crate::docs::command#environment
/// [validity]: crate::docs::validity
/// [glossary]: crate::docs::glossary
/// [JSON]: crate::docs::json
/// [errors]: crate::docs::errors
/// [`ClientBuilder`]: crate::ClientBuilder
/// [`AddressPolicy::Public`]: crate::AddressPolicy::Public
#[doc = include_str!("library.md")]
pub mod library {}

/// [`Count::memory`]: crate::Count::memory
/// [`EngineModel::answer`]: hf_meta_count::engines::EngineModel::answer
/// [`EngineReport`]: hf_meta_count::results::EngineReport
/// [`Fit`]: hf_meta_count::memory::Fit
/// [`Memory`]: hf_meta_count::memory::Memory
/// [`memory`]: crate::docs::json#memory
#[doc = include_str!("memory.md")]
pub mod memory {}

/// [`edit_header`]: hf_meta_format::formats::safetensors::edit_header
/// [`ModelSpec`]: hf_meta_format::metadata::ModelSpec
#[doc = include_str!("metadata.md")]
pub mod metadata {}

/// [JSON]: crate::docs::json
/// [census]: crate::docs::census
/// [command]: crate::docs::command#sources
/// [environment]: crate::docs::command#environment
/// [errors]: crate::docs::errors
/// [install]: crate::docs::install
/// [metadata]: crate::docs::metadata
/// [tensors]: crate::docs::tensors
#[doc = include_str!("python.md")]
pub mod python {}

/// [GGUF]: crate::docs::gguf
/// [`layouts`]: crate::docs::layouts
/// [cache]: crate::docs::cache
/// [same rules]: crate::docs::quantization
#[doc = include_str!("pytorch.md")]
pub mod pytorch {}

/// [glossary]: crate::docs::glossary
#[doc = include_str!("quantization.md")]
pub mod quantization {}

/// [GGUF]: crate::docs::gguf
/// [PyTorch checkpoint]: crate::docs::pytorch
/// [`ClientBuilder::max_concurrent_requests`]: crate::ClientBuilder::max_concurrent_requests
/// [`Plan::Prefetch`]: crate::Plan::Prefetch
/// [`Plan::Hub`]: crate::Plan::Hub
/// [`FetchStats::requests`]: crate::FetchStats
/// [`RetryPolicy`]: crate::RetryPolicy
/// [`RetryPolicy::max_wait`]: crate::RetryPolicy::max_wait
/// [`RetryPolicy::max_attempts`]: crate::RetryPolicy::max_attempts
/// [`connect_timeout`]: crate::ClientBuilder::connect_timeout
/// [`read_timeout`]: crate::ClientBuilder::read_timeout
/// [`request_timeout`]: crate::ClientBuilder::request_timeout
/// [`call_timeout`]: crate::ClientBuilder::call_timeout
/// [`AddressPolicy::Public`]: crate::AddressPolicy::Public
/// [`system_certificates`]: crate::ClientBuilder::system_certificates
/// [`Client::with_token`]: crate::Client::with_token
/// [many calls]: crate::docs::library#many-repositories
#[doc = include_str!("reading.md")]
pub mod reading {}

/// [error codes]: crate::docs::errors
#[doc = include_str!("service.md")]
pub mod service {}

#[doc = include_str!("speed.md")]
pub mod speed {}

/// [requests]: crate::docs::reading
/// [errors]: crate::docs::validity
/// [`Model::tensors`]: crate::Model::tensors
/// [`TensorReader::chunks`]: crate::TensorReader::chunks
/// [`TensorReader::for_each_part`]: crate::TensorReader::for_each_part
/// [`Tensors::max_memory`]: crate::Tensors::max_memory
/// [Python]: crate::docs::python#tensors
#[doc = include_str!("tensors.md")]
pub mod tensors {}

/// [validity]: crate::docs::validity
/// [service]: crate::docs::service
/// [ci]: crate::docs::ci
/// [command]: crate::docs::command
#[doc = include_str!("tutorial.md")]
pub mod tutorial {}

/// [`Error`]: crate::Error
/// [GGUF]: crate::docs::gguf#what-is-valid
/// [`Verify::all_sets`]: crate::Verify::all_sets
/// [`Model::verify`]: crate::Model::verify
/// [`VerifyReport::check_base`]: crate::VerifyReport::check_base
/// [quantization]: crate::docs::quantization#compared-with-the-hub
/// [glossary]: crate::docs::glossary
/// [metadata]: crate::docs::metadata
/// [tensors]: crate::docs::tensors#values
#[doc = include_str!("validity.md")]
pub mod validity {}
