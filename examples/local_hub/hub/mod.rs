//! A Hub in the small, on two sockets of this machine: the Hub itself and the CDN it sends large files through.
//!
//! It answers as the real one does where that matters to a client that reads files in ranges: redirects with the
//! metadata on the first hop, signed URLs that serve one range, errors by code, pinned commits. Every request is
//! logged, and any answer can be spoiled by a [`Fault`].
//!
//! Invariants: what a request is answered depends on its [`LoggedRequest`] form, the repos and the faults alone
//! ([`Site::answer`]); nothing in a request can stop the server; a body is never held in memory beyond what the
//! repo's author stored.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "every program that includes this module uses a part of it"
)]

mod answer;
mod cdn;
mod digest;
mod fault;
mod file;
mod flow;
mod folder;
mod gzip;
mod link;
mod log;
mod names;
mod refusal;
mod repo;
mod route;
mod serve;
mod site;
mod tls;
mod tree;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::{self, Runtime};

pub use fault::{ContentRangeFault, Fault};
pub use file::File;
pub use folder::load_folder;
use link::Link;
pub use log::{Host, LoggedRequest};
pub use repo::Repo;
use serve::Access;
use site::{Caller, Site};
pub use tls::Tls;

/// A running Hub. It stops when dropped, and works for blocking and async callers alike because it runs on a thread
/// of its own.
pub struct LocalHub {
    site: Arc<Site>,
    endpoint: String,
    authority: Option<String>,
    runtime: Option<Runtime>,
}

