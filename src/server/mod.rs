//! A badge service for the open internet.
//!
//! # The life of a badge request
//!
//! 1. `listen` accepts a connection, within a limit of connections and a deadline for request heads. A request for
//!    a badge that was drawn before, and has not expired, is answered from `drawn_badges`.
//! 2. `routes` finds the endpoint and adds the headers that all responses have.
//! 3. `routes::badge` parses the repository, revision and path into a `WeightsQuery`. An invalid one is
//!    answered without a lookup.
//! 4. `state` checks the request limit of the client, whose address `client_ip` determines.
//! 5. `lookup` returns a fresh result from memory. A stale result is returned too, while a lookup in
//!    the background refreshes it.
//! 6. Otherwise the request joins the lookup in flight for the same query, or starts one. Concurrent
//!    requests are coalesced, and the number of concurrent lookups is limited.
//! 7. A lookup reads the headers with the [`Client`] of the service and stores a `LookupResult`.
//! 8. If the lookup takes too long, the request gets the badge `pending` and the lookup continues.
//! 9. `error_reply` turns a failure into an HTTP status, a JSON error and a short reason for a badge.
//! 10. [`badge`](crate::badge) draws the picture, and `reply` adds its caching headers.
//!
//! A badge always has status 200, because image proxies show no picture for any other status.
//!
//! # Where to add something
//!
//! - An endpoint: a module in `routes` with a handler that has a `#[utoipa::path]` attribute, and one
//!   line in `routes::endpoints`. The OpenAPI document is generated from that list.
//! - A badge metric: a variant of [`Metric`](crate::badge::Metric) and an arm in
//!   [`MetricValues::badge`](crate::badge::MetricValues::badge). Query, page, command line and OpenAPI
//!   take their choices from the enum.
//! - A Prometheus metric: a field in `metrics::ServerMetrics`.

mod client_ip;
mod config;
mod connections;
mod drawn_badges;
mod error_reply;
mod listen;
mod lookup;
mod lookup_gate;
mod lookup_result;
mod metrics;
mod page;
mod reply;
mod request_budgets;
mod routes;
mod state;
mod timed_io;

mod webhook_secret;
mod weights_query;

use std::sync::Arc;

use axum::Router;

pub use config::ServiceConfig;
pub use ipnet::IpNet;
pub use url::Url;
pub use webhook_secret::{EmptyWebhookSecret, WebhookSecret};

use self::state::ServiceState;
use crate::client::Client;

/// A badge service. Clones share their state.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use hf_meta::server::{Service, ServiceConfig};
/// use hf_meta::{AddressPolicy, Client};
///
/// let client = Client::builder().addresses(AddressPolicy::Public).build()?;
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// let service = Service::new(client, ServiceConfig::default());
/// service.serve(listener, std::future::pending()).await;
/// # Ok(())
/// # }
/// ```
///
/// [`Service::router`] returns the routes alone, for use in an axum service of your own.
#[derive(Clone)]
pub struct Service {
    state: Arc<ServiceState>,
}

impl Service {
    /// Creates a service that reads from the Hub of `client`.
    ///
    /// The client should have the address policy [`Public`](crate::AddressPolicy::Public) and a header
    /// cache. The service shows the counts of every repository that the token of the client can read.
    #[must_use]
    pub fn new(client: Client, config: ServiceConfig) -> Self {
        Self { state: ServiceState::new(client, config) }
    }

    /// Returns the routes of the service, for use with another server or as a part of another axum application:
    ///
    /// ```no_run
    /// # fn example(app: axum::Router, service: hf_meta::server::Service) -> axum::Router {
    /// app.nest_service("/models", service.router())
    /// # }
    /// ```
    ///
    /// The limits per client need the addresses of the clients:
    /// serve the application with `into_make_service_with_connect_info::<SocketAddr>()`.
    pub fn router(&self) -> Router {
        routes::router(&self.state)
    }

    /// Returns the route `/metrics` alone, for a port that only the operator reaches.
    pub fn metrics_router(&self) -> Router {
        routes::metrics_router(&self.state)
    }
}
