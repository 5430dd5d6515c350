//! The CDN: signed URLs, and what is served for them.
//!
//! A URL serves the path and the `Range` header it was made for, until it expires, and nothing else. Its query has the
//! keys of the real ones.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, ETAG};

use super::answer::Answer;
use super::log::LoggedRequest;
use super::route::{self, Route};
use super::site::Site;

const LIFETIME_SECONDS: u64 = 3600;

pub struct Cdn {
    origin: String,
    /// Random for each Hub, so that no URL outlives the one that made it.
    key: RandomState,
}

impl Cdn {
    pub fn new(origin: String) -> Self {
        Self { origin, key: RandomState::new() }
    }

    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// A URL for a request to this path with exactly this range.
    pub fn sign(&self, path: &str, range: Option<&str>) -> String {
        format!("{}{path}?{}", self.origin, self.query(path, range, now() + LIFETIME_SECONDS))
    }

    /// Returns the error of a request's URL, if any.
    pub fn check(&self, request: &LoggedRequest) -> Result<(), &'static str> {
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

impl Site {
    pub fn answer_as_cdn(&self, request: &LoggedRequest) -> Answer {
        if request.authorization.is_some() {
            return Answer::text(StatusCode::BAD_REQUEST, "Only one auth mechanism is allowed");
        }
        if let Err(reason) = self.cdn.check(request) {
            return Answer::text(StatusCode::FORBIDDEN, reason);
        }
        match Route::parse_place(&request.path).and_then(|route| self.stored(&route)) {
            Some(file) => Answer::file(&file, request.range.as_deref())
                .with(CONTENT_TYPE, "application/octet-stream")
                .with(ETAG, format!("\"{}\"", file.digest().sha256())),
            None => Answer::text(StatusCode::NOT_FOUND, "No such object"),
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
