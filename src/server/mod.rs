//! The server of badges, fit to face the open internet.
//!
//! It asks the one Hub of its client and nothing else, whatever it is asked for: one look at a time at
//! each repo, however many wait for it, and only so many in all. What it has read it keeps, in memory
//! and in the client's cache. A badge is always a picture: errors are grey ones.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use hf_meta::server::{Service, Settings};
//!
//! let client = hf_meta::Client::builder().build()?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! Service::new(client, Settings::default()).serve(listener, std::future::pending()).await;
//! # Ok(())
//! # }
//! ```

mod answer;
mod api;
mod badge;
mod client_ip;
mod limit;
mod listen;
mod lookup;
mod metrics;
mod page;
mod page_handler;
mod place;
mod respond;
mod state;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State as FromState};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::get;

pub use ipnet::IpNet;
pub use url::Url;

use self::metrics::Route;
use self::respond::{Answered, Caching};
use self::state::State;
use crate::client::Client;

/// What is served, described for programs.
const OPENAPI: &str = include_str!("openapi.json");

/// The settings of a [`Service`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// How long figures of a branch are given without asking the Hub whether it has moved.
    pub fresh: Duration,
    /// How long browsers and proxies may keep figures of a branch.
    pub max_age: Duration,
    /// How long a request waits for a look at the Hub before it is told that one is under way.
    pub patience: Duration,
    /// Looks at the Hub at once.
    pub max_concurrent_lookups: usize,
    /// Looks at the Hub that may wait for those before them; what is asked beyond them is refused.
    pub looks_waiting: usize,
    /// Bytes of memory for what was found, about.
    pub memory: u64,
    /// Requests of one client in a minute; 0 for no limit. Readers behind an image proxy are one client.
    pub requests_per_minute: u32,
    /// Looks at the Hub that one client may cause in a minute; 0 for no limit.
    pub looks_per_minute: u32,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// The address under which readers see the service, for the texts that they paste; by default that of
    /// the request.
    pub address: Option<Url>,
    /// Connections at once; further ones wait.
    pub connections: usize,
    /// How long the head of a request may take, and how long a connection may be idle before it.
    pub head: Duration,
    /// How long requests that are under way may take when the service ends.
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            fresh: Duration::from_secs(300),
            max_age: Duration::from_secs(3_600),
            patience: Duration::from_secs(3),
            max_concurrent_lookups: 8,
            looks_waiting: 1_000,
            memory: 64 << 20,
            requests_per_minute: 6_000,
            looks_per_minute: 120,
            trusted_proxies: Vec::new(),
            address: None,
            connections: 10_000,
            head: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }
}

/// The server, without a socket of its own. Clones share everything.
#[derive(Clone)]
pub struct Service {
    state: Arc<State>,
    connections: usize,
    head: Duration,
    grace: Duration,
}

impl Service {
    /// A service that asks the Hub of this client.
    ///
    /// The client should have the address policy [`Public`](crate::AddressPolicy::Public) and a cache.
    /// Whatever its token may read, everybody may see the figures of.
    #[must_use]
    pub fn new(client: Client, settings: Settings) -> Self {
        let Settings { connections, head, grace, .. } = settings;
        Self { state: State::new(client, settings), connections: connections.max(1), head, grace }
    }

    /// Its routes, for a server of one's own.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/", get(page_handler::page))
            .route("/app.js", get(page_handler::script))
            .route("/style.css", get(page_handler::style))
            .route("/favicon.svg", get(page_handler::icon))
            .route("/badge/{*repo}", get(badge::badge))
            .route("/api/models/{*repo}", get(api::model))
            .route("/openapi.json", get(openapi))
            .route("/healthz", get(health))
            .route("/readyz", get(readiness))
            .route("/metrics", get(figures))
            .fallback(unknown)
            .layer(from_fn_with_state(Arc::clone(&self.state), measured))
            .with_state(Arc::clone(&self.state))
    }
}

/// Counts a request.
async fn measured(
    FromState(state): FromState<Arc<State>>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let started = Instant::now();
    let route = match request.uri().path() {
        path if path.starts_with(badge::PREFIX) => Route::Badge,
        path if path.starts_with(api::PREFIX) => Route::Api,
        "/" | "/app.js" | "/style.css" | "/favicon.svg" => Route::Page,
        "/openapi.json" | "/healthz" | "/readyz" | "/metrics" => Route::Service,
        _ => Route::Unknown,
    };
    let response = next.run(request).await;
    state.metrics.request(route, response.status().as_u16(), started.elapsed());
    response
}

async fn openapi(asked: HeaderMap) -> Response<Body> {
    let day = Caching::For(Duration::from_secs(24 * 3_600));
    Answered::json(StatusCode::OK, OPENAPI, day).to(&asked)
}

/// Whether the process works.
async fn health(asked: HeaderMap) -> Response<Body> {
    text(StatusCode::OK, "ok").to(&asked)
}

/// Whether it should be sent requests.
async fn readiness(FromState(state): FromState<Arc<State>>, asked: HeaderMap) -> Response<Body> {
    let is_ending = state.is_ending.load(Ordering::Relaxed);
    let answered = if is_ending {
        text(StatusCode::SERVICE_UNAVAILABLE, "ending")
    } else {
        text(StatusCode::OK, "ok")
    };
    answered.to(&asked)
}

async fn figures(FromState(state): FromState<Arc<State>>, asked: HeaderMap) -> Response<Body> {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let answered = match state.metrics.text() {
        Ok(text) => Answered::plain(StatusCode::OK, kind, text, Caching::Never),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the figures cannot be written"),
    };
    answered.to(&asked)
}

async fn unknown(asked: HeaderMap) -> Response<Body> {
    let hour = Caching::Briefly(Duration::from_secs(3_600));
    let said = "there is nothing here; see /openapi.json".to_owned();
    api::problem(StatusCode::NOT_FOUND, "notFound", said, hour).to(&asked)
}

fn text(status: StatusCode, text: &'static str) -> Answered {
    Answered::plain(status, "text/plain; charset=utf-8", text, Caching::Never)
}
