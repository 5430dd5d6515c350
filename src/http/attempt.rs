//! A single attempt at a request, with its counters and permits.

use std::ops::Range;
use std::time::Duration;

use ::url::Url;
use hf_meta_inspect::HttpError;
use reqwest::header::HeaderMap;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::SafeUrl;
use crate::base::meter::CallMeter;

/// The part of a file that a request asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Requested<'a> {
    /// A byte range.
    Range(&'a Range<u64>),
    /// The whole file.
    File,
    /// One response header, with method `HEAD`.
    Header(&'a str),
}

/// The length of a range in bytes that the timeouts are meant for. Nearly all headers are shorter.
pub(super) const SHORT_RANGE: u64 = 1 << 20;

/// The minimum rate of a transfer in bytes per second: 64 ranges of data at once at 4 Mbit/s.
const MIN_RATE: u64 = 6 << 10;

/// Returns the time for the transfer of a long range, which a slow connection needs in addition to the timeouts. A response
/// that stalls ends earlier, by the timeout between two reads.
pub(crate) fn transfer_time(length: u64) -> Duration {
    Duration::from_secs(length.saturating_sub(SHORT_RANGE) / MIN_RATE)
}

impl Requested<'_> {
    /// Returns the number of bytes; 0 if it is unknown.
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Range(range) => range.end.saturating_sub(range.start),
            Self::File | Self::Header(_) => 0,
        }
    }

    /// Returns the range in the form of a `Range` header, with an inclusive end: `0-7`.
    pub(super) fn range(&self) -> Option<String> {
        match self {
            Self::Range(range) => Some(format!("{}-{}", range.start, range.end.saturating_sub(1))),
            Self::File | Self::Header(_) => None,
        }
    }
}

/// An attempt in progress. Following redirects can take several HTTP requests.
pub(super) struct Attempt<'a> {
    /// The URL before redirects.
    pub(super) url: &'a Url,
    pub(super) requested: Requested<'a>,
    pub(super) meter: &'a CallMeter,
    /// The permit of the current request, which counts towards the limit on requests in flight.
    pub(super) request_permit: Option<OwnedSemaphorePermit>,
    /// The permit of the current connection: for HTTP/1.1, or for data over HTTP/2.
    pub(super) connection_permit: Option<OwnedSemaphorePermit>,
    /// The status of the latest response.
    pub(super) status: Option<u16>,
    /// The attempt number, starting at 1.
    number: usize,
    started: Instant,
    /// Body bytes received in this attempt.
    bytes: u64,
}

impl<'a> Attempt<'a> {
    pub(super) fn start(
        number: usize,
        url: &'a Url,
        requested: Requested<'a>,
        meter: &'a CallMeter,
    ) -> Self {
        Self {
            url,
            requested,
            meter,
            request_permit: None,
            connection_permit: None,
            status: None,
            number,
            started: Instant::now(),
            bytes: 0,
        }
    }

    pub(super) fn count_bytes(&mut self, bytes: usize) {
        self.meter.count_bytes(bytes);
        self.bytes += bytes as u64;
    }

    pub(super) fn log_redirect(&self, url: &Url, to: &Url) {
        let (url, to, range) = (SafeUrl::from(url), SafeUrl::from(to), self.requested.range());
        let (status, elapsed) = (self.status, self.started.elapsed());
        tracing::debug!(%url, %to, range, status, ?elapsed, "redirected");
    }

    /// Ends the attempt and logs its result.
    pub(super) fn finish<T>(self, result: Result<T, HttpError>) -> Result<T, HttpError> {
        let Self { number: attempt, started, status, bytes, .. } = self;
        let (url, range) = (SafeUrl::from(self.url), self.requested.range());
        let elapsed = started.elapsed();
        match &result {
            Ok(_) => tracing::debug!(%url, range, attempt, status, bytes, ?elapsed, "read"),
            Err(error) => {
                tracing::debug!(%url, range, attempt, status, bytes, ?elapsed, %error, "failed");
            }
        }
        result
    }
}

/// The headers of all responses to one request: the redirects in order, then the final response.
#[derive(Debug, Default)]
pub(crate) struct ResponseChain(pub(super) Vec<HeaderMap>);

impl ResponseChain {
    /// Returns the value of a header in the first response that has it.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|headers| headers.get(name)?.to_str().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::HttpSettings;

    #[test]
    fn data_arrive_within_the_timeout_at_4_mbit_per_second() {
        let (ranges, length, rate) = (64, 8 << 20, 4_000_000 / 8);
        let together = Duration::from_secs(ranges * length / rate);
        let timeout = HttpSettings::default().request_timeout;
        assert!(timeout + transfer_time(length) > together, "{together:?}");
        assert_eq!(transfer_time(SHORT_RANGE), Duration::ZERO);
    }
}
