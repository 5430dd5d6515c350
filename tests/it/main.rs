//! Integration tests, in one binary: through files, sockets and the command. Each folder states which tests it has.

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

mod call;
mod census;
mod command;
mod count;
mod pages;
mod service;
mod support;
mod tensors;
mod verify;
mod wire;
