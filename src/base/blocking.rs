//! Separate tasks, and CPU-bound work that is kept off the async worker threads.

use std::future::pending;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;

use futures::future::{BoxFuture, FutureExt};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet, spawn_blocking};

/// Inputs up to this size in bytes are parsed on the async worker threads: moving them elsewhere would take longer
/// than parsing them.
const MAX_INLINE_BYTES: usize = 1 << 16;

/// One permit per blocking thread. More threads would take memory without finishing sooner.
static BLOCKING_PERMITS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(2 * available_parallelism().map_or(1, NonZero::get)));

/// The CPU-bound work of a call. Clones share its size.
///
/// Steps add up: a parser keeps what it was fed, and the count visits all tensors. So all further work of a call leaves
/// the async worker threads once its inputs are large together.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallWork {
    /// The number of bytes that the call has parsed.
    bytes: Arc<AtomicUsize>,
}

impl CallWork {
    /// Runs work on `bytes` more bytes of input.
    ///
    /// Boxed, because the work owns headers and reports, and callers embed the future in larger futures.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> BoxFuture<'static, T> {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        spawn_blocking_if_large(before.saturating_add(bytes), work).boxed()
    }
}

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
    in_task(spawn_blocking_with(&BLOCKING_PERMITS, work)).await
}

/// Runs work on a thread of the blocking pool, with one of the permits. If the caller stops waiting, the work still
/// occupies its thread, so it keeps the permit.
pub(crate) async fn spawn_blocking_with<T: Send + 'static>(
    permits: &'static Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    // The semaphore is never closed.
    let permit = permits.acquire().await;
    let work = move || {
        let _permit = permit;
        work()
    };
    output(spawn_blocking(work).await).await
}

/// Runs a future in a separate task, which is cancelled if the returned future is dropped.
pub(crate) async fn in_task<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let mut task = JoinSet::new();
    task.spawn(future);
    match task.join_next().await {
        Some(result) => output(result).await,
        None => pending().await,
    }
}

/// Returns the output of a task, or resumes its panic.
async fn output<T>(result: Result<T, JoinError>) -> T {
    match result.map_err(JoinError::try_into_panic) {
        Ok(output) => output,
        Err(Ok(panic)) => resume_unwind(panic),
        // The task was cancelled: the runtime is shutting down and will drop this future.
        Err(Err(_)) => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::thread::current;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Much longer than the work takes.
    const HANG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn large_inputs_move_to_the_blocking_pool() {
        for (bytes, is_moved) in [(MAX_INLINE_BYTES, false), (MAX_INLINE_BYTES + 1, true)] {
            let thread = spawn_blocking_if_large(bytes, || current().id()).await;
            assert_eq!(thread != current().id(), is_moved, "{bytes} bytes");
        }
    }

    /// A caller may await one result without polling the others.
    #[tokio::test]
    async fn unpolled_work_does_not_block_other_work() {
        let mut waiting: Vec<_> =
            (0..100).map(|n| Box::pin(spawn_blocking_if_large(1 << 20, move || n))).collect();
        for work in &mut waiting {
            assert_eq!(work.now_or_never(), None);
        }
        let last = waiting.pop().unwrap();
        assert_eq!(timeout(HANG, last).await, Ok(99));
    }
}
