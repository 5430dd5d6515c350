//! Checks the status and headers of a response against the requested range. Pure functions.

use std::ops::Range;

use hf_meta_format::formats::clip;
use hf_meta_inspect::HttpErrorKind;
use reqwest::StatusCode;
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderName,
};

use super::error::Defect;
use super::rate_limit::parse_digits_saturating;

/// The number of bytes to read from the start of a 200 response, even if fewer were requested. They contain most
/// headers, and a server without range support sends them anyway.
const MIN_WHOLE_FILE_READ: u64 = 1 << 16;

const UNKNOWN_LENGTH: &str = "the server sent the whole file without a `Content-Length`";

const INVALID_CONTENT_RANGE: &str = "`Content-Range` does not have the form `bytes a-b/size`";

/// The description of a `Content-Encoding` that the request did not accept.
pub(super) const UNEXPECTED_ENCODING: &str = "unexpected `Content-Encoding`";

/// The slice of a response body to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodySlice {
    /// The number of bytes to skip before the slice.
    pub(super) offset: u64,
    /// The length of the slice in bytes.
    pub(super) length: u64,
    /// True if the body continues after the slice. The rest is not read.
    pub(super) is_prefix: bool,
    /// The size of the whole file in bytes; `None` if the response does not state it.
    pub(super) file_size: Option<u64>,
}

/// Checks a response against the requested range, and returns the slice of its body to read. Returns `None` for an
/// error status.
///
/// - `206`: `Content-Range` must be exactly the requested range, clamped to the end of the file. Some proxies remove it:
///   then `Content-Length` must not exceed the range, and [`check_end`] must follow.
/// - `200`: the body is the whole file, and the bytes before the range are skipped. A slice that starts at byte 0 may
///   be longer than the range.
/// - `416`: accepted as an empty range if `Content-Range` shows that the file ends before the range.
///
/// # Errors
///
/// If a successful response does not contain the requested bytes.
pub(super) fn check(
    range: &Range<u64>,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<BodySlice>, Defect> {
    match status {
        StatusCode::PARTIAL_CONTENT => partial_content(range, headers).map(Some),
        StatusCode::OK => whole_file(range, headers).map(Some),
        StatusCode::RANGE_NOT_SATISFIABLE => Ok(not_satisfiable(range, headers)),
        _ => Ok(None),
    }
}

/// Checks that a body is not compressed.
pub(super) fn check_encoding(headers: &HeaderMap) -> Result<(), Defect> {
    match headers.get(CONTENT_ENCODING) {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            Err(wrong_headers(UNEXPECTED_ENCODING))
        }
        _ => Ok(()),
    }
}

fn partial_content(range: &Range<u64>, headers: &HeaderMap) -> Result<BodySlice, Defect> {
    check_encoding(headers)?;
    if let (None, Some(length)) = (headers.get(CONTENT_RANGE), content_length(headers))
        && (1..=range.end.saturating_sub(range.start)).contains(&length)
    {
        return Ok(BodySlice { offset: 0, length, is_prefix: false, file_size: None });
    }
    let content_range = header_str(headers, &CONTENT_RANGE).and_then(parse_content_range);
    let missing = || {
        let is_removed = !headers.contains_key(CONTENT_RANGE);
        if is_removed { no_content_range(headers) } else { wrong_headers(INVALID_CONTENT_RANGE) }
    };
    let (found_first, found_last, file_size) = content_range.ok_or_else(missing)?;
    let (first, last) = (range.start, range.end.saturating_sub(1));
    if found_first != first || found_last != last.min(file_size - 1) {
        let found = format!("{found_first}-{found_last} of {file_size}");
        return Err(wrong_headers(format!("requested bytes {first}-{last}, got {found}")));
    }
    let length = found_last - found_first + 1;
    match content_length(headers) {
        Some(found) if found != length => Err(wrong_length(length, found)),
        _ => Ok(BodySlice { offset: 0, length, is_prefix: false, file_size: Some(file_size) }),
    }
}

/// Checks that a slice without `Content-Range` ends where the range or the file ends, which proves that it is the
/// requested range.
pub(super) fn check_end(
    range: &Range<u64>,
    length: u64,
    file_size: Option<u64>,
    headers: &HeaderMap,
) -> Result<u64, Defect> {
    let is_range = |size: &u64| range.start.checked_add(length) == Some(range.end.min(*size));
    file_size.filter(is_range).ok_or_else(|| no_content_range(headers))
}

