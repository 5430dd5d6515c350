//! HTTP clients: HTTP/2 or HTTP/1.1 per request, and a limit on HTTP/1.1 connections.
//!
//! A client that offers both versions learns the server's choice from the first TLS handshake. Until then every
//! concurrent request opens its own connection, although HTTP/2 needs only one: a model with 72 shards took 64
//! handshakes. So HTTPS servers are offered only HTTP/2 at first, and all requests share one connection from the
//! start. Servers that do not accept it are then offered both versions.
//!
//! One connection is slow for data: its throughput is limited by one TCP window, and by one thread that decrypts it. So
//! only one response with data at a time uses HTTP/2, and all others arrive over HTTP/1.1, each with a connection. The
//! storage client of Hugging Face reads over HTTP/1.1 for the same reason (huggingface/xet-core, pull request 543).

use std::collections::HashMap;
use std::fmt;
use std::mem::replace;
use std::sync::{Arc, Mutex};

use ::url::{Origin, Url};
use reqwest::{Client, ClientBuilder, RequestBuilder, Response, Version, redirect::Policy};
use tokio::runtime::{self, Handle};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::address::AddressPolicy;
use super::address::{AddressGuard, GuardedResolver};
use super::error;
use super::settings::HttpSettings;
use super::tls::{self, TlsFailure};
use crate::base::lock;

/// The maximum number of servers whose HTTP version is remembered. After that, versions are negotiated again.
const MAX_SERVERS: usize = 1_000;

/// The maximum number of `reqwest` clients: three for each of 32 tokio runtimes.
const MAX_CLIENTS: usize = 96;

/// The maximum number of HTTP/1.1 connections, across all servers. By default, macOS allows 256 open files per process.
const MAX_HTTP1_CONNECTIONS: usize = 64;

/// The HTTP/2 flow-control window of a connection, and of each of its responses, in bytes (RFC 9113, section 5.2).
///
/// With the default window of 65,535 bytes, an index costs one round trip per 64 kB. With half of this window, the
/// header of a GGUF file with a large vocabulary still costs an extra round trip.
const HTTP2_WINDOW: u32 = 16 << 20;

/// The `reqwest` clients of one [`Http`](super::Http), and the HTTP version of each server.
pub(super) struct HttpClients {
    settings: Arc<HttpSettings>,
    guard: Arc<AddressGuard>,
    clients: Mutex<HashMap<ClientKey, Client>>,
    servers: Mutex<HashMap<Origin, NegotiatedHttp>>,
    http1_permits: Arc<Semaphore>,
    /// The permit of data that arrive over HTTP/2.
    http2_data: Arc<Semaphore>,
}

/// The HTTP versions that a client offers to servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Offer {
    Http1,
    Http2,
    Both,
}

/// Identifies a `reqwest` client.
///
/// The tasks of a connection run on the tokio runtime that opened it. Another runtime must not use the connection,
/// because its owner may not be running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ClientKey {
    runtime: Option<runtime::Id>,
    offer: Offer,
}

/// Omits the `reqwest` clients, whose output contains the passwords of proxies.
impl fmt::Debug for HttpClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClients").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// The HTTP version of a server, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NegotiatedHttp {
    /// HTTP/2 alone failed. Both versions are offered, and no response has arrived yet.
    Unknown,
    Http1,
    Http2,
}

impl HttpClients {
    /// Does not build a `reqwest` client yet: loading the system's certificates takes longer than starting the
    /// program.
    pub(super) fn new(settings: Arc<HttpSettings>, guard: Arc<AddressGuard>) -> Self {
        Self {
            settings,
            guard,
            clients: Mutex::default(),
            servers: Mutex::default(),
            http1_permits: Arc::new(Semaphore::new(MAX_HTTP1_CONNECTIONS)),
            http2_data: Arc::new(Semaphore::new(1)),
        }
    }

