//! Callbacks and hooks of a call.

use std::fmt;

use futures::future::{BoxFuture, FutureExt, ready};

use crate::base::sync::Callback;
use crate::formats::FileHeader;
use hf_meta_format::CommitSha;

/// The progress of a call, in shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The number of shards whose headers have been read and validated.
    pub done: usize,
    /// The number of shards known so far. It can grow while the index is being read.
    pub total: usize,
}

/// A callback that is called after each shard.
pub(crate) type OnProgress = Callback<dyn Fn(Progress) + Send + Sync>;

/// A callback that is called with each header.
pub(crate) type OnHeader = Callback<dyn Fn(&FileHeader) + Send + Sync>;

/// Lets a program pause or stop a call while it runs, for example to enforce a budget of requests.
///
/// Each future completes when the call may continue. To stop the call, return a future that never completes, and drop
/// the future of the call. [`Model::hooks`](crate::Model::hooks) sets the hooks of a call.
///
/// ```
/// use futures::FutureExt;
/// use futures::future::pending;
/// use hf_meta::{BoxFuture, CallHooks, Client};
/// use tokio::sync::Notify;
///
/// /// Stops a call that would read more than 100 weight files.
/// #[derive(Debug, Default)]
/// struct AtMost100Files {
///     exceeded: Notify,
/// }
///
/// impl CallHooks for AtMost100Files {
///     fn before_requests(&self, requests: usize) -> BoxFuture<'_, ()> {
///         async move {
///             if requests > 100 {
///                 self.exceeded.notify_one();
///                 pending().await
///             }
///         }
///         .boxed()
///     }
/// }
///
/// # async fn example(client: &Client) -> Result<(), hf_meta::Error> {
/// let hooks = std::sync::Arc::new(AtMost100Files::default());
/// tokio::select! {
///     report = client.model("bigscience/bloom").hooks(hooks.clone()).count() => {
///         println!("{} parameters", report?.parameter_count.total());
///     }
///     () = hooks.exceeded.notified() => println!("too many files"),
/// }
/// # Ok(())
/// # }
/// ```
pub trait CallHooks: fmt::Debug + Send + Sync {
    /// Waits for permission once the commit of the call is known, before any shard is read. `name` is the canonical
    /// name of the repository if it differs from the requested one. By default, does not wait.
    fn commit_resolved<'a>(
        &'a self,
        _commit: &'a CommitSha,
        _name: Option<String>,
    ) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }

    /// Waits for permission to send `requests` more requests to a server: one for each weight file, once their number
    /// is known, and one for each page of a listing after the first. By default, does not wait.
    fn before_requests(&self, _requests: usize) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }
}
