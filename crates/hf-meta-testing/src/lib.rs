//! A mock of the Hugging Face Hub for tests.
//!
//! [`MockHub`] listens on two local ports: one for the Hub itself, and one for the CDN that serves its large files.
//!
//! ```
//! use hf_meta::Client;
//! use hf_meta_testing::{Fault, File, MockHub, Repo};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let weights = File::safetensors([("w", "BF16", &[2, 3][..])]);
//! let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
//! let client = Client::builder().endpoint(hub.endpoint()).build()?;
//! assert_eq!(client.model("org/model").count().await?.parameter_count.total(), 6);
//! assert!(hub.log().iter().any(|request| request.range.as_deref() == Some("bytes=0-7")));
//!
//! hub.inject(|_, _| Some(Fault::Status(403, vec![("x-error-code", "GatedRepo".to_owned())])));
//! assert!(client.model("org/model").count().await.unwrap_err().is_denied());
//! # Ok(())
//! # }
//! ```
//!
//! The module [`conformance`] checks stores, caches and formats of other programs.
//!
//! To build a result without a Hub, use `hf_meta::SafetensorsParseFromRepo::from_headers`.
//!
//! # Behavior
//!
//! The mock behaves like the real Hub in everything that matters to a client that reads ranges: redirects with the
//! metadata on the first response, URLs signed for a single range, error codes, pinned commits, and the paginated
//! list of models. Every request is logged, and a [`Fault`] can be injected into any response.
//!
//! A response depends only on the [`LoggedRequest`], the repositories, the quotas and the faults. No request can stop
//! the server. Zero padding is never held in memory, and [`LazyRepos`] are generated on request.

pub mod conformance;
mod file;
mod hub;
mod listing;
mod log;
mod quota;
mod repo;
mod response;
mod server;
mod url;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::{self, Runtime};

pub use file::File;
use hub::HubState;
/// The third-party types in [`LoggedRequest`].
pub use hyper::{HeaderMap, Method, Version};
use log::lock;
pub use log::{BytesSent, Host, LoggedRequest};
pub use quota::RequestCounts;
use repo::Caller;
pub use repo::{LazyRepos, Repo};
pub use response::{ContentRangeFault, Fault};
use server::Server;
pub use server::{ByteStream, Handshake, TlsSettings};

/// A running mock Hub, which stops when dropped. It runs on its own thread, so both blocking and async code can use
/// it.
pub struct MockHub {
    state: Arc<HubState>,
    /// The servers in the order of [`Host`].
    servers: [Arc<Server>; 2],
    endpoint: String,
    authority: Option<String>,
    runtime: Option<Runtime>,
}

impl MockHub {
    /// Starts a Hub with these repositories and no tokens, on a free port.
    ///
    /// # Errors
    ///
    /// Returns an error if no port or thread is available.
    pub fn start(repos: impl IntoIterator<Item = Repo>) -> io::Result<Self> {
        Self::builder().repos(repos).start()
    }

    /// Returns a builder for a Hub with other settings.
    pub fn builder() -> MockHubBuilder {
        MockHubBuilder::default()
    }

