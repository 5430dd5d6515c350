//! Shared by all other modules: the results and counters of reads, hooks, and work outside of the async threads.

pub(crate) mod blocking;
pub(crate) mod hooks;
pub(crate) mod meter;
pub(crate) mod sync;
pub(crate) mod transfer;
