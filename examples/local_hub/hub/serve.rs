//! From sockets to requests and back, in HTTP/1.1 or HTTP/2 as the client speaks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::answer::Body;
use super::flow::Opening;
use super::link::{Link, Wire};
use super::log::{Host, LoggedRequest};
use super::site::Site;

/// Requests that a client may have under way on one connection of HTTP/2, as many as `CloudFront` lets it.
const STREAMS: u32 = 128;

/// The link and the TLS in front of a server.
#[derive(Clone)]
pub struct Access {
    pub link: Link,
    pub tls: Option<TlsAcceptor>,
}

pub async fn listen(listener: TcpListener, host: Host, access: Access, site: Arc<Site>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                site.connections(host).made.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(connection(stream, host, access.clone(), Arc::clone(&site)));
            }
            // Out of file descriptors, most likely: some will be given back.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Neither a client that hangs up nor one that speaks no TLS or no HTTP is anything to report.
async fn connection(stream: TcpStream, host: Host, access: Access, site: Arc<Site>) {
    let _open = Open::count(&site.connections(host).open);
    let _ = stream.set_nodelay(true);
    let stream = access.link.carry(stream);
    match access.tls {
        None => serve(stream, host, &site).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                serve(stream, host, &site).await;
            }
        }
    }
}

async fn serve(stream: impl Wire + 'static, host: Host, site: &Site) {
    let service = service_fn(|request| respond(site, host, &request));
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http2().max_concurrent_streams(STREAMS);
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

/// The connections of a server.
#[derive(Default)]
pub struct Connections {
    /// All since the start.
    pub made: AtomicUsize,
    pub open: AtomicUsize,
}

/// A connection, counted as long as it is open.
struct Open<'a>(&'a AtomicUsize);

impl<'a> Open<'a> {
    fn count(connections: &'a AtomicUsize) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(connections)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Decides on the answer before anything is awaited, so that the log keeps the order of arrival.
fn respond<B>(
    site: &Site,
    host: Host,
    request: &Request<B>,
) -> impl Future<Output = io::Result<Response<Body>>> + use<B> {
    let mut logged = LoggedRequest::received(host, request);
    let answer = site.answer(&logged);
    let opening = answer.opening;
    logged.status = if opening == Opening::Prompt { answer.status.as_u16() } else { 0 };
    let response = answer.into_response(request.method(), logged.sent.clone());
    site.log.push(logged);
    opening.pass(response)
}
