//! Faults of HTTP/2: reset streams, and connections that are closed with and without `GOAWAY`.
//!
//! The client trusts the certificates that its environment names, so the test runs itself in a process with its own
//! environment.

mod server;

use std::time::Duration;

use hf_meta::{Client, Error, RetryPolicy, Source};

use self::server::{Http2Fault, Server};
use crate::hub_tls::Tls;
use crate::support;
use crate::wire::faults::outcome;

/// The variable with the path of the trusted certificates.
const BUNDLE: &str = "SSL_CERT_FILE";

/// The read and request timeout.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Far more time than any call needs.
const HANG: Duration = Duration::from_secs(60);

/// The result of a call with a fault in its second read, once and always, with the number of attempts and
/// connections.
const EXPECTED: [(Http2Fault, &str, &str); 13] = [
    (Http2Fault::RefusedStream, "ok ×2 over 1", "interrupted ×3 over 1"),
    (Http2Fault::ResetStream, "ok ×2 over 1", "interrupted ×3 over 1"),
    (Http2Fault::ResetStreamInBody, "ok ×2 over 1", "interrupted ×3 over 1"),
    (Http2Fault::AbruptGoAway, "ok ×2 over 2", "interrupted ×3 over 3"),
    (Http2Fault::GracefulGoAway, "ok ×1 over 1", "ok ×1 over 1"),
    (Http2Fault::ClosedConnection, "ok ×2 over 2", "interrupted ×3 over 3"),
    (Http2Fault::ShortBody { with_length: true }, "ok ×2 over 1", "interrupted ×3 over 1"),
    (Http2Fault::ShortBody { with_length: false }, "ok ×2 over 1", "wrong length ×3 over 1"),
    (Http2Fault::ExtraBytes, "ok ×2 over 1", "body too long ×3 over 1"),
    (Http2Fault::Stalled, "ok ×2", "timeout ×3"),
    (Http2Fault::StalledInBody, "ok ×2", "timeout ×3"),
    (Http2Fault::Trickle, "ok ×2", "timeout ×3"),
    (Http2Fault::DeadConnection, "ok ×2", "timeout ×3"),
];

#[test]
fn every_fault_of_streams_and_connections_is_retried() {
    if support::is_own_process() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        return runtime.block_on(check_all());
    }
    let bundle = tempfile::NamedTempFile::new().unwrap();
    let name = "wire::http2::every_fault_of_streams_and_connections_is_retried";
    support::run_in_own_process(name, &[(BUNDLE, bundle.path().as_os_str())]);
}

async fn check_all() {
    let tls = Tls::new(&["h2"]).unwrap();
    std::fs::write(std::env::var_os(BUNDLE).unwrap(), &tls.authority).unwrap();
    let runs = EXPECTED.map(|(fault, once, always)| {
        let acceptor = tls.acceptor.clone();
        async move {
            for (is_once, expected) in [(true, once), (false, always)] {
                let server = Server::start(acceptor.clone(), fault, is_once).await;
                let found = tokio::time::timeout(HANG, run(fault, &server)).await;
                let found = found.unwrap_or_else(|_| "hangs".to_owned());
                if found != expected {
                    return Some(format!("{fault:?}, once {is_once}: {found}, not {expected}"));
                }
            }
            None
        }
    });
    let wrong: Vec<_> = futures::future::join_all(runs).await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

async fn run(fault: Http2Fault, server: &Server) -> String {
    let policy = RetryPolicy::default().max_attempts(3).initial_delay(Duration::from_millis(1));
    let builder = Client::builder().system_certificates(true);
    let builder = builder.retry_policy(policy).read_timeout(TIMEOUT);
    let client = builder.request_timeout(TIMEOUT).build().unwrap();
    let source: Source = server.url().parse().unwrap();
    let outcome = match client.source(source).parse_safetensors_metadata().await {
        Ok(parsed) => {
            assert_eq!(parsed.parameter_count().total(), server::COUNT);
            "ok".to_owned()
        }
        Err(error) => {
            let attempts = match &error {
                Error::RequestFailed { source, .. } => source.attempts,
                other => panic!("{other:?}"),
            };
            assert_eq!(attempts, server.faults());
            outcome::name(&error)
        }
    };
    let attempts = server.attempts();
    match fault {
        // A slow machine may answer a ping too late, which costs one more connection.
        Http2Fault::Stalled
        | Http2Fault::StalledInBody
        | Http2Fault::Trickle
        | Http2Fault::DeadConnection => {
            format!("{outcome} ×{attempts}")
        }
        _ => format!("{outcome} ×{attempts} over {}", server.connections()),
    }
}
