//! HTTP responses with their caching headers.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderValue,
    IF_NONE_MATCH, RETRY_AFTER,
};
use axum::http::{Response, StatusCode};
use axum::middleware::Next;
use axum::response::IntoResponse;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::badge_cache::CacheableBadge;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// The policy for caches between the service and its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CachePolicy {
    /// The response never changes.
    Immutable,
    /// The response may be cached for this time, and served stale during revalidation.
    Revalidate(Duration),
    /// The response may be cached for this time only.
    Short(Duration),
    /// The response must not be stored, for example because it concerns one client.
    NoStore,
}

/// The content security policy of responses that need nothing.
pub(super) const DEFAULT_POLICY: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

/// The number of seconds after which a client may ask for the result of a pending lookup.
const PENDING_SECONDS: u64 = 5;

/// The number of seconds after which a rejected client may retry: the limits are per minute.
const RETRY_SECONDS: u64 = 60;

impl CachePolicy {
    /// Returns the maximum age in seconds.
    pub(super) fn max_age(self) -> u64 {
        match self {
            Self::Immutable => YEAR.as_secs(),
            Self::Revalidate(max_age) | Self::Short(max_age) => max_age.as_secs(),
            Self::NoStore => 0,
        }
    }

    /// Returns the value of the header `Cache-Control`.
    fn header(self) -> String {
        let max_age = self.max_age();
        match self {
            Self::Immutable => format!("public, max-age={max_age}, immutable"),
            Self::Revalidate(_) => {
                let stale = max_age.max(24 * 3_600);
                format!("public, max-age={max_age}, stale-while-revalidate={stale}")
            }
            Self::Short(_) => format!("public, max-age={max_age}"),
            Self::NoStore => "no-store".to_owned(),
        }
    }
}

/// An HTTP response before its headers are written.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    pub(super) content_security_policy: Cow<'static, str>,
    pub(super) cache_policy: CachePolicy,
    pub(super) body: Bytes,
    /// The time until which the same request gets the same reply, for badges.
    pub(super) fresh_until: Option<Instant>,
}

impl Reply {
    pub(super) fn new(
        status: StatusCode,
        content_type: &'static str,
        body: impl Into<Bytes>,
        cache_policy: CachePolicy,
    ) -> Self {
        Self {
            status,
            content_type,
            content_security_policy: DEFAULT_POLICY.into(),
            cache_policy,
            body: body.into(),
            fresh_until: None,
        }
    }

    pub(super) fn text(status: StatusCode, text: &'static str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", text, CachePolicy::NoStore)
    }

    pub(super) fn json(status: StatusCode, json: impl Into<Bytes>, policy: CachePolicy) -> Self {
        Self::new(status, "application/json; charset=utf-8", json, policy)
    }

    pub(super) fn svg(svg: String, cache_policy: CachePolicy) -> Self {
        // A browser that opens a badge as a document needs its inline style and logo.
        let policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox";
        let reply = Self::new(StatusCode::OK, "image/svg+xml; charset=utf-8", svg, cache_policy);
        Self { content_security_policy: policy.into(), ..reply }
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body.clone()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_LENGTH, self.body.len().into());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        for (name, value) in [
            (CONTENT_SECURITY_POLICY, &*self.content_security_policy),
            (ETAG, &etag(&self.body)),
            (CACHE_CONTROL, &self.cache_policy.header()),
        ] {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        }
        match self.status {
            StatusCode::ACCEPTED => drop(headers.insert(RETRY_AFTER, PENDING_SECONDS.into())),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, RETRY_SECONDS.into());
            }
            _ => {}
        }
        if let Some(fresh_until) = self.fresh_until {
            response.extensions_mut().insert(CacheableBadge { body: self.body, fresh_until });
        }
        response
    }
}

/// Returns an entity tag: 96 bits of the SHA-256 digest of the body. It is weak, because the compressed body has the
/// same tag (RFC 9110, section 8.8.3.3).
fn etag(body: &[u8]) -> String {
    let mut etag = String::from("W/\"");
    for byte in &Sha256::digest(body)[..12] {
        let _ = write!(etag, "{byte:02x}");
    }
    etag + "\""
}

/// Answers a conditional request with `304 Not Modified` if the client already has the response.
pub(super) async fn not_modified(request: Request, next: Next) -> Response<Body> {
    let conditions = request.headers().get_all(IF_NONE_MATCH);
    let conditions: Vec<_> = conditions.into_iter().cloned().collect();
    let mut response = next.run(request).await;
    let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
    let is_known = etag.is_some_and(|etag| conditions.iter().any(|list| matches(list, etag)));
    if is_known && response.status() == StatusCode::OK {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::empty();
        response.headers_mut().remove(CONTENT_LENGTH);
        response.headers_mut().remove(CONTENT_TYPE);
    }
    response
}

/// Returns whether a value of `If-None-Match` contains a weak entity tag, or the strong one with the same text (RFC
/// 9110, section 13.1.2).
fn matches(list: &HeaderValue, etag: &str) -> bool {
    let mut tags = list.to_str().unwrap_or_default().split(',').map(str::trim);
    tags.any(|tag| tag == "*" || tag == etag || etag.strip_prefix("W/") == Some(tag))
}