impl LocalHub {
    /// Serves these repos on a free port to anyone.
    ///
    /// # Errors
    ///
    /// When no socket or thread is to be had.
    pub fn start(repos: impl IntoIterator<Item = Repo>) -> io::Result<Self> {
        Self::builder().repos(repos).start()
    }

    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the address for `HF_ENDPOINT`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The certificate authority, in PEM, that a client of an HTTPS Hub has to believe.
    pub fn ca_certificate(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// The origin that large files are redirected to.
    pub fn cdn_origin(&self) -> &str {
        self.site.cdn.origin()
    }

    /// Every request so far, in the order of arrival, those to the CDN included.
    pub fn log(&self) -> Vec<LoggedRequest> {
        self.site.log.entries()
    }

    pub fn clear_log(&self) {
        self.site.log.clear();
    }

    /// Puts faults on answers from now on, instead of those of an earlier call. The rule gets each request and how
    /// many before it asked the same server for the same path and range since then.
    pub fn inject(
        &self,
        rule: impl Fn(&LoggedRequest, usize) -> Option<Fault> + Send + Sync + 'static,
    ) {
        self.site.faults.set(rule);
    }

    /// Returns the number of open connections to one of the servers.
    pub fn open_connections(&self, host: Host) -> usize {
        self.site.connections(host).open.load(Ordering::Relaxed)
    }

    /// Returns the number of all connections to one of the servers so far.
    pub fn connections_made(&self, host: Host) -> usize {
        self.site.connections(host).made.load(Ordering::Relaxed)
    }

    /// Lets a branch point to another commit, as a push does.
    ///
    /// # Panics
    ///
    /// When no such repo is served.
    pub fn move_branch(&self, repo: &str, branch: &str, commit: &str) {
        assert!(self.site.move_branch(repo, branch, commit), "no repo `{repo}` is served");
    }
}

impl Drop for LocalHub {
    fn drop(&mut self) {
        // Waiting for the tasks to end, as dropping a runtime does, is not allowed to an async caller.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The settings of a [`LocalHub`].
#[derive(Default)]
pub struct Builder {
    repos: HashMap<String, Repo>,
    callers: HashMap<String, Caller>,
    base_path: String,
    tree_page: Option<usize>,
    is_mirror: bool,
    is_on_ipv6: bool,
    port: u16,
    protocols: Vec<&'static str>,
    round_trip: Duration,
    bandwidth: Option<u64>,
}

impl Builder {
    #[must_use]
    pub fn repo(self, repo: Repo) -> Self {
        self.repos([repo])
    }

    #[must_use]
    pub fn repos(mut self, repos: impl IntoIterator<Item = Repo>) -> Self {
        self.repos.extend(repos.into_iter().map(|repo| (repo.id().to_owned(), repo)));
        self
    }

    /// A token with access to every repo, private and gated ones included.
    #[must_use]
    pub fn token(self, token: &str) -> Self {
        self.caller(token, Caller::Member)
    }

    /// A valid token that sees no private repo and is on no list of a gated one.
    #[must_use]
    pub fn outsider_token(self, token: &str) -> Self {
        self.caller(token, Caller::Outsider)
    }

    fn caller(mut self, token: &str, caller: Caller) -> Self {
        self.callers.insert(token.to_owned(), caller);
        self
    }

    /// Mounts the Hub under a path such as `/hf`, as repository managers do.
    #[must_use]
    pub fn base_path(self, path: &str) -> Self {
        Self { base_path: path.trim_end_matches('/').to_owned(), ..self }
    }

    /// Lists this number of entries of a tree per response, instead of 1,000.
    #[must_use]
    pub fn tree_page_size(self, entries: usize) -> Self {
        Self { tree_page: Some(entries), ..self }
    }

    /// Says what it knows of a file only on the answer with the bytes, and names the real Hub in its links, as some
    /// mirrors do.
    #[must_use]
    pub fn mirror(self) -> Self {
        Self { is_mirror: true, ..self }
    }

    /// Listens at `[::1]` instead of `127.0.0.1`.
    #[must_use]
    pub fn ipv6(self) -> Self {
        Self { is_on_ipv6: true, ..self }
    }

    /// A port for the Hub instead of any free one; the CDN always takes a free one.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Speaks TLS, and in it one of these protocols: `h2`, `http/1.1`.
    #[must_use]
    pub fn https(self, protocols: impl IntoIterator<Item = &'static str>) -> Self {
        Self { protocols: protocols.into_iter().collect(), ..self }
    }

    /// Delays the traffic between clients and both servers by this round trip.
    #[must_use]
    pub fn round_trip(self, round_trip: Duration) -> Self {
        Self { round_trip, ..self }
    }

    /// Sends all responses through one line with this bandwidth, in bits per second.
    #[must_use]
    pub fn bandwidth(self, bits_per_second: u64) -> Self {
        Self { bandwidth: Some(bits_per_second.max(1)), ..self }
    }

    /// # Errors
    ///
    /// When no socket or thread is to be had.
    pub fn start(self) -> io::Result<LocalHub> {
        let runtime =
            runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let tls = (!self.protocols.is_empty()).then(|| Tls::new(&self.protocols)).transpose()?;
        let (acceptor, authority) = tls.map(|tls| (tls.acceptor, tls.authority)).unzip();
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        let loopback = if self.is_on_ipv6 { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { HUB };
        let (hub, hub_origin) = bind(&runtime, (loopback, self.port).into(), scheme)?;
        let (cdn, cdn_origin) = match acceptor {
            // Where loopback has but one address, the port alone tells the servers apart.
            Some(_) => bind(&runtime, (CDN, 0).into(), scheme)
                .or_else(|_| bind(&runtime, (loopback, 0).into(), scheme))?,
            None => bind(&runtime, (loopback, 0).into(), scheme)?,
        };
        let endpoint = format!("{hub_origin}{}", self.base_path);
        let access = Access { link: Link::new(self.round_trip, self.bandwidth), tls: acceptor };
        let site = Arc::new(Site::new(self, hub_origin, cdn_origin));
        runtime.spawn(serve::listen(hub, Host::Hub, access.clone(), Arc::clone(&site)));
        runtime.spawn(serve::listen(cdn, Host::Cdn, access, Arc::clone(&site)));
        Ok(LocalHub { site, endpoint, authority, runtime: Some(runtime) })
    }
}

const HUB: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const CDN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// A listener on loopback that belongs to the runtime, and its origin.
fn bind(runtime: &Runtime, address: SocketAddr, scheme: &str) -> io::Result<(TcpListener, String)> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let origin = format!("{scheme}://{}", listener.local_addr()?);
    let _context = runtime.enter();
    Ok((TcpListener::from_std(listener)?, origin))
}
