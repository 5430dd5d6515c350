//! Connections to the CDN that are opened before the first redirect.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hf_meta_testing::{ByteStream, Handshake, TlsSettings};

use super::{proxy, repo, run_with};
use crate::hub::{Fault, Host, LocalHub, LoggedRequest, Repo};
use crate::hub_tls::Tls;
use crate::support::weights;

const ROUND_TRIP: Duration = Duration::from_millis(20);

/// Starts an HTTPS Hub with a round-trip time, in which the order of requests is certain.
fn start(protocol: &'static str) -> LocalHub {
    let others =
        ["org/y", "org/z"].map(|name| Repo::new(name).file("model.safetensors", weights(&["b"])));
    let hub = LocalHub::builder().repo(repo()).repos(others).token("hf_good");
    hub.https(Tls::new(&[protocol]).unwrap()).latency(ROUND_TRIP).start().unwrap()
}

fn environment<'a>(cache: &'a str, proxy: &'a str) -> [(&'a str, &'a str); 4] {
    [("XDG_CACHE_HOME", cache), ("HOME", cache), ("HF_TOKEN", "hf_good"), ("https_proxy", proxy)]
}

/// Reads a repository in a new process, and returns the requests to the CDN.
async fn read(hub: &LocalHub, cache: &str, options: &[&str]) -> Vec<LoggedRequest> {
    read_through(hub, cache, options, "").await
}

/// Reads a repository like [`read`], through a proxy.
async fn read_through(
    hub: &LocalHub,
    cache: &str,
    options: &[&str],
    proxy: &str,
) -> Vec<LoggedRequest> {
    hub.clear_log();
    let options = [&["--retries", "0"], options].concat();
    let output =
        run_with(hub, hub.ca_certificate().unwrap(), &environment(cache, proxy), &options).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    hub.log().into_iter().filter(|request| request.host == Host::Cdn).collect()
}

fn heads(requests: &[LoggedRequest]) -> usize {
    requests.iter().filter(|request| request.method == "HEAD").count()
}

#[tokio::test]
async fn a_later_process_connects_to_the_cdn_before_the_first_redirect() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().to_str().unwrap();
    for protocol in ["h2", "http/1.1"] {
        let hub = start(protocol);
        let first = read(&hub, cache, &[]).await;
        assert_eq!((first.len(), heads(&first)), (2, 0), "{protocol}");
        let made = hub.connections_made(Host::Cdn);
        assert!(read(&hub, cache, &[]).await.is_empty(), "the headers are cached");
        assert!(read(&hub, cache, &["--offline"]).await.is_empty());
        assert_eq!(hub.connections_made(Host::Cdn), made);
        let second = read(&hub, cache, &["org/y"]).await;
        assert_eq!((second.len(), heads(&second)), (3, 1), "{protocol}");
        let ahead = &second[0];
        assert_eq!((ahead.method.as_str(), &*ahead.path, &ahead.query), ("HEAD", "/", &None));
        assert!(ahead.authorization.is_none() && ahead.range.is_none());
        if protocol == "h2" {
            assert_eq!(hub.connections_made(Host::Cdn), made + 1, "one connection for all");
        }
        let without = read(&hub, cache, &["--no-cache", "org/y"]).await;
        assert_eq!(heads(&without), 0, "nothing is read from the cache");
    }
}

/// Counts the connections that fail because they offer HTTP/2 alone.
fn counting_refusals(refused: &Arc<AtomicUsize>) -> TlsSettings {
    let (Tls { acceptor, authority, .. }, refused) =
        (Tls::new(&["http/1.1"]).unwrap(), Arc::clone(refused));
    let accept = move |stream| {
        let (handshake, refused) = (acceptor.accept(stream), Arc::clone(&refused));
        let accepted = async move {
            let stream = handshake.await;
            refused.fetch_add(usize::from(stream.is_err()), Ordering::SeqCst);
            Ok(Box::new(stream?) as Box<dyn ByteStream>)
        };
        Box::pin(accepted) as Handshake
    };
    TlsSettings::new(accept, authority)
}

#[tokio::test]
async fn a_later_process_does_not_offer_http2_to_servers_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().to_str().unwrap();
    let refused = Arc::default();
    let repos =
        ["org/x", "org/y"].map(|name| Repo::new(name).file("model.safetensors", weights(&["b"])));
    let hub = LocalHub::builder().repos(repos).token("hf_good").https(counting_refusals(&refused));
    let hub = hub.latency(ROUND_TRIP).start().unwrap();
    read(&hub, cache, &[]).await;
    assert_eq!(refused.swap(0, Ordering::SeqCst), 1, "the Hub; the CDN is offered both versions");
    read(&hub, cache, &["org/y"]).await;
    assert_eq!(refused.load(Ordering::SeqCst), 0);
}

/// The stored origin is the one of a server that has stopped since.
#[tokio::test]
async fn a_wrong_guess_is_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().to_str().unwrap();
    let (hub, cdn) = (start("h2"), start("h2"));
    let origin = cdn.endpoint().to_owned();
    hub.inject(move |request, _| {
        let to = format!("{origin}{}", request.path);
        (request.host == Host::Hub && request.range.is_some()).then_some(Fault::redirect(302, to))
    });
    let authorities = [&hub, &cdn].map(|hub| hub.ca_certificate().unwrap()).concat();
    let output = run_with(&hub, &authorities, &environment(cache, ""), &[]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(cdn.connections_made(Host::Hub) > 0);
    drop(cdn);
    hub.inject(|_, _| None);
    let requests = read(&hub, cache, &["org/y"]).await;
    assert_eq!((requests.len(), heads(&requests)), (2, 0));
    assert_eq!(heads(&read(&hub, cache, &["org/z"]).await), 1, "the new origin is stored");
}

#[tokio::test]
async fn the_proxy_of_the_environment_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().to_str().unwrap();
    let (hub, tunnels) = (start("h2"), Arc::new(AtomicUsize::new(0)));
    let proxy = format!("http://127.0.0.1:{}", proxy(Arc::clone(&tunnels)).await);
    read_through(&hub, cache, &[], &proxy).await;
    assert_eq!(heads(&read_through(&hub, cache, &["org/y"], &proxy).await), 1);
    let made = hub.connections_made(Host::Hub) + hub.connections_made(Host::Cdn);
    assert_eq!(tunnels.load(Ordering::SeqCst), made);
}
