//! Facts that earlier processes learned about the servers of a Hub, saved in the header cache.
//!
//! The command starts a new process for every call. Without the saved servers, it would connect to the CDN only after
//! the first redirect, and would offer HTTP/2 again to a server without it.

use super::model::ClientContext;
use crate::cache::{CacheKey, decode, encode};

impl ClientContext {
    /// Loads the servers from the cache, once per client.
    pub(super) async fn load_known_servers(&self) {
        let Some(cache) = &self.header_cache else { return };
        let load = async || {
            let key = CacheKey::known_servers(&self.endpoint);
            let entry = cache.cache.get(&key).await;
            if let Some(servers) = entry.and_then(|entry| decode(&key, &entry).ok()) {
                self.http.restore_hints(servers);
            }
        };
        self.known_servers_loaded.get_or_init(load).await;
    }

    /// Saves the servers in the cache if the call discovered new ones.
    pub(super) async fn save_known_servers(&self) {
        let Some(cache) = &self.header_cache else { return };
        let Some(servers) = self.http.take_changed_hints() else { return };
        let key = CacheKey::known_servers(&self.endpoint);
        if let Some(entry) = encode(&key, &servers) {
            cache.cache.put(&key, entry).await;
        }
    }
}
