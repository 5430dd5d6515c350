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
//! To build a result without a Hub, use [`SafetensorsParseFromRepo::from_headers`].
//!
//! [`SafetensorsParseFromRepo::from_headers`]: hf_meta::SafetensorsParseFromRepo::from_headers
//!
//! # Behavior
//!
//! The mock behaves like the real Hub wherever that matters to a client that reads ranges: redirects with the
//! metadata on the first response, URLs signed for a single range, error codes, pinned commits, and the paginated
//! list of models. Every request is logged, and a [`Fault`] can be injected into any response.
//!
//! A response depends only on the [`LoggedRequest`], the repositories, the quotas and the faults. No request can stop
//! the server. Zero padding is never held in memory, and [`LazyRepos`] are generated on request.

mod cdn;
mod computed;
mod connection;
mod delivery;
mod digest;
mod error_response;
mod fault;
mod file;
mod folder;
mod header_names;
mod link;
mod log;
mod model_list;
mod quota;
mod repo;
mod response;
mod route;
mod state;
mod tree;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::{self, Runtime};

pub use computed::LazyRepos;
pub use connection::TlsSettings;
use connection::Transport;
pub use fault::{ContentRangeFault, Fault};
pub use file::File;
pub use folder::load_folder;
/// The third-party types in [`LoggedRequest`].
pub use hyper::{HeaderMap, Method};
pub use link::ByteStream;
use link::Link;
pub use log::{BytesSent, Host, LoggedRequest};
use quota::QuotaLimit;
pub use quota::RequestCounts;
pub use repo::Repo;
use state::{Caller, HubState};

