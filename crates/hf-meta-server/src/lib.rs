//! A badge service for the public internet.
//!
//! # The life of a badge request
//!
//! 1. `service` accepts a connection, subject to connection limits and a timeout for request headers. If the requested
//!    badge has been rendered before and has not expired, it is served from `badge_cache`.
//! 2. `routes` finds the endpoint and adds the headers common to all responses.
//! 3. `routes::repo` parses the repository, revision and path into a `WeightsQuery`. An invalid query is answered
//!    without a lookup.
//! 4. `state` finds the client, whose address is determined by `client_ip`, and checks the owner of the repository.
//! 5. `lookup` returns a fresh result from memory. A stale result is returned as well, while it is refreshed in the
//!    background.
//! 6. Otherwise, if the client has requests left in its bucket of `token_buckets`, the request joins the lookup in
//!    flight for the same query, or starts one. The number of concurrent lookups is limited.
//! 7. A lookup reads the headers with the [`Client`](hf_meta::Client) of the service. The header cache of the client
//!    serves every further name and branch of a commit. `lookup_budget` ends a lookup that would send too many requests.
//! 8. `results` keeps the `LookupResult`. If the lookup takes too long, the badge says `pending` and the lookup
//!    continues.
//! 9. `failure` turns an error into everything that responses say about it: a status, a code, a short reason for the
//!    badge, and a sentence about what to do.
//! 10. [`badge`](hf_meta_badge) renders the image, and `reply` adds its caching headers.
//!
//! A badge is served with status 200 even if the lookup fails, because image proxies show no image for other
//! statuses.
//!
//! # Extending the service
//!
//! - To add an endpoint, add a handler to a module in `routes`, one line to `routes::endpoints`, and its description to
//!   `routes/openapi.json`.
//! - To add a badge metric, add a variant to [`Metric`](hf_meta_badge::Metric), an arm to
//!   [`MetricValues::badge`](hf_meta_badge::MetricValues::badge), and its name to `routes/openapi.json`. Query, page
//!   and command line derive their choices from the enum.
//! - To add a Prometheus metric, add a field to `metrics::ServerMetrics`.

mod badge_cache;
mod client_ip;
mod config;
mod failure;
mod hub_outage;
mod lookup;
mod lookup_budget;
mod lookup_result;
mod metrics;
mod page;
mod process_metrics;
mod redis_cache;
mod reply;
mod results;
mod routes;
mod service;
mod state;
mod token_buckets;
mod weights_query;

pub use config::{EmptyWebhookSecret, ServiceConfig, WebhookSecret};
pub use ipnet::IpNet;
pub use redis_cache::{RedisCache, RedisCacheError};
pub use service::Service;
pub use url::Url;
