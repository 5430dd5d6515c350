//! One call of the library: where it finds the weights, what it keeps, what it rejects, and what others can replace.
//!
//! Add a test here if it is about the way to the headers: names and folders of weights, sources, caches, readers with
//! different tokens, limits, errors, stores and formats of other programs. If the expected value is a count, add it to
//! `count`.

pub(crate) mod bad_input;
mod cache;
mod client;
mod consumers;
mod crafted;
pub(crate) mod layouts;
mod offline;
mod own_format;
#[cfg(target_os = "linux")]
mod ram;
mod readers;
mod slow_parser;
mod sources;
mod stores;