/// A running mock Hub, which stops when dropped. It runs on its own thread, so both blocking and async code can use
/// it.
pub struct MockHub {
    state: Arc<HubState>,
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
    #[must_use]
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
        self.state.cdn.origin()
    }

    /// Returns all requests so far to the Hub and the CDN, in order of arrival.
    pub fn log(&self) -> Vec<LoggedRequest> {
        self.state.log.entries()
    }

    /// Clears the request log.
    pub fn clear_log(&self) {
        self.state.log.clear();
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
        self.state.faults.set(rule);
    }

    /// Returns the number of open connections to one of the servers.
    pub fn open_connections(&self, host: Host) -> usize {
        self.state.connections(host).open.load(Ordering::Relaxed)
    }

    /// Returns the number of connections made to one of the servers since the Hub started.
    pub fn connections_made(&self, host: Host) -> usize {
        self.state.connections(host).made.load(Ordering::Relaxed)
    }

    /// Moves a branch to another commit, like a push.
    ///
    /// # Panics
    ///
    /// Panics if the repository does not exist.
    pub fn move_branch(&self, repo: &str, branch: &str, commit: &str) {
        assert!(self.state.move_branch(repo, branch, commit), "repository `{repo}` does not exist");
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
pub struct MockHubBuilder {
    repos: HashMap<String, Repo>,
    callers: HashMap<String, Caller>,
    base_path: String,
    tree_page: Option<usize>,
    is_mirror: bool,
    is_on_ipv6: bool,
    port: u16,
    encryption: Option<TlsSettings>,
    latency: Duration,
    bandwidth: Option<u64>,
    quota: Option<QuotaLimit>,
    lazy_repos: Option<Box<dyn LazyRepos>>,
    is_without_log: bool,
}

impl MockHubBuilder {
    /// Adds a repository.
    #[must_use]
    pub fn repo(self, repo: Repo) -> Self {
        self.repos([repo])
    }

    /// Adds repositories.
    #[must_use]
    pub fn repos(mut self, repos: impl IntoIterator<Item = Repo>) -> Self {
        self.repos.extend(repos.into_iter().map(|repo| (repo.id().to_owned(), repo)));
        self
    }

    /// Adds models that are generated on request.
    #[must_use]
    pub fn lazy_repos(self, repos: impl LazyRepos + 'static) -> Self {
        Self { lazy_repos: Some(Box::new(repos)), ..self }
    }

    /// Enforces quotas: `requests` per `window`, separately for each caller and each of the kinds `api`, `resolvers`
    /// and `pages`. Requests beyond a quota get status 429 and count as [`RequestCounts::refused`].
    ///
    /// By default, the Hub advertises a quota but does not enforce it.
    #[must_use]
    pub fn quota(self, requests: u64, window: Duration) -> Self {
        Self { quota: Some(QuotaLimit { requests, window }), ..self }
    }

    /// Disables the log, for tests whose requests do not fit into memory. [`MockHub::counts`] still counts them.
    #[must_use]
    pub fn without_log(self) -> Self {
        Self { is_without_log: true, ..self }
    }

    /// Adds a token with access to all repositories, including private and gated ones.
    #[must_use]
    pub fn token(self, token: &str) -> Self {
        self.caller(token, Caller::Member)
    }

    /// Adds a valid token without access to private and gated repositories.
    #[must_use]
    pub fn unprivileged_token(self, token: &str) -> Self {
        self.caller(token, Caller::Outsider)
    }

    fn caller(mut self, token: &str, caller: Caller) -> Self {
        self.callers.insert(token.to_owned(), caller);
        self
    }

    /// Serves the Hub below a path such as `/hf`, like a repository manager.
    #[must_use]
    pub fn base_path(self, path: &str) -> Self {
        Self { base_path: path.trim_end_matches('/').to_owned(), ..self }
    }

    /// Sets the number of entries per page of a file listing, 1,000 by default.
    #[must_use]
    pub fn tree_page_size(self, entries: usize) -> Self {
        Self { tree_page: Some(entries), ..self }
    }

    /// Behaves like some mirrors: only the final response has the metadata headers, and `Link` headers point to the
    /// real Hub.
    #[must_use]
    pub fn mirror(self) -> Self {
        Self { is_mirror: true, ..self }
    }

    /// Listens on `[::1]` instead of `127.0.0.1`.
    #[must_use]
    pub fn ipv6(self) -> Self {
        Self { is_on_ipv6: true, ..self }
    }

    /// Sets the port of the Hub. By default, it is any free port, as it always is for the CDN.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Serves HTTPS instead of HTTP.
    #[must_use]
    pub fn https(self, encryption: impl Into<TlsSettings>) -> Self {
        Self { encryption: Some(encryption.into()), ..self }
    }

    /// Simulates a round-trip time for both servers.
    #[must_use]
    pub fn latency(self, latency: Duration) -> Self {
        Self { latency, ..self }
    }

    /// Limits the total bandwidth of all responses, in bits per second.
    #[must_use]
    pub fn bandwidth(self, bits_per_second: u64) -> Self {
        Self { bandwidth: Some(bits_per_second.max(1)), ..self }
    }

    /// Starts both servers.
    ///
    /// # Errors
    ///
    /// Returns an error if no port or thread is available.
    pub fn start(mut self) -> io::Result<MockHub> {
        let runtime =
            runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let encryption = self.encryption.take();
        let (accept, authority) = encryption.map(|tls| (tls.accept, tls.authority)).unzip();
        let scheme = if accept.is_some() { "https" } else { "http" };
        let loopback = if self.is_on_ipv6 { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { HUB };
        let (hub, hub_origin) = bind(&runtime, (loopback, self.port).into(), scheme)?;
        let (cdn, cdn_origin) = match accept {
            // Some systems have only one loopback address. The servers then differ only in the port.
            Some(_) => bind(&runtime, (CDN, 0).into(), scheme)
                .or_else(|_| bind(&runtime, (loopback, 0).into(), scheme))?,
            None => bind(&runtime, (loopback, 0).into(), scheme)?,
        };
        let endpoint = format!("{hub_origin}{}", self.base_path);
        let transport = Transport { link: Link::new(self.latency, self.bandwidth), accept };
        let state = Arc::new(HubState::new(self, hub_origin, cdn_origin));
        runtime.spawn(connection::listen(hub, Host::Hub, transport.clone(), Arc::clone(&state)));
        runtime.spawn(connection::listen(cdn, Host::Cdn, transport, Arc::clone(&state)));
        Ok(MockHub { state, endpoint, authority, runtime: Some(runtime) })
    }
}

const HUB: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const CDN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Binds a listener on the runtime and returns it with its origin.
fn bind(runtime: &Runtime, address: SocketAddr, scheme: &str) -> io::Result<(TcpListener, String)> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let origin = format!("{scheme}://{}", listener.local_addr()?);
    let _context = runtime.enter();
    Ok((TcpListener::from_std(listener)?, origin))
}
