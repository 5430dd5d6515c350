//! The decisions of a service about a call in progress.

use std::fmt::Debug;

use futures::future::BoxFuture;

use crate::hub::CommitSha;

/// The decisions of a service about one call. Each future completes when the call may continue. A service that
/// does not let a call continue drops the call.
pub(crate) trait CallGate: Debug + Send + Sync {
    /// Decides once the commit of the call is known, before any shard is read. `name` is the current name of the
    /// repository, if it is another one than the requested.
    fn pass_commit<'a>(&'a self, commit: &'a CommitSha, name: Option<String>) -> BoxFuture<'a, ()>;

    /// Returns whether the commit of a branch is requested even if it was requested a moment ago.
    fn wants_current_commit(&self) -> bool;

    /// Decides before a number of files is requested from a server.
    fn pass_files(&self, files: usize) -> BoxFuture<'_, ()>;

    /// Decides before the call takes more memory, in bytes.
    fn pass_memory(&self, bytes: u64) -> BoxFuture<'_, ()>;
}
