//! Serves connections over HTTP/1.1 or HTTP/2.

use std::error::Error;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};

use crate::fault::Fault;
use crate::hub::HubState;
use crate::link::{ByteStream, with_latency};
use crate::log::{Host, LoggedRequest};
use crate::response::Body;

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
        self.state.log.push(logged);
        async move {
            match fault {
                Some(Fault::Stall) => pending().await,
                Some(Fault::ConnectionReset) => Err(io::ErrorKind::ConnectionReset.into()),
                _ => Ok(response),
            }
        }
    }
}
