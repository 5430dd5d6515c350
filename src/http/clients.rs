//! Which version of HTTP each server is spoken to in, over how many connections.
//!
//! A client that offers both versions does not know which it got before a connection stands. Until then
//! requests that are made side by side open one each, of which HTTP/2 needs but one: 64 handshakes for
//! the 72 shards of a model. So servers of HTTPS are offered HTTP/2 alone, and all requests to them share
//! a connection from the first on. One that does not answer then is offered both.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ::url::{Origin, Url};
use reqwest::{Certificate, Client, ClientBuilder, Response, Version, redirect::Policy};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::address::{Guard, GuardedResolver};
use super::{AddressPolicy, Settings, error};

/// Connections of HTTP/1.1 that are used side by side, to all servers together.
const CONNECTIONS: usize = 64;

/// What may be on its way to us in HTTP/2, unasked: of one answer, and on a connection. The initial 64 kB
/// of the protocol would cost a round trip for each 64 kB of an index.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

#[derive(Debug)]
pub(super) struct Clients {
    settings: Settings,
    guard: Arc<Guard>,
    /// Speaks HTTP/2 and nothing else.
    http2: OnceLock<Client>,
    /// Speaks what the server prefers.
    any: OnceLock<Client>,
    servers: Mutex<HashMap<Origin, NegotiatedHttp>>,
    connections: Arc<Semaphore>,
}

/// What is known of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NegotiatedHttp {
    /// It has not answered in HTTP/2.
    Doubtful,
    Http1,
    Http2,
}

/// What has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The server refused that version and nothing else.
    Refused,
    /// Another request did not get to the server, and this one waited for its connection.
    ForAnother,
    Itself,
}

impl Clients {
    /// No client is built before it is needed: to read the system's certificates takes longer than to
    /// start.
    pub(super) fn new(settings: Settings, guard: Arc<Guard>) -> Self {
        Self {
            settings,
            guard,
            http2: OnceLock::new(),
            any: OnceLock::new(),
            servers: Mutex::default(),
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
        }
    }

    /// The client for a server, and leave to use a connection of its own where it may need one.
    pub(super) async fn of(
        &self,
        url: &Url,
    ) -> Result<(Client, Option<OwnedSemaphorePermit>), reqwest::Error> {
        let spoken = self.spoken(&url.origin());
        if url.scheme() == "https" && matches!(spoken, None | Some(NegotiatedHttp::Http2)) {
            return Ok((self.http2()?, None));
        }
        let permit = Arc::clone(&self.connections).acquire_owned().await;
        Ok((self.any()?, permit.ok()))
    }

    /// Takes note of an answer; whether it shares its connection with others.
    pub(super) fn answered(&self, origin: &Origin, response: &Response) -> bool {
        let is_shared = response.version() == Version::HTTP_2;
        self.learn(origin, if is_shared { NegotiatedHttp::Http2 } else { NegotiatedHttp::Http1 });
        is_shared
    }

    /// Takes note of a failure in HTTP/2 alone. The server is offered both versions after a refusal, and
    /// after any failure before it has ever answered.
    pub(super) fn failed(&self, origin: &Origin, failure: &reqwest::Error) -> Failed {
        let before = self.spoken(origin);
        let failed = if error::is_about_protocol(failure) {
            Failed::Refused
        } else if before != Some(NegotiatedHttp::Http2) && error::is_of_another(failure) {
            Failed::ForAnother
        } else {
            Failed::Itself
        };
        if failed == Failed::Refused || (before.is_none() && failed == Failed::Itself) {
            self.learn(origin, NegotiatedHttp::Doubtful);
        }
        failed
    }

    fn spoken(&self, origin: &Origin) -> Option<NegotiatedHttp> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).get(origin).copied()
    }

    fn learn(&self, origin: &Origin, spoken: NegotiatedHttp) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if servers.get(origin) != Some(&spoken) {
            servers.insert(origin.clone(), spoken);
        }
    }

    fn http2(&self) -> Result<Client, reqwest::Error> {
        self.get_or_build(&self.http2, ClientBuilder::http2_prior_knowledge)
    }

    fn any(&self) -> Result<Client, reqwest::Error> {
        self.get_or_build(&self.any, |builder| builder)
    }

    fn get_or_build(
        &self,
        slot: &OnceLock<Client>,
        change: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Result<Client, reqwest::Error> {
        if let Some(client) = slot.get() {
            return Ok(client.clone());
        }
        let builder = || change(builder(&self.settings, &self.guard));
        // A machine without certificates, as small container images are, gives no verifier; Mozilla's
        // roots, which are part of the program, then stand in.
        let client =
            builder().build().or_else(|_| builder().tls_certs_only(bundled_roots()).build())?;
        Ok(slot.get_or_init(|| client).clone())
    }
}

fn builder(settings: &Settings, guard: &Arc<Guard>) -> ClientBuilder {
    let builder = Client::builder()
        .user_agent(settings.user_agent.clone())
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(settings.timeouts.connect)
        .read_timeout(settings.timeouts.read)
        // All requests to a server share one connection of HTTP/2, the next attempt at one that timed out
        // too. If nothing moves on it any more, it must be found dead before the read is given up.
        .http2_keep_alive_interval(settings.timeouts.read / 2)
        .http2_keep_alive_timeout(settings.timeouts.read / 4)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        // Another crate of the build may have turned these on, and a range that was inflated behind our
        // back is not the range that was asked for.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate();
    let builder = match settings.addresses {
        AddressPolicy::Public => builder.dns_resolver(GuardedResolver(Arc::clone(guard))),
        AddressPolicy::Any => builder,
    };
    if settings.proxy_from_env { builder } else { builder.no_proxy() }
}

fn bundled_roots() -> impl Iterator<Item = Certificate> {
    let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
    roots.filter_map(|root| Certificate::from_der(root).ok())
}
