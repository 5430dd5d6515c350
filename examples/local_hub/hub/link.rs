//! The way between a client and the servers: how long it is, and how much it carries.
//!
//! What is modelled is what a client can tell: that a connection, a TLS handshake and a request each take a round trip
//! at least, side by side if they are sent side by side, and that the bytes of all answers share one line. What the
//! client sends arrives a whole round trip late, and what it receives is not held up: where on the way a byte waits,
//! nobody sees who does not have a clock at both ends. A connection is open a round trip after it was made; the system
//! has let it in before that, so what is sent on it meanwhile counts as sent then.
//!
//! Not modelled: loss, TCP's slow start and windows (a long answer comes at once, where a real one of more than about
//! 14 kB takes further round trips on a new connection), the time to look up names, and the servers' own work. So a
//! time measured here is the least that such a way allows.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Bytes that are passed on at once.
const CHUNK: usize = 16 * 1024;

/// A connection, by whatever way.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// One way, on which all connections lie.
#[derive(Clone, Default)]
pub struct Link {
    round_trip: Duration,
    line: Option<Arc<Line>>,
}

impl Link {
    /// A way with this round-trip time, and a line to the client with this many bits per second.
    pub fn new(round_trip: Duration, bandwidth: Option<u64>) -> Self {
        let line = bandwidth.map(|bandwidth| Line { bandwidth, free: Mutex::new(Instant::now()) });
        Self { round_trip, line: line.map(Arc::new) }
    }

    /// A connection that was just made, as the server sees it at the end of the way.
    pub fn carry(&self, connection: impl Wire + 'static) -> Box<dyn Wire> {
        if self.round_trip.is_zero() && self.line.is_none() {
            return Box::new(connection);
        }
        let (received, sent) = tokio::io::split(connection);
        let received = delay(received, self.round_trip);
        match &self.line {
            Some(line) => Box::new(tokio::io::join(received, pace(sent, Arc::clone(line)))),
            None => Box::new(tokio::io::join(received, sent)),
        }
    }
}

/// Lets bytes wait for a round trip each, and for the connection to be open.
fn delay(mut received: impl AsyncRead + Send + Unpin + 'static, by: Duration) -> DuplexStream {
    let opened = Instant::now() + by;
    let (chunks, mut waiting) = mpsc::unbounded_channel();
    let (mut arrived, end) = tokio::io::duplex(CHUNK);
    tokio::spawn(async move {
        loop {
            let mut chunk = BytesMut::with_capacity(CHUNK);
            let read = tokio::select! {
                read = received.read_buf(&mut chunk) => read?,
                // The server has hung up; giving this half back lets the connection close.
                () = chunks.closed() => 0,
            };
            if read == 0 || chunks.send((Instant::now().max(opened) + by, chunk)).is_err() {
                return io::Result::Ok(());
            }
        }
    });
    tokio::spawn(async move {
        while let Some((due, chunk)) = waiting.recv().await {
            sleep_until(due).await;
            arrived.write_all(&chunk).await?;
        }
        arrived.shutdown().await
    });
    end
}

/// Lets bytes wait until the line is free.
fn pace(mut sent: impl AsyncWrite + Send + Unpin + 'static, line: Arc<Line>) -> DuplexStream {
    let (end, mut leaving) = tokio::io::duplex(CHUNK);
    tokio::spawn(async move {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        while leaving.read_buf(&mut chunk).await? > 0 {
            sleep_until(line.pass(chunk.len())).await;
            sent.write_all_buf(&mut chunk).await?;
        }
        sent.shutdown().await
    });
    end
}

/// The line that all responses share.
struct Line {
    /// In bits per second.
    bandwidth: u64,
    free: Mutex<Instant>,
}

impl Line {
    /// Returns the time at which the given number of bytes, sent now, has passed.
    fn pass(&self, bytes: usize) -> Instant {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let nanoseconds = bytes as u64 * 8 * 1_000_000_000 / self.bandwidth;
        *free = free.max(Instant::now()) + Duration::from_nanos(nanoseconds);
        *free
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(50);

    /// Returns the arrival time of each byte at the server, in milliseconds of a clock that only waiting advances.
    async fn arrivals(link: Link, script: &[(u64, &[u8])]) -> Vec<(u64, u8)> {
        let begun = Instant::now();
        let (mut client, server) = tokio::io::duplex(CHUNK);
        let mut server = link.carry(server);
        let send = async {
            for (at, bytes) in script {
                sleep_until(begun + Duration::from_millis(*at)).await;
                client.write_all(bytes).await.unwrap();
            }
            client.shutdown().await.unwrap();
        };
        let receive = async {
            let mut arrivals = Vec::new();
            while let Ok(byte) = server.read_u8().await {
                arrivals.push((begun.elapsed().as_millis().try_into().unwrap(), byte));
            }
            arrivals
        };
        tokio::join!(send, receive).1
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_delayed_each_for_itself() {
        let link = Link::new(ROUND_TRIP, None);
        let script: &[(u64, &[u8])] = &[(0, b"a"), (40, b"b"), (60, b"c"), (70, b"d")];
        // The connection is open at 50, and what was sent before that is sent then.
        assert_eq!(
            arrivals(link, script).await,
            [(100, b'a'), (100, b'b'), (110, b'c'), (120, b'd')]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_way_without_length_changes_nothing() {
        let script: &[(u64, &[u8])] = &[(0, b"a"), (7, b"b")];
        assert_eq!(arrivals(Link::default(), script).await, [(0, b'a'), (7, b'b')]);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_share_the_line() {
        let link = Link::new(Duration::ZERO, Some(8_000_000));
        let begun = Instant::now();
        let download = || async {
            let (mut client, server) = tokio::io::duplex(CHUNK);
            let mut server = link.carry(server);
            let mut bytes = [0; 10_000];
            let (sent, received) =
                tokio::join!(server.write_all(&[0; 10_000]), client.read_exact(&mut bytes));
            sent.unwrap();
            received.unwrap();
        };
        tokio::join!(download(), download());
        assert_eq!(begun.elapsed().as_millis(), 20, "20 kB at a megabyte per second");
    }

    #[tokio::test(start_paused = true)]
    async fn both_ends_can_hang_up() {
        let (mut client, server) = tokio::io::duplex(CHUNK);
        let server = Link::new(ROUND_TRIP, Some(8_000_000)).carry(server);
        drop(server);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        let (client, server) = tokio::io::duplex(CHUNK);
        let mut server = Link::new(ROUND_TRIP, Some(8_000_000)).carry(server);
        drop(client);
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
        sleep(ROUND_TRIP).await;
    }
}
