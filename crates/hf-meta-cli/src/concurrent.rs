//! Concurrent calls, with their results in the order of their items.

use std::future::pending;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;

use futures::stream::{self, Stream, StreamExt};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The maximum number of running and finished calls per job.
const WINDOW: usize = 4;

/// Runs a call for each item, at most `jobs` at a time, and returns the results in the order of the items. At most three
/// results per job wait for a slower one.
///
/// Each call runs in a separate task: it makes progress even while the stream is not polled, and is cancelled when the
/// stream is dropped. Polling the stream panics if a call panics.
pub(crate) fn in_order<Items, Read, Reading>(
    items: Items,
    jobs: usize,
    read: Read,
) -> Pin<Box<impl Stream<Item = Reading::Output> + use<Items, Read, Reading>>>
where
    Items: IntoIterator<Item: Send + 'static>,
    Read: Fn(Items::Item) -> Reading + Clone + Send + 'static,
    Reading: Future<Output: Send + 'static> + Send,
{
    let permits = Arc::new(Semaphore::new(jobs));
    let calls = stream::iter(items).map(move |item| {
        let (read, permits) = (read.clone(), Arc::clone(&permits));
        in_task(async move {
            // The semaphore is never closed.
            let _permit = permits.acquire_owned().await;
            read(item).await
        })
    });
    Box::pin(calls.buffered(WINDOW * jobs))
}

/// Runs a future in a separate task, which is cancelled if the returned future is dropped.
async fn in_task<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let mut task = JoinSet::new();
    task.spawn(future);
    match task.join_next().await {
        Some(Ok(output)) => output,
        Some(Err(error)) if error.is_panic() => resume_unwind(error.into_panic()),
        // The runtime is shutting down, and will drop this future.
        _ => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::mpsc;
    use tokio::time::sleep;

    use super::*;

    const JOBS: usize = 3;

    #[tokio::test(start_paused = true)]
    async fn running_calls_and_buffered_results_are_limited() {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&taken);
        let numbers = (0..50_u64).inspect(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let (now, peak) = (Arc::clone(&running), Arc::clone(&most));
        let read = move |number: u64| {
            let (now, peak) = (Arc::clone(&now), Arc::clone(&peak));
            async move {
                peak.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                // The first call of each ten takes the longest.
                sleep(Duration::from_secs(10 - number % 10)).await;
                now.fetch_sub(1, Ordering::Relaxed);
                number
            }
        };
        let (mut results, mut found) = (in_order(numbers, JOBS, read), Vec::new());
        while let Some(number) = results.next().await {
            found.push(number);
            let waiting = taken.load(Ordering::Relaxed) - found.len();
            assert!(waiting < WINDOW * JOBS, "{waiting} items were taken before their time");
        }
        assert_eq!((most.load(Ordering::Relaxed), found), (JOBS, (0..50).collect()));
    }

    /// A reader of stdout may pause the command.
    #[tokio::test]
    async fn a_paused_reader_does_not_pause_the_calls() {
        let (sender, mut ended) = mpsc::unbounded_channel();
        let read = move |number: u32| {
            let sender = sender.clone();
            async move {
                tokio::task::yield_now().await;
                sender.send(number).unwrap();
            }
        };
        let mut results = in_order(0..2, 2, read);
        results.next().await.unwrap();
        let both = [ended.recv().await.unwrap(), ended.recv().await.unwrap()];
        assert_eq!(both.iter().sum::<u32>(), 1);
        results.next().await.unwrap();
    }

    #[tokio::test]
    async fn a_dropped_stream_cancels_its_calls() {
        let (sender, mut ended) = mpsc::channel::<()>(1);
        let sender = Arc::new(Mutex::new(Some(sender)));
        let read = move |number: u32| {
            let held = if number > 0 { sender.lock().unwrap().take() } else { None };
            async move {
                if held.is_some() {
                    pending::<()>().await;
                }
            }
        };
        let mut results = in_order([1, 0], 2, read);
        assert!(futures::poll!(results.next()).is_pending());
        tokio::task::yield_now().await;
        drop(results);
        // The sender is dropped with its call.
        assert_eq!(ended.recv().await, None);
    }

    #[tokio::test]
    #[should_panic(expected = "the call fails")]
    async fn a_panic_of_a_call_reaches_the_reader() {
        let read = |fails: bool| {
            assert!(!fails, "the call fails");
            ready(())
        };
        in_order([true], 1, read).next().await.unwrap();
    }
}
