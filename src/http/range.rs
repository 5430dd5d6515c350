//! Whether an answer is the range that was asked for. Pure functions over status and headers.

use std::ops::Range;

use reqwest::StatusCode;
use reqwest::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap};

use super::RangeError;

/// What to take of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// How many bytes from its start on.
    pub(super) length: u64,
    /// Whether the body goes on after them, and is to be dropped there.
    pub(super) more: bool,
    /// The size of the whole file in bytes.
    pub(super) file_size: u64,
}

/// The part of a body that is the range; `None` when the status says that there is no such body.
///
/// A `206` must say exactly the range that was asked for, or the part of it up to the end of the
/// file. A `200` is the whole file: of use for a range that starts where the file does.
pub(super) fn check(
    range: &Range<u64>,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<Part>, RangeError> {
    match status {
        StatusCode::PARTIAL_CONTENT => partial(range, headers).map(Some),
        StatusCode::OK => whole(range, headers).map(Some),
        StatusCode::RANGE_NOT_SATISFIABLE => Ok(unsatisfied(range, headers)),
        _ => Ok(None),
    }
}

/// Refuses a body that is not the file's own bytes.
fn check_encoding(headers: &HeaderMap) -> Result<(), RangeError> {
    match headers.get(CONTENT_ENCODING) {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            Err(RangeError::UnexpectedEncoding)
        }
        _ => Ok(()),
    }
}

fn partial(range: &Range<u64>, headers: &HeaderMap) -> Result<Part, RangeError> {
    check_encoding(headers)?;
    let found =
        text(headers, &CONTENT_RANGE).and_then(parse).ok_or(RangeError::InvalidContentRange)?;
    let (found_first, found_last, file_size) = found;
    let (first, last) = (range.start, range.end - 1);
    if found_first != first || found_last != last.min(file_size - 1) {
        return Err(RangeError::Mismatch { first, last, found_first, found_last, file_size });
    }
    let length = found_last - found_first + 1;
    match content_length(headers) {
        Some(found) if found != length => Err(RangeError::WrongLength { expected: length, found }),
        _ => Ok(Part { length, more: false, file_size }),
    }
}

fn whole(range: &Range<u64>, headers: &HeaderMap) -> Result<Part, RangeError> {
    check_encoding(headers)?;
    if range.start != 0 {
        return Err(RangeError::Unsupported);
    }
    let file_size = content_length(headers).ok_or(RangeError::UnknownLength)?;
    Ok(Part { length: range.end.min(file_size), more: range.end < file_size, file_size })
}

/// A `416` that says how long the file is tells that it ends before the range starts.
fn unsatisfied(range: &Range<u64>, headers: &HeaderMap) -> Option<Part> {
    let file_size = number(text(headers, &CONTENT_RANGE)?.strip_prefix("bytes */")?)?;
    (file_size <= range.start).then_some(Part { length: 0, more: true, file_size })
}

/// First byte, last byte and size of `bytes a-b/size`, where a ≤ b < size.
fn parse(content_range: &str) -> Option<(u64, u64, u64)> {
    let (unit, rest) = content_range.trim().split_once(' ')?;
    let (span, size) = rest.split_once('/')?;
    let (first, last) = span.split_once('-')?;
    let (first, last, size) = (number(first)?, number(last)?, number(size)?);
    (unit.eq_ignore_ascii_case("bytes") && first <= last && last < size)
        .then_some((first, last, size))
}

/// Digits alone: `u64::from_str` takes a `+` too.
fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    number(text(headers, &CONTENT_LENGTH)?)
}

