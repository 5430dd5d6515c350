//! What is tested through files and sockets, in one binary.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and the panic says where"
)]

#[path = "../../examples/local_hub/hub/mod.rs"]
mod hub;
#[path = "../../examples/make_fixtures/models/mod.rs"]
mod models;

mod differential;
mod fixtures;
mod local_hub;
mod properties;
