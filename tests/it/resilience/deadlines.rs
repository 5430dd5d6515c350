//! Each deadline, against a server that stalls and against one that trickles.

use std::time::Duration;

use hf_meta::{Client, ClientBuilder, Error, HttpError, RetryPolicy, Source, TransportKind};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::hub::{Fault, Host, LocalHub, Repo};
use crate::support;

/// A deadline that passes, and one that does not.
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(600);

/// Far longer than the deadline that is to pass: a server so slow is not read to its end before.
const SLOW: Duration = Duration::from_secs(2);

/// A client that asks once, with time to spare.
fn patient() -> ClientBuilder {
    let builder = Client::builder().retry(RetryPolicy::never()).call_timeout(LONG);
    builder.connect_timeout(LONG).read_timeout(LONG).request_timeout(LONG)
}

/// A Hub that spoils the header of its one file.
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
    let Error::Fetch { source, .. } = error else { panic!("{error:?}") };
    let is_timeout = matches!(**source, HttpError::Transport { kind: TransportKind::Timeout, .. });
    assert!(is_timeout, "{error:?}");
}

#[tokio::test]
async fn reads() {
    for fault in [Fault::Stall, Fault::StallInBody { after: 3 }, Fault::Trickle { interval: SLOW }]
    {
        check_timeout(&read(&hub(fault), patient().read_timeout(SHORT)).await);
    }
}

#[tokio::test]
async fn requests() {
    for fault in [Fault::Stall, Fault::StallInBody { after: 3 }, Fault::Trickle { interval: SLOW }]
    {
        check_timeout(&read(&hub(fault), patient().request_timeout(SHORT)).await);
    }
}

#[tokio::test]
async fn calls() {
    for fault in [Fault::Stall, Fault::StallInBody { after: 3 }, Fault::Trickle { interval: SLOW }]
    {
        let error = read(&hub(fault), patient().call_timeout(SHORT)).await;
        assert!(matches!(error, Error::DeadlineExceeded { limit: SHORT }), "{error:?}");
    }
}

async fn connect(scheme: &str, listener: &TcpListener) -> Error {
    let address = listener.local_addr().unwrap();
    let source: Source = format!("{scheme}://{address}/x.safetensors").parse().unwrap();
    let client = patient().connect_timeout(SHORT).build().unwrap();
    client.source(source).parse_safetensors_metadata().await.unwrap_err()
}

/// Nobody takes the connections, and there is room for no more: what asks for one gets no answer.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn connections_that_are_not_answered() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let filling: Vec<_> = (0..8).map(|_| tokio::spawn(TcpStream::connect(address))).collect();
    while filling.iter().filter(|connection| connection.is_finished()).count() < 2 {
        tokio::task::yield_now().await;
    }
    check_timeout(&connect("http", &listener).await);
    filling.iter().for_each(tokio::task::JoinHandle::abort);
}

/// The server takes the connection, and its half of TLS never comes, or comes byte by byte.
#[tokio::test]
async fn connections_that_are_never_secure() {
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
