//! Parses the quotas and waits in rate limit headers. Pure functions.

use std::time::{Duration, SystemTime};

use ::url::Url;
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// A class of requests with its own quota on the Hub: <https://huggingface.co/docs/hub/rate-limits>.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RateLimitBucket {
    /// Listings and other JSON responses.
    Api,
    /// Files.
    Resolvers,
    /// Everything else, including requests to other servers.
    Pages,
}

impl RateLimitBucket {
    /// Returns the bucket of a request.
    pub(super) fn from_url(url: &Url) -> Self {
        let path = url.path();
        if path.contains("/resolve/") || path.contains("/api/resolve-cache/") {
            Self::Resolvers
        } else if path.contains("/api/") {
            Self::Api
        } else {
            Self::Pages
        }
    }

    /// Returns the bucket for a name in a `RateLimit` header.
    fn from_name(name: &str) -> Option<Self> {
        match name.trim().trim_matches('"') {
            "api" => Some(Self::Api),
            "resolvers" => Some(Self::Resolvers),
            "pages" => Some(Self::Pages),
            _ => None,
        }
    }
}

/// A quota in a `RateLimit` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quota {
    /// The bucket the quota applies to. If its name is unknown, it is the bucket of the request.
    pub(super) bucket: RateLimitBucket,
    /// The number of remaining requests.
    pub(super) remaining: u64,
    /// The time until the quota is reset.
    pub(super) reset: Duration,
}

/// Returns the wait that a response requires before the next request to the same bucket, if any.
///
/// The `RateLimit` header matters only if a quota is exhausted: the Hub sends it with every response, including
/// successes. `Retry-After` matters only with a retryable status.
pub(super) fn required_wait(
    status: u16,
    headers: &HeaderMap,
    bucket: RateLimitBucket,
    now: SystemTime,
) -> Option<Duration> {
    let is_exhausted = |quota: &Quota| quota.remaining == 0 && quota.bucket == bucket;
    let exhausted = quotas(headers, bucket).into_iter().filter(is_exhausted);
    exhausted.map(|quota| quota.reset).max().or_else(|| {
        let value = if is_retryable(status) { headers.get(RETRY_AFTER) } else { None };
        // A date that is past on our clock is ignored, so the policy's own delay applies.
        retry_after(value?.to_str().ok()?, now).filter(|wait| !wait.is_zero())
    })
}

/// Returns whether a status is transient, which means that a retry may succeed.
pub(super) fn is_retryable(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

/// Returns the quotas of a `RateLimit` header. `requested` is the bucket of the request.
pub(super) fn quotas(headers: &HeaderMap, requested: RateLimitBucket) -> Vec<Quota> {
    let text = headers.get("ratelimit").and_then(|value| value.to_str().ok());
    let quotas = text.unwrap_or_default().split(',');
    quotas.filter_map(|quota| parse_quota(quota, requested)).collect()
}

/// Parses a quota with `r`, the remaining requests, and `t`, the seconds until the reset:
/// `"resolvers";r=0;t=55`.
///
/// One second is added because `t` is rounded. Formats:
/// <https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-09> and
/// <https://huggingface.co/docs/hub/rate-limits>.
fn parse_quota(text: &str, requested: RateLimitBucket) -> Option<Quota> {
    let (name, parameters) = text.split_once(';')?;
    let parameter = |name: &str| {
        let mut pairs = parameters.split(';').filter_map(|pair| pair.trim().split_once('='));
        let (_, value) = pairs.find(|(key, _)| *key == name)?;
        parse_digits_saturating(value)
    };
    Some(Quota {
        bucket: RateLimitBucket::from_name(name).unwrap_or(requested),
        remaining: parameter("r")?,
        reset: Duration::from_secs(parameter("t")?.saturating_add(1)),
    })
}

/// Parses a `Retry-After` header: seconds or an HTTP date (RFC 9110, section 10.2.3). A past date is a wait
/// of zero.
fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let until = |date: SystemTime| date.duration_since(now).unwrap_or_default();
    let seconds = parse_digits_saturating(text).map(Duration::from_secs);
    seconds.or_else(|| httpdate::parse_http_date(text).ok().map(until))
}

