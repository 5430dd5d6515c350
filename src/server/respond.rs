//! Answers to requests, with the headers that each kind of them has.

use std::fmt::Write as _;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, CONTENT_LENGTH,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH,
    REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{Response, StatusCode};
use bytes::Bytes;
use sha2::{Digest, Sha256};

const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");

/// As good as for ever.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// What others may do with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caching {
    /// It will never be another one.
    Immutable,
    /// It may be given for so long, and after that while a new one is fetched.
    For(Duration),
    /// It may be given for so long and not longer.
    Briefly(Duration),
    /// It is of this moment.
    Never,
}

impl Caching {
    /// How long an answer may be given, in seconds.
    pub(super) fn seconds(self) -> u64 {
        match self {
            Self::Immutable => A_YEAR.as_secs(),
            Self::For(time) | Self::Briefly(time) => time.as_secs(),
            Self::Never => 0,
        }
    }

    fn header(self) -> String {
        let seconds = self.seconds();
        match self {
            Self::Immutable => format!("public, max-age={seconds}, immutable"),
            Self::For(_) => {
                let stale = seconds.max(24 * 3_600);
                format!("public, max-age={seconds}, stale-while-revalidate={stale}")
            }
            Self::Briefly(_) => format!("public, max-age={seconds}"),
            Self::Never => "no-store".to_owned(),
        }
    }
}

/// An answer that is to be made.
pub(super) struct Answered {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    pub(super) policy: &'static str,
    pub(super) caching: Caching,
    pub(super) body: Bytes,
}

impl Answered {
    /// A picture. An image proxy shows nothing for any other status.
    pub(super) fn svg(svg: String, caching: Caching) -> Self {
        Self {
            status: StatusCode::OK,
            content_type: "image/svg+xml; charset=utf-8",
            // For those who open a badge as a page: it may have its own style and its own logo.
            policy: "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox",
            caching,
            body: svg.into(),
        }
    }

    pub(super) fn json(status: StatusCode, json: impl Into<Bytes>, caching: Caching) -> Self {
        Self::plain(status, "application/json; charset=utf-8", json, caching)
    }

    /// Something that no browser shows as a page.
    pub(super) fn plain(
        status: StatusCode,
        content_type: &'static str,
        body: impl Into<Bytes>,
        caching: Caching,
    ) -> Self {
        let policy = "default-src 'none'; frame-ancestors 'none'; sandbox";
        Self { status, content_type, policy, caching, body: body.into() }
    }

    /// The answer to a request with these headers: nothing but headers where the reader has it already.
    pub(super) fn to(self, asked: &HeaderMap) -> Response<Body> {
        let etag = etag(&self.body);
        let is_known = self.status == StatusCode::OK && has(asked, &etag);
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        self.describe(headers, &etag);
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            headers.insert(CONTENT_LENGTH, self.body.len().into());
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
            *response.status_mut() = self.status;
            *response.body_mut() = Body::from(self.body);
        }
        response
    }

    /// Sets the headers that there are whether the body is sent or not.
    fn describe(&self, headers: &mut HeaderMap, etag: &str) {
        for (name, value) in [(ETAG, etag), (CACHE_CONTROL, &self.caching.header())] {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        }
        for (name, value) in [
            (CONTENT_SECURITY_POLICY, self.policy),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
            (ACCESS_CONTROL_EXPOSE_HEADERS, "ETag, Retry-After"),
            (CROSS_ORIGIN_RESOURCE_POLICY, "cross-origin"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if matches!(self.status.as_u16(), 202 | 429 | 503) {
            headers.insert(RETRY_AFTER, self.caching.seconds().max(1).into());
        }
    }
}

/// A name for exactly these bytes: what is known of a commit, in one style.
fn etag(body: &[u8]) -> String {
    let mut etag = String::from('"');
    for byte in &Sha256::digest(body)[..12] {
        let _ = write!(etag, "{byte:02x}");
    }
    etag + "\""
}

/// Whether a reader has an answer: by its exact name, or by any.
fn has(asked: &HeaderMap, etag: &str) -> bool {
    let lines = asked.get_all(IF_NONE_MATCH).into_iter().filter_map(|line| line.to_str().ok());
    let mut names = lines.flat_map(|line| line.split(',').map(str::trim));
    // Proxies that compress make a name a weak one; for a `GET` that makes no difference.
    names.any(|name| name == "*" || name.strip_prefix("W/").unwrap_or(name) == etag)
}
