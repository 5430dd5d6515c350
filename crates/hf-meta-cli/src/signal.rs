//! Signals that end the process.

use std::path::PathBuf;
use std::sync::Mutex;

use signal_hook::consts::SIGINT;
use tokio::signal::ctrl_c;

use super::stderr::{ProgressLine, lock};

/// Returns the next signal: Ctrl-C, or SIGTERM. A signal before the first poll counts, too: `ctrl_c` only listens from its
/// first poll on, and a service that was interrupted right after its start ran on.
#[cfg(any(feature = "census", feature = "server"))]
pub(crate) fn signal() -> std::io::Result<impl Future<Output = i32>> {
    use std::pin::pin;

    use futures::future::{Either, select};

    #[cfg(unix)]
    let (mut interrupt, mut terminate) = {
        use tokio::signal::unix::{SignalKind, signal};
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    #[cfg(windows)]
    let mut interrupt = tokio::signal::windows::ctrl_c()?;
    Ok(async move {
        #[cfg(unix)]
        let terminate = terminate.recv();
        #[cfg(not(unix))]
        let terminate = std::future::pending::<()>();
        match select(pin!(interrupt.recv()), pin!(terminate)).await {
            Either::Left(_) => SIGINT,
            Either::Right(_) => signal_hook::consts::SIGTERM,
        }
    })
}

/// The unfinished file, which is removed if a signal ends the process.
static PARTIAL: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Sets the unfinished file.
pub(crate) fn remove_on_signal(partial: Option<PathBuf>) {
    *lock(&PARTIAL) = partial;
}

/// Ends the process on SIGTERM, after the unfinished file has been removed.
pub(crate) fn end_on_terminate(line: &ProgressLine) {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};

        // Without a handler, the signal ends the process at once.
        let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
        let line = line.clone();
        tokio::spawn(async move {
            terminate.recv().await;
            end_by(signal_hook::consts::SIGTERM, &line);
        });
    }
    #[cfg(not(unix))]
    let _ = line;
}

/// Removes the progress line and the unfinished file, and ends the process by a signal, so that a surrounding shell loop
/// ends, too.
pub(crate) fn end_by(signal: i32, line: &ProgressLine) -> ! {
    if let Some(partial) = lock(&PARTIAL).take() {
        let _ = std::fs::remove_file(partial);
    }
    let _ = line.hidden_while(|| signal_hook::low_level::emulate_default_handler(signal));
    std::process::exit(128 + signal)
}

/// Ends the process on Ctrl-C, after a text about the results so far.
pub(crate) fn end_on_interrupt(
    line: &ProgressLine,
    text: impl FnOnce() -> Option<String> + Send + 'static,
) {
    let line = line.clone();
    tokio::spawn(async move {
        if ctrl_c().await.is_ok() {
            if let Some(text) = text() {
                line.print(&text);
            }
            end_by(SIGINT, &line);
        }
    });
}