    /// Sends a request over HTTP/2, or over HTTP/1.1 if the server does not speak HTTP/2 or if the response has data while
    /// others arrive. Returns the response, and a permit to keep until its body has been read: for an HTTP/1.1 connection,
    /// or for data over HTTP/2.
    pub(super) async fn send(
        &self,
        url: &Url,
        mut has_data: bool,
        request: impl Fn(&Client) -> RequestBuilder,
    ) -> Result<(Response, Option<OwnedSemaphorePermit>), reqwest::Error> {
        let (origin, mut has_resent) = (url.origin(), false);
        loop {
            let (offer, permit) = self.choose_offer(url, has_data).await;
            match request(&self.client(offer)?).send().await {
                Ok(response) if offer == Offer::Http1 => return Ok((response, permit)),
                Ok(response) => {
                    let is_http2 = response.version() == Version::HTTP_2;
                    let version =
                        if is_http2 { NegotiatedHttp::Http2 } else { NegotiatedHttp::Http1 };
                    self.record(&origin, version);
                    let is_shared = is_http2 && offer == Offer::Both;
                    return Ok((response, if is_shared { None } else { permit }));
                }
                // The server speaks only HTTP/2, or accepts no more connections.
                Err(error) if offer == Offer::Http1 && error.is_connect() => has_data = false,
                Err(error)
                    if offer == Offer::Http2
                        && self.may_resend(&origin, &error, &mut has_resent) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Chooses the versions to offer. Waits for the permit of a connection that no other request shares; a request without
    /// data has none over HTTP/2.
    async fn choose_offer(
        &self,
        url: &Url,
        has_data: bool,
    ) -> (Offer, Option<OwnedSemaphorePermit>) {
        let mut offer = Offer::Both;
        if self.offers_only_http2(url) {
            if !has_data {
                return (Offer::Http2, None);
            }
            if let Ok(permit) = Arc::clone(&self.http2_data).try_acquire_owned() {
                return (Offer::Http2, Some(permit));
            }
            offer = Offer::Http1;
        }
        // The semaphore is never closed.
        (offer, Arc::clone(&self.http1_permits).acquire_owned().await.ok())
    }

    /// Returns whether a server is offered only HTTP/2.
    fn offers_only_http2(&self, url: &Url) -> bool {
        url.scheme() == "https"
            && match self.negotiated(&url.origin()) {
                None => !self.are_http1(),
                negotiated => negotiated == Some(NegotiatedHttp::Http2),
            }
    }

    /// Returns whether all HTTPS servers so far speak only HTTP/1.1, as behind a proxy that decrypts the traffic. The
    /// next one then probably does, too.
    pub(super) fn are_http1(&self) -> bool {
        let servers = lock(&self.servers);
        !servers.is_empty() && servers.values().all(|version| *version == NegotiatedHttp::Http1)
    }

    /// Marks a server as one without HTTP/2. Both versions are still offered to it, so a wrong mark does no harm.
    pub(super) fn mark_http1(&self, url: &Url) {
        self.record(&url.origin(), NegotiatedHttp::Http1);
    }

    /// Records a failure of a request that offered only HTTP/2, and returns whether to send it again: if the server does
    /// not speak HTTP/2, or once if the request shared the connection attempt of another request.
    ///
    /// From now on the server is offered both versions if it does not speak HTTP/2 or has never responded.
    fn may_resend(&self, origin: &Origin, error: &reqwest::Error, has_resent: &mut bool) -> bool {
        let negotiated = self.negotiated(origin);
        let is_unknown = negotiated != Some(NegotiatedHttp::Http2);
        // A server that ignores ALPN accepts the connection, but does not understand the request.
        let is_misunderstood = is_unknown && !error.is_connect() && !error.is_timeout();
        let has_no_common_protocol = error::tls_cause(error) == Some(TlsFailure::NoCommonProtocol);
        if has_no_common_protocol || is_misunderstood {
            self.record(origin, NegotiatedHttp::Unknown);
            return true;
        }
        if is_unknown && error::is_shared_connect(error) {
            return !replace(has_resent, true);
        }
        if negotiated.is_none() {
            self.record(origin, NegotiatedHttp::Unknown);
        }
        false
    }

    fn negotiated(&self, origin: &Origin) -> Option<NegotiatedHttp> {
        lock(&self.servers).get(origin).copied()
    }

    /// Records the version of an HTTPS server. All others speak HTTP/1.1.
    fn record(&self, origin: &Origin, negotiated: NegotiatedHttp) {
        if !matches!(origin, Origin::Tuple(scheme, ..) if scheme == "https") {
            return;
        }
        let mut servers = lock(&self.servers);
        if servers.get(origin) != Some(&negotiated) {
            // A client that reads untrusted URLs may see any number of servers.
            if servers.len() >= MAX_SERVERS {
                servers.clear();
            }
            servers.insert(origin.clone(), negotiated);
        }
    }

    fn client(&self, offer: Offer) -> Result<Client, reqwest::Error> {
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let key = ClientKey { runtime, offer };
        // Building a client takes 10 ms, so concurrent first requests wait for one build.
        let mut clients = lock(&self.clients);
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let client = self.build(offer)?;
        // A program may start a runtime for each call. Requests in flight keep their client.
        if clients.len() >= MAX_CLIENTS {
            clients.clear();
        }
        clients.insert(key, client.clone());
        Ok(client)
    }

    /// Builds a client, to find out whether the settings are valid.
    pub(super) fn validate(&self) -> Result<(), reqwest::Error> {
        self.build(Offer::Both).map(drop)
    }

    fn build(&self, offer: Offer) -> Result<Client, reqwest::Error> {
        let build = |is_system| {
            let builder = builder(&self.settings, &self.guard, is_system);
            let builder = match offer {
                Offer::Http1 => builder.http1_only(),
                Offer::Http2 => builder.http2_prior_knowledge(),
                Offer::Both => builder,
            };
            builder.build()
        };
        match build(self.settings.system_certificates) {
            // Building the client fails in minimal container images, which have no system certificates.
            Err(_) if self.settings.system_certificates => build(false),
            client => client,
        }
    }
}

/// Returns the builder of a client that trusts the certificates of the system or, if `is_system` is false, Mozilla's.
fn builder(settings: &HttpSettings, guard: &Arc<AddressGuard>, is_system: bool) -> ClientBuilder {
    let builder = Client::builder()
        .user_agent(settings.user_agent.clone())
        .connect_timeout(settings.connect_timeout)
        .read_timeout(settings.read_timeout)
        // All requests to a server share one HTTP/2 connection, including the retry after a timeout. A dead
        // connection must be detected before the read timeout, or the retry would reuse it.
        .http2_keep_alive_interval(settings.read_timeout / 2)
        .http2_keep_alive_timeout(settings.read_timeout / 4)
        .http2_initial_stream_window_size(HTTP2_WINDOW)
        .http2_initial_connection_window_size(HTTP2_WINDOW);
    // With proxies, the HTTP library reads the environment itself.
    let builder = if settings.proxies.is_some() { builder } else { builder.no_proxy() };
    let builder = tls::trust(builder, &settings.root_certificates, is_system);
    let builder = match &settings.hook {
        Some(hook) => (hook.0)(builder),
        None => builder,
    };
    // Set after the hook, so that it cannot change them: a client that follows redirects itself would send the token
    // to other servers.
    let builder = builder
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        // Another crate in the build may enable these `reqwest` features. Decompressing a range would change its
        // bytes; small files are decompressed in `body.rs`.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate();
    match settings.address_policy {
        AddressPolicy::Public => builder.dns_resolver(GuardedResolver(Arc::clone(guard))),
        AddressPolicy::Any => builder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients() -> HttpClients {
        let endpoint = Url::parse("https://hub.example").unwrap();
        let guard = AddressGuard::new(&endpoint, AddressPolicy::Any, None);
        HttpClients::new(HttpSettings::default().into(), guard.into())
    }

    #[tokio::test]
    async fn one_response_with_data_shares_a_connection() {
        let (clients, url) = (clients(), Url::parse("https://cdn.example/x").unwrap());
        let (first, shared) = clients.choose_offer(&url, true).await;
        assert_eq!((first, shared.is_some()), (Offer::Http2, true));
        let (second, connection) = clients.choose_offer(&url, true).await;
        assert_eq!((second, connection.is_some()), (Offer::Http1, true));
        let (header, none) = clients.choose_offer(&url, false).await;
        assert_eq!((header, none.is_none()), (Offer::Http2, true));
        drop(shared);
        assert_eq!(clients.choose_offer(&url, true).await.0, Offer::Http2);
        let plain = Url::parse("http://cdn.example/x").unwrap();
        assert_eq!(clients.choose_offer(&plain, true).await.0, Offer::Both);
        clients.record(&url.origin(), NegotiatedHttp::Http1);
        assert_eq!(clients.choose_offer(&url, true).await.0, Offer::Both);
    }

    #[test]
    fn remembered_servers_are_bounded() {
        let clients = clients();
        for server in 0..10 * MAX_SERVERS {
            let url = Url::parse(&format!("https://{server}.example")).unwrap();
            clients.record(&url.origin(), NegotiatedHttp::Http2);
            assert_eq!(clients.negotiated(&url.origin()), Some(NegotiatedHttp::Http2));
            assert!(clients.servers.lock().unwrap().len() <= MAX_SERVERS);
        }
    }
}
