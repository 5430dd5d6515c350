//! The service: accepts connections and serves their requests within limits, until it shuts down.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutWriter;

use super::badge_cache::BadgeCache;
use super::client_ip::PeerAddress;
use super::config::ServiceConfig;
use super::metrics::{ResultSource, RouteGroup};
use super::routes;
use super::state::ServiceState;
use hf_meta::Client;

/// The maximum size of the head of a request, in bytes.
const MAX_HEAD_SIZE: usize = 16 << 10;

/// The number of open files besides client connections: connections to the Hub, and cache files.
const OTHER_FILES: usize = 128;

/// The pause after a failed accept. The most common cause, a lack of file descriptors, lasts until another connection
/// closes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A badge service. Clones share their state.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use hf_meta_server::{Service, ServiceConfig};
/// use hf_meta::{AddressPolicy, Client};
///
/// let client = Client::builder().address_policy(AddressPolicy::Public).build()?;
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// let service = Service::new(client, ServiceConfig::default());
/// service.serve(listener, std::future::pending()).await;
/// # Ok(())
/// # }
/// ```
///
/// To embed the service in your own axum application, use [`Service::router`].
#[derive(Clone)]
pub struct Service {
    state: Arc<ServiceState>,
}

impl Service {
    /// Creates a service that reads from the Hub through `client`.
    ///
    /// The client should have the address policy [`Public`](hf_meta::AddressPolicy::Public) and a header cache. The
    /// service exposes the counts of every repository that the client's token can read.
    pub fn new(client: Client, config: ServiceConfig) -> Self {
        Self { state: ServiceState::new(client, config) }
    }

    /// Returns the routes of the service, for use with another server or within another axum application:
    ///
    /// ```no_run
    /// # fn example(app: axum::Router, service: hf_meta_server::Service) -> axum::Router {
    /// app.nest_service("/models", service.router())
    /// # }
    /// ```
    ///
    /// The limits per client require the client addresses: serve the application with
    /// `into_make_service_with_connect_info::<SocketAddr>()`. Otherwise, all requests count as one client.
    pub fn router(&self) -> Router {
        routes::router(&self.state)
    }

    /// Returns only the route `/metrics`, for a port that is accessible to the operator only.
    pub fn metrics_router(&self) -> Router {
        routes::metrics_router(&self.state)
    }

    /// Serves connections from a listener until `shutdown` completes. `/readyz` then returns 503, but new connections
    /// are still accepted for [`drain_delay`](super::ServiceConfig::drain_delay). Requests in flight then have
    /// [`shutdown_timeout`](super::ServiceConfig::shutdown_timeout) to complete.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let config = &self.state.config;
        let shutdown = async {
            shutdown.await;
            self.state.is_shutting_down.store(true, Ordering::Relaxed);
            // Load balancers take a few seconds to notice that `/readyz` returns 503.
            let _ = tokio::time::timeout(config.drain_delay, self.state.drain_end.notified()).await;
        };
        let (graceful, mut shutdown) = (GracefulShutdown::new(), pin!(shutdown));
        let max_connections = max_connections(config);
        let all = self.state.metrics.connections.clone();
        let connections = ClientConnections::new((max_connections / 4).max(1), all);
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
            let http = http(config.client_timeout);
            let stream = with_write_timeout(stream, config.client_timeout);
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

    /// Ends the drain of a shutdown, or the one of the next shutdown: no new connections are accepted.
    pub fn end_drain(&self) {
        self.state.drain_end.notify_one();
    }

