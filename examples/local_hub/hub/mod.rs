//! A Hub in the small, on two sockets of this machine: the Hub itself and the CDN it sends large files through.
//!
//! It answers as the real one does where that matters to a client that reads files in ranges: redirects with the
//! metadata on the first hop, signed URLs that serve one range, errors by code, pinned commits. Every request is
//! logged, and any answer can be spoiled by a [`Fault`].
//!
//! Invariants: what a request is answered depends on its [`Logged`] form, the repos and the faults alone
//! ([`Site::answer`]);
//! nothing in a request can stop the server; a body is never held in memory beyond what the repo's author stored.

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
mod log;
mod names;
mod refusal;
mod repo;
mod route;
mod serve;
mod site;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::net::TcpListener;
use tokio::runtime::{self, Runtime};

pub use fault::{Fault, WrongRange};
pub use file::File;
pub use folder::load_folder;
pub use log::{Host, Logged};
pub use repo::Repo;
use site::{Caller, Site};

/// A running Hub. It stops when dropped, and works for blocking and async callers alike because it runs on a thread
/// of its own.
pub struct LocalHub {
    site: Arc<Site>,
    endpoint: String,
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

    /// What a client takes as `HF_ENDPOINT`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The origin that large files are redirected to.
    pub fn cdn(&self) -> &str {
        self.site.cdn.origin()
    }

    /// Every request so far, in the order of arrival, those to the CDN included.
    pub fn log(&self) -> Vec<Logged> {
        self.site.log.entries()
    }

    pub fn clear_log(&self) {
        self.site.log.clear();
    }

    /// Puts faults on answers from now on, instead of those of an earlier call. The rule gets each request and how
    /// many before it asked the same server for the same path and range since then.
    pub fn inject(&self, rule: impl Fn(&Logged, usize) -> Option<Fault> + Send + Sync + 'static) {
        self.site.faults.set(rule);
    }

    /// How many connections clients hold to one of the servers.
    pub fn open_connections(&self, host: Host) -> usize {
        self.site.open_connections(host).load(Ordering::Relaxed)
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

/// What to serve, where, and to whom.
#[derive(Default)]
pub struct Builder {
    repos: HashMap<String, Repo>,
    callers: HashMap<String, Caller>,
    base_path: String,
    is_mirror: bool,
    is_on_ipv6: bool,
    port: u16,
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

    /// Says what it knows of a file only on the answer with the bytes, as some mirrors do.
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

    /// # Errors
    ///
    /// When no socket or thread is to be had.
    pub fn start(self) -> io::Result<LocalHub> {
        let runtime =
            runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        let address: IpAddr = if self.is_on_ipv6 { v6 } else { v4 };
        let (hub, hub_origin) = bind(&runtime, (address, self.port).into())?;
        let (cdn, cdn_origin) = bind(&runtime, (address, 0).into())?;
        let endpoint = hub_origin + &self.base_path;
        let site = Arc::new(Site::new(self, cdn_origin));
        runtime.spawn(serve::listen(hub, Host::Hub, Arc::clone(&site)));
        runtime.spawn(serve::listen(cdn, Host::Cdn, Arc::clone(&site)));
        Ok(LocalHub { site, endpoint, runtime: Some(runtime) })
    }
}

/// A listener on loopback that belongs to the runtime, and its origin.
fn bind(runtime: &Runtime, address: SocketAddr) -> io::Result<(TcpListener, String)> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let origin = format!("http://{}", listener.local_addr()?);
    let _context = runtime.enter();
    Ok((TcpListener::from_std(listener)?, origin))
}
