//! Several servers with a shared Redis or Valkey cache.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use hf_meta::Client;
use hf_meta_server::RedisCache;
use tempfile::TempDir;

use super::process::{self, Server};
use crate::hub::{Host, LocalHub};
use crate::hub_tls::Tls;
use crate::support;

/// A Redis or Valkey process, which is killed on drop.
struct Store {
    child: Child,
    port: u16,
    program: &'static str,
    folder: TempDir,
    /// The certificate of the authority that signed the certificate of the server, if it speaks TLS.
    authority: Option<String>,
}

impl Store {
    /// Starts a server. Returns `None` if neither program is installed; panics if `CI` is set.
    fn start() -> Option<Self> {
        Self::start_with(None)
    }

    fn start_with(tls: Option<Tls>) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        if let Some(tls) = &tls {
            std::fs::write(folder.path().join("certificate.pem"), &tls.certificate).unwrap();
            std::fs::write(folder.path().join("key.pem"), &tls.key).unwrap();
        }
        let authority = tls.map(|tls| tls.authority);
        for program in ["valkey-server", "redis-server"] {
            match spawn(program, port, &folder, authority.is_some()) {
                Ok(child) => {
                    let store = Self { child, port, program, folder, authority };
                    store.wait();
                    return Some(store);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => panic!("{program}: {error}"),
            }
        }
        support::program_is_missing("valkey-server or redis-server", "the shared cache");
        None
    }

    /// Waits until the server accepts connections.
    fn wait(&self) {
        let accepts = || TcpStream::connect(("127.0.0.1", self.port)).is_ok();
        support::wait_until_blocking("the server accepts connections", accepts);
    }

    /// Sends a command and returns the reply in the protocol of Redis.
    fn ask(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "{command}\r\nQUIT\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    /// Returns the number of bytes that the server has sent to its clients.
    fn bytes_sent(&self) -> u64 {
        let stats = self.ask("INFO stats");
        let line = stats.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
        line.unwrap().parse().unwrap()
    }

    fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.child =
            spawn(self.program, self.port, &self.folder, self.authority.is_some()).unwrap();
        self.wait();
    }

    fn address(&self) -> String {
        let scheme = if self.authority.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }
}

