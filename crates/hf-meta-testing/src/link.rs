//! A simulated round-trip time.
//!
//! The simulation covers the effects that a client can measure. A connection, a TLS handshake and a request each take
//! at least one round trip, and concurrent ones overlap. Bytes from the client arrive a full round trip late, and bytes
//! to the client are not delayed, because a client cannot observe in which direction a delay occurs. A connection opens
//! one round trip after it was made. The operating system accepts it earlier, so bytes sent before that count as sent
//! when it opens.
//!
//! Not simulated: bandwidth, packet loss, TCP slow start and windows (a real response of more than about 14 kB takes
//! additional round trips on a new connection), name resolution, and server work. Times measured here are therefore
//! lower bounds.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// The number of bytes to forward at a time.
const CHUNK: usize = 16 * 1024;

/// A byte stream between client and server: a TCP connection, a TLS stream or a simulated link.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Delays what a client sends over a new connection by a round trip. Returns the server side.
pub(crate) fn with_latency(
    connection: impl ByteStream + 'static,
    round_trip: Duration,
) -> Box<dyn ByteStream> {
    if round_trip.is_zero() {
        return Box::new(connection);
    }
    let (received, sent) = tokio::io::split(connection);
    Box::new(tokio::io::join(delay(received, round_trip), sent))
}

/// Delays received bytes by one round trip, counted at the earliest from the time the connection opens.
fn delay(mut received: impl AsyncRead + Send + Unpin + 'static, by: Duration) -> DuplexStream {
    let opened = Instant::now() + by;
    let (chunks, mut waiting) = mpsc::unbounded_channel();
    let (mut arrived, end) = tokio::io::duplex(CHUNK);
    tokio::spawn(async move {
        loop {
            let mut chunk = BytesMut::with_capacity(CHUNK);
            let read = tokio::select! {
                read = received.read_buf(&mut chunk) => read?,
                // The server closed the connection. Dropping this half closes the client side, too.
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

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(50);

    /// Returns the bytes that reach the server and their arrival times in ms, on a paused clock.
    async fn arrivals(round_trip: Duration, script: &[(u64, &[u8])]) -> Vec<(u64, u8)> {
        let started = Instant::now();
        let (mut client, server) = tokio::io::duplex(CHUNK);
        let mut server = with_latency(server, round_trip);
        let send = async {
            for (at, bytes) in script {
                sleep_until(started + Duration::from_millis(*at)).await;
                client.write_all(bytes).await.unwrap();
            }
            client.shutdown().await.unwrap();
        };
        let receive = async {
            let mut arrivals = Vec::new();
            while let Ok(byte) = server.read_u8().await {
                arrivals.push((started.elapsed().as_millis().try_into().unwrap(), byte));
            }
            arrivals
        };
        tokio::join!(send, receive).1
    }

    #[tokio::test(start_paused = true)]
    async fn each_byte_is_delayed_by_one_round_trip() {
        let script: &[(u64, &[u8])] = &[(0, b"a"), (40, b"b"), (60, b"c"), (70, b"d")];
        // The connection opens at 50 ms. Bytes sent earlier count as sent at that time.
        assert_eq!(
            arrivals(ROUND_TRIP, script).await,
            [(100, b'a'), (100, b'b'), (110, b'c'), (120, b'd')]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_without_round_trip_time_adds_no_delay() {
        let script: &[(u64, &[u8])] = &[(0, b"a"), (7, b"b")];
        assert_eq!(arrivals(Duration::ZERO, script).await, [(0, b'a'), (7, b'b')]);
    }

    #[tokio::test(start_paused = true)]
    async fn both_sides_can_close_the_connection() {
        let (mut client, server) = tokio::io::duplex(CHUNK);
        with_latency(server, ROUND_TRIP).shutdown().await.unwrap();
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        let (client, server) = tokio::io::duplex(CHUNK);
        let mut server = with_latency(server, ROUND_TRIP);
        drop(client);
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
        sleep(ROUND_TRIP).await;
    }
}