fn text<'a>(headers: &'a HeaderMap, name: &reqwest::header::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::properties::config;
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

    fn verdict(
        range: &Range<u64>,
        status: u16,
        pairs: &[(&'static str, &'static str)],
    ) -> Result<Option<Part>, RangeError> {
        check(range, StatusCode::from_u16(status).unwrap(), &headers(pairs))
    }

    #[test]
    fn partial_content() {
        let part = |length| Ok(Some(Part { length, more: false, file_size: 500 }));
        assert_eq!(verdict(&PREFIX, 206, &[("content-range", "bytes 0-7/500")]), part(8));
        assert_eq!(
            verdict(
                &HEADER,
                206,
                &[("content-range", "bytes 8-107/500"), ("content-length", "100")]
            ),
            part(100)
        );
        let clamped = Ok(Some(Part { length: 5, more: false, file_size: 5 }));
        assert_eq!(verdict(&PREFIX, 206, &[("content-range", "bytes 0-4/5")]), clamped);
    }

    #[test]
    fn other_ranges_than_the_one_asked_for() {
        let mismatch = |found_first, found_last, file_size| {
            Err(RangeError::Mismatch { first: 8, last: 107, found_first, found_last, file_size })
        };
        let cases = [
            ("bytes 0-99/500", mismatch(0, 99, 500)),
            ("bytes 9-107/500", mismatch(9, 107, 500)),
            ("bytes 8-106/500", mismatch(8, 106, 500)),
            ("bytes 8-108/500", mismatch(8, 108, 500)),
            ("bytes 8-107/*", Err(RangeError::InvalidContentRange)),
            ("bytes 8-107/107", Err(RangeError::InvalidContentRange)),
            ("bytes 107-8/500", Err(RangeError::InvalidContentRange)),
            ("bytes */500", Err(RangeError::InvalidContentRange)),
            ("items 8-107/500", Err(RangeError::InvalidContentRange)),
            ("bytes +8-107/500", Err(RangeError::InvalidContentRange)),
            (
                "bytes 8-18446744073709551616/18446744073709551617",
                Err(RangeError::InvalidContentRange),
            ),
            ("", Err(RangeError::InvalidContentRange)),
        ];
        for (content_range, error) in cases {
            assert_eq!(
                verdict(&HEADER, 206, &[("content-range", content_range)]),
                error,
                "{content_range}"
            );
        }
        assert_eq!(verdict(&HEADER, 206, &[]), Err(RangeError::InvalidContentRange));
    }

    #[test]
    fn bodies_that_contradict_their_headers() {
        let range = ("content-range", "bytes 8-107/500");
        let short = Err(RangeError::WrongLength { expected: 100, found: 99 });
        assert_eq!(verdict(&HEADER, 206, &[range, ("content-length", "99")]), short);
        assert_eq!(
            verdict(&HEADER, 206, &[range, ("content-encoding", "gzip")]),
            Err(RangeError::UnexpectedEncoding)
        );
        assert!(verdict(&HEADER, 206, &[range, ("content-encoding", "identity")]).is_ok());
    }

    #[test]
    fn whole_files() {
        let part = |length, more, file_size| Ok(Some(Part { length, more, file_size }));
        assert_eq!(verdict(&PREFIX, 200, &[("content-length", "500")]), part(8, true, 500));
        assert_eq!(verdict(&PREFIX, 200, &[("content-length", "8")]), part(8, false, 8));
        assert_eq!(verdict(&PREFIX, 200, &[("content-length", "0")]), part(0, false, 0));
        assert_eq!(verdict(&PREFIX, 200, &[]), Err(RangeError::UnknownLength));
        assert_eq!(
            verdict(&HEADER, 200, &[("content-length", "500")]),
            Err(RangeError::Unsupported)
        );
    }

    #[test]
    fn files_that_end_before_the_range() {
        let part = |file_size| Ok(Some(Part { length: 0, more: true, file_size }));
        assert_eq!(verdict(&PREFIX, 416, &[("content-range", "bytes */0")]), part(0));
        assert_eq!(verdict(&HEADER, 416, &[("content-range", "bytes */8")]), part(8));
        assert_eq!(verdict(&HEADER, 416, &[("content-range", "bytes */500")]), Ok(None));
        assert_eq!(verdict(&HEADER, 416, &[]), Ok(None));
    }

    #[test]
    fn other_statuses_are_for_the_caller() {
        for status in [204, 304, 401, 403, 404, 429, 500, 503] {
            assert_eq!(verdict(&PREFIX, status, &[("content-range", "bytes 0-7/500")]), Ok(None));
        }
    }

    /// What is nearly the value of a `Content-Range`.
    fn nearly() -> impl Strategy<Value = String> {
        let number = prop_oneof![any::<u64>().prop_map(|n| n.to_string()), "[0-9+*-]{0,22}"];
        let unit = prop_oneof![4 => Just("bytes ".to_owned()), 1 => "[ a-zB=]{0,7}"];
        let joined = (unit, number.clone(), number.clone(), number)
            .prop_map(|(unit, first, last, size)| format!("{unit}{first}-{last}/{size}"));
        prop_oneof![joined, any::<String>()]
    }

    /// First byte, last byte and size of a part of a file, most of them small.
    fn span() -> impl Strategy<Value = (u64, u64, u64)> {
        let number = || prop_oneof![3 => 0_u64..200, 1 => any::<u64>()];
        (number(), number(), number()).prop_filter_map("no part of a file", |(a, b, c)| {
            let mut span = [a, b, c];
            span.sort_unstable();
            let [first, last, size] = span;
            (last < size).then_some((first, last, size))
        })
    }

    proptest! {
        #![proptest_config(config(2_000))]

        #[test]
        fn a_part_of_a_file_is_read_as_it_was_written((first, last, size) in span()) {
            let text = format!("bytes {first}-{last}/{size}");
            prop_assert_eq!(parse(&text), Some((first, last, size)));
        }

        #[test]
        fn what_is_read_is_a_part_of_a_file(text in nearly()) {
            if let Some((first, last, size)) = parse(&text) {
                prop_assert!(first <= last && last < size);
                prop_assert_eq!(parse(&format!("bytes {first}-{last}/{size}")), parse(&text));
            }
        }

        #[test]
        fn a_part_is_taken_only_if_it_was_asked_for(
            (first, last, size) in span(),
            other in option::of(span()),
            beyond in prop_oneof![Just(0), 0_u64..100],
        ) {
            let (start, asked_last, _) = other.unwrap_or((first, last, size));
            let asked_last = asked_last.saturating_add(beyond).min(u64::MAX - 1);
            let range = start..asked_last + 1;
            let text = format!("bytes {first}-{last}/{size}");
            let headers = HeaderMap::from_iter([(CONTENT_RANGE, text.parse().unwrap())]);
            let taken = check(&range, StatusCode::PARTIAL_CONTENT, &headers);
            let is_right = first == start && last == asked_last.min(size - 1);
            prop_assert_eq!(taken.is_ok(), is_right);
            if let Ok(part) = taken {
                let length = range.end.min(size) - start;
                prop_assert_eq!(part, Some(Part { length, more: false, file_size: size }));
            }
        }
    }
}
