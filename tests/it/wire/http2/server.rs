//! An HTTP/2 server over TLS with one file, and with a fault in its responses.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, SendStream};
use hyper::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::support::file_start;

/// A fault of a response or of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Http2Fault {
    /// The stream is refused with `REFUSED_STREAM`, like by a busy server.
    RefusedStream,
    /// The stream is reset before the headers.
    ResetStream,
    /// The stream is reset after three bytes.
    ResetStreamInBody,
    /// The connection is closed with a `GOAWAY` error.
    AbruptGoAway,
    /// The response is complete, and a `GOAWAY` allows no further requests on this connection.
    GracefulGoAway,
    /// The connection is closed without `GOAWAY`.
    ClosedConnection,
    /// The stream ends after three bytes.
    ShortBody { with_length: bool },
    /// The stream continues after the range.
    ExtraBytes,
    /// No headers ever arrive.
    Stalled,
    /// Nothing arrives after three bytes.
    StalledInBody,
    /// One byte arrives every 0.5 s.
    Trickle,
    /// The connection stays open, and nothing is sent on it any more, not even ping replies.
    DeadConnection,
}

/// The number of parameters in the file.
pub(super) const COUNT: u64 = 4;

fn file() -> Vec<u8> {
    let header = r#"{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#;
    [file_start(header), vec![0; 16]].concat()
}

/// A running server. It stops with the process.
pub(super) struct Server {
    port: u16,
    state: Arc<State>,
}

struct State {
    fault: Http2Fault,
    is_once: bool,
    connections: AtomicUsize,
    /// The number of requests for the header.
    attempts: AtomicUsize,
    faults: AtomicUsize,
}

impl Server {
    pub(super) async fn start(acceptor: TlsAcceptor, fault: Http2Fault, is_once: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let [connections, attempts, faults] = [(); 3].map(|()| AtomicUsize::new(0));
        let state = Arc::new(State { fault, is_once, connections, attempts, faults });
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, state) = (acceptor.clone(), Arc::clone(&shared));
                tokio::spawn(async move { state.serve(acceptor.accept(stream).await.ok()?).await });
            }
        });
        Self { port, state }
    }

    pub(super) fn url(&self) -> String {
        format!("https://localhost:{}/x.safetensors", self.port)
    }

    pub(super) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    pub(super) fn attempts(&self) -> usize {
        self.state.attempts.load(Ordering::SeqCst)
    }

    pub(super) fn faults(&self) -> usize {
        self.state.faults.load(Ordering::SeqCst)
    }
}

type Http = Connection<TlsStream<TcpStream>, Bytes>;

impl State {
    /// Serves a connection until one side closes it.
    async fn serve(&self, stream: TlsStream<TcpStream>) -> Option<()> {
        self.connections.fetch_add(1, Ordering::SeqCst);
        let mut http = h2::server::handshake(stream).await.ok()?;
        while let Some(request) = http.accept().await {
            let (request, respond) = request.ok()?;
            match self.fault_for(&request) {
                Some(fault) => fault.apply(&request, respond, &mut http).await?,
                None => drop(send_response(&request, respond, true)?),
            }
        }
        Some(())
    }

    fn fault_for<T>(&self, request: &Request<T>) -> Option<Http2Fault> {
        if range(request).0 == 0 {
            return None;
        }
        let before = self.attempts.fetch_add(1, Ordering::SeqCst);
        if self.is_once && before > 0 {
            return None;
        }
        self.faults.fetch_add(1, Ordering::SeqCst);
        Some(self.fault)
    }
}

/// Returns the first and last byte of the requested range.
fn range<T>(request: &Request<T>) -> (usize, usize) {
    let range = request.headers()["range"].to_str().unwrap().strip_prefix("bytes=").unwrap();
    let (first, last) = range.split_once('-').unwrap();
    (first.parse().unwrap(), last.parse().unwrap())
}

fn bytes<T>(request: &Request<T>) -> Bytes {
    let (first, last) = range(request);
    file()[first..=last].to_vec().into()
}

/// Sends the headers of the correct response.
fn send_headers<T>(
    request: &Request<T>,
    mut respond: SendResponse<Bytes>,
    with_length: bool,
) -> Option<SendStream<Bytes>> {
    let (first, last) = range(request);
    let mut response = Response::builder()
        .status(206)
        .header("content-range", format!("bytes {first}-{last}/{}", file().len()));
    if with_length {
        response = response.header("content-length", last - first + 1);
    }
    respond.send_response(response.body(()).unwrap(), false).ok()
}

/// Sends the correct response, with or without the end of the stream.
fn send_response<T>(
    request: &Request<T>,
    respond: SendResponse<Bytes>,
    is_end: bool,
) -> Option<SendStream<Bytes>> {
    let mut stream = send_headers(request, respond, is_end)?;
    stream.send_data(bytes(request), is_end).ok()?;
    Some(stream)
}

impl Http2Fault {
    /// Sends a faulty response. `None` closes the connection.
    async fn apply<T>(
        self,
        request: &Request<T>,
        mut respond: SendResponse<Bytes>,
        http: &mut Http,
    ) -> Option<()> {
        let start = bytes(request).slice(..3);
        match self {
            Self::RefusedStream => respond.send_reset(Reason::REFUSED_STREAM),
            Self::ResetStream => respond.send_reset(Reason::INTERNAL_ERROR),
            Self::ResetStreamInBody => {
                let mut stream = send_headers(request, respond, true)?;
                stream.send_data(start, false).ok()?;
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    stream.send_reset(Reason::INTERNAL_ERROR);
                });
            }
            Self::AbruptGoAway => http.abrupt_shutdown(Reason::INTERNAL_ERROR),
            Self::GracefulGoAway => {
                send_response(request, respond, true)?;
                http.graceful_shutdown();
            }
            Self::ClosedConnection => return None,
            Self::ShortBody { with_length } => {
                send_headers(request, respond, with_length)?.send_data(start, true).ok()?;
            }
            Self::ExtraBytes => {
                send_response(request, respond, false)?.send_data(start, true).ok()?;
            }
            Self::Stalled => keep(respond),
            Self::StalledInBody => {
                let mut stream = send_headers(request, respond, true)?;
                stream.send_data(start, false).ok()?;
                keep(stream);
            }
            Self::Trickle => {
                let mut stream = send_headers(request, respond, true)?;
                tokio::spawn(async move {
                    while stream.send_data(start.slice(..1), false).is_ok() {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                    }
                });
            }
            Self::DeadConnection => pending().await,
        }
        Some(())
    }
}

/// Keeps a value alive until the process ends.
fn keep<T: Send + 'static>(held: T) {
    tokio::spawn(async move {
        pending::<()>().await;
        drop(held);
    });
}
