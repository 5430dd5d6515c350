//! Compression of text responses.

use std::io::Write;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue,
    VARY,
};
use axum::http::{Response, StatusCode};
use axum::middleware::Next;
use flate2::Compression;
use flate2::write::GzEncoder;

/// The minimum size of a compressed response, in bytes. Smaller ones fit into one packet.
const MIN_SIZE: usize = 1_400;

/// The maximum size of a compressed response, in bytes.
const MAX_SIZE: usize = 16 << 20;

/// Compresses the page and large JSON for clients that accept gzip.
pub(super) async fn compress(request: Request, next: Next) -> Response<Body> {
    let accepts_gzip = accepts_gzip(request.headers());
    let response = next.run(request).await;
    if response.status() != StatusCode::OK || !is_text(response.headers()) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    head.headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    let size = head.headers.get(CONTENT_LENGTH).and_then(|size| size.to_str().ok()?.parse().ok());
    if !accepts_gzip || !size.is_some_and(|size| (MIN_SIZE..=MAX_SIZE).contains(&size)) {
        return Response::from_parts(head, body);
    }
    // The body is in memory, so this does not wait.
    let bytes = to_bytes(body, MAX_SIZE).await.unwrap_or_default();
    let Some(compressed) = gzip(&bytes).filter(|_| !bytes.is_empty()) else {
        return Response::from_parts(head, Body::from(bytes));
    };
    head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.insert(CONTENT_LENGTH, compressed.len().into());
    // Different bytes must not have the same strong tag (RFC 9110, section 8.8.3.3).
    let weak = head.headers.get(ETAG).map(|etag| [b"W/", etag.as_bytes()].concat());
    if let Some(Ok(weak)) = weak.map(|weak| HeaderValue::from_bytes(&weak)) {
        head.headers.insert(ETAG, weak);
    }
    Response::from_parts(head, Body::from(compressed))
}

fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

/// Returns whether a client accepts gzip: it names the encoding with a quality above 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT_ENCODING).into_iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|encoding| {
        let (name, quality) = encoding.split_once(';').unwrap_or((encoding, ""));
        let is_refused = matches!(quality.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

fn is_text(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let texts = ["text/html", "text/css", "text/javascript", "application/json"];
    content_type.is_some_and(|found| texts.iter().any(|text| found.starts_with(text)))
}
