//! Creates the errors of HTTP requests.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::SystemTime;

use ::url::Url;
use hf_meta_format::formats::clip;
use hf_meta_inspect::{HttpError, HttpErrorKind, HubError, Refusal};
use reqwest::Response;
use reqwest::header::HeaderMap;

use super::SafeUrl;
use super::address::AddressError;
use super::rate_limit::{self, RateLimitBucket};
use super::tls::{TlsFailure, tls_failure};

/// A defect of a response, with its description.
pub(super) type Defect = (HttpErrorKind, String);

/// Classifies an error of the HTTP library. The proxy of the URL is shown if no connection was established.
pub(super) fn transport(
    url: &SafeUrl,
    error: reqwest::Error,
    proxy: impl FnOnce() -> Option<SafeUrl>,
) -> HttpError {
    if causes(&error).any(<dyn StdError>::is::<AddressError>) {
        return forbidden_address(url);
    }
    let (kind, step) = if error.is_builder() {
        (HttpErrorKind::Setup, "failed to create an HTTP client for")
    } else if !cfg!(feature = "rustls-no-provider") && url.0.starts_with("https:") {
        (HttpErrorKind::Setup, "this build has no TLS (feature `rustls-aws-lc`) for")
    } else if tls_cause(&error) == Some(TlsFailure::Certificate) {
        (HttpErrorKind::Certificate, "failed to verify the certificate of")
    } else if error.is_timeout() {
        (HttpErrorKind::Timeout, "timed out while reading")
    } else if error.is_connect() {
        (HttpErrorKind::Connect, "failed to connect to")
    } else {
        (HttpErrorKind::Interrupted, "lost the connection while reading")
    };
    let proxy = if kind == HttpErrorKind::Connect { proxy() } else { None };
    let proxy = proxy.map_or_else(String::new, |proxy| format!(" via proxy `{proxy}`"));
    let source: Arc<dyn StdError + Send + Sync> = Arc::new(error.without_url());
    HttpError::new(kind, format!("{step} `{url}`{proxy}")).with_source(source)
}

pub(super) fn forbidden_address(url: &SafeUrl) -> HttpError {
    let message = format!("the address of `{url}` is not public, so it was not requested");
    HttpError::new(HttpErrorKind::ForbiddenAddress, message)
}

/// Creates the error for an unexpected status in the response to `requested`.
pub(super) fn status(requested: &Url, response: &Response) -> HttpError {
    let response = error_response(requested, response);
    let message = response.to_string();
    HttpError::new(HttpErrorKind::Status(Box::new(response)), message)
}

/// Creates the error for a response that is not the requested range or file.
pub(crate) fn defect(url: &Url, (kind, defect): Defect) -> HttpError {
    let message = format!("unexpected response from `{}`", SafeUrl::from(url));
    let source: Box<dyn StdError + Send + Sync> = defect.into();
    HttpError::new(kind, message).with_source(source.into())
}

pub(super) fn too_large(url: &Url, limit: u64) -> HttpError {
    let message = format!("`{}` exceeds the limit of {limit} bytes", SafeUrl::from(url));
    HttpError::new(HttpErrorKind::TooLarge { limit }, message)
}

/// Creates the error for a request that the budget of its call ended.
pub(crate) fn over_budget(url: &Url, Refusal(reason): Refusal) -> HttpError {
    let message = format!("stopped reading `{}`", SafeUrl::from(url));
    HttpError::new(HttpErrorKind::OverBudget, message).with_source(reason)
}

/// Returns the failure of the TLS handshake, if that is the cause.
pub(super) fn tls_cause(error: &reqwest::Error) -> Option<TlsFailure> {
    causes(error).find_map(tls_failure)
}

/// Returns whether the request shared the connection attempt of another request, and that attempt failed.
///
/// Only the request that made the attempt has an I/O error among its causes.
pub(super) fn is_shared_connect(error: &reqwest::Error) -> bool {
    error.is_connect() && causes(error).all(|cause| !cause.is::<std::io::Error>())
}

/// Returns the causes of an error, outermost first.
fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}

/// Returns the error response to `requested`, with what its headers say.
fn error_response(requested: &Url, response: &Response) -> HubError {
    let (url, status) = (response.url(), response.status().as_u16());
    let (headers, bucket) = (response.headers(), RateLimitBucket::from_url(url));
    let ids = ["x-request-id", "x-amzn-trace-id", "x-amz-cf-id"];
    let mut error = HubError::new(SafeUrl::from(url).to_string(), status);
    error.code = text(headers, "x-error-code");
    error.message = text(headers, "x-error-message");
    error.request_id = ids.into_iter().find_map(|name| text(headers, name));
    error.retry_after = rate_limit::required_wait(status, headers, bucket, SystemTime::now());
    error.commit = text(headers, "x-repo-commit").and_then(|commit| commit.parse().ok());
    error.is_cross_origin = url.origin() != requested.origin();
    error
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(clip)
}