fn spawn(program: &str, port: u16, folder: &TempDir, has_tls: bool) -> std::io::Result<Child> {
    let mut command = Command::new(program);
    let port = port.to_string();
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    if has_tls {
        command.args(["--port", "0", "--tls-port", &port, "--tls-auth-clients", "no"]);
        command.args(["--tls-cert-file", "certificate.pem", "--tls-key-file", "key.pem"]);
    } else {
        command.args(["--port", &port]);
    }
    command.current_dir(folder);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Returns the number of range requests that the CDN has answered.
fn reads(hub: &LocalHub) -> usize {
    hub.log().iter().filter(|request| request.host == Host::Cdn).count()
}

#[tokio::test]
async fn a_shared_cache_conforms() {
    let Some(store) = Store::start() else { return };
    // A long timeout, because a busy machine is slow.
    let cache = RedisCache::with_timeout(&store.address(), Duration::from_secs(60)).unwrap();
    hf_meta_testing::conformance::check_cache(cache).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_of_two_servers_with_a_shared_cache_cost_at_most_two_lookups() {
    let Some(store) = Store::start() else { return };
    let hub = support::fixtures_hub();
    let args =
        ["--cache", &store.address(), "--requests-per-minute", "0", "--lookup-timeout", "60"];
    // Long timeouts, because a busy machine is slow.
    let args = [&args[..], &["--cache-timeout", "60"]].concat();
    let servers = [Server::start(&hub, &args), Server::start(&hub, &args)];
    let http = http();
    let asks = (0..1_000).map(|n| {
        let address = &servers[n % 2].address;
        let ask = http.get(format!("{address}/badge/bigscience/bloom.svg")).send();
        async move { ask.await.unwrap().error_for_status().unwrap().text().await.unwrap() }
    });
    for badge in join_all(asks).await {
        assert!(badge.contains("params: 176B"), "{badge}");
    }
    assert!([72, 2 * 72].contains(&reads(&hub)), "each server reads each shard at most once");
    assert!(hub.log().len() <= 2 * (3 + 72 * 2), "no other request is repeated");
}

#[tokio::test]
async fn a_client_finds_the_headers_that_another_client_has_cached() {
    let Some(store) = Store::start() else { return };
    let hub = support::fixtures_hub();
    let builder = || {
        let cache = RedisCache::new(&store.address()).unwrap();
        Client::builder().endpoint(hub.endpoint()).header_cache(cache)
    };
    let first =
        builder().build().unwrap().model("gpt2").parse_safetensors_metadata().await.unwrap();
    let second =
        builder().build().unwrap().model("gpt2").parse_safetensors_metadata().await.unwrap();
    assert_eq!(second.report().fetch.requests, 1);
    assert_eq!(second.parameter_count(), first.parameter_count());
    let stranger = builder().token("hf_other").build().unwrap();
    let third = stranger.model("gpt2").parse_safetensors_metadata().await.unwrap();
    assert!(
        third.report().fetch.requests > 1,
        "a token that the Hub rejects does not find the headers"
    );
}

/// Something else may have stored a value under the name of an entry.
#[tokio::test]
async fn a_large_value_in_the_shared_cache_is_not_transferred() {
    let Some(store) = Store::start() else { return };
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let count = async || {
        let cache = RedisCache::with_timeout(&store.address(), Duration::from_secs(60)).unwrap();
        let client = Client::builder().endpoint(hub.endpoint()).header_cache(cache);
        client.build().unwrap().model("org/model").count().await.unwrap()
    };
    assert_eq!(count().await.parameter_count.total(), 2);
    let keys = store.ask("KEYS hf-meta:entry:*");
    let keys: Vec<_> = keys.split_whitespace().filter(|key| key.starts_with("hf-meta")).collect();
    assert!(keys.len() >= 2, "{keys:?}");
    for key in &keys {
        store.ask(&format!("SETRANGE {key} 67108864 x"));
    }
    let before = store.bytes_sent();
    assert_eq!(count().await.parameter_count.total(), 2);
    let sent = store.bytes_sent() - before;
    let limit = (keys.len() as u64) * (5 << 20);
    assert!(sent < limit, "{sent} bytes for {} values", keys.len());
}

/// Without the certificate of its authority, the cache server is not used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_cache_is_reached_over_tls() {
    let Some(store) = Store::start_with(Some(Tls::new(&[]).unwrap())) else { return };
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let bundle = store.folder.path().join("ca.pem");
    let http = http();
    let mut requests = Vec::new();
    for authority in [store.authority.as_deref().unwrap(), "", store.authority.as_deref().unwrap()]
    {
        std::fs::write(&bundle, authority).unwrap();
        let mut command = process::command(&hub);
        command.env("SSL_CERT_FILE", &bundle);
        let args = ["--cache", &store.address(), "--cache-timeout", "60", "--lookup-timeout", "60"];
        let server = Server::start_as(command, &args);
        hub.clear_log();
        let badge = http.get(format!("{}/badge/org/model.svg", server.address)).send();
        let badge = badge.await.unwrap().text().await.unwrap();
        assert!(badge.contains("params: 2"), "{badge}");
        requests.push(reads(&hub));
    }
    assert_eq!(requests, [2, 2, 0], "with the certificate, the second server finds the headers");
}

/// The cache server is killed and restarted while known and new badges are requested.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_the_shared_cache_is_down() {
    let Some(mut store) = Store::start() else { return };
    let hub = LocalHub::start((0..3_000).map(|n| support::sharded(&format!("org/m{n}")))).unwrap();
    let address = store.address();
    let limits = [
        "--requests-per-minute",
        "0",
        "--upstream-requests-per-minute",
        "0",
        "--total-upstream-requests-per-minute",
        "0",
    ];
    let args = [&["--cache", &address, "--lookup-timeout", "60"][..], &limits].concat();
    let server = Server::start(&hub, &args);
    let (answered, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let readers = (0..8).map(|reader| {
        let (answered, is_over) = (Arc::clone(&answered), Arc::clone(&is_over));
        let (http, address) = (http(), server.address.clone());
        tokio::spawn(async move {
            for n in (reader..).step_by(8) {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let repo = if n % 2 == 0 { n % 3_000 } else { reader };
                let badge =
                    http.get(format!("{address}/badge/org/m{repo}.svg")).send().await.unwrap();
                let badge = badge.error_for_status().unwrap().text().await.unwrap();
                assert!(badge.contains("params: 2"), "{badge}");
                answered.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    let some_more = async || {
        let enough = answered.load(Ordering::Relaxed) + 200;
        let are_enough = async || {
            let has_failed = readers.iter().any(tokio::task::JoinHandle::is_finished);
            has_failed || answered.load(Ordering::Relaxed) >= enough
        };
        support::wait_until("200 more badges are read", are_enough).await;
    };
    some_more().await;
    for _ in 0..3 {
        store.stop();
        some_more().await;
        store.start_again();
        some_more().await;
    }
    is_over.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
    assert!(answered.load(Ordering::Relaxed) >= 1_400);
}

#[tokio::test]
async fn a_missing_shared_cache_is_not_an_error() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let cache = RedisCache::new("redis://127.0.0.1:1").unwrap();
    let client =
        Client::builder().endpoint(hub.endpoint()).header_cache(cache.clone()).build().unwrap();
    for _ in 0..3 {
        let parsed = client.model("org/model").parse_safetensors_metadata().await.unwrap();
        assert_eq!(parsed.parameter_count().total(), 2);
    }
    assert!(!cache.is_reachable());
    let invalid =
        ["", "127.0.0.1", "http://127.0.0.1", "redis://:s3cr3t@:x", "rediss://h/#insecure"];
    for address in invalid {
        let error = RedisCache::new(address).unwrap_err().to_string();
        assert!(!error.contains("s3cr3t"), "{error}");
    }
}
