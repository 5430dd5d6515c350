//! The CDN: signed URLs and the files behind them.
//!
//! A signed URL is valid for one path and one `Range` header until it expires. Its query has the same keys as the
//! real CDN's.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, ETAG};

use super::log::LoggedRequest;
use super::response::ResponseSpec;
use super::route::{self, Route};
use super::state::HubState;

const LIFETIME_SECONDS: u64 = 3600;

pub(super) struct Cdn {
    origin: String,
    /// A random signing key per Hub.
    key: RandomState,
}

impl Cdn {
    pub(super) fn new(origin: String) -> Self {
        Self { origin, key: RandomState::new() }
    }

    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Signs a URL for a path and a range.
    pub(super) fn sign(&self, path: &str, range: Option<&str>) -> String {
        format!("{}{path}?{}", self.origin, self.query(path, range, now() + LIFETIME_SECONDS))
    }

    /// Checks the signature and the expiry of a request. Returns the message of the error response.
    pub(super) fn check(&self, request: &LoggedRequest) -> Result<(), &'static str> {
        let query = request.query.as_deref().unwrap_or_default();
        let expires = query.split('&').find_map(|pair| pair.strip_prefix("Expires="));
        let expires = expires.and_then(|seconds| seconds.parse().ok()).ok_or("Missing Key")?;
        if query != self.query(&request.path, request.range.as_deref(), expires) {
            return Err("The signature does not cover this request");
        }
        if expires < now() { Err("The URL has expired") } else { Ok(()) }
    }

    fn query(&self, path: &str, range: Option<&str>, expires: u64) -> String {
        let policy = route::encode_component(range.unwrap_or("*"));
        let signature = self.key.hash_one((path, range, expires));
        format!("Expires={expires}&Policy={policy}&Signature={signature:016x}&Key-Pair-Id=LOCAL")
    }
}

impl HubState {
    pub(super) fn respond_as_cdn(&self, request: &LoggedRequest) -> ResponseSpec {
        if request.authorization.is_some() {
            return ResponseSpec::text(
                StatusCode::BAD_REQUEST,
                "Only one auth mechanism is allowed",
            );
        }
        if let Err(reason) = self.cdn.check(request) {
            return ResponseSpec::text(StatusCode::FORBIDDEN, reason);
        }
        match Route::parse_storage_path(&request.path).and_then(|route| self.stored(&route)) {
            Some(file) => ResponseSpec::file(&file, request.range.as_deref())
                .with(CONTENT_TYPE, "application/octet-stream")
                .with(ETAG, format!("\"{}\"", file.digest().sha256())),
            None => ResponseSpec::text(StatusCode::NOT_FOUND, "No such object"),
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
