//! The state that all calls of a client share: settings, equal calls in flight, and missing repositories.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, Shared};
use tokio::runtime;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::backends::{HubRepo, OfflineRepo, Origin};
use crate::base::lock;
use crate::base::meter::CallMeter;
use crate::cache::{CacheKey, HeaderCache, decode};
use crate::error::Error;
use crate::error_kind::ErrorKind;
use crate::formats::Formats;
use crate::http::{Http, KnownServers};
use crate::hub::{Endpoint, HubWarnings, RepoId, Revision, Source};
use crate::inspect::{Limits, ReadOptions};

/// The state that all calls of a client share.
#[derive(Clone, Debug)]
pub(crate) struct ClientContext {
    pub(crate) http: Http,
    pub(crate) endpoint: Endpoint,
    pub(crate) warnings: Arc<HubWarnings>,
    pub(crate) limits: Limits,
    /// The header memory of all calls.
    pub(crate) memory: Arc<Semaphore>,
    /// The totals of all calls.
    pub(crate) totals: CallMeter,
    pub(crate) formats: Formats,
    /// The timeout of each call, including waits; `None` for the default.
    pub(crate) call_timeout: Option<Duration>,
    pub(crate) shared_calls: Arc<SharedCalls>,
    pub(crate) header_cache: Option<HeaderCache>,
    /// The cache folder of an offline client.
    pub(crate) offline: Option<PathBuf>,
    /// The servers of the Hub as they are in the cache; `None` before they are loaded.
    pub(crate) known_servers: Arc<tokio::sync::Mutex<Option<KnownServers>>>,
}

impl ClientContext {
    /// Returns the state for calls without the token; `None` if there is none.
    pub(super) fn anonymous(&self) -> Option<Self> {
        Some(Self { http: self.http.anonymous()?, ..self.clone() })
    }

    /// Returns a repository on the Hub or, if the client is offline, its snapshot in the cache.
    pub(super) async fn repo(&self, repo: &RepoId, revision: Revision, meter: CallMeter) -> Origin {
        self.share_known_servers(&meter).await;
        let repo = repo.clone();
        let (warnings, canonical) = (Arc::clone(&self.warnings), Arc::default());
        let (http, endpoint) = (self.http.with_meter(meter), self.endpoint.clone());
        let hub = HubRepo { http, endpoint, repo, canonical, revision, warnings };
        let Some(cache) = &self.offline else { return Origin::Hub(hub) };
        Origin::Offline(Arc::new(OfflineRepo::find(cache, hub).await))
    }

    /// Loads what earlier processes learned about the servers of the Hub from the cache, once per client, and saves what
    /// this one has learned since.
    ///
    /// The command starts a new process for every call. Without the saved servers, it would connect to the CDN only
    /// after the first redirect, and would offer HTTP/2 again to a server without it.
    pub(super) async fn share_known_servers(&self, meter: &CallMeter) {
        let cache = self.header_cache.as_ref().filter(|_| self.offline.is_none());
        let Some(cache) = cache else { return };
        let (key, mut known) =
            (CacheKey::known_servers(&self.endpoint), self.known_servers.lock().await);
        if let Some(saved) = &mut *known {
            let learned = self.http.known_servers();
            if *saved != learned {
                *saved = self.http.known_servers();
                // Other calls need not wait for the cache.
                drop(known);
                cache.put(meter, &key, &learned).await;
            }
        } else {
            let entry = cache.get(meter, &key).await;
            let saved = entry.and_then(|entry| decode(&key, &entry)).unwrap_or_default();
            self.http.restore(&saved);
            *known = Some(saved);
        }
    }
}

/// The time for which a missing repository is remembered. It is short, because its owner may be creating it.
const MISSING_TTL: Duration = Duration::from_secs(10);

/// The maximum number of missing repositories that are remembered.
const MAX_MISSING: usize = 1_000;

/// The calls in flight of a client, and the repositories that it could not find. The token is part of every key, so no
/// caller receives what another token may read.
#[derive(Default)]
pub(crate) struct SharedCalls {
    in_flight: Mutex<HashMap<CallKey, Weak<dyn Any + Send + Sync>>>,
    missing: Mutex<MissingRepos>,
}

/// The errors of repositories and tokens, with their times.
type MissingRepos = HashMap<(Vec<u8>, RepoId), (Instant, Error)>;

/// The identity of a call. Equal calls read the same and return the same type.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct CallKey {
    /// The type of the function that reads.
    pub(super) operation: TypeId,
    /// The runtime of the call: its connections and timers stop with it.
    pub(super) runtime: Option<runtime::Id>,
    /// The token as sent to the server; empty without a token.
    pub(super) token: Vec<u8>,
    pub(super) source: Source,
    pub(super) options: ReadOptions,
}

/// A call in flight. It is driven by everyone who waits for it, so it continues if its first caller is dropped, and
/// ends if all of them are.
pub(super) struct SharedCall<T> {
    pub(super) result: Shared<BoxFuture<'static, Result<T, Error>>>,
    pub(super) meter: CallMeter,
}

impl SharedCalls {
    /// Returns the equal call in flight, or starts one.
    pub(super) fn join_or_start<T: Clone + Send + Sync + 'static>(
        &self,
        key: CallKey,
        meter: CallMeter,
        call: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Arc<SharedCall<T>> {
        let mut in_flight = lock(&self.in_flight);
        in_flight.retain(|_, call| call.strong_count() > 0);
        let found = in_flight.get(&key).and_then(Weak::upgrade);
        let found = found.and_then(|call| call.downcast::<SharedCall<T>>().ok());
        // A caller may still hold a call that has ended.
        if let Some(call) = found.filter(|call| call.result.peek().is_none()) {
            return call;
        }
        let call = Arc::new(SharedCall { result: call.boxed().shared(), meter });
        let weak: Weak<SharedCall<T>> = Arc::downgrade(&call);
        in_flight.insert(key, weak);
        call
    }

    /// Returns the error of a recent call for a repository that does not exist, or that the token cannot see.
    pub(super) fn missing(&self, token: &[u8], repo: &RepoId) -> Option<Error> {
        let missing = lock(&self.missing);
        let (seen, error) = missing.get(&(token.to_vec(), repo.clone()))?;
        (seen.elapsed() < MISSING_TTL).then(|| error.clone())
    }

    /// Remembers a repository that does not exist, or forgets it if it does.
    pub(super) fn remember<T>(&self, token: &[u8], repo: &RepoId, result: &Result<T, Error>) {
        let (key, mut missing) = ((token.to_vec(), repo.clone()), lock(&self.missing));
        missing.remove(&key);
        if let Err(error) = result
            && error.kind() == ErrorKind::RepoNotFound
        {
            // A service may be asked for any number of them.
            if missing.len() >= MAX_MISSING {
                missing.clear();
            }
            missing.insert(key, (Instant::now(), error.clone()));
        }
    }
}

impl fmt::Debug for SharedCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCalls").finish_non_exhaustive()
    }
}
