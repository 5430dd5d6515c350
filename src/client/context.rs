//! The state that all calls of a client share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hf_meta_format::formats::Formats;
use hf_meta_inspect::Limits;
use tokio::sync::Semaphore;

use crate::backends::{HubRepo, OfflineRepo, Origin};
use crate::base::budget::CallBudget;
use crate::base::meter::CallMeter;
use crate::cache::{CacheKey, HeaderCache, decode};
use crate::http::{Http, KnownServers};
use crate::hub::{Endpoint, HubWarnings, RepoId, Revision};

/// The state that all calls of a client share.
#[derive(Clone, Debug)]
pub(crate) struct ClientContext {
    pub(crate) http: Http,
    pub(crate) endpoint: Endpoint,
    pub(crate) warnings: Arc<HubWarnings>,
    pub(crate) limits: Limits,
    /// The RAM for the headers of all calls.
    pub(crate) ram: Arc<Semaphore>,
    /// The totals of all calls.
    pub(crate) totals: CallMeter,
    pub(crate) formats: Formats,
    /// The timeout of each call, including waits; `None` for the default.
    pub(crate) call_timeout: Option<Duration>,
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
    pub(super) async fn repo(
        &self,
        repo: &RepoId,
        revision: Revision,
        meter: CallMeter,
        budget: CallBudget,
    ) -> Origin {
        self.share_known_servers(&meter).await;
        let repo = repo.clone();
        let (warnings, canonical) = (Arc::clone(&self.warnings), Arc::default());
        let (http, endpoint) = (self.http.for_call(meter, budget), self.endpoint.clone());
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
        let cache = if self.offline.is_none() { self.header_cache.as_ref() } else { None };
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
