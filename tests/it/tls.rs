//! HTTPS with a certificate that the system knows, and with one that it does not; HTTP/1.1 and HTTP/2.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use wiremock::matchers::{header, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::head;

/// A certificate authority, and a server's certificate by it for `localhost`.
pub(crate) fn certificates(protocol: &[u8]) -> (String, ServerConfig) {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new([]).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = ca.self_signed(&ca_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    (pem, config)
}

/// Speaks TLS for a server that does not.
async fn terminate(config: ServerConfig, server: SocketAddr) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut client = acceptor.accept(client).await?;
                copy_bidirectional(&mut client, &mut TcpStream::connect(server).await?).await
            });
        }
    });
    port
}

/// A server with a file of one tensor.
async fn server() -> MockServer {
    let file = head("{}");
    let server = MockServer::start().await;
    for (first, last) in [(0, 7), (8, 9)] {
        let answer = ResponseTemplate::new(206)
            .insert_header("content-range", format!("bytes {first}-{last}/{}", file.len()))
            .set_body_bytes(&file[first..=last]);
        let range = format!("bytes={first}-{last}");
        let mock = Mock::given(path("/x.safetensors")).and(header("range", range.as_str()));
        mock.respond_with(answer).mount(&server).await;
    }
    server
}

async fn check(protocol: &[u8]) {
    let server = server().await;
    let (ca, config) = certificates(protocol);
    let port = terminate(config, *server.address()).await;
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("ca.pem");
    std::fs::write(&bundle, ca).unwrap();
    for (bundle, code) in [(bundle.to_str().unwrap(), 0), ("/dev/null", 3)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hf-meta"));
        command.env_clear().env("SSL_CERT_FILE", bundle);
        command.env("SSL_CERT_DIR", folder.path().join("x"));
        command.arg(format!("https://localhost:{port}/x.safetensors"));
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert_eq!(stderr.contains("invalid peer certificate"), code != 0, "{stderr}");
        assert!(!stderr.contains("attempts"), "{stderr}");
    }
    let asked = server.received_requests().await.unwrap();
    assert_eq!(asked.len(), 2);
}

#[tokio::test]
async fn certificates_are_those_of_the_system() {
    check(b"http/1.1").await;
}

#[tokio::test]
async fn http_2_is_spoken_where_the_server_speaks_it() {
    check(b"h2").await;
}

/// A proxy that tunnels, and counts the tunnels.
async fn proxy(tunnels: Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let tunnels = Arc::clone(&tunnels);
            tokio::spawn(async move {
                let mut client = BufReader::new(client);
                let mut request = String::new();
                while !request.ends_with("\r\n\r\n") && client.read_line(&mut request).await? > 0 {}
                let target = request.split(' ').nth(1).unwrap_or_default().to_owned();
                tunnels.fetch_add(1, Ordering::SeqCst);
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
                copy_bidirectional(&mut client, &mut TcpStream::connect(target).await?).await
            });
        }
    });
    port
}

#[tokio::test]
async fn https_goes_through_the_proxy_of_the_environment() {
    let server = server().await;
    let (ca, config) = certificates(b"http/1.1");
    let port = terminate(config, *server.address()).await;
    let bundle = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(bundle.path(), ca).unwrap();
    let tunnels = Arc::new(AtomicUsize::new(0));
    let proxy = format!("http://127.0.0.1:{}", proxy(Arc::clone(&tunnels)).await);
    for (no_proxy, expected) in [("", 1), ("localhost", 1)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hf-meta"));
        command.env_clear().env("SSL_CERT_FILE", bundle.path());
        command.env("https_proxy", &proxy).env("no_proxy", no_proxy);
        command.arg(format!("https://localhost:{port}/x.safetensors"));
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(tunnels.load(Ordering::SeqCst), expected, "no_proxy={no_proxy}");
    }
}