/// Returns the defect of a response without `Content-Range`, with the name of the server or proxy that may have removed it.
fn no_content_range(headers: &HeaderMap) -> Defect {
    let named = ["via", "x-artifactory-id", "x-jfrog-version", "server"];
    let named = named.iter().find_map(|name| Some((name, headers.get(*name)?.to_str().ok()?)));
    let name =
        named.map_or_else(String::new, |(name, value)| format!(" (`{name}: {}`)", clip(value)));
    wrong_headers(format!(
        "`Content-Range` is missing, so that the bytes may be other ones than requested; a proxy{name} may have \
         removed it"
    ))
}

fn whole_file(range: &Range<u64>, headers: &HeaderMap) -> Result<BodySlice, Defect> {
    check_encoding(headers)?;
    if is_web_page(headers) {
        return Err((HttpErrorKind::WebPage, "the server sent a web page".to_owned()));
    }
    let file_size = content_length(headers).ok_or_else(|| wrong_headers(UNKNOWN_LENGTH))?;
    let end = if range.start == 0 { range.end.max(MIN_WHOLE_FILE_READ) } else { range.end };
    let (offset, end) = (range.start.min(file_size), end.min(file_size));
    let (length, is_prefix) = (end - offset, end < file_size);
    Ok(BodySlice { offset, length, is_prefix, file_size: Some(file_size) })
}

/// Returns an empty slice if a 416 response states the file size and the file ends before the range. The error body is
/// not read.
fn not_satisfiable(range: &Range<u64>, headers: &HeaderMap) -> Option<BodySlice> {
    let file_size =
        parse_digits_saturating(header_str(headers, &CONTENT_RANGE)?.strip_prefix("bytes */")?)?;
    let part = BodySlice { offset: 0, length: 0, is_prefix: true, file_size: Some(file_size) };
    (file_size <= range.start).then_some(part)
}

pub(super) fn wrong_headers(description: impl Into<String>) -> Defect {
    (HttpErrorKind::WrongHeaders, description.into())
}

/// Returns the defect of a body, or of a `Content-Length`, whose length differs from the length of the range.
pub(super) fn wrong_length(expected: u64, found: u64) -> Defect {
    (HttpErrorKind::WrongBody, format!("expected {expected} bytes, got {found}"))
}

/// Returns whether the body is HTML, such as a login page.
fn is_web_page(headers: &HeaderMap) -> bool {
    let start = header_str(headers, &CONTENT_TYPE).and_then(|kind| kind.get(.."text/html".len()));
    start.is_some_and(|start| start.eq_ignore_ascii_case("text/html"))
}

/// Parses `bytes a-b/size` into its three numbers, where `a <= b < size` (RFC 9110, section 14.4).
fn parse_content_range(content_range: &str) -> Option<(u64, u64, u64)> {
    let (unit, rest) = content_range.trim().split_once(' ')?;
    let (span, size) = rest.split_once('/')?;
    let (first, last) = span.split_once('-')?;
    let [first, last, size] = [first, last, size].map(parse_digits_saturating);
    let (first, last, size) = (first?, last?, size?);
    (unit.eq_ignore_ascii_case("bytes") && first <= last && last < size)
        .then_some((first, last, size))
}

pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    parse_digits_saturating(header_str(headers, &CONTENT_LENGTH)?)
}

