//! The settings of calls, and the clients that they share.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hf_meta::internal::environment_token;
use hf_meta::{Client, ClientBuilder, DiskCache, RetryPolicy, Source};
use hf_meta_census::{MAX_HEADER_BYTES, MAX_QUOTA_WAIT};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::help::{Help, NamedSource, about};

/// The maximum number of clients. Beyond it, all are dropped, so that endpoints and shares from a loop use a bounded
/// number of connections. Tokens share a client.
const MAX_CLIENTS: usize = 16;

/// A call to start: its settings, and the function `done(result, error)`, which is called on another thread.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Request {
    pub(crate) done: Py<PyAny>,
    endpoint: Option<String>,
    /// No token if empty, and the token of the environment if absent.
    token: Option<String>,
    pub(crate) timeout: Option<f64>,
    /// The share of the quota, for a call that reads many repositories.
    quota_share: Option<f64>,
    pub(crate) jobs: i64,
    contact: Option<String>,
    /// The time in seconds after which an outage ends a call that reads many repositories.
    pub(crate) max_outage: f64,
}

impl Request {
    /// Returns the origin of the token.
    pub(crate) fn token_source(&self) -> Option<String> {
        match self.token.as_deref() {
            None => environment_token().map(|token| token.origin),
            Some("") => None,
            Some(_) => Some("`token`".to_owned()),
        }
    }
}

/// The settings that calls with the same client have in common. The last one is a hash of the environment and its token,
/// which a program may change between two calls.
type ClientKey = (Option<String>, Option<u64>, Option<Duration>, Option<String>, u64);

/// A client, and the error for all sources that are not local if the settings of the environment are unusable.
type EnvironmentClient = (Client, Option<hf_meta::Error>);

/// The clients of all calls.
#[derive(Default)]
pub(crate) struct Clients(Mutex<HashMap<ClientKey, EnvironmentClient>>);

impl Clients {
    /// Returns the client for these settings and the settings of the environment. With a share of the quota, it is a client for
    /// many repositories, which has no cache. Unusable settings are an error unless all sources are local.
    pub(crate) fn client(&self, request: &Request, help: &mut Help) -> PyResult<Client> {
        let share = request.quota_share.filter(|share| *share > 0.0 && *share <= 1.0);
        if share != request.quota_share {
            return Err(PyValueError::new_err("`quota_share` must be above 0 and at most 1"));
        }
        if !(1..=1_000).contains(&request.jobs) {
            return Err(PyValueError::new_err("`jobs` must be between 1 and 1,000"));
        }
        let timeout = timeout(request.timeout)?;
        let timeout = if share.is_some() { timeout } else { None };
        let (endpoint, contact) = (request.endpoint.clone(), request.contact.clone());
        let mut environment = DefaultHasher::new();
        std::env::vars_os().for_each(|variable| variable.hash(&mut environment));
        environment_token().hash(&mut environment);
        let key = (endpoint, share.map(f64::to_bits), timeout, contact, environment.finish());
        // The clients are locked only without Python, which may switch to a thread that waits for them.
        let (client, unusable) =
            self.shared(key, request).map_err(|error| help.exception(&about(0)(error)))?;
        help.endpoint = client.endpoint().clone();
        let is_local = |(text, _): &NamedSource| {
            matches!(Source::parse(text, client.endpoint()), Ok(Source::Local(_)))
        };
        if let Some(error) = unusable
            && (help.sources.is_empty() || !help.sources.iter().all(is_local))
        {
            return Err(help.exception(&about(0)(error)));
        }
        request
            .token
            .as_ref()
            .map_or(Ok(client.clone()), |token| client.with_token(token))
            .map_err(|error| help.exception(&about(0)(error)))
    }

    /// Returns the client with this key, which is built if there is none.
    fn shared(
        &self,
        key: ClientKey,
        request: &Request,
    ) -> Result<EnvironmentClient, hf_meta::Error> {
        let (mut clients, timeout) = (lock(&self.0), key.2);
        if clients.len() >= MAX_CLIENTS && !clients.contains_key(&key) {
            clients.clear();
        }
        Ok(match clients.entry(key) {
            Entry::Occupied(entry) => entry.get().clone(),
            Entry::Vacant(entry) => entry.insert(build(request, timeout)?).clone(),
        })
    }
}

/// Builds a client with the settings of the environment and these. If they are unusable, the client is offline.
fn build(
    request: &Request,
    timeout: Option<Duration>,
) -> Result<EnvironmentClient, hf_meta::Error> {
    let mut builder = ClientBuilder::from_env();
    if let Some(endpoint) = &request.endpoint {
        builder = builder.endpoint(endpoint);
    }
    if let Some(timeout) = timeout {
        builder = builder.call_timeout(timeout);
    }
    if let Some(share) = request.quota_share {
        let contact = request.contact.as_ref();
        let contact = contact.map_or_else(String::new, |contact| format!(" ({contact})"));
        let retry = RetryPolicy::default().max_wait(MAX_QUOTA_WAIT);
        let many = builder.quota_share(share).retry_policy(retry);
        let many = many.max_total_header_bytes(MAX_HEADER_BYTES);
        builder = many.user_agent(format!("census{contact}"));
    } else if let Some(cache) = DiskCache::from_env() {
        builder = builder.header_cache(cache);
    }
    let offline = builder.clone().offline(true);
    let online = builder.build().map(|client| (client, None));
    online.or_else(|error| Ok((offline.build()?, Some(error))))
}

/// Checks a number of seconds.
pub(crate) fn timeout(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    let timeout = Duration::try_from_secs_f64(seconds).ok().filter(|timeout| !timeout.is_zero());
    let invalid = || PyValueError::new_err("`timeout` must be a positive number of seconds");
    timeout.map(Some).ok_or_else(invalid)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
