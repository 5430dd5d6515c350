//! Connections: from a socket to requests, within limits, until the service shuts down.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::{Either, select};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Service;
use super::state::{PeerAddress, ServiceState};

/// The maximum size of the head of a request, in bytes.
const MAX_HEAD_SIZE: usize = 16 << 10;

/// The pause after a connection could not be accepted. The usual reason, a lack of file descriptors,
/// lasts until another connection closes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Service {
    /// Serves the connections of a listener until `shutdown` completes. Requests in flight then get
    /// [`ServiceConfig::shutdown_timeout`](super::ServiceConfig::shutdown_timeout) to complete.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let (graceful, mut shutdown) = (GracefulShutdown::new(), pin!(shutdown));
        let config = &self.state.config;
        let permits = Arc::new(Semaphore::new(config.max_connections.max(1)));
        let routes = TowerToHyperService::new(self.router());
        loop {
            let next = pin!(accept(&listener, &permits));
            let (stream, permit) = match select(&mut shutdown, next).await {
                Either::Left(_) => break,
                Either::Right((Some(accepted), _)) => accepted,
                Either::Right((None, _)) => continue,
            };
            let Ok(peer) = stream.peer_addr() else { continue };
            let _ = stream.set_nodelay(true);
            let (routes, peer) = (routes.clone(), PeerAddress(peer.ip()));
            let service = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(peer);
                routes.call(request)
            });
            let http = http(config.header_timeout);
            let connection = http.serve_connection(TokioIo::new(stream), service);
            let connection = graceful.watch(connection);
            let guard = ConnectionGuard::new(Arc::clone(&self.state), permit);
            tokio::spawn(async move {
                // A client that closes the connection or does not speak HTTP is not worth a log entry.
                let _ = connection.await;
                drop(guard);
            });
        }
        drop(listener);
        self.state.is_shutting_down.store(true, Ordering::Relaxed);
        if tokio::time::timeout(config.shutdown_timeout, graceful.shutdown()).await.is_err() {
            tracing::warn!("shutdown timeout: some requests were not answered");
        }
    }
}

/// Accepts the next connection as soon as the limit of connections allows it.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(error) => {
            tracing::warn!(%error, "failed to accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// Returns the HTTP/1.1 protocol with a deadline and a maximum size for request heads.
fn http(header_timeout: Duration) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(header_timeout).max_buf_size(MAX_HEAD_SIZE);
    http
}

/// Counts a connection as open until it is dropped.
struct ConnectionGuard {
    state: Arc<ServiceState>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionGuard {
    fn new(state: Arc<ServiceState>, permit: OwnedSemaphorePermit) -> Self {
        state.metrics.connections.inc();
        Self { state, _permit: permit }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.state.metrics.connections.dec();
    }
}
