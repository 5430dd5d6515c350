//! CPU-bound work, kept off the async worker threads.

use std::num::NonZero;
use std::sync::LazyLock;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;

/// The maximum number of bytes parsed on the async worker threads. Moving smaller work to another thread
/// costs more time than it saves.
const MAX_INLINE_BYTES: usize = 1 << 16;

/// One permit per thread of such work. More threads than this would only take memory.
static THREADS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(2 * available_parallelism().map_or(1, NonZero::get)));

/// Runs CPU-bound work on `bytes` bytes of input, and moves it to the blocking thread pool if it is long.
///
/// The async worker threads continue to receive responses meanwhile.
pub(crate) async fn spawn_blocking_if_large<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= MAX_INLINE_BYTES {
        return work();
    }
    // The semaphore is never closed.
    let permit = THREADS.acquire().await;
    let work = move || {
        let done = work();
        drop(permit);
        done
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The task was cancelled: the runtime is shutting down and drops this future next.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::thread::current;

    use super::*;

    #[tokio::test]
    async fn long_work_leaves_the_async_worker() {
        for (bytes, is_moved) in [(MAX_INLINE_BYTES, false), (MAX_INLINE_BYTES + 1, true)] {
            let thread = spawn_blocking_if_large(bytes, || current().id()).await;
            assert_eq!(thread != current().id(), is_moved, "{bytes} bytes");
        }
    }
}
