//! How long a server asks to be left alone. Pure functions over headers.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};

/// How long an answer asks its readers to wait before the next request; `None` where it asks nothing.
///
/// `RateLimit` says when the quota is full again, and so counts only when nothing is left of it: the
/// Hub sends it with every answer, fine ones too, and a `429` with something left is about another
/// limit. `Retry-After` is the older way to say it, and says it of an error.
pub(super) fn of(status: u16, headers: &HeaderMap) -> Option<Duration> {
    asked(status, headers, SystemTime::now())
}

fn asked(status: u16, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    text("ratelimit").and_then(rate_limit).or_else(|| {
        let asked = text(RETRY_AFTER.as_str()).filter(|_| may_pass(status));
        asked.and_then(|text| retry_after(text, now))
    })
}

/// Whether a server that answers so may answer differently a little later.
pub(super) fn may_pass(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

/// The time to the next window of the longest quota of which nothing is left:
/// `"resolvers";r=0;t=55` is 55 seconds, and one more because `t` is rounded.
///
/// Source: `draft-ietf-httpapi-ratelimit-headers-09`, and the Hub's page on rate limits.
fn rate_limit(text: &str) -> Option<Duration> {
    let waits = text.split(',').filter_map(|item| {
        let mut parameters = item.split(';').skip(1).filter_map(|pair| pair.trim().split_once('='));
        let (mut remaining, mut seconds) = (None, None);
        parameters.try_for_each(|(key, value)| {
            let slot = match key {
                "r" => &mut remaining,
                "t" => &mut seconds,
                _ => return Some(()),
            };
            *slot = Some(number(value)?);
            Some(())
        })?;
        (remaining == Some(0)).then_some(Duration::from_secs(seconds?.saturating_add(1)))
    });
    waits.max()
}

/// Seconds, or a date of HTTP.
fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let until = |date: SystemTime| date.duration_since(now).unwrap_or_default();
    let seconds = number(text).map(Duration::from_secs);
    seconds.or_else(|| httpdate::parse_http_date(text).ok().map(until))
}

/// Digits alone; more of them than a number has are a very long time.
fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::properties::config;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn wait(pairs: &[(&'static str, &'static str)]) -> Option<u64> {
        let now = httpdate::parse_http_date("Sat, 21 Nov 2026 12:00:00 GMT").unwrap();
        let pair = |(name, value): &(&'static str, &'static str)| {
            use reqwest::header::{HeaderName, HeaderValue};
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        asked(429, &pairs.iter().map(pair).collect(), now).map(|wait| wait.as_secs())
    }

    #[test]
    fn quotas() {
        let cases = [
            (r#""resolvers";r=0;t=55"#, Some(56)),
            (r#""resolvers";r=2996;t=281"#, None),
            (r#""api";r=0;t=3, "resolvers";r=0;t=55"#, Some(56)),
            (r#""api";r=3;t=300, "resolvers";r=0;t=5"#, Some(6)),
            (r#""resolvers"; r=0 ;t=55"#, Some(56)),
            (r#""resolvers";t=55"#, None),
            (r#""resolvers";r=0"#, None),
            (r#""resolvers";r=0;t=-1"#, None),
            (r#""resolvers";r=0;t=99999999999999999999"#, Some(u64::MAX)),
            ("", None),
            (";;;==,,", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(wait(&[("ratelimit", text)]), seconds, "{text}");
        }
    }

    #[test]
    fn retry_after_in_both_forms() {
        let cases = [
            ("7", Some(7)),
            (" 7 ", Some(7)),
            ("Sat, 21 Nov 2026 12:00:30 GMT", Some(30)),
            ("Sat, 21 Nov 2026 11:00:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
            ("1.5", None),
            ("", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(wait(&[("retry-after", text)]), seconds, "{text}");
        }
    }

    #[test]
    fn an_empty_quota_outweighs_retry_after() {
        let both = |quota| wait(&[("ratelimit", quota), ("retry-after", "7")]);
        assert_eq!(both(r#""resolvers";r=0;t=55"#), Some(56));
        assert_eq!(both(r#""resolvers";r=9;t=55"#), Some(7));
    }

    /// Quotas by name, what is left of each, and the seconds to its next window.
    fn quotas_of_a_server() -> impl Strategy<Value = Vec<(String, u64, u64)>> {
        let left = prop_oneof![Just(0), any::<u64>()];
        let seconds = prop_oneof![0_u64..1_000, any::<u64>()];
        vec(("[a-z ]{1,9}", left, seconds), 1..4)
    }

    proptest! {
        #![proptest_config(config(1_000))]

        #[test]
        fn the_longest_of_the_empty_quotas_is_waited_for(
            quotas in quotas_of_a_server(),
            separator in select(&[";", " ; ", "; "][..]),
            more in select(&["", ";pk=:abc:", ";q=9"][..]),
        ) {
            let item = |(name, left, seconds): &(String, u64, u64)| {
                format!("\"{name}\"{separator}r={left}{more}{separator}t={seconds}")
            };
            let text = quotas.iter().map(item).collect::<Vec<_>>().join(", ");
            let empty = quotas.iter().filter(|(_, left, _)| *left == 0);
            let longest = empty.map(|(.., seconds)| seconds.saturating_add(1)).max();
            prop_assert_eq!(rate_limit(&text), longest.map(Duration::from_secs), "{}", text);
        }

        #[test]
        fn retry_after_is_read_as_it_was_written(seconds: u64, ahead in 0_u64..10_000_000_000) {
            let now = httpdate::parse_http_date("Sat, 21 Nov 2026 12:00:00 GMT").unwrap();
            let as_seconds = retry_after(&seconds.to_string(), now);
            prop_assert_eq!(as_seconds, Some(Duration::from_secs(seconds)));
            let ahead = Duration::from_secs(ahead);
            let date = httpdate::fmt_http_date(now + ahead);
            prop_assert_eq!(retry_after(&date, now), Some(ahead));
            prop_assert_eq!(retry_after(&date, now + ahead + ahead), Some(Duration::ZERO));
        }

        #[test]
        fn text_that_says_no_time_asks_for_none(
            text in prop_oneof![any::<String>(), "[a-z\"=;, 0-9rt-]{0,40}"],
        ) {
            if rate_limit(&text).is_some() {
                prop_assert!(text.contains("r=0") && text.contains("t="), "{}", text);
            }
            let is_number = !text.trim().is_empty() && text.trim().bytes().all(|b| b.is_ascii_digit());
            prop_assert_eq!(retry_after(&text, SystemTime::UNIX_EPOCH).is_some(), is_number);
        }
    }
}
