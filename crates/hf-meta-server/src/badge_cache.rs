//! Caches badge responses in memory.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{HOST, HeaderMap, IF_NONE_MATCH};
use axum::http::{Method, Request, Response, Version};
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache as MemoryCache;
use tokio::time::Instant;

/// The maximum total size of all badges in bytes.
const MEMORY_LIMIT: u64 = 8 << 20;

/// The approximate size of the headers of a badge, in bytes.
const HEADER_BYTES: usize = 1 << 10;

/// The expected number of badges.
const EXPECTED_BADGES: usize = 4_096;

/// Marks a response as a badge that does not change before `fresh_until`. An extension of the response.
#[derive(Clone)]
pub(super) struct CacheableBadge {
    pub(super) body: Bytes,
    pub(super) fresh_until: Instant,
}

/// Caches badge responses by path and query. Most requests are for a few badges, which are drawn once until their
/// count expires.
pub(super) struct BadgeCache(MemoryCache<Box<str>, Arc<BadgeResponse>, BadgeSize>);

struct BadgeResponse {
    headers: HeaderMap,
    badge: CacheableBadge,
    /// The generation of the results when drawing started.
    generation: u64,
}

#[derive(Clone)]
struct BadgeSize;

impl Weighter<Box<str>, Arc<BadgeResponse>> for BadgeSize {
    fn weight(&self, target: &Box<str>, response: &Arc<BadgeResponse>) -> u64 {
        (target.len() + response.badge.body.len() + HEADER_BYTES) as u64
    }
}

impl BadgeCache {
    pub(super) fn new() -> Self {
        Self(MemoryCache::with_weighter(EXPECTED_BADGES, MEMORY_LIMIT, BadgeSize))
    }

    /// Returns the path and query of a plain badge request. Conditional requests, and requests that may be invalid,
    /// are left to the router.
    pub(super) fn cache_key<B>(request: &Request<B>) -> Option<&str> {
        let target = request.uri().path_and_query()?.as_str();
        let headers = request.headers();
        let is_plain = request.method() == Method::GET
            && request.version() == Version::HTTP_11
            && headers.get_all(HOST).iter().count() == 1
            && !headers.contains_key(IF_NONE_MATCH);
        (is_plain && target.starts_with("/badge/")).then_some(target)
    }

    /// Returns the cached response for a request target, if it is fresh. `generation` is the current one of the
    /// results.
    pub(super) fn get(&self, target: &str, generation: u64) -> Option<Response<Body>> {
        let cached = self.0.get(target)?;
        if cached.badge.fresh_until <= Instant::now() || cached.generation != generation {
            return None;
        }
        let mut response = Response::new(Body::from(cached.badge.body.clone()));
        *response.headers_mut() = cached.headers.clone();
        Some(response)
    }

    /// Caches a response if it is a badge with a lifetime. `generation` is the one before the badge was drawn.
    pub(super) fn insert(&self, target: &str, generation: u64, response: &mut Response<Body>) {
        if let Some(badge) = response.extensions_mut().remove::<CacheableBadge>() {
            let headers = response.headers().clone();
            let response = BadgeResponse { headers, badge, generation };
            self.0.insert(target.into(), Arc::new(response));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn response(seconds: u64) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        let fresh_until = Instant::now() + Duration::from_secs(seconds);
        response.extensions_mut().insert(CacheableBadge { body: "badge".into(), fresh_until });
        response
    }

    #[tokio::test(start_paused = true)]
    async fn a_badge_is_cached_until_its_count_expires() {
        let badges = BadgeCache::new();
        badges.insert("/badge/a.svg", 0, &mut response(10));
        badges.insert("/badge/b.svg", 0, &mut Response::new(Body::empty()));
        assert!(badges.get("/badge/a.svg", 0).is_some() && badges.get("/badge/b.svg", 0).is_none());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(badges.get("/badge/a.svg", 0).is_none());
    }

    #[test]
    fn badges_drawn_before_a_change_are_invalid() {
        let badges = BadgeCache::new();
        badges.insert("/badge/a.svg", 0, &mut response(10));
        assert!(badges.get("/badge/a.svg", 0).is_some() && badges.get("/badge/a.svg", 1).is_none());
        badges.insert("/badge/a.svg", 1, &mut response(10));
        assert!(badges.get("/badge/a.svg", 1).is_some());
    }

    #[test]
    fn only_plain_requests_for_badges_have_a_cache_key() {
        let get = || Request::get("/badge/a.svg?x=1").header(HOST, "h");
        let cases = [
            (get(), true),
            (get().method(Method::HEAD), false),
            (get().method(Method::POST), false),
            (get().version(Version::HTTP_10), false),
            (get().header(HOST, "other"), false),
            (get().header(IF_NONE_MATCH, "*"), false),
            (get().uri("/"), false),
            (Request::get("/badge/a.svg"), false),
        ];
        for (request, has_key) in cases {
            let request = request.body(()).unwrap();
            assert_eq!(BadgeCache::cache_key(&request).is_some(), has_key, "{request:?}");
        }
    }

    #[test]
    fn the_memory_is_limited() {
        let badges = BadgeCache::new();
        for n in 0..20_000 {
            badges.insert(&format!("/badge/{n}.svg"), 0, &mut response(10));
        }
        assert!(badges.0.weight() <= MEMORY_LIMIT && badges.0.len() > 1_000);
    }
}
