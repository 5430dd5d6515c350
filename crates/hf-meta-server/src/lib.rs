//! A badge service for the public internet.
//!
//! # The life of a badge request
//!
//! 1. `listen` accepts a connection, subject to a connection limit and a timeout for request headers. If the
//!    requested badge has been rendered before and has not expired, it is served from `drawn_badges`.
//! 2. `routes` finds the endpoint and adds the headers common to all responses.
//! 3. `routes::badge` parses the repository, revision and path into a `WeightsQuery`. An invalid query is answered
//!    without a lookup.
//! 4. `state` checks the request limit of the client, whose address is determined by `client_ip`.
//! 5. `lookup` returns a fresh result from memory. A stale result is returned as well, while it is refreshed in the
//!    background.
//! 6. Otherwise, the request joins the lookup in flight for the same query, or starts one. Concurrent requests are
//!    coalesced, and the number of concurrent lookups is limited.
//! 7. A lookup reads the headers with the [`Client`] of the service and stores a `LookupResult`.
//! 8. If the lookup takes too long, the badge says `pending` and the lookup continues.
//! 9. `error_reply` converts a failure into an HTTP status, a JSON error and a short reason for the badge.
//! 10. [`badge`](hf_meta_badge) renders the image, and `reply` adds its caching headers.
//!
//! A badge is served with status 200 even if the lookup fails, because image proxies show no image for other
//! statuses.
//!
//! # How to extend it
//!
//! - To add an endpoint, add a module in `routes` with a handler that has a `#[utoipa::path]` attribute, and one line
//!   in `routes::endpoints`. The OpenAPI document is generated from that list.
//! - To add a badge metric, add a variant to [`Metric`](hf_meta_badge::Metric) and an arm to
//!   [`MetricValues::badge`](hf_meta_badge::MetricValues::badge). Query, page, command line and OpenAPI derive their
//!   choices from the enum.
//! - To add a Prometheus metric, add a field to `metrics::ServerMetrics`.

mod breaker;
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
mod redis_cache;
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
pub use redis_cache::{RedisCache, RedisCacheError};
pub use url::Url;
pub use webhook_secret::{EmptyWebhookSecret, WebhookSecret};

use self::state::ServiceState;
use hf_meta::Client;

/// A badge service. Clones share their state.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use hf_meta_server::{Service, ServiceConfig};
/// use hf_meta::{AddressPolicy, Client};
///
/// let client = Client::builder().address_policy(AddressPolicy::Public).build()?;
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// let service = Service::new(client, ServiceConfig::default());
/// service.serve(listener, std::future::pending()).await;
/// # Ok(())
/// # }
/// ```
///
/// To embed the service in your own axum application, use [`Service::router`].
#[derive(Clone)]
pub struct Service {
    state: Arc<ServiceState>,
}

impl Service {
    /// Creates a service that reads from the Hub through `client`.
    ///
    /// The client should have the address policy [`Public`](hf_meta::AddressPolicy::Public) and a header cache. The
    /// service exposes the counts of every repository that the client's token can read.
    #[must_use]
    pub fn new(client: Client, config: ServiceConfig) -> Self {
        Self { state: ServiceState::new(client, config) }
    }

    /// Returns the routes of the service, for use with another server or within another axum application:
    ///
    /// ```no_run
    /// # fn example(app: axum::Router, service: hf_meta_server::Service) -> axum::Router {
    /// app.nest_service("/models", service.router())
    /// # }
    /// ```
    ///
    /// The limits per client require the client addresses: serve the application with
    /// `into_make_service_with_connect_info::<SocketAddr>()`. Otherwise, all requests count as one client.
    pub fn router(&self) -> Router {
        routes::router(&self.state)
    }

    /// Returns only the route `/metrics`, for a port that is accessible to the operator only.
    pub fn metrics_router(&self) -> Router {
        routes::metrics_router(&self.state)
    }
}
