//! Results of lookups.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::error_code::{ErrorCode, FailureLifetime};
use super::page::WeightsDetails;
use super::weights_query::WeightsQuery;
use hf_meta::Error;
use hf_meta::formats::weight_sets::WeightSet;
use hf_meta::report::{CountReport, Finding};
use hf_meta_badge::MetricValues;

/// The approximate size of a result without summary or list, in bytes.
const SMALL_RESULT_BYTES: usize = 2_048;

/// The outcome of a lookup for one request.
#[derive(Clone, Debug)]
pub(super) enum LookupOutcome {
    /// The result, fresh or stale.
    Ready(Arc<LookupResult>),
    /// The lookup is still in flight.
    Pending,
    /// No lookup was started, because too many are queued or the client has no budget left.
    Busy,
    /// The client has made too many requests.
    RateLimited,
    /// The service does not read repositories of this owner.
    NotAllowed,
}

#[derive(Debug)]
pub(super) enum LookupResult {
    /// Weights that were read and counted.
    Counted(Box<CountedWeights>),
    /// The details of counted weights.
    Detailed(Box<WeightsDetails>),
    /// A repository that takes more requests than a lookup may send.
    TooManyFiles { requests: u64, limit: usize },
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
    /// The JSON for the API.
    pub(super) json: Bytes,
    /// The values for badges.
    pub(super) values: MetricValues,
    /// The report, for the page and for other names of the commit.
    pub(super) report: CountReport,
}

impl LookupOutcome {
    /// Returns the counted weights, if any.
    pub(super) fn counted(&self) -> Option<&CountedWeights> {
        match self {
            Self::Ready(result) => match &**result {
                LookupResult::Counted(counted) => Some(counted),
                _ => None,
            },
            _ => None,
        }
    }
}

impl LookupResult {
    pub(super) fn from_report(report: CountReport) -> Self {
        // Serializing numbers and strings cannot fail.
        let json = serde_json::to_vec(&report).unwrap_or_default();
        Self::Counted(Box::new(CountedWeights {
            // A boxed slice has no spare capacity.
            json: json.into_boxed_slice().into(),
            values: MetricValues::from_report(&report),
            report,
        }))
    }

    /// Returns the result for another name of the same commit. `canonical` is the canonical name of the repository.
    pub(super) fn renamed(self: &Arc<Self>, query: &WeightsQuery, canonical: &str) -> Arc<Self> {
        let Self::Counted(counted) = &**self else { return Arc::clone(self) };
        let mut report = counted.report.clone();
        report.source = query.source().to_string();
        report.findings.retain(|finding| !matches!(finding, Finding::Renamed { .. }));
        if query.repo().to_string() != canonical {
            report.findings.push(Finding::Renamed { repo: canonical.to_owned() });
        }
        Arc::new(Self::from_report(report))
    }

    /// Returns whether a later lookup could succeed without a change of the repository.
    pub(super) fn is_transient_failure(&self) -> bool {
        matches!(self, Self::Failed { error } if ErrorCode::from(&**error).is_transient())
    }

    /// Returns whether the result is the same for every reader of a commit at any time.
    pub(super) fn is_permanent(&self) -> bool {
        !matches!(self, Self::HubReported { .. } | Self::Failed { .. } | Self::Listed(None))
    }

    /// Returns the time to live of the result, or `None` if it never expires. `ttl` applies to counts of a branch or
    /// tag.
    pub(super) fn ttl(&self, is_pinned: bool, ttl: Duration) -> Option<Duration> {
        match self {
            _ if is_pinned && self.is_permanent() => None,
            Self::Failed { error } => Some(ErrorCode::from(&**error).lifetime().ttl()),
            Self::HubReported { .. } => Some(ttl.max(FailureLifetime::Permanent.ttl())),
            _ => Some(ttl),
        }
    }

    /// Returns the outcome of the lookup as a label of metrics.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Counted(_) => "Counted",
            Self::Detailed(_) => "Detailed",
            Self::TooManyFiles { .. } => "TooManyFiles",
            Self::HubReported { .. } => "HubReported",
            Self::Listed(_) => "Listed",
            Self::Failed { error } => match ErrorCode::from(&**error) {
                ErrorCode::SeveralSets => "SeveralSets",
                ErrorCode::NotFound | ErrorCode::NoSafetensors => "NotFound",
                ErrorCode::Denied => "Denied",
                ErrorCode::Malformed => "Malformed",
                _ => "Failed",
            },
        }
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            // The report repeats the JSON in separate allocations.
            Self::Counted(counted) => size_of::<CountedWeights>() + 4 * counted.json.len(),
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
