//! Calls from synchronous code.

use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};

use crate::error::Error;

/// Runs a call and blocks the current thread until its result is available. For programs without an async runtime.
///
/// One background thread, which is started by the first call, drives the connections, so that a
/// [`Client`](crate::Client) keeps them. To run several calls concurrently, join their futures, or use
/// [`Client::run_many`](crate::Client::run_many).
///
/// ```no_run
/// let client = hf_meta::Client::new()?;
/// let report = hf_meta::block_on(client.model("bigscience/bloom").count())?;
/// println!("{} parameters", report.parameter_count.total());
/// # Ok::<(), hf_meta::Error>(())
/// ```
///
/// # Errors
///
/// Returns the errors of the call, and [`Error::InvalidSetting`] if the background thread cannot be started.
///
/// # Panics
///
/// Panics if the call panics, and within an async runtime.
pub fn block_on<T: Send + 'static>(
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    static RUNTIME: LazyLock<Result<Runtime, Error>> = LazyLock::new(|| {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("hf-meta").enable_all().build();
        runtime.map_err(Error::http_client)
    });
    RUNTIME.as_ref().map_err(Error::clone)?.block_on(call)
}