fn header_str<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::attempt::Requested;
    use crate::http::proptest_config::config;
    use proptest::option;
    use proptest::prelude::*;

    const PREFIX: Range<u64> = 0..8;
    const HEADER: Range<u64> = 8..108;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (
                reqwest::header::HeaderName::from_static(name),
                reqwest::header::HeaderValue::from_static(value),
            )
        };
        pairs.iter().map(pair).collect()
    }

    fn check_response(
        range: &Range<u64>,
        status: u16,
        pairs: &[(&'static str, &'static str)],
    ) -> Result<Option<BodySlice>, Defect> {
        check(range, StatusCode::from_u16(status).unwrap(), &headers(pairs))
    }

    /// Only a third-party format would request no bytes.
    #[test]
    fn an_empty_range_does_not_panic() {
        let headers = headers(&[("content-range", "bytes 0-0/9"), ("content-length", "1")]);
        assert_eq!(Requested::Range(&(0..0)).range().as_deref(), Some("0-0"));
        assert_eq!(partial_content(&(0..0), &headers).map(|part| part.length), Ok(1));
    }

    #[test]
    fn a_206_with_the_requested_range_is_accepted() {
        let part = |length| {
            Ok(Some(BodySlice { offset: 0, length, is_prefix: false, file_size: Some(500) }))
        };
        assert_eq!(check_response(&PREFIX, 206, &[("content-range", "bytes 0-7/500")]), part(8));
        assert_eq!(
            check_response(
                &HEADER,
                206,
                &[("content-range", "bytes 8-107/500"), ("content-length", "100")]
            ),
            part(100)
        );
        let clamped =
            Ok(Some(BodySlice { offset: 0, length: 5, is_prefix: false, file_size: Some(5) }));
        assert_eq!(check_response(&PREFIX, 206, &[("content-range", "bytes 0-4/5")]), clamped);
    }

    #[test]
    fn a_206_with_a_different_range_is_an_error() {
        let mismatch = |found_first: u64, found_last: u64, file_size: u64| {
            let found = format!("{found_first}-{found_last} of {file_size}");
            Err(wrong_headers(format!("requested bytes 8-107, got {found}")))
        };
        let cases = [
            ("bytes 0-99/500", mismatch(0, 99, 500)),
            ("bytes 9-107/500", mismatch(9, 107, 500)),
            ("bytes 8-106/500", mismatch(8, 106, 500)),
            ("bytes 8-108/500", mismatch(8, 108, 500)),
            ("bytes 8-107/*", Err(wrong_headers(INVALID_CONTENT_RANGE))),
            ("bytes 8-107/107", Err(wrong_headers(INVALID_CONTENT_RANGE))),
            ("bytes 107-8/500", Err(wrong_headers(INVALID_CONTENT_RANGE))),
            ("bytes */500", Err(wrong_headers(INVALID_CONTENT_RANGE))),
            ("items 8-107/500", Err(wrong_headers(INVALID_CONTENT_RANGE))),
            ("bytes +8-107/500", Err(wrong_headers(INVALID_CONTENT_RANGE))),
            (
                "bytes 8-18446744073709551616/18446744073709551617",
                Err(wrong_headers(INVALID_CONTENT_RANGE)),
            ),
            ("", Err(wrong_headers(INVALID_CONTENT_RANGE))),
        ];
        for (content_range, error) in cases {
            assert_eq!(
                check_response(&HEADER, 206, &[("content-range", content_range)]),
                error,
                "{content_range}"
            );
        }
    }

    /// Artifactory removes it.
    #[test]
    fn a_206_without_content_range_needs_a_length_that_proves_the_range() {
        let check = |pairs: &[(&'static str, &'static str)], file_size| {
            let headers = headers(pairs);
            let slice = partial_content(&HEADER, &headers)?;
            check_end(&HEADER, slice.length, file_size, &headers)
        };
        assert_eq!(check(&[("content-length", "100")], Some(500)), Ok(500));
        // The file ends inside of the range.
        assert_eq!(check(&[("content-length", "92")], Some(100)), Ok(100));
        let error = |pairs: &[(&'static str, &'static str)], file_size| {
            check(pairs, file_size).unwrap_err().1
        };
        let proxy = ("server", "Artifactory/7.98.9");
        for (length, file_size) in
            [("99", Some(500)), ("100", None), ("0", Some(500)), ("500", Some(500))]
        {
            let message = error(&[("content-length", length), proxy], file_size);
            assert!(message.contains("`server: Artifactory/7.98.9`"), "{message}");
        }
        assert!(error(&[], Some(500)).starts_with("`Content-Range` is missing"));
    }

    #[test]
    fn a_206_with_a_different_length_or_an_encoding_is_an_error() {
        let range = ("content-range", "bytes 8-107/500");
        let short = Err(wrong_length(100, 99));
        assert_eq!(check_response(&HEADER, 206, &[range, ("content-length", "99")]), short);
        assert_eq!(
            check_response(&HEADER, 206, &[range, ("content-encoding", "gzip")]),
            Err(wrong_headers(UNEXPECTED_ENCODING))
        );
        assert!(check_response(&HEADER, 206, &[range, ("content-encoding", "identity")]).is_ok());
    }

    #[test]
    fn the_requested_part_of_a_200_is_read() {
        let part = |offset, length, is_prefix, file_size| {
            Ok(Some(BodySlice { offset, length, is_prefix, file_size: Some(file_size) }))
        };
        let cases = [
            (PREFIX, "500", part(0, 500, false, 500)),
            (PREFIX, "70000", part(0, 65_536, true, 70_000)),
            (PREFIX, "8", part(0, 8, false, 8)),
            (PREFIX, "0", part(0, 0, false, 0)),
            (0..70_000, "90000", part(0, 70_000, true, 90_000)),
            (HEADER, "500", part(8, 100, true, 500)),
            (HEADER, "108", part(8, 100, false, 108)),
            (HEADER, "50", part(8, 42, false, 50)),
            (HEADER, "5", part(5, 0, false, 5)),
        ];
        for (range, size, expected) in cases {
            let checked = check_response(&range, 200, &[("content-length", size)]);
            assert_eq!(checked, expected, "{range:?} of {size}");
        }
        assert_eq!(check_response(&PREFIX, 200, &[]), Err(wrong_headers(UNKNOWN_LENGTH)));
        for kind in ["text/html", "Text/HTML; charset=utf-8"] {
            let headers = [("content-type", kind), ("content-length", "500")];
            let (kind, _) = check_response(&PREFIX, 200, &headers).unwrap_err();
            assert_eq!(kind, HttpErrorKind::WebPage);
        }
    }

    #[test]
    fn a_416_with_the_file_size_is_an_empty_range() {
        let part = |file_size| {
            Ok(Some(BodySlice {
                offset: 0,
                length: 0,
                is_prefix: true,
                file_size: Some(file_size),
            }))
        };
        assert_eq!(check_response(&PREFIX, 416, &[("content-range", "bytes */0")]), part(0));
        assert_eq!(check_response(&HEADER, 416, &[("content-range", "bytes */8")]), part(8));
        assert_eq!(check_response(&HEADER, 416, &[("content-range", "bytes */500")]), Ok(None));
        assert_eq!(check_response(&HEADER, 416, &[]), Ok(None));
    }

    #[test]
    fn other_statuses_return_none() {
        for status in [204, 304, 401, 403, 404, 429, 500, 503] {
            assert_eq!(
                check_response(&PREFIX, status, &[("content-range", "bytes 0-7/500")]),
                Ok(None)
            );
        }
    }

    /// Generates text similar to a `Content-Range`.
    fn similar_text() -> impl Strategy<Value = String> {
        let number = prop_oneof![any::<u64>().prop_map(|n| n.to_string()), "[0-9+*-]{0,22}"];
        let unit = prop_oneof![4 => Just("bytes ".to_owned()), 1 => "[ a-zB=]{0,7}"];
        let joined = (unit, number.clone(), number.clone(), number)
            .prop_map(|(unit, first, last, size)| format!("{unit}{first}-{last}/{size}"));
        prop_oneof![joined, any::<String>()]
    }

    /// Generates first byte, last byte and file size, mostly small.
    fn span() -> impl Strategy<Value = (u64, u64, u64)> {
        let number = || prop_oneof![3 => 0_u64..200, 1 => any::<u64>()];
        (number(), number(), number()).prop_filter_map("not a part of a file", |(a, b, c)| {
            let mut span = [a, b, c];
            span.sort_unstable();
            let [first, last, size] = span;
            (last < size).then_some((first, last, size))
        })
    }

    proptest! {
        #![proptest_config(config(2_000))]

        #[test]
        fn a_valid_content_range_is_parsed_into_its_numbers((first, last, size) in span()) {
            let text = format!("bytes {first}-{last}/{size}");
            prop_assert_eq!(parse_content_range(&text), Some((first, last, size)));
        }

        #[test]
        fn a_parsed_content_range_lies_inside_the_file(text in similar_text()) {
            if let Some((first, last, size)) = parse_content_range(&text) {
                prop_assert!(first <= last && last < size);
                prop_assert_eq!(parse_content_range(&format!("bytes {first}-{last}/{size}")), parse_content_range(&text));
            }
        }

        #[test]
        fn only_the_requested_range_is_accepted(
            (first, last, size) in span(),
            other in option::of(span()),
            beyond in prop_oneof![Just(0), 0_u64..100],
        ) {
            let (start, requested_last, _) = other.unwrap_or((first, last, size));
            let requested_last = requested_last.saturating_add(beyond).min(u64::MAX - 1);
            let range = start..requested_last + 1;
            let text = format!("bytes {first}-{last}/{size}");
            let headers = HeaderMap::from_iter([(CONTENT_RANGE, text.parse().unwrap())]);
            let checked = check(&range, StatusCode::PARTIAL_CONTENT, &headers);
            let is_right = first == start && last == requested_last.min(size - 1);
            prop_assert_eq!(checked.is_ok(), is_right);
            if let Ok(part) = checked {
                let length = range.end.min(size) - start;
                let expected = BodySlice { offset: 0, length, is_prefix: false, file_size: Some(size) };
                prop_assert_eq!(part, Some(expected));
            }
        }
    }
}