    /// Serves only `/metrics`, without limits, for the operator. Runs until it is dropped.
    pub async fn serve_metrics(self, listener: TcpListener) {
        let routes = TowerToHyperService::new(self.metrics_router());
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let timeout = self.state.config.client_timeout;
            let stream = with_write_timeout(stream, timeout);
            let connection = http(timeout).serve_connection(stream, routes.clone());
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
    let Some(key) = BadgeCache::cache_key(&request) else { return routes.call(request).await };
    let generation = state.lookups.generation();
    if let Some(response) = state.badge_cache.get(key, generation) {
        state.metrics.result(ResultSource::Memory);
        state.metrics.request(RouteGroup::Badge, response.status().as_u16(), started.elapsed());
        return Ok(response);
    }
    let key = key.to_owned();
    let mut response = routes.call(request).await?;
    state.badge_cache.insert(&key, generation, &mut response);
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

/// Returns a stream whose writes time out if the peer does not read.
fn with_write_timeout(
    stream: TcpStream,
    timeout: Duration,
) -> TokioIo<Pin<Box<TimeoutWriter<TcpStream>>>> {
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(timeout));
    TokioIo::new(Box::pin(stream))
}

/// Counts open connections, in total and per client.
#[derive(Debug)]
struct ClientConnections {
    limit: usize,
    /// The number of all open connections.
    all: Gauge,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A guard for an open connection, which is counted until it is dropped.
#[derive(Debug)]
struct ClientConnection {
    connections: Arc<ClientConnections>,
    /// `None` for a connection without a limit.
    client: Option<IpAddr>,
}

impl ClientConnections {
    fn new(limit: usize, all: Gauge) -> Arc<Self> {
        Arc::new(Self { limit, all, open: Mutex::default() })
    }

    /// Counts a connection. Returns `None` if its client has reached the limit. Connections without a client are not
    /// limited.
    fn open(self: &Arc<Self>, client: Option<IpAddr>) -> Option<ClientConnection> {
        if let Some(client) = client {
            let mut open = self.lock();
            let count = open.entry(client).or_default();
            if *count >= self.limit {
                return None;
            }
            *count += 1;
        }
        self.all.inc();
        Some(ClientConnection { connections: Arc::clone(self), client })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.connections.all.dec();
        let Some(client) = self.client else { return };
        let mut open = self.connections.lock();
        if let Some(count) = open.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                open.remove(&client);
            }
        }
    }
}

/// Returns the maximum number of connections, of the configuration or for which the process may open enough files.
fn max_connections(config: &ServiceConfig) -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    clamp_to_open_files(config.max_connections, &limits)
}

/// Returns the number of connections for which the process may open enough files, given the text of
/// `/proc/self/limits`. Logs a warning if it is less than configured.
fn clamp_to_open_files(configured: usize, limits: &str) -> usize {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    let possible = soft.map_or(usize::MAX, |soft| soft.saturating_sub(OTHER_FILES).max(soft / 2));
    if possible < configured {
        let reason = "the limit on open files is too low";
        tracing::warn!(configured, possible, reason, "accepting fewer connections");
    }
    configured.min(possible).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_limited_per_client() {
        let all = Gauge::default();
        let connections = ClientConnections::new(2, all.clone());
        let [one, other] = [1, 2].map(|last| Some(IpAddr::from([10, 0, 0, last])));
        let first = connections.open(one).unwrap();
        let _second = connections.open(one).unwrap();
        assert!(connections.open(one).is_none() && connections.open(other).is_some());
        assert!((0..5).all(|_| connections.open(None).is_some()));
        drop(first);
        assert!(connections.open(one).is_some());
        assert_eq!(connections.lock().len(), 1, "only clients with connections are in the table");
        assert_eq!(all.get(), 1, "only `_second` is open");
    }

    #[test]
    fn connections_leave_room_for_other_files() {
        let limits = |soft| {
            format!("Max processes 1 1 x\nMax open files            {soft}     4096  files\n")
        };
        assert_eq!(clamp_to_open_files(10_000, &limits("1024")), 896);
        assert_eq!(clamp_to_open_files(10_000, &limits("100")), 50);
        assert_eq!(clamp_to_open_files(10_000, &limits("32768")), 10_000);
        assert_eq!(clamp_to_open_files(10_000, &limits("unlimited")), 10_000);
        assert_eq!(clamp_to_open_files(0, ""), 1);
    }
}