    /// Returns the endpoint, the value for `HF_ENDPOINT`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns the PEM certificate of the CA that clients have to trust, or `None` without
    /// [HTTPS](MockHubBuilder::https).
    pub fn ca_certificate(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// Returns the origin of the CDN, such as `http://127.0.0.1:8080`.
    pub fn cdn_origin(&self) -> &str {
        &self.state.cdn_origin
    }

    /// Returns all requests so far to the Hub and the CDN, in order of arrival.
    pub fn log(&self) -> Vec<LoggedRequest> {
        lock(&self.state.log).clone()
    }

    /// Clears the request log.
    pub fn clear_log(&self) {
        lock(&self.state.log).clear();
    }

    /// Returns the number of requests since the start. This works [without the log](MockHubBuilder::without_log), too.
    pub fn counts(&self) -> RequestCounts {
        self.state.quotas.counts()
    }

    /// Injects faults into all further responses, replacing the previous rule.
    ///
    /// The rule receives each request and the number of earlier requests with the same server, path and range since
    /// this call.
    pub fn inject(
        &self,
        rule: impl Fn(&LoggedRequest, usize) -> Option<Fault> + Send + Sync + 'static,
    ) {
        self.state.faults.set(Arc::new(rule));
    }

    /// Returns the number of open connections to one of the servers.
    pub fn open_connections(&self, host: Host) -> usize {
        self.servers[host as usize].open.load(Ordering::Relaxed)
    }

    /// Returns the number of connections made to one of the servers since the Hub started.
    pub fn connections_made(&self, host: Host) -> usize {
        self.servers[host as usize].made.load(Ordering::Relaxed)
    }

    /// Moves a branch to another commit, like a push.
    ///
    /// # Panics
    ///
    /// Panics if the repository does not exist.
    pub fn move_branch(&self, repo: &str, branch: &str, commit: &str) {
        match lock(&self.state.repos).get_mut(repo) {
            Some(repo) => {
                Arc::make_mut(repo).references.insert(branch.to_owned(), commit.to_owned())
            }
            None => panic!("repository `{repo}` does not exist"),
        };
    }
}

impl fmt::Debug for MockHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockHub").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Drop for MockHub {
    fn drop(&mut self) {
        // Dropping a runtime waits for its tasks and panics in async callers.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A builder for a [`MockHub`].
#[derive(Default)]
#[must_use]
pub struct MockHubBuilder {
    state: HubState,
    is_on_ipv6: bool,
    port: u16,
    tls: Option<TlsSettings>,
    latency: Duration,
}

impl MockHubBuilder {
    /// Adds a repository.
    pub fn repo(self, repo: Repo) -> Self {
        self.repos([repo])
    }

    /// Adds repositories.
    pub fn repos(self, repos: impl IntoIterator<Item = Repo>) -> Self {
        let repos = repos.into_iter().map(|repo| (repo.id().to_owned(), Arc::new(repo)));
        lock(&self.state.repos).extend(repos);
        self
    }

    /// Adds models that are generated on request.
    pub fn lazy_repos(mut self, repos: impl LazyRepos + 'static) -> Self {
        self.state.lazy_repos = Some(Box::new(repos));
        self
    }

    /// Enforces quotas: `requests` per `window`, separately for each caller and each of the kinds `api`, `resolvers`
    /// and `pages`. Requests beyond a quota get status 429 and count as [`RequestCounts::refused`].
    ///
    /// By default, the Hub advertises a quota but does not enforce it.
    pub fn quota(mut self, requests: u64, window: Duration) -> Self {
        self.state.quotas.limit = Some((requests, window));
        self
    }

    /// Disables the log, for tests whose requests do not fit into memory. [`MockHub::counts`] still counts them.
    pub fn without_log(mut self) -> Self {
        self.state.is_log_disabled = true;
        self
    }

    /// Adds a token with access to all repositories, including private and gated ones.
    pub fn token(mut self, token: &str) -> Self {
        self.state.callers.insert(token.to_owned(), Caller::Member);
        self
    }

    /// Adds a valid token without access to private and gated repositories.
    pub fn unprivileged_token(mut self, token: &str) -> Self {
        self.state.callers.insert(token.to_owned(), Caller::Unprivileged);
        self
    }

    /// Serves the Hub below a path such as `/hf`, like a repository manager.
    pub fn base_path(mut self, path: &str) -> Self {
        path.trim_end_matches('/').clone_into(&mut self.state.base_path);
        self
    }

    /// Sets the number of entries per page of a file listing, 1,000 by default.
    pub fn tree_page_size(mut self, entries: usize) -> Self {
        self.state.page_size = Some(entries);
        self
    }

    /// Behaves like some mirrors: only the final response has the metadata headers, and `Link` headers point to the
    /// real Hub.
    pub fn mirror(mut self) -> Self {
        self.state.is_mirror = true;
        self
    }

    /// Listens on `[::1]` instead of `127.0.0.1`.
    pub fn ipv6(self) -> Self {
        Self { is_on_ipv6: true, ..self }
    }

    /// Sets the port of the Hub. By default, it is any free port, as it always is for the CDN.
    pub fn port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Serves HTTPS instead of HTTP.
    pub fn https(self, tls: impl Into<TlsSettings>) -> Self {
        Self { tls: Some(tls.into()), ..self }
    }

    /// Simulates the round-trip time of both servers.
    pub fn latency(self, round_trip: Duration) -> Self {
        Self { latency: round_trip, ..self }
    }

    /// Starts both servers.
    ///
    /// # Errors
    ///
    /// Returns an error if no port or thread is available.
    pub fn start(mut self) -> io::Result<MockHub> {
        let runtime =
            runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let loopback: IpAddr =
            if self.is_on_ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
        let context = runtime.enter();
        let hub = bind(loopback, self.port)?;
        let cdn = match self.tls {
            // Some systems have only one loopback address. The servers then differ only in the port.
            Some(_) => bind(CDN, 0).or_else(|_| bind(loopback, 0))?,
            None => bind(loopback, 0)?,
        };
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.state.origin = format!("{scheme}://{}", hub.local_addr()?);
        self.state.cdn_origin = format!("{scheme}://{}", cdn.local_addr()?);
        let endpoint = format!("{}{}", self.state.origin, self.state.base_path);
        let (accept, authority) = self.tls.map(|tls| (tls.accept, tls.authority)).unzip();
        let state = Arc::new(self.state);
        let serve = |host, listener| {
            let server = Arc::new(Server {
                host,
                state: Arc::clone(&state),
                latency: self.latency,
                accept: accept.clone(),
                made: AtomicUsize::new(0),
                open: AtomicUsize::new(0),
            });
            tokio::spawn(Arc::clone(&server).listen(listener));
            server
        };
        let servers = [serve(Host::Hub, hub), serve(Host::Cdn, cdn)];
        drop(context);
        Ok(MockHub { state, servers, endpoint, authority, runtime: Some(runtime) })
    }
}

const CDN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Binds a listener on the current runtime.
fn bind(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind((address, port))?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
