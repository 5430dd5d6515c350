//! Lets a service pause or stop a call in progress.

use std::fmt::Debug;

use futures::future::BoxFuture;

use crate::hub::CommitSha;

/// Lets a service pause or stop one call. Each future completes when the call may continue. To stop a call, the
/// service drops it.
pub trait CallHooks: Debug + Send + Sync {
    /// Waits for permission once the commit of the call is known, before any shard is read. `name` is the canonical
    /// name of the repository if it differs from the requested one.
    fn commit_resolved<'a>(
        &'a self,
        commit: &'a CommitSha,
        name: Option<String>,
    ) -> BoxFuture<'a, ()>;

    /// Returns whether to request the commit of a branch even if the cached one is fresh.
    fn must_revalidate(&self) -> bool;

    /// Waits for permission to request `files` files from a server.
    fn before_requests(&self, files: usize) -> BoxFuture<'_, ()>;

    /// Waits for permission to use `bytes` more bytes of memory.
    fn before_allocation(&self, bytes: u64) -> BoxFuture<'_, ()>;
}
