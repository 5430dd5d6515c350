//! Caches badge responses in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::http::header::{HOST, HeaderMap, IF_NONE_MATCH};
use axum::http::{Method, Request, Response, Version};
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache as MemoryCache;
use tokio::time::Instant;

/// The maximum total size of all badges in bytes.
const MEMORY_LIMIT: u64 = 8 << 20;

/// The typical size of a badge with its headers, in bytes.
const TYPICAL_BADGE_BYTES: u64 = 2 << 10;

/// The maximum length of a cached request's path and query, in bytes.
const MAX_TARGET_LENGTH: usize = 512;

/// Marks a response as a badge that does not change before `fresh_until`. An extension of the response.
#[derive(Clone)]
pub(super) struct CacheableBadge {
    pub(super) body: Bytes,
    pub(super) fresh_until: Instant,
}

/// Caches badge responses by path and query. Most requests are for a few badges, which are drawn once until their
/// count expires.
pub(super) struct BadgeCache {
    responses: MemoryCache<Box<str>, Arc<BadgeResponse>, BadgeSize>,
    /// Incremented whenever all badges are invalidated.
    generation: AtomicU64,
}

struct BadgeResponse {
    headers: HeaderMap,
    badge: CacheableBadge,
    /// The generation when drawing started.
    generation: u64,
}

#[derive(Clone)]
struct BadgeSize;

impl Weighter<Box<str>, Arc<BadgeResponse>> for BadgeSize {
    fn weight(&self, target: &Box<str>, response: &Arc<BadgeResponse>) -> u64 {
        let headers =
            response.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
        let texts = target.len() + response.badge.body.len() + headers.sum::<usize>();
        (texts + size_of::<BadgeResponse>()) as u64
    }
}

impl BadgeCache {
    pub(super) fn new() -> Self {
        let estimate = usize::try_from(MEMORY_LIMIT / TYPICAL_BADGE_BYTES).unwrap_or(usize::MAX);
        let responses = MemoryCache::with_weighter(estimate, MEMORY_LIMIT, BadgeSize);
        Self { responses, generation: AtomicU64::new(0) }
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
        let is_badge = target.starts_with("/badge/") && target.len() <= MAX_TARGET_LENGTH;
        (is_plain && is_badge).then_some(target)
    }

    /// Returns the cached response for a request target, if it is fresh.
    pub(super) fn get(&self, target: &str) -> Option<Response<Body>> {
        let cached = self.responses.get(target)?;
        if cached.badge.fresh_until <= Instant::now() || cached.generation != self.generation() {
            return None;
        }
        let mut response = Response::new(Body::from(cached.badge.body.clone()));
        *response.headers_mut() = cached.headers.clone();
        Some(response)
    }

    /// Invalidates all badges, including those being drawn, because a count has changed before it expired.
    pub(super) fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the current generation. Call this before drawing a badge.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Caches a response if it is a badge with a lifetime.
    pub(super) fn insert(&self, target: &str, generation: u64, response: &mut Response<Body>) {
        if let Some(badge) = response.extensions_mut().remove::<CacheableBadge>() {
            let headers = response.headers().clone();
            let response = BadgeResponse { headers, badge, generation };
            self.responses.insert(target.into(), Arc::new(response));
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
        assert!(badges.get("/badge/a.svg").is_some() && badges.get("/badge/b.svg").is_none());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(badges.get("/badge/a.svg").is_none());
    }

    #[test]
    fn badges_drawn_before_a_change_are_invalidated() {
        let badges = BadgeCache::new();
        let before = badges.generation();
        badges.insert("/badge/a.svg", before, &mut response(10));
        badges.invalidate();
        badges.insert("/badge/b.svg", before, &mut response(10));
        assert!(badges.get("/badge/a.svg").is_none() && badges.get("/badge/b.svg").is_none());
        badges.insert("/badge/a.svg", badges.generation(), &mut response(10));
        assert!(badges.get("/badge/a.svg").is_some());
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
            (get().uri(format!("/badge/{}", "a".repeat(600))), false),
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
        assert!(badges.responses.weight() <= MEMORY_LIMIT && badges.responses.len() > 1_000);
    }
}
