//! CPU-bound work, kept off the async worker threads.

use std::future::pending;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};

/// Inputs up to this size in bytes are parsed on the async worker threads: moving them elsewhere would take longer
/// than parsing them.
const MAX_INLINE_BYTES: usize = 1 << 16;

/// One permit per blocking thread. More threads would take memory without finishing sooner.
static THREADS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(2 * available_parallelism().map_or(1, NonZero::get)));

/// Runs CPU-bound work on `bytes` bytes of input. Large inputs go to the blocking thread pool.
///
/// The async worker threads keep receiving responses in the meantime.
pub(crate) async fn spawn_blocking_if_large<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= MAX_INLINE_BYTES {
        return work();
    }
    // Run as a separate task: a future that acquired a permit but is not polled would block the work its caller waits
    // for.
    let mut task = JoinSet::new();
    task.spawn(async {
        // The semaphore is never closed.
        let permit = THREADS.acquire().await;
        let work = move || {
            let done = work();
            drop(permit);
            done
        };
        spawn_blocking(work).await
    });
    match task.join_next().await.map(|done| done.and_then(|done| done)) {
        Some(Ok(done)) => done,
        Some(Err(error)) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The task was cancelled: the runtime is shutting down and will drop this future.
            Err(_) => pending().await,
        },
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::thread::current;
    use std::time::Duration;

    use futures::future::FutureExt;
    use tokio::time::timeout;

    use super::*;

    /// Much longer than the work takes.
    const HANG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn long_work_leaves_the_async_worker() {
        for (bytes, is_moved) in [(MAX_INLINE_BYTES, false), (MAX_INLINE_BYTES + 1, true)] {
            let thread = spawn_blocking_if_large(bytes, || current().id()).await;
            assert_eq!(thread != current().id(), is_moved, "{bytes} bytes");
        }
    }

    /// A caller may await one result without polling the others.
    #[tokio::test]
    async fn work_that_is_not_polled_does_not_delay_other_work() {
        let mut waiting: Vec<_> =
            (0..100).map(|n| Box::pin(spawn_blocking_if_large(1 << 20, move || n))).collect();
        for work in &mut waiting {
            assert_eq!(work.now_or_never(), None);
        }
        let last = waiting.pop().unwrap();
        assert_eq!(timeout(HANG, last).await, Ok(99));
    }
}
