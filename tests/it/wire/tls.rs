//! HTTPS with trusted and untrusted certificates, over HTTP/1.1 and HTTP/2, and through a proxy.

mod preconnect;

use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hf_meta::{Client, RetryPolicy, TensorSelection};
use hf_meta_testing::Version;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use safetensors::Dtype;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::hub::{File, Host, LocalHub, Repo};
use crate::hub_tls::Tls;
use crate::support::{self, file_start, index, weights};
use crate::tensors::write_file;

fn repo() -> Repo {
    Repo::new("org/x").file("model.safetensors", weights(&["a"]))
}

/// Starts an HTTPS Hub with one repository.
fn hub(protocol: &'static str) -> LocalHub {
    LocalHub::builder().repo(repo()).https(Tls::new(&[protocol]).unwrap()).start().unwrap()
}

/// Runs the command with these certificates as the certificates of the system.
async fn run(hub: &LocalHub, authority: &str, environment: &[(&str, &str)]) -> Output {
    run_with(hub, authority, environment, &[]).await
}

/// Runs the command like [`run`], with additional options.
async fn run_with(
    hub: &LocalHub,
    authority: &str,
    environment: &[(&str, &str)],
    options: &[&str],
) -> Output {
    let environment = [&[("HF_ENDPOINT", hub.endpoint())], environment].concat();
    run_command(authority, &environment, &[&["org/x"], options].concat()).await
}

/// Runs the command with these arguments.
async fn run_command(authority: &str, environment: &[(&str, &str)], arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("ca.pem");
    std::fs::write(&bundle, authority).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hf-meta"));
    command.env_clear().env("HOME", folder.path());
    command.env("SSL_CERT_FILE", bundle).env("SSL_CERT_DIR", folder.path().join("x"));
    command.envs(environment.iter().copied()).args(arguments);
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

async fn check(protocol: &'static str) {
    let hub = hub(protocol);
    for (authority, code) in [(hub.ca_certificate().unwrap(), 0), ("", 3)] {
        let output = run(&hub, authority, &[]).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert_eq!(stderr.contains("invalid peer certificate"), code != 0, "{stderr}");
        assert!(!stderr.contains("attempts"), "{stderr}");
    }
    assert_eq!(hub.log().iter().filter(|request| request.host == Host::Cdn).count(), 2);
}

#[tokio::test]
async fn only_system_certificates_are_trusted_over_http_1() {
    check("http/1.1").await;
}

/// The connection for HTTP/2 is accepted, and its first request is not understood.
#[tokio::test]
async fn a_server_that_ignores_alpn_is_read_in_one_attempt() {
    let (tls, listener) = (Tls::new(&[]).unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (acceptor, url) =
        (tls.acceptor.clone(), format!("https://{}", listener.local_addr().unwrap()));
    let header = r#"{"w":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}}"#;
    let file = [file_start(header), vec![0; 4]].concat();
    let respond = move |_| {
        let response = hyper::Response::new(http_body_util::Full::new(Bytes::from(file.clone())));
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    };
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, service) = (acceptor.clone(), service_fn(respond.clone()));
            tokio::spawn(async move {
                let stream = TokioIo::new(acceptor.accept(stream).await?);
                let served = http1::Builder::new().serve_connection(stream, service);
                served.await.map_err(std::io::Error::other)
            });
        }
    });
    let source = format!("{url}/x.safetensors");
    let options = ["--retries", "0", "--no-cache"];
    let output = run_command(&tls.authority, &[], &[&[&*source], &options[..]].concat()).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    server.abort();
}

/// The certificates of the system are those in `SSL_CERT_FILE`.
#[test]
fn certificates_come_from_the_environment_only_on_request() {
    if support::is_own_process() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        return runtime.block_on(read_with_and_without_system_certificates());
    }
    let bundle = tempfile::NamedTempFile::new().unwrap();
    let name = "wire::tls::certificates_come_from_the_environment_only_on_request";
    support::run_in_own_process(name, &[("SSL_CERT_FILE", bundle.path().as_os_str())]);
}

