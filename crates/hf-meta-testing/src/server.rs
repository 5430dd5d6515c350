//! Serves connections over HTTP/1.1 or HTTP/2, with a simulated round-trip time.
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

use std::error::Error;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use futures::future::BoxFuture;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::hub::HubState;
use crate::log::{Host, LoggedRequest, lock};
use crate::response::{Body, Fault};

/// The maximum number of concurrent HTTP/2 streams per connection, as on Amazon `CloudFront`.
const MAX_STREAMS: u32 = 128;

/// A TLS handshake in progress, which returns the decrypted stream.
pub type Handshake = BoxFuture<'static, io::Result<Box<dyn ByteStream>>>;

/// Accepts an encrypted connection.
pub(crate) type AcceptFn = Arc<dyn Fn(Box<dyn ByteStream>) -> Handshake + Send + Sync>;

/// TLS for all connections. The caller provides it, so that programs without TLS do not compile a TLS library.
pub struct TlsSettings {
    pub(crate) accept: AcceptFn,
    pub(crate) authority: String,
}

impl TlsSettings {
    /// Creates the TLS settings from a function that performs the handshake on a connection. `authority` is the CA
    /// certificate in PEM format.
    pub fn new(
        accept: impl Fn(Box<dyn ByteStream>) -> Handshake + Send + Sync + 'static,
        authority: String,
    ) -> Self {
        Self { accept: Arc::new(accept), authority }
    }
}

/// One of the two servers, with its simulated round-trip time and the number of its connections.
pub(crate) struct Server {
    pub host: Host,
    pub state: Arc<HubState>,
    pub latency: Duration,
    pub accept: Option<AcceptFn>,
    /// The number of connections since the start.
    pub made: AtomicUsize,
    pub open: AtomicUsize,
}

impl Server {
    pub(crate) async fn listen(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    self.made.fetch_add(1, Ordering::Relaxed);
                    self.open.fetch_add(1, Ordering::Relaxed);
                    let server = Arc::clone(&self);
                    tokio::spawn(async move {
                        // Clients that disconnect or send invalid TLS or HTTP are ignored.
                        let _ = server.serve(stream).await;
                        server.open.fetch_sub(1, Ordering::Relaxed);
                    });
                }
                // The process probably has no free file descriptors. Wait until some are closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    /// Serves one connection.
    async fn serve(&self, stream: TcpStream) -> Result<(), Box<dyn Error + Send + Sync>> {
        stream.set_nodelay(true)?;
        let mut stream = with_latency(stream, self.latency);
        if let Some(accept) = &self.accept {
            stream = accept(stream).await?;
        }
        let service = service_fn(|request| self.respond(&request));
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http2().max_concurrent_streams(MAX_STREAMS);
        http.serve_connection(TokioIo::new(stream), service).await
    }

    /// Creates the response before the first await, so that the log is in order of arrival.
    fn respond<B>(
        &self,
        request: &Request<B>,
    ) -> impl Future<Output = io::Result<Response<Body>>> + use<B> {
        let mut logged = LoggedRequest::new(self.host, request);
        let spec = self.state.respond(&logged);
        let fault = spec.fault.clone();
        let is_started = !matches!(fault, Some(Fault::Stall | Fault::ConnectionReset));
        logged.status = if is_started { spec.status.as_u16() } else { 0 };
        let counters = [logged.sent.clone(), self.state.quotas.sent.clone()];
        let response = spec.into_response(request.method(), counters);
        if !self.state.is_log_disabled {
            lock(&self.state.log).push(logged);
        }
        async move {
            match fault {
                Some(Fault::Stall) => pending().await,
                Some(Fault::ConnectionReset) => Err(io::ErrorKind::ConnectionReset.into()),
                _ => Ok(response),
            }
        }
    }
}

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
