//! Accepts connections and serves their requests within limits, until the service shuts down.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use futures::future::{Either, FutureExt, select};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Service;
use super::connections::{ClientConnections, clamp_to_open_files};
use super::drawn_badges::DrawnBadges;
use super::metrics::{ResultSource, RouteGroup};
use super::state::{PeerAddress, ServiceState};
use super::timed_io::TimedIo;

/// The maximum size of the head of a request, in bytes.
const MAX_HEAD_SIZE: usize = 16 << 10;

/// The pause after a failed accept. The most common cause, a lack of file descriptors, lasts until another connection
/// closes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Service {
    /// Serves connections from a listener until `shutdown` completes. `/readyz` then returns 503, but new connections
    /// are still accepted for [`drain_delay`](super::ServiceConfig::drain_delay). Requests in flight then have
    /// [`shutdown_timeout`](super::ServiceConfig::shutdown_timeout) to complete.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let config = &self.state.config;
        let shutdown = async {
            shutdown.await;
            self.state.is_shutting_down.store(true, Ordering::Relaxed);
            tokio::time::sleep(config.drain_delay).await;
        };
        let (graceful, mut shutdown) = (GracefulShutdown::new(), pin!(shutdown));
        let max_connections = clamp_to_open_files(config.max_connections);
        let per_client = config.max_connections_per_client.unwrap_or(max_connections / 4).max(1);
        let all = self.state.metrics.connections.clone();
        let connections = ClientConnections::new(per_client, all);
        let permits = Arc::new(Semaphore::new(max_connections));
        let mut has_warned = false;
        let routes = TowerToHyperService::new(self.router());
        loop {
            let next = pin!(accept(&listener, &permits, &mut has_warned));
            let (stream, permit) = match select(&mut shutdown, next).await {
                Either::Left(_) => break,
                Either::Right((Some(accepted), _)) => accepted,
                Either::Right((None, _)) => continue,
            };
            let Ok(peer) = stream.peer_addr() else { continue };
            // A trusted proxy does not count as a client.
            let client = self.state.trusted_proxies.client_of(peer.ip());
            let Some(connection) = connections.open(client) else {
                self.state.metrics.refused_connections.inc();
                continue;
            };
            let _ = stream.set_nodelay(true);
            let (state, routes) = (Arc::clone(&self.state), routes.clone());
            let peer = PeerAddress(peer.ip());
            let service = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(peer);
                answer(Arc::clone(&state), routes.clone(), request)
            });
            let http = http(config.header_timeout);
            let stream = TokioIo::new(TimedIo::new(stream, config.write_timeout));
            let served = graceful.watch(http.serve_connection(stream, service));
            tokio::spawn(async move {
                // Clients that close the connection or do not speak HTTP are not worth a log entry.
                let _ = served.await;
                drop((permit, connection));
            });
        }
        drop(listener);
        if tokio::time::timeout(config.shutdown_timeout, graceful.shutdown()).await.is_err() {
            tracing::warn!("shutdown timed out; some requests were not answered");
        }
    }

    /// Serves only `/metrics`, without limits, for the operator. Runs until it is dropped.
    pub async fn serve_metrics(self, listener: TcpListener) {
        let routes = TowerToHyperService::new(self.metrics_router());
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let http = http(self.state.config.header_timeout);
            let stream = TimedIo::new(stream, self.state.config.write_timeout);
            let connection = http.serve_connection(TokioIo::new(stream), routes.clone());
            tokio::spawn(connection.map(drop));
        }
    }
}

/// Answers a request with a cached badge, or else by the router.
async fn answer(
    state: Arc<ServiceState>,
    routes: TowerToHyperService<Router>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let started = Instant::now();
    let Some(target) = DrawnBadges::target(&request) else { return routes.call(request).await };
    if let Some(response) = state.drawn_badges.get(target) {
        state.metrics.result(ResultSource::Memory);
        state.metrics.request(RouteGroup::Badge, response.status().as_u16(), started.elapsed());
        return Ok(response);
    }
    let (target, generation) = (target.to_owned(), state.drawn_badges.generation());
    let mut response = routes.call(request).await?;
    state.drawn_badges.keep(&target, generation, &mut response);
    Ok(response)
}

/// Accepts the next connection once the connection limit allows it.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
    has_warned: &mut bool,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(error) => {
            // A lack of file descriptors would log this repeatedly.
            if !std::mem::replace(has_warned, true) {
                tracing::warn!(%error, "failed to accept a connection");
            }
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
