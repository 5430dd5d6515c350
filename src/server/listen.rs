//! From a socket to requests, within bounds, until the service is to end.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
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
use super::state::{Peer, State};

/// The longest head of a request, in bytes.
const LONGEST_HEAD: usize = 16 << 10;

/// How long to wait where no connection can be accepted: for want of file descriptors, most likely.
const REST: Duration = Duration::from_millis(50);

impl Service {
    /// Answers the connections of a socket until `end`, then what is under way, for as long as the
    /// settings give it.
    pub async fn serve(self, listener: TcpListener, end: impl Future<Output = ()>) {
        let (graceful, mut end) = (GracefulShutdown::new(), pin!(end));
        let connections = Arc::new(Semaphore::new(self.connections));
        let routes = TowerToHyperService::new(self.router());
        loop {
            let next = pin!(accept(&listener, &connections));
            let (stream, permit) = match select(&mut end, next).await {
                Either::Left(_) => break,
                Either::Right((Some(accepted), _)) => accepted,
                Either::Right((None, _)) => continue,
            };
            let Ok(peer) = stream.peer_addr() else { continue };
            let _ = stream.set_nodelay(true);
            let (routes, peer) = (routes.clone(), Peer(peer.ip()));
            let service = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(peer);
                routes.call(request)
            });
            let connection = http(self.head).serve_connection(TokioIo::new(stream), service);
            let connection = graceful.watch(connection);
            let open = Open::count(Arc::clone(&self.state), permit);
            tokio::spawn(async move {
                // Neither a client that hangs up nor one that speaks no HTTP is anything to report.
                let _ = connection.await;
                drop(open);
            });
        }
        drop(listener);
        self.state.end();
        if tokio::time::timeout(self.grace, graceful.shutdown()).await.is_err() {
            tracing::warn!("some requests were not answered before the end");
        }
    }
}

/// The next connection, once there may be one more.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(connections).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(REST).await;
            None
        }
    }
}

/// The protocol, as spoken with clients whose requests have a head within this time.
fn http(head: Duration) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(LONGEST_HEAD);
    http
}

/// A connection, counted as long as it is open.
struct Open {
    state: Arc<State>,
    _permit: OwnedSemaphorePermit,
}

impl Open {
    fn count(state: Arc<State>, permit: OwnedSemaphorePermit) -> Self {
        state.metrics.connected(1);
        Self { state, _permit: permit }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.state.metrics.connected(-1);
    }
}
