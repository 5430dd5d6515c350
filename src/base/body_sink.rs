//! A receiver of data that are passed on while they arrive.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Receives the bytes of one range while they arrive, so that they need no memory. After a failed attempt, they are
/// passed on again. Clones are the same receiver.
#[derive(Clone)]
pub(crate) struct BodySink(Arc<State>);

struct State {
    receive: Box<Receive>,
    /// The number of bytes that the last attempt has passed on.
    received: AtomicU64,
}

/// A function that receives bytes at an offset in the range.
type Receive = dyn Fn(u64, &[u8]) -> io::Result<()> + Send + Sync;

impl BodySink {
    pub(crate) fn new(
        receive: impl Fn(u64, &[u8]) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let received = AtomicU64::new(0);
        Self(Arc::new(State { receive: Box::new(receive), received }))
    }

    /// Passes on the next bytes of an attempt, which begins at the offset 0.
    pub(crate) fn receive(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.received.store(offset.saturating_add(bytes.len() as u64), Ordering::Relaxed);
        (self.0.receive)(offset, bytes)
    }

    /// Returns the number of bytes that the last attempt has passed on.
    pub(crate) fn received(&self) -> u64 {
        self.0.received.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for BodySink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodySink")
    }
}
