//! Resilience: retries, rate limits, redirects, timeouts and cancelled calls.

mod cancellation;
mod random_faults;
mod rate_limits;
mod redirects;
mod timeouts;

use std::time::Duration;

use hf_meta::{Client, ClientBuilder, RetryPolicy};

use crate::hub::LocalHub;

/// Returns a builder with many retries and short delays.
fn many_retries(hub: &LocalHub) -> ClientBuilder {
    let policy = RetryPolicy::default().max_attempts(60).initial_delay(Duration::ZERO);
    Client::builder().endpoint(hub.endpoint()).retry_policy(policy)
}
