//! Results of lookups and their lifetimes in the result cache.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::error_reply::{ErrorCode, is_transient};
use super::page::{WeightsDetails, WeightsSummary};
use hf_meta::Error;
use hf_meta::formats::weight_sets::WeightSet;
use hf_meta::report::CountReport;
use hf_meta_badge::MetricValues;

/// The time to live of a permanent failure, such as a missing repository.
const FAILURE_TTL: Duration = Duration::from_secs(60);

/// The time to live of a transient failure, such as a Hub that does not respond or sends garbage.
const TRANSIENT_FAILURE_TTL: Duration = Duration::from_secs(10);

/// The maximum time a stale result is served while a background lookup refreshes it.
const MAX_STALENESS: Duration = Duration::from_secs(24 * 3_600);

/// The approximate size of a result without summary or list, in bytes.
const SMALL_RESULT_BYTES: usize = 2_048;

#[derive(Debug)]
pub(super) enum LookupResult {
    /// Weights that were read and counted.
    Counted(Box<CountedWeights>),
    /// The details of counted weights.
    Detailed(Box<WeightsDetails>),
    /// Weights in more files than a lookup may request.
    TooManyFiles { files: usize, limit: usize },
    /// A gated repository with the values that the Hub reports for it.
    HubReported { values: MetricValues, error: Arc<Error> },
    /// A failed lookup.
    Failed { error: Arc<Error> },
    /// The sets of weights in a repository; `None` if its files cannot be listed.
    Listed(Option<Vec<WeightSet>>),
}

/// Weights that were read and counted, prepared for each endpoint.
#[derive(Debug)]
pub(super) struct CountedWeights {
    /// The values for badges.
    pub(super) values: MetricValues,
    /// The JSON for the API.
    pub(super) json: Bytes,
    /// The data for the page.
    pub(super) summary: WeightsSummary,
}

/// A result in the cache of the service.
#[derive(Clone, Debug)]
pub(super) struct CachedResult {
    pub(super) result: Arc<LookupResult>,
    /// The end of its time to live; `None` for a result that never expires.
    expires_at: Option<Instant>,
}

impl LookupResult {
    pub(super) fn from_report(report: &CountReport) -> Self {
        // Serializing numbers and strings cannot fail.
        let json = serde_json::to_vec(report).unwrap_or_default();
        Self::Counted(Box::new(CountedWeights {
            values: MetricValues::from_report(report),
            // A boxed slice has no spare capacity.
            json: json.into_boxed_slice().into(),
            summary: WeightsSummary::from_report(report),
        }))
    }

    /// Returns whether a later lookup could succeed without a change of the repository.
    pub(super) fn is_transient_failure(&self) -> bool {
        matches!(self, Self::Failed { error } if is_transient(error))
    }

    /// Returns whether the result is the same for every reader of a commit at any time.
    pub(super) fn is_permanent(&self) -> bool {
        matches!(
            self,
            Self::Counted(_)
                | Self::Detailed(_)
                | Self::TooManyFiles { .. }
                | Self::Listed(Some(_))
        )
    }

    /// Returns the time to live of the result, or `None` if it never expires. `ttl` applies to counts of
    /// a branch or tag.
    pub(super) fn ttl(&self, is_pinned: bool, ttl: Duration) -> Option<Duration> {
        match self {
            _ if is_pinned && self.is_permanent() => None,
            Self::Counted(_) | Self::Detailed(_) | Self::Listed(_) | Self::TooManyFiles { .. } => {
                Some(ttl)
            }
            Self::HubReported { .. } => Some(ttl.max(FAILURE_TTL)),
            Self::Failed { error } => match ErrorCode::from(&**error) {
                ErrorCode::Unavailable | ErrorCode::Invalid | ErrorCode::Malformed => {
                    Some(TRANSIENT_FAILURE_TTL)
                }
                _ => Some(FAILURE_TTL),
            },
        }
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            // The summary repeats parts of the JSON in separate allocations.
            Self::Counted(counted) => size_of::<CountedWeights>() + 3 * counted.json.len(),
            Self::Detailed(details) => size_of::<WeightsDetails>() + details.size(),
            Self::Listed(sets) => size_of::<Self>() + size_of_sets(sets.iter().flatten()),
            Self::Failed { error } => match &**error {
                Error::SeveralSets { sets, .. } => SMALL_RESULT_BYTES + size_of_sets(sets),
                _ => SMALL_RESULT_BYTES,
            },
            Self::HubReported { .. } | Self::TooManyFiles { .. } => SMALL_RESULT_BYTES,
        }
    }
}

/// Returns the approximate size of sets of weights including the paths of their files, in bytes.
fn size_of_sets<'a>(sets: impl IntoIterator<Item = &'a WeightSet>) -> usize {
    let file = |set: &WeightSet| 3 * size_of::<String>() + set.path.as_str().len();
    sets.into_iter().map(|set| size_of::<WeightSet>() + (set.files + 2) * file(set)).sum()
}

impl CachedResult {
    pub(super) fn new(result: Arc<LookupResult>, ttl: Option<Duration>) -> Self {
        let expires_at = ttl.and_then(|ttl| Instant::now().checked_add(ttl));
        Self { result, expires_at }
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.staleness().is_none()
    }

    /// Returns the end of the result's freshness; `None` if it has expired.
    pub(super) fn fresh_until(&self) -> Option<Instant> {
        let forever = || Instant::now() + MAX_STALENESS;
        self.is_fresh().then(|| self.expires_at.unwrap_or_else(forever))
    }

    /// Returns whether the result may be served while a background lookup refreshes it.
    pub(super) fn is_usable(&self) -> bool {
        let is_recent = self.staleness().is_none_or(|staleness| staleness < MAX_STALENESS);
        is_recent && !self.result.is_transient_failure()
    }

    /// Returns the time since the result expired, or `None` while it is fresh.
    fn staleness(&self) -> Option<Duration> {
        Instant::now().checked_duration_since(self.expires_at?)
    }
}
