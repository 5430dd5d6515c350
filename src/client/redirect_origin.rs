//! The origin that the Hub redirects to, kept in the header cache for later processes.
//!
//! The command is a new process for each call. Without the stored origin, its connection to the CDN would be opened
//! after the first redirect.

use super::model::ClientContext;
use crate::cache::{CacheKey, decode, encode};

impl ClientContext {
    /// Reads the origin from the cache, once per client.
    pub(super) async fn load_redirect_origin(&self) {
        let Some(cache) = &self.header_cache else { return };
        let load = async || {
            let key = CacheKey::redirect_origin(&self.endpoint);
            let entry = cache.cache.get(&key).await;
            let origin = entry.and_then(|entry| decode::<String>(&key, &entry).ok());
            self.http.expect_redirects_to(&origin.unwrap_or_default());
        };
        self.redirect_origin_loaded.get_or_init(load).await;
    }

    /// Stores the origin in the cache if a redirect has changed it.
    pub(super) async fn save_redirect_origin(&self) {
        let Some(cache) = &self.header_cache else { return };
        let Some(origin) = self.http.take_new_redirect_origin() else { return };
        let key = CacheKey::redirect_origin(&self.endpoint);
        if let Some(entry) = encode(&key, &origin) {
            cache.cache.put(&key, entry).await;
        }
    }
}
