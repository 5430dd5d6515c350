//! The servers of a Hub, kept in the header cache for later processes.
//!
//! The command is a new process for each call. Without the stored servers, its connection to the CDN would be opened
//! after the first redirect, and a server without HTTP/2 would be offered HTTP/2 again.

use super::model::ClientContext;
use crate::cache::{CacheKey, decode, encode};

impl ClientContext {
    /// Reads the servers from the cache, once per client.
    pub(super) async fn load_known_servers(&self) {
        let Some(cache) = &self.header_cache else { return };
        let load = async || {
            let key = CacheKey::known_servers(&self.endpoint);
            let entry = cache.cache.get(&key).await;
            if let Some(servers) = entry.and_then(|entry| decode(&key, &entry).ok()) {
                self.http.expect_servers(servers);
            }
        };
        self.known_servers_loaded.get_or_init(load).await;
    }

    /// Stores the servers in the cache if the call has found others.
    pub(super) async fn save_known_servers(&self) {
        let Some(cache) = &self.header_cache else { return };
        let Some(servers) = self.http.take_new_servers() else { return };
        let key = CacheKey::known_servers(&self.endpoint);
        if let Some(entry) = encode(&key, &servers) {
            cache.cache.put(&key, entry).await;
        }
    }
}
