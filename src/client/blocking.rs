//! Calls from synchronous code.

use std::future::pending;
use std::io;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::sync_channel;
use std::thread;

use futures::future::FutureExt;
use tokio::runtime::{Builder, Handle};

use crate::error::Error;

/// Runs a call and blocks the current thread until its result is available. For programs without an async runtime.
///
/// All calls run on one background thread, which is started by the first call, so that a [`Client`](crate::Client)
/// keeps its connections. To run several calls concurrently, join their futures, or use
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
/// Panics if the call panics.
pub fn block_on<T: Send + 'static>(
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let (sender, receiver) = sync_channel(1);
    background()?.spawn(async move {
        let result = AssertUnwindSafe(call).catch_unwind().await;
        // The receiver waits for this message.
        let _ = sender.send(result);
    });
    match receiver.recv() {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(stopped) => Err(Error::http_client(stopped)),
    }
}

/// Returns the runtime of the background thread.
fn background() -> Result<&'static Handle, Error> {
    static RUNTIME: OnceLock<Result<Handle, Error>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| start().map_err(Error::http_client));
    runtime.as_ref().map_err(Error::clone)
}

fn start() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let drive = move || runtime.block_on(pending::<()>());
    thread::Builder::new().name("hf-meta".to_owned()).spawn(drive)?;
    Ok(handle)
}
