//! Serves connections over HTTP/1.1 or HTTP/2.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};

use super::delivery::HeaderDelivery;
use super::link::{ByteStream, Link};
use super::log::{Host, LoggedRequest};
use super::response::Body;
use super::state::HubState;

/// The maximum number of concurrent HTTP/2 streams per connection, as on Amazon `CloudFront`.
const MAX_STREAMS: u32 = 128;

/// TLS for all connections. The caller provides it, so that programs without TLS do not compile a TLS library.
pub struct TlsSettings {
    pub(super) accept: Accept,
    pub(super) authority: String,
}

impl TlsSettings {
    /// Creates the TLS settings from a function that performs the handshake on a connection and returns the decrypted
    /// stream. `authority` is the CA certificate in PEM format.
    pub fn new<Accepting>(
        accept: impl Fn(Box<dyn ByteStream>) -> Accepting + Send + Sync + 'static,
        authority: String,
    ) -> Self
    where
        Accepting: Future<Output = io::Result<Box<dyn ByteStream>>> + Send + 'static,
    {
        Self { accept: Arc::new(move |stream| accept(stream).boxed()), authority }
    }
}

/// Accepts an encrypted connection and returns the decrypted one.
pub(super) type Accept = Arc<
    dyn Fn(Box<dyn ByteStream>) -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>>
        + Send
        + Sync,
>;

/// The simulated link and the encryption of connections.
#[derive(Clone)]
pub(super) struct Transport {
    pub link: Link,
    pub accept: Option<Accept>,
}

pub(super) async fn listen(
    listener: TcpListener,
    host: Host,
    transport: Transport,
    state: Arc<HubState>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                state.connections(host).made.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(connection(stream, host, transport.clone(), Arc::clone(&state)));
            }
            // The process probably has no free file descriptors. Wait until some are closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Serves one connection. Clients that disconnect or send invalid TLS or HTTP are ignored.
async fn connection(stream: TcpStream, host: Host, transport: Transport, state: Arc<HubState>) {
    let _open = OpenGuard::new(&state.connections(host).open);
    let _ = stream.set_nodelay(true);
    let stream = transport.link.wrap(stream);
    match transport.accept {
        None => serve(stream, host, &state).await,
        Some(accept) => {
            if let Ok(stream) = accept(stream).await {
                serve(stream, host, &state).await;
            }
        }
    }
}

async fn serve(stream: impl ByteStream + 'static, host: Host, state: &HubState) {
    let service = service_fn(|request| respond(state, host, &request));
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http2().max_concurrent_streams(MAX_STREAMS);
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

/// Connection counters of one server.
#[derive(Default)]
pub(super) struct Connections {
    /// Connections since the start.
    pub made: AtomicUsize,
    pub open: AtomicUsize,
}

/// A guard that counts a connection as open.
struct OpenGuard<'a>(&'a AtomicUsize);

impl<'a> OpenGuard<'a> {
    fn new(connections: &'a AtomicUsize) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(connections)
    }
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Creates the response before the first await, so that the log is in order of arrival.
fn respond<B>(
    state: &HubState,
    host: Host,
    request: &Request<B>,
) -> impl Future<Output = io::Result<Response<Body>>> + use<B> {
    let mut logged = LoggedRequest::received(host, request);
    let spec = state.respond(&logged);
    let delivery = spec.header_delivery;
    logged.status = if delivery == HeaderDelivery::Immediate { spec.status.as_u16() } else { 0 };
    let response =
        spec.into_response(request.method(), [logged.sent.clone(), state.quotas.sent.clone()]);
    state.log.push(logged);
    delivery.deliver(response)
}
