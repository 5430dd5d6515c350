//! Guides. Each page explains one subject, with examples.
//!
//! | page | subject |
//! |---|---|
//! | [`reading`] | HTTP requests, retries, rate limits, timeouts, security, logs |
//! | [`counting`] | parameters, elements, buffers, quantized models, experts |
//! | [`validity`] | rules that files and indexes must meet, and the findings of `verify` |
//! | [`layouts`] | names of weight files, and repositories with several sets of weights |
//! | [`gguf`] | quantized models in GGUF, and custom formats |
//! | [`cache`] | the header cache, and offline mode |
//! | [`json`] | the JSON output of every command |
//! | [`install`] | ways to install the command: Cargo, wheel, container, `hf` extension, GitHub Action |
//! | [`command`] | sources, options, exit codes and environment variables of `hf-meta` |
//! | [`python`] | the Python module |
//! | [`errors`] | error codes, and the HTTP status to return for each |
//! | [`census`] | many repositories as tables, on one machine or many |
//! | [`service`] | badges, their options, and `hf-meta serve` in production |
//! | [`speed`] | measurements, and the commands that reproduce them |
//! | [`architecture`] | the code: the life of a request, the layers, where to add features |

#[doc = include_str!("architecture.md")]
pub mod architecture {}

#[doc = include_str!("cache.md")]
pub mod cache {}

#[doc = include_str!("census.md")]
pub mod census {}

#[doc = include_str!("command.md")]
pub mod command {}

#[doc = include_str!("counting.md")]
pub mod counting {}

#[doc = include_str!("errors.md")]
pub mod errors {}

#[doc = include_str!("gguf.md")]
pub mod gguf {}

#[doc = include_str!("install.md")]
pub mod install {}

#[doc = include_str!("json.md")]
pub mod json {}

#[doc = include_str!("layouts.md")]
pub mod layouts {}

#[doc = include_str!("python.md")]
pub mod python {}

#[doc = include_str!("reading.md")]
pub mod reading {}

#[doc = include_str!("service.md")]
pub mod service {}

#[doc = include_str!("speed.md")]
pub mod speed {}

#[doc = include_str!("validity.md")]
pub mod validity {}
