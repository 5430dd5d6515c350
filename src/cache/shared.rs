//! Entries in a Redis or Valkey that several services share.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Cmd, FromRedisValue, RedisResult};
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::breaker::Breaker;
use super::{Cache, CacheKey, FillLease};

/// The longest entry that is kept, in bytes: nothing that would keep other commands waiting.
const LONGEST: usize = 4 << 20;

/// How long an entry is kept after it was written.
const LIFETIME: Duration = Duration::from_secs(30 * 24 * 3_600);

/// How long a turn lasts unless it is renewed: after so long, the turn of a process that was killed is
/// over.
const LEASE: Duration = Duration::from_secs(5);

/// How often a turn is renewed.
const RENEWAL: Duration = Duration::from_secs(2);

/// How often it is asked whether a turn is over.
const POLL: Duration = Duration::from_millis(50);

/// The longest wait for a turn, after which it is done without.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Makes a turn last longer, or ends it, if it is still ours.
const RENEW: &str = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) end return 0";
const END: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0";

/// A Redis or Valkey that several services share. What one of them reads is there for all, and of those
/// that are asked for the same at once, one reads it.
///
/// While the server cannot be reached, nothing is found in it and no turn is waited for; it is asked
/// again a second later. It is to be trusted as a part of the service: entries are held against a
/// checksum, not against a forger.
#[derive(Clone)]
pub struct RedisCache(Arc<Shared>);

struct Shared {
    connection: ConnectionManager,
    /// How long a command may take before the server counts as gone.
    patience: Duration,
    breaker: Breaker,
}

/// Why there is no such cache. The address itself is left out: it may hold a password.
#[derive(Debug, Error)]
#[error("not the address of a Redis or Valkey, such as redis://127.0.0.1:6379/0")]
pub struct RedisCacheError;

impl RedisCache {
    /// How long a server is waited for before it counts as gone, unless it is said otherwise.
    pub const DEFAULT_PATIENCE: Duration = Duration::from_millis(500);

    /// The cache at `redis://[user:password@]host[:port][/database]`. Nothing is connected to before it
    /// is needed. To be called on a tokio runtime.
    ///
    /// # Errors
    ///
    /// When that is no such address.
    pub fn new(address: &str) -> Result<Self, RedisCacheError> {
        Self::with_patience(address, Self::DEFAULT_PATIENCE)
    }

    /// As [`new`](Self::new), with another time after which the server counts as gone: as long as it
    /// is away, every second one request waits so long in vain.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_patience(address: &str, patience: Duration) -> Result<Self, RedisCacheError> {
        let client = redis::Client::open(address).map_err(|_| RedisCacheError)?;
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_connection_timeout(Some(patience))
            .set_response_timeout(Some(patience));
        let connection = ConnectionManager::new_lazy_with_config(client, config);
        let connection = connection.map_err(|_| RedisCacheError)?;
        Ok(Self(Arc::new(Shared { connection, patience, breaker: Breaker::default() })))
    }

    /// Whether the server answers, as far as is known.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        !self.0.breaker.is_open()
    }
}

impl Cache for RedisCache {
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        let mut command = redis::cmd("GET");
        command.arg(name("entry", key));
        async move { self.0.ask::<Option<Vec<u8>>>(&command).await.flatten() }.boxed()
    }

    fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()> {
        if entry.len() > LONGEST {
            return futures::future::ready(()).boxed();
        }
        let mut command = redis::cmd("SET");
        command.arg(name("entry", key)).arg(entry).arg("EX").arg(LIFETIME.as_secs());
        async move {
            self.0.ask::<()>(&command).await;
        }
        .boxed()
    }

    fn lease<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, FillLease> {
        self.take_lease(key).boxed()
    }
}

impl RedisCache {
    async fn take_lease(&self, key: &CacheKey) -> FillLease {
        let (name, owner, started) = (name("lease", key), owner(), Instant::now());
        let mut command = redis::cmd("SET");
        command.arg(&name).arg(&owner).arg("NX").arg("PX").arg(millis(LEASE));
        let mut has_waited = false;
        while started.elapsed() < LONGEST_WAIT {
            match self.0.ask::<Option<String>>(&command).await {
                Some(Some(_)) => return self.renewed(name, owner, has_waited),
                Some(None) => has_waited = true,
                None => break,
            }
            sleep(POLL).await;
        }
        FillLease::new(has_waited, || ())
    }

    /// Renews a turn for as long as it is held.
    fn renewed(&self, name: String, owner: String, has_waited: bool) -> FillLease {
        let (held, mut end) = oneshot::channel::<()>();
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            while timeout(RENEWAL, &mut end).await.is_err() {
                let mut command = redis::cmd("EVAL");
                command.arg(RENEW).arg(1).arg(&name).arg(&owner).arg(millis(LEASE));
                shared.ask::<i64>(&command).await;
            }
            let mut command = redis::cmd("EVAL");
            command.arg(END).arg(1).arg(&name).arg(&owner);
            shared.ask::<i64>(&command).await;
        });
        FillLease::new(has_waited, move || drop(held))
    }
}

impl Shared {
    /// The answer to a command; `None` where none came, or none came to the last one.
    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Option<T> {
        if self.breaker.is_open() {
            return None;
        }
        let mut connection = self.connection.clone();
        let answer: RedisResult<T> =
            match timeout(self.patience * 2, command.query_async(&mut connection)).await {
                Ok(answer) => answer,
                Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
            };
        self.breaker.note(answer.as_ref().err());
        answer.ok()
    }
}

fn name(kind: &str, key: &CacheKey) -> String {
    format!("hf-meta:{kind}:{key}")
}

/// Returns a name that no other lease has. The keys of a [`RandomState`] come from the operating system.
fn owner() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Debug for RedisCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCache").field("is_reachable", &self.is_reachable()).finish()
    }
}
