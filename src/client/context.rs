//! The state that all calls of a client share: settings, equal calls in flight, and missing repositories.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, Shared, WeakShared};
use quick_cache::sync::Cache as QuickCache;
use tokio::runtime;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::backends::{HubRepo, OfflineRepo, Origin};
use crate::base::meter::CallMeter;
use crate::base::{CallHooks, lock};
use crate::cache::{CacheKey, HeaderCache, decode};
use crate::error::Error;
use crate::error_kind::ErrorKind;
use crate::formats::Formats;
use crate::http::Http;
use crate::hub::{Endpoint, HubWarnings, RepoId, Revision, Source};
use crate::inspect::{ClientMemory, Limits, ReadOptions};

/// The state that all calls of a client share.
#[derive(Clone, Debug)]
pub(crate) struct ClientContext {
    pub(crate) http: Http,
    pub(crate) endpoint: Endpoint,
    /// The invalid setting because of which no requests can be sent.
    pub(crate) unusable: Option<Error>,
    pub(crate) warnings: Arc<HubWarnings>,
    pub(crate) limits: Limits,
    /// The header memory of all calls.
    pub(crate) memory: ClientMemory,
    /// The totals of all calls.
    pub(crate) totals: CallMeter,
    pub(crate) formats: Formats,
    /// The timeout of each call, including waits; `None` for the default.
    pub(crate) call_timeout: Option<Duration>,
    pub(crate) shared_calls: Arc<SharedCalls>,
    pub(crate) header_cache: Option<HeaderCache>,
    /// The cache folder of an offline client.
    pub(crate) offline: Option<PathBuf>,
    /// Set after the servers of the Hub have been loaded from the cache.
    pub(crate) known_servers_loaded: Arc<OnceCell<()>>,
}

impl ClientContext {
    /// Returns a repository on the Hub or, if the client is offline, its snapshot in the cache.
    pub(super) async fn repo(
        &self,
        repo: &RepoId,
        revision: Revision,
        meter: CallMeter,
        hooks: Option<Arc<dyn CallHooks>>,
    ) -> Origin {
        let repo = repo.clone();
        if self.offline.is_none() {
            self.load_known_servers(&meter).await;
        }
        let (warnings, canonical) = (Arc::clone(&self.warnings), Arc::default());
        let (http, endpoint) = (self.http.with_meter(meter), self.endpoint.clone());
        let hub = HubRepo { http, endpoint, repo, canonical, revision, warnings, hooks };
        let Some(cache) = &self.offline else { return Origin::Hub(hub) };
        Origin::Offline(Arc::new(OfflineRepo::find(cache, hub).await))
    }

    /// Loads what earlier processes learned about the servers of the Hub from the cache, once per client.
    ///
    /// The command starts a new process for every call. Without the saved servers, it would connect to the CDN only
    /// after the first redirect, and would offer HTTP/2 again to a server without it.
    async fn load_known_servers(&self, meter: &CallMeter) {
        let Some(cache) = &self.header_cache else { return };
        let load = async || {
            let key = CacheKey::known_servers(&self.endpoint);
            let entry = cache.get(meter, &key).await;
            if let Some(servers) = entry.and_then(|entry| decode(&key, &entry).ok()) {
                self.http.restore_hints(servers);
            }
        };
        self.known_servers_loaded.get_or_init(load).await;
    }

    /// Saves the servers in the cache if the call discovered new ones.
    pub(super) async fn save_known_servers(&self, meter: &CallMeter) {
        let Some(cache) = &self.header_cache else { return };
        let Some(servers) = self.http.take_changed_hints() else { return };
        let key = CacheKey::known_servers(&self.endpoint);
        cache.put(meter, &key, &servers).await;
    }
}

/// The time for which a missing repository is remembered. It is short, because its owner may be creating it.
const MISSING_TTL: Duration = Duration::from_secs(10);

/// The maximum number of missing repositories that are remembered.
const MAX_MISSING: usize = 1_000;

/// The calls in flight of a client, and the repositories that it could not find.
///
/// The token is part of every key, so no caller receives what another token may read.
pub(crate) struct SharedCalls {
    in_flight: Mutex<HashMap<CallKey, InFlight>>,
    missing: QuickCache<(Vec<u8>, RepoId), (Instant, Error)>,
}

/// The identity of a call. Equal calls read the same and return the same type.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct CallKey {
    pub(super) output: TypeId,
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

/// An entry of the calls in flight.
struct InFlight {
    /// The weak form of a [`SharedCall`].
    call: Box<dyn Any + Send>,
    /// Dropped when the call ends or is cancelled.
    is_running: Weak<()>,
}

impl Default for SharedCalls {
    fn default() -> Self {
        Self { in_flight: Mutex::default(), missing: QuickCache::new(MAX_MISSING) }
    }
}

impl SharedCalls {
    /// Returns the equal call in flight, or starts one.
    pub(super) fn join_or_start<T: Clone + Send + Sync + 'static>(
        &self,
        key: CallKey,
        meter: CallMeter,
        call: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> SharedCall<T> {
        type WeakCall<T> = (WeakShared<BoxFuture<'static, Result<T, Error>>>, CallMeter);
        let mut in_flight = lock(&self.in_flight);
        in_flight.retain(|_, call| call.is_running.strong_count() > 0);
        let found = in_flight.get(&key).and_then(|found| found.call.downcast_ref::<WeakCall<T>>());
        if let Some((result, meter)) = found
            && let Some(result) = result.upgrade()
        {
            return SharedCall { result, meter: meter.clone() };
        }
        let running = Arc::new(());
        let is_running = Arc::downgrade(&running);
        let call = async move {
            let result = call.await;
            drop(running);
            result
        };
        let result = call.boxed().shared();
        if let Some(weak) = result.downgrade() {
            let call: WeakCall<T> = (weak, meter.clone());
            in_flight.insert(key, InFlight { call: Box::new(call), is_running });
        }
        SharedCall { result, meter }
    }

    /// Returns the error of a recent call for a repository that does not exist, or that the token cannot see.
    pub(super) fn missing(&self, token: &[u8], repo: &RepoId) -> Option<Error> {
        let (seen, error) = self.missing.get(&(token.to_vec(), repo.clone()))?;
        (seen.elapsed() < MISSING_TTL).then_some(error)
    }

    /// Remembers a repository that does not exist, or forgets it if it does.
    pub(super) fn remember<T>(&self, token: &[u8], repo: &RepoId, result: &Result<T, Error>) {
        let key = (token.to_vec(), repo.clone());
        match result {
            Err(error) if error.kind() == ErrorKind::RepoNotFound => {
                self.missing.insert(key, (Instant::now(), error.clone()));
            }
            _ => {
                self.missing.remove(&key);
            }
        }
    }
}

impl fmt::Debug for SharedCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCalls").finish_non_exhaustive()
    }
}
