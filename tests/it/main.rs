//! Integration tests, in one binary: through files, sockets and the command.

#![allow(clippy::unwrap_used, reason = "a panic is the failure of a test, and shows its line")]

/// The local Hub.
mod hub {
    pub(crate) use hf_meta_testing::{
        ContentRangeFault, Fault, File, Host, LazyRepos, LoggedRequest, MockHub as LocalHub, Repo,
    };
}
#[path = "../../examples/local_hub/duration.rs"]
mod duration;
#[path = "../../examples/local_hub/folder.rs"]
mod folder;
#[path = "../../examples/local_hub/generated/mod.rs"]
mod generated;
#[path = "../../examples/local_hub/tls.rs"]
mod hub_tls;
#[path = "../../examples/make_fixtures/models/mod.rs"]
mod models;

#[cfg(target_os = "linux")]
mod action;
mod addresses;
mod bad_input;
mod badge;
mod cache;
mod census;
mod checkpoint;
mod cli;
mod client;
mod consumers;
mod counts;
mod crafted;
mod diff;
mod differential;
mod docs;
mod documented;
mod faults;
mod field;
mod fixtures;
mod gguf;
#[cfg(target_os = "linux")]
mod http2;
mod layers;
mod layouts;
mod local_hub;
#[cfg(target_os = "linux")]
mod memory;
mod metadata;
mod offline;
mod own_format;
mod properties;
mod published;
mod pytorch;
mod quantization;
mod readers;
mod recipes;
mod requests;
mod resilience;
mod rules;
mod same_result;
mod schema;
mod server;
mod slow_parser;
mod sources;
mod stores;
mod support;
mod tensors;
#[cfg(target_os = "linux")]
// Other systems do not read the certificate from the environment.
mod tls;
mod traces;
mod verify;
mod wire;