async fn read_with_and_without_system_certificates() {
    let hub = hub("h2");
    let bundle = std::env::var_os("SSL_CERT_FILE").unwrap();
    std::fs::write(bundle, hub.ca_certificate().unwrap()).unwrap();
    for is_trusted in [true, false] {
        let client = Client::builder().endpoint(hub.endpoint()).system_certificates(is_trusted);
        let result = client.build().unwrap().model("org/x").count().await;
        assert_eq!(result.is_ok(), is_trusted, "{result:?}");
    }
}

/// Concurrent requests share the HTTP/2 connection that the server rejects, and each continues over HTTP/1.1.
#[tokio::test]
async fn falling_back_to_http_1_does_not_count_as_an_attempt() {
    let names: Vec<_> = (0..20).map(|n| (format!("t{n}"), format!("{n}.safetensors"))).collect();
    let entries: Vec<_> = names.iter().map(|(name, shard)| (&**name, &**shard)).collect();
    let index = Repo::new("org/x").file("model.safetensors.index.json", index(&entries));
    let repo = names.iter().fold(index, |repo, (name, shard)| repo.file(shard, weights(&[name])));
    let hub =
        LocalHub::builder().repo(repo).https(Tls::new(&["http/1.1"]).unwrap()).start().unwrap();
    let options = ["--no-cache", "--retries", "0"];
    let output = run_with(&hub, hub.ca_certificate().unwrap(), &[], &options).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(hub.log().len(), 3 + 20 * 4);
    let output = run_with(&hub, "", &[], &["--no-cache"]).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("invalid peer certificate"), "{stderr}");
    assert!(!stderr.contains("attempts"), "{stderr}");
}

/// The local Hub ends HTTP/2 bodies with an empty frame, which is not an extra byte.
#[tokio::test]
async fn only_system_certificates_are_trusted_over_http_2() {
    check("h2").await;
}

