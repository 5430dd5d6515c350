//! Calls that end well though much goes wrong on the way, and calls that are given up.

mod deadlines;
mod detours;
mod drops;
mod storms;
mod waits;

use std::time::Duration;

use hf_meta::{Client, ClientBuilder, RetryPolicy};

use crate::hub::LocalHub;

/// Settings of a client that asks again often and soon.
fn tireless(hub: &LocalHub) -> ClientBuilder {
    let policy = RetryPolicy::default()
        .max_attempts(60)
        .initial_delay(Duration::from_millis(1))
        .max_delay(Duration::from_millis(5));
    Client::builder().endpoint(hub.endpoint()).retry(policy)
}
