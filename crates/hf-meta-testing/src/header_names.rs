//! Names of response headers that the Hub adds.

use hyper::header::HeaderName;

pub(super) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const X_ERROR_CODE: HeaderName = HeaderName::from_static("x-error-code");
pub(super) const X_ERROR_MESSAGE: HeaderName = HeaderName::from_static("x-error-message");
pub(super) const X_LINKED_ETAG: HeaderName = HeaderName::from_static("x-linked-etag");
pub(super) const X_LINKED_SIZE: HeaderName = HeaderName::from_static("x-linked-size");
pub(super) const X_REPO_COMMIT: HeaderName = HeaderName::from_static("x-repo-commit");
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