/// A call takes at least eight round trips: connection and TLS for Hub and CDN, and its sequential requests.
#[tokio::test]
async fn a_call_takes_at_least_eight_simulated_round_trips() {
    const ROUND_TRIP: Duration = Duration::from_millis(20);
    let hub =
        LocalHub::builder().repo(repo()).https(Tls::new(&["h2"]).unwrap()).latency(ROUND_TRIP);
    let hub = hub.start().unwrap();
    let started = Instant::now();
    let output = run(&hub, hub.ca_certificate().unwrap(), &[]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(started.elapsed() >= 8 * ROUND_TRIP, "{:?}", started.elapsed());
}

/// Starts a `CONNECT` proxy that counts its tunnels. Returns its port.
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

/// Returns a client that trusts the authority of a Hub.
fn trusting(hub: &LocalHub) -> hf_meta::ClientBuilder {
    let authority = hub.ca_certificate().unwrap();
    Client::builder().endpoint(hub.endpoint()).root_certificate_pem(authority)
}

/// The connection of the last redirect may be closed by then.
#[tokio::test]
async fn an_idle_client_connects_to_the_cdn_before_the_first_redirect() {
    let hub = LocalHub::builder().repo(repo()).token("hf_good");
    let hub = hub.https(Tls::new(&["h2"]).unwrap()).latency(Duration::from_millis(20));
    let hub = hub.start().unwrap();
    let client = trusting(&hub).token("hf_good").build().unwrap();
    let read = async || {
        hub.clear_log();
        client.model("org/x").count().await.unwrap();
        hub.log().into_iter().filter(|request| request.method == "HEAD").collect::<Vec<_>>()
    };
    assert!(read().await.is_empty() && read().await.is_empty());
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let ahead = read().await;
    assert_eq!(ahead.len(), 1);
    assert_eq!((ahead[0].host, &*ahead[0].path, &ahead[0].query), (Host::Cdn, "/", &None));
    assert!(ahead[0].authorization.is_none() && ahead[0].range.is_none());
}

/// Data use HTTP/1.1 if the CDN speaks it, one range at a time excepted. Headers use HTTP/2 if possible.
#[tokio::test]
async fn data_arrive_over_separate_connections() {
    let file = write_file(&[("w", Dtype::U8, &[33 << 20])]);
    let data = &file[file.len() - (33 << 20)..];
    for protocols in [&["h2", "http/1.1"][..], &["h2"], &["http/1.1"]] {
        let repo = Repo::new("org/x").file("model.safetensors", File::from_bytes(file.clone()));
        let hub = LocalHub::builder().repo(repo).https(Tls::new(protocols).unwrap());
        let hub = hub.latency(Duration::from_millis(50)).start().unwrap();
        let policy = RetryPolicy::default().max_attempts(1);
        let client = trusting(&hub).retry_policy(policy).build().unwrap();
        let reader = client.model("org/x").tensors(TensorSelection::all()).await.unwrap();
        hub.clear_log();
        let received = Arc::new(Mutex::new(vec![0; data.len()]));
        let written = Arc::clone(&received);
        let receive = move |_: usize, offset: u64, bytes: &[u8]| {
            let at = usize::try_from(offset).unwrap();
            written.lock().unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        };
        reader.for_each_part(receive).await.unwrap();
        assert!(*received.lock().unwrap() == data, "{protocols:?}");
        let of = |host: Host| {
            let log = hub.log().into_iter().filter(move |request| request.host == host);
            log.map(|request| request.version).collect::<Vec<_>>()
        };
        let (from_hub, from_cdn) = (of(Host::Hub), of(Host::Cdn));
        assert_eq!((from_hub.len(), from_cdn.len()), (5, 5));
        let only = if protocols[0] == "h2" { Version::HTTP_2 } else { Version::HTTP_11 };
        assert!(from_hub.iter().all(|version| *version == only), "{from_hub:?}");
        if protocols.len() == 1 {
            assert!(from_cdn.iter().all(|version| *version == only), "{from_cdn:?}");
        } else {
            assert!(from_cdn.contains(&Version::HTTP_11), "{from_cdn:?}");
            assert_eq!(hub.connections_made(Host::Hub), 1);
        }
    }
}

#[tokio::test]
async fn clients_with_other_tokens_share_the_connection_to_the_hub() {
    let hub = LocalHub::builder().repo(repo().gated()).token("hf_good");
    let hub = hub.https(Tls::new(&["h2"]).unwrap()).start().unwrap();
    let client = trusting(&hub).build().unwrap();
    client.with_token("hf_good").unwrap().model("org/x").count().await.unwrap();
    assert_eq!(client.stats().requests, hub.log().len() as u64);
    assert!(client.model("org/x").count().await.unwrap_err().is_denied());
    assert_eq!(hub.connections_made(Host::Hub), 1);
}

#[tokio::test]
async fn https_uses_the_proxy_of_the_environment() {
    let hub = hub("http/1.1");
    let tunnels = Arc::new(AtomicUsize::new(0));
    let proxy = format!("http://127.0.0.1:{}", proxy(Arc::clone(&tunnels)).await);
    let made = || hub.connections_made(Host::Hub) + hub.connections_made(Host::Cdn);
    let tunnels_with = async |no_proxy| {
        let environment = [("https_proxy", &*proxy), ("no_proxy", no_proxy)];
        let output = run(&hub, hub.ca_certificate().unwrap(), &environment).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        tunnels.load(Ordering::SeqCst)
    };
    let tunnels = tunnels_with("").await;
    assert!(tunnels >= 2);
    assert_eq!(tunnels, made());
    assert_eq!(tunnels_with("127.0.0.0/8").await, tunnels);
    assert!(made() > tunnels);
}