/// Parses decimal digits, saturating at `u64::MAX`. `u64::from_str` would also accept a `+`.
pub(super) fn parse_digits_saturating(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::proptest_config::config;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn wait_seconds(pairs: &[(&'static str, &'static str)]) -> Option<u64> {
        let now = httpdate::parse_http_date("Sat, 21 Nov 2026 12:00:00 GMT").unwrap();
        let pair = |(name, value): &(&'static str, &'static str)| {
            use reqwest::header::{HeaderName, HeaderValue};
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let (headers, bucket) = (pairs.iter().map(pair).collect(), RateLimitBucket::Resolvers);
        required_wait(429, &headers, bucket, now).map(|wait| wait.as_secs())
    }

    #[test]
    fn an_exhausted_quota_requires_a_wait_until_its_reset() {
        let cases = [
            (r#""resolvers";r=0;t=55"#, Some(56)),
            (r#""resolvers";r=2996;t=281"#, None),
            (r#""api";r=0;t=3, "resolvers";r=0;t=55"#, Some(56)),
            (r#""api";r=3;t=300, "resolvers";r=0;t=5"#, Some(6)),
            (r#""api";r=0;t=300, "resolvers";r=3;t=5"#, None),
            (r#""api";r=0;t=290"#, None),
            (r#""other";r=0;t=55"#, Some(56)),
            (r#""resolvers"; r=0 ;t=55"#, Some(56)),
            (r#""resolvers";t=55"#, None),
            (r#""resolvers";r=0"#, None),
            (r#""resolvers";r=0;t=-1"#, None),
            (r#""resolvers";r=0;t=99999999999999999999"#, Some(u64::MAX)),
            ("", None),
            (";;;==,,", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(wait_seconds(&[("ratelimit", text)]), seconds, "{text}");
        }
    }

    #[test]
    fn the_path_of_a_request_decides_its_bucket() {
        let cases = [
            ("https://hub.example/org/x/resolve/main/api/y", RateLimitBucket::Resolvers),
            ("https://hub.example/api/resolve-cache/models/x/y", RateLimitBucket::Resolvers),
            ("https://hub.example/hf/api/models/x/tree/main", RateLimitBucket::Api),
            ("https://cdn.example/models/x", RateLimitBucket::Pages),
        ];
        for (url, bucket) in cases {
            assert_eq!(RateLimitBucket::from_url(&Url::parse(url).unwrap()), bucket, "{url}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let cases = [
            ("7", Some(7)),
            (" 7 ", Some(7)),
            ("Sat, 21 Nov 2026 12:00:30 GMT", Some(30)),
            ("Sat, 21 Nov 2026 11:00:00 GMT", None),
            ("0", None),
            ("soon", None),
            ("-1", None),
            ("1.5", None),
            ("", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(wait_seconds(&[("retry-after", text)]), seconds, "{text}");
        }
    }

    #[test]
    fn an_exhausted_quota_takes_precedence_over_retry_after() {
        let both = |quota| wait_seconds(&[("ratelimit", quota), ("retry-after", "7")]);
        assert_eq!(both(r#""resolvers";r=0;t=55"#), Some(56));
        assert_eq!(both(r#""resolvers";r=9;t=55"#), Some(7));
    }

    /// Returns the wait until the last exhausted quota of a `RateLimit` header is reset.
    fn exhausted_quota(text: &str) -> Option<Duration> {
        let quotas = text.split(',').filter_map(|quota| parse_quota(quota, RateLimitBucket::Pages));
        quotas.filter(|quota| quota.remaining == 0).map(|quota| quota.reset).max()
    }

    /// Generates quotas: name, remaining requests, and seconds until the reset.
    fn quotas() -> impl Strategy<Value = Vec<(String, u64, u64)>> {
        let remaining = prop_oneof![Just(0), any::<u64>()];
        let seconds = prop_oneof![0_u64..1_000, any::<u64>()];
        vec(("[a-z ]{1,9}", remaining, seconds), 1..4)
    }

    proptest! {
        #![proptest_config(config(1_000))]

        #[test]
        fn the_wait_is_the_longest_of_all_exhausted_quotas(
            quotas in quotas(),
            separator in select(&[";", " ; ", "; "][..]),
            more in select(&["", ";pk=:abc:", ";q=9"][..]),
        ) {
            let item = |(name, left, seconds): &(String, u64, u64)| {
                format!("\"{name}\"{separator}r={left}{more}{separator}t={seconds}")
            };
            let text = quotas.iter().map(item).collect::<Vec<_>>().join(", ");
            let empty = quotas.iter().filter(|(_, left, _)| *left == 0);
            let longest = empty.map(|(.., seconds)| seconds.saturating_add(1)).max();
            prop_assert_eq!(exhausted_quota(&text), longest.map(Duration::from_secs), "{}", text);
        }

        #[test]
        fn retry_after_round_trips_through_its_two_formats(seconds: u64, ahead in 0_u64..10_000_000_000) {
            let now = httpdate::parse_http_date("Sat, 21 Nov 2026 12:00:00 GMT").unwrap();
            let as_seconds = retry_after(&seconds.to_string(), now);
            prop_assert_eq!(as_seconds, Some(Duration::from_secs(seconds)));
            let ahead = Duration::from_secs(ahead);
            let date = httpdate::fmt_http_date(now + ahead);
            prop_assert_eq!(retry_after(&date, now), Some(ahead));
            prop_assert_eq!(retry_after(&date, now + ahead + ahead), Some(Duration::ZERO));
        }

        #[test]
        fn unparsable_headers_require_no_wait(
            text in prop_oneof![any::<String>(), "[a-z\"=;, 0-9rt-]{0,40}"],
        ) {
            if exhausted_quota(&text).is_some() {
                prop_assert!(text.contains("r=0") && text.contains("t="), "{}", text);
            }
            let is_number = !text.trim().is_empty() && text.trim().bytes().all(|b| b.is_ascii_digit());
            prop_assert_eq!(retry_after(&text, SystemTime::UNIX_EPOCH).is_some(), is_number);
        }
    }
}
