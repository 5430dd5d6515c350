//! The state that all calls of a client share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;

use super::shared_calls::SharedCalls;
use crate::backends::{HubRepo, OfflineRepo, Origin};
use crate::base::hooks::CallHooks;
use crate::base::meter::CallMeter;
use crate::cache::{CacheKey, HeaderCache, decode};
use crate::formats::Formats;
use crate::http::Http;
use crate::hub::{Endpoint, HubWarnings, RepoId, Revision};
use crate::inspect::{ClientMemory, Limits};
/// The state that all calls of a client share.
#[derive(Clone, Debug)]
pub(crate) struct ClientContext {
    pub(crate) http: Http,
    pub(crate) endpoint: Endpoint,
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
