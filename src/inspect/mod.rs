//! A call: locate the weights, read the headers, count, and report.
//!
//! 1. A [`Call`] is a [`CallContext`], such as its [`Target`] and its [`Plan`](crate::results::Plan), its files, and the
//!    state of its reads.
//! 2. `files` reads its files from their origin or from the header cache, and records them for it.
//! 3. `count` looks for the commit in the header cache (`cache_lookup`), or else reads, counts and caches it.
//! 4. `locate` finds the weights by their standard names or else in a listing, and pins the commit.
//! 5. `shards` reads the index, and its shards as soon as its first shard name shows their names.
//! 6. `header` reads one header in the ranges that its [format](crate::formats::Format) requests, and `config_file`
//!    reads `config.json` once a tensor needs it.
//! 7. A [`ReportBuilder`](crate::steps::ReportBuilder) collects the headers as they arrive, compares them with the index, and
//!    feeds the single [`Counter`](crate::count::Counter).
//! 8. `verify` reads the sets that a loader loads, continues after errors and reports all of them.

mod cache_lookup;
mod call;
mod components;
mod config_file;
mod count;
mod files;
mod header;
mod hub_plan;
mod locate;
mod shards;
mod verify;

pub(crate) use self::call::{
    Call, CallContext, CallState, ReadMode, ReadOptions, file_of, on_disk,
};
pub(crate) use self::count::RecordedCount;
pub(crate) use self::files::CallFiles;

/// The limits of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum size of a header in bytes.
    pub(crate) header: u64,
    /// Maximum size of all headers together in bytes.
    pub(crate) headers: u64,
    /// Maximum size of an index in bytes.
    pub(crate) index: u64,
    /// Maximum size of `config.json` in bytes.
    pub(crate) config: u64,
    /// Maximum number of shards to read concurrently.
    pub(crate) concurrency: usize,
}
