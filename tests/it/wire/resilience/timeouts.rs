//! Every timeout, with a server that stalls and one that sends single bytes slowly.

use std::time::Duration;

use hf_meta::{Client, ClientBuilder, Error, ErrorKind, HttpErrorKind, RetryPolicy, Source};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::hub::{Fault, Host, LocalHub, Repo};
use crate::support;

/// A timeout that passes, and one that does not.
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(600);

/// The interval of slow bytes. A body takes far longer than `SHORT`.
const SLOW_INTERVAL: Duration = Duration::from_secs(2);

/// Returns a builder without retries and with long timeouts.
fn long_timeouts() -> ClientBuilder {
    let builder =
        Client::builder().retry_policy(RetryPolicy::default().max_attempts(1)).call_timeout(LONG);
    builder.connect_timeout(LONG).read_timeout(LONG).request_timeout(LONG)
}

/// Starts a Hub with a fault in the header of its one file.
fn hub(fault: Fault) -> LocalHub {
    let repo = Repo::new("org/model").file("model.safetensors", support::weights(&["w"]));
    let hub = LocalHub::start([repo]).unwrap();
    hub.inject(move |request, _| {
        let is_header = request.range.as_ref().is_some_and(|range| range.starts_with("bytes=8-"));
        (is_header && request.host == Host::Cdn).then(|| fault.clone())
    });
    hub
}

async fn read(hub: &LocalHub, builder: ClientBuilder) -> Error {
    let client = builder.endpoint(hub.endpoint()).build().unwrap();
    let model = client.model("org/model").path("model.safetensors");
    model.parse_safetensors_metadata().await.unwrap_err()
}

fn check_timeout(error: &Error) {
    let Error::RequestFailed { source, .. } = error else { panic!("{error:?}") };
    let is_timeout = source.kind == HttpErrorKind::Timeout;
    assert!(is_timeout && error.kind() == ErrorKind::Timeout && error.is_transient(), "{error:?}");
}

#[tokio::test]
async fn a_slow_read_times_out() {
    for fault in
        [Fault::Stall, Fault::StallInBody { after: 3 }, Fault::Trickle { interval: SLOW_INTERVAL }]
    {
        check_timeout(&read(&hub(fault), long_timeouts().read_timeout(SHORT)).await);
    }
}

#[tokio::test]
async fn a_slow_request_times_out() {
    for fault in
        [Fault::Stall, Fault::StallInBody { after: 3 }, Fault::Trickle { interval: SLOW_INTERVAL }]
    {
        check_timeout(&read(&hub(fault), long_timeouts().request_timeout(SHORT)).await);
    }
}

#[tokio::test]
async fn a_slow_call_exceeds_its_deadline() {
    for fault in
        [Fault::Stall, Fault::StallInBody { after: 3 }, Fault::Trickle { interval: SLOW_INTERVAL }]
    {
        let error = read(&hub(fault), long_timeouts().call_timeout(SHORT)).await;
        assert!(matches!(error, Error::DeadlineExceeded { limit: SHORT, .. }), "{error:?}");
        assert!(error.kind() == ErrorKind::Timeout && error.is_transient(), "{error:?}");
    }
}

async fn connect(scheme: &str, listener: &TcpListener) -> Error {
    let address = listener.local_addr().unwrap();
    let source: Source = format!("{scheme}://{address}/x.safetensors").parse().unwrap();
    let client = long_timeouts().connect_timeout(SHORT).build().unwrap();
    client.source(source).parse_safetensors_metadata().await.unwrap_err()
}

/// The backlog of the listener is full, so the system does not respond to new connections.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_connection_without_response_times_out() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let filling: Vec<_> = (0..8).map(|_| tokio::spawn(TcpStream::connect(address))).collect();
    let connected = || filling.iter().filter(|connection| connection.is_finished()).count();
    support::wait_until("the backlog is full", async || connected() >= 2).await;
    check_timeout(&connect("http", &listener).await);
    filling.iter().for_each(tokio::task::JoinHandle::abort);
}

/// The HTTP library discards informational responses, and they must not extend the timeout.
#[tokio::test]
async fn endless_informational_responses_time_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x.safetensors", listener.local_addr().unwrap());
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        // A response before the request would be another error.
        stream.read_exact(&mut [0; 16]).await.unwrap();
        let response = b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n";
        while stream.write_all(response).await.is_ok() {}
        std::future::pending::<()>().await;
    };
    let client = long_timeouts().read_timeout(SHORT).build().unwrap();
    let read = client.source(url.parse().unwrap()).parse_safetensors_metadata();
    tokio::select! {
        result = read => check_timeout(&result.unwrap_err()),
        () = serve => {}
    }
}

/// The server accepts the connection, and its TLS handshake never arrives, or arrives byte by byte.
#[tokio::test]
async fn a_tls_handshake_that_never_ends_times_out() {
    for bytes in [&b""[..], &[0x16, 3, 3, 0x3f, 0xff, 2, 0, 0x3f, 0xfb]] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            for byte in bytes.iter().copied().chain(std::iter::repeat(0)) {
                let every = if bytes.is_empty() { LONG } else { Duration::from_millis(1) };
                tokio::time::sleep(every).await;
                if stream.write_all(&[byte]).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            error = connect("https", &listener) => check_timeout(&error),
            () = serve => {}
        }
    }
}
