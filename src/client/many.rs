//! Concurrent calls of one client.

use std::sync::Arc;

use futures::future::Either;
use futures::stream::{Stream, StreamExt};
use tokio::sync::Semaphore;

use super::Client;
use crate::base::blocking::in_task;

/// The order in which [`Client::run_many`] returns results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResultOrder {
    /// Results are returned as soon as their calls finish.
    #[default]
    Completion,
    /// Results are returned in input order. At most three results per job are buffered behind a slower one.
    Input,
}

/// The maximum number of running and finished calls per job if results keep the order of the items.
const WINDOW: usize = 4;

const MAX_JOBS: usize = 10_000;

impl Client {
    /// Runs many calls concurrently and returns a stream of their results.
    ///
    /// `read` runs the call for one item, such as a repository name, with this client. At most `jobs` calls run
    /// concurrently; a number outside 1 to 10,000 is clamped. 32 is a good default: each call already reads its shards concurrently, and
    /// [`ClientBuilder::max_concurrent_requests`] limits the requests of all calls together. Items are pulled from
    /// their stream as calls finish, so the stream may be infinite. Each call runs in its own task: it makes progress
    /// even while the result stream is not polled, and is cancelled when that stream is dropped.
    ///
    /// ```no_run
    /// use futures::stream::{self, StreamExt};
    /// use hf_meta::{Client, Error, ResultOrder};
    ///
    /// # async fn example() -> Result<(), Error> {
    /// let names = stream::iter(["gpt2", "bigscience/bloom"]);
    /// let mut results =
    ///     Client::new()?.run_many(names, 32, ResultOrder::Completion, |client, name| async move {
    ///         (name, client.model(name).plan(hf_meta::Plan::Prefetch).count().await)
    ///     });
    /// while let Some((name, result)) = results.next().await {
    ///     match result {
    ///         Ok(report) => println!("{name}: {}", report.parameter_count.total()),
    ///         Err(error) => eprintln!("{name}: {error}"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Polling the stream panics if `read` panics.
    ///
    /// [`ClientBuilder::max_concurrent_requests`]: crate::ClientBuilder::max_concurrent_requests
    pub fn run_many<Items, Read, Reading>(
        &self,
        items: Items,
        jobs: usize,
        order: ResultOrder,
        read: Read,
    ) -> impl Stream<Item = Reading::Output> + Unpin + use<Items, Read, Reading>
    where
        Items: Stream<Item: Send + 'static>,
        Read: Fn(Self, Items::Item) -> Reading + Clone + Send + 'static,
        Reading: Future<Output: Send + 'static> + Send,
    {
        let (client, jobs) = (self.clone(), jobs.clamp(1, MAX_JOBS));
        let permits = Arc::new(Semaphore::new(jobs));
        let calls = items.map(move |item| {
            let (client, read, permits) = (client.clone(), read.clone(), Arc::clone(&permits));
            async move {
                // The semaphore is never closed.
                let permit = permits.acquire_owned().await;
                let call = async move {
                    let result = read(client, item).await;
                    drop(permit);
                    result
                };
                in_task(call).await
            }
        });
        Box::pin(match order {
            ResultOrder::Completion => Either::Left(calls.buffer_unordered(jobs)),
            ResultOrder::Input => Either::Right(calls.buffered(WINDOW * jobs)),
        })
    }
}
