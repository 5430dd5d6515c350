//! What is tested through files and sockets, in one binary.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and the panic says where"
)]

#[path = "../../examples/local_hub/hub/mod.rs"]
mod hub;
#[path = "../../examples/make_fixtures/models/mod.rs"]
mod models;

mod addresses;
mod bad_input;
mod badge;
mod cache;
mod checkpoint;
mod cli;
mod counts;
mod crafted;
mod diff;
mod differential;
mod docs;
mod documented;
mod faults;
mod fixtures;
mod floors;
#[cfg(target_os = "linux")]
mod http2;
mod layouts;
mod local_hub;
#[cfg(target_os = "linux")]
mod memory;
mod offline;
mod properties;
mod published;
mod quantization;
mod requests;
mod resilience;
mod rules;
#[cfg(feature = "server")]
mod server;
mod sources;
mod support;
#[cfg(target_os = "linux")]
// Elsewhere the system keeps its certificates where a test must not put its own.
mod tls;
mod traces;
mod verify;
mod wire;
