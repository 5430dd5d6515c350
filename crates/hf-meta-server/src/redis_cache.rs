//! Cache entries in a Redis or Valkey server shared by several services.

use std::fmt::{self, Display};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Cmd, FromRedisValue, RedisResult};
use thiserror::Error;
use tokio::time::{Instant, timeout};
use url::Url;

use hf_meta::{Cache, CacheKey};

/// The maximum size of an entry, in bytes. Larger ones would delay the commands of other services.
const MAX_ENTRY_BYTES: usize = 4 << 20;

/// Time to live of an entry.
const ENTRY_TTL: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The time after a failed command during which no commands are sent.
const OPEN_TIME: Duration = Duration::from_secs(1);

/// A cache in a Redis or Valkey server, shared by several services. Entries stored by one service are available to
/// all of them.
///
/// While the server is unreachable, every lookup is a miss; the connection is retried after one second. The server must be trusted: checksums detect corruption, not tampering.
///
/// ```no_run
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let cache = hf_meta_server::RedisCache::new("redis://127.0.0.1:6379/0")?;
/// let client = hf_meta::Client::builder().header_cache(cache).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisCache(Arc<RedisServer>);

struct RedisServer {
    connection: ConnectionManager,
    timeout: Duration,
    breaker: Breaker,
}

/// The error returned for an invalid Redis or Valkey URL. It omits the URL, which may contain a password.
#[derive(Debug, Error)]
#[error("invalid Redis or Valkey URL; expected a URL such as redis://127.0.0.1:6379/0")]
pub struct RedisCacheError;

impl RedisCache {
    /// The default timeout for connecting and for each command.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(500);

    /// Creates a cache at `redis://[user:password@]host[:port][/database]`, or `rediss://…` for TLS. The connection
    /// is established on first use. Must be called within a tokio runtime.
    ///
    /// With TLS, the system's certificates are trusted; `SSL_CERT_FILE` overrides their location.
    ///
    /// # Errors
    ///
    /// Returns [`RedisCacheError`] if the URL does not have this form.
    pub fn new(address: &str) -> Result<Self, RedisCacheError> {
        Self::with_timeout(address, Self::DEFAULT_TIMEOUT)
    }

    /// Creates a cache with a timeout other than [`Self::DEFAULT_TIMEOUT`]. While the server is unreachable, one call
    /// per second is delayed by this timeout.
    ///
    /// # Errors
    ///
    /// Returns [`RedisCacheError`] under the same conditions as [`new`](Self::new).
    pub fn with_timeout(address: &str, timeout: Duration) -> Result<Self, RedisCacheError> {
        let address = address.parse::<Url>().map_err(|_| RedisCacheError)?;
        if !matches!(address.scheme(), "redis" | "rediss") || address.fragment().is_some() {
            return Err(RedisCacheError);
        }
        let client = redis::Client::open(address).map_err(|_| RedisCacheError)?;
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_connection_timeout(Some(timeout))
            .set_response_timeout(Some(timeout));
        let connection = ConnectionManager::new_lazy_with_config(client, config);
        let connection = connection.map_err(|_| RedisCacheError)?;
        Ok(Self(Arc::new(RedisServer { connection, timeout, breaker: Breaker::default() })))
    }

    /// Connects to the server, and logs a warning if that fails, such as for a wrong password. Returns whether it succeeded.
    pub async fn connect(&self) -> bool {
        self.0.run::<String>(&redis::cmd("PING")).await.is_some()
    }

    /// Returns whether the server is considered reachable: `false` for one second after a command has failed.
    pub fn is_reachable(&self) -> bool {
        !self.0.breaker.is_open()
    }
}

impl Cache for RedisCache {
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        // The server sends at most one byte more than the limit, whatever the size of the value.
        let mut command = redis::cmd("GETRANGE");
        command.arg(name(key)).arg(0).arg(MAX_ENTRY_BYTES);
        async move {
            let entry = self.0.run::<Vec<u8>>(&command).await?;
            // A missing value is an empty one.
            (1..=MAX_ENTRY_BYTES).contains(&entry.len()).then_some(entry)
        }
        .boxed()
    }

    fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()> {
        if entry.len() > MAX_ENTRY_BYTES {
            return futures::future::ready(()).boxed();
        }
        let mut command = redis::cmd("SET");
        command.arg(name(key)).arg(entry).arg("EX").arg(ENTRY_TTL.as_secs());
        async move {
            self.0.run::<()>(&command).await;
        }
        .boxed()
    }
}

impl RedisServer {
    /// Runs a command. Returns `None` if it fails, or without running it if the circuit breaker is open.
    async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Option<T> {
        if self.breaker.is_open() {
            return None;
        }
        let mut connection = self.connection.clone();
        let reply = timeout(self.timeout * 2, command.query_async(&mut connection)).await;
        let reply: RedisResult<T> =
            reply.unwrap_or_else(|elapsed| Err(io::Error::from(elapsed).into()));
        self.breaker.record(reply.as_ref().err());
        reply.ok()
    }
}

fn name(key: &CacheKey) -> String {
    format!("hf-meta:entry:{key}")
}

impl fmt::Debug for RedisCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCache").field("is_reachable", &self.is_reachable()).finish()
    }
}

/// A circuit breaker, so that an unreachable server does not delay every call. It opens for [`OPEN_TIME`] after each failure.
#[derive(Debug, Default)]
struct Breaker {
    /// The time of the last command, if it has failed.
    failed_at: Mutex<Option<Instant>>,
}

impl Breaker {
    fn is_open(&self) -> bool {
        self.failed_at().is_some_and(|failed_at| failed_at.elapsed() < OPEN_TIME)
    }

    /// Records the outcome of a command. Logs each outage and each recovery once.
    fn record(&self, error: Option<&impl Display>) {
        let failed_at = error.map(|_| Instant::now());
        let before = std::mem::replace(&mut *self.failed_at(), failed_at);
        match (before, error) {
            (None, Some(error)) => {
                tracing::warn!(%error, "the shared cache is unreachable; continuing without it");
            }
            (Some(_), None) => tracing::warn!("the shared cache is reachable again"),
            _ => {}
        }
    }

    fn failed_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.failed_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_opens_the_breaker_and_one_success_closes_it() {
        let breaker = Breaker::default();
        assert!(!breaker.is_open());
        breaker.record(Some(&"down"));
        assert!(breaker.is_open());
        breaker.record(None::<&&str>);
        assert!(!breaker.is_open());
    }
}
