//! Results of lookups.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::failure::Failure;
use hf_meta_count::results::CountReport;
use hf_meta_format::formats::weight_sets::WeightSet;

/// The approximate size of a failure without weight sets, in bytes.
const SMALL_RESULT_BYTES: usize = 2_048;

/// The result of a lookup, or the failure of a request without one.
#[derive(Debug)]
pub(super) enum LookupResult {
    Counted(Box<CountedWeights>),
    Failed(Failure),
}

/// Weights that were read and counted.
#[derive(Debug)]
pub(super) struct CountedWeights {
    /// The JSON for the API. A report can be large, so it is serialized once.
    pub(super) json: Bytes,
    /// The report, for badges and the page.
    pub(super) report: CountReport,
}

impl From<CountReport> for LookupResult {
    fn from(report: CountReport) -> Self {
        // Serializing numbers and strings cannot fail.
        let json = serde_json::to_vec(&report).unwrap_or_default();
        // A boxed slice has no spare capacity.
        let json = json.into_boxed_slice().into();
        Self::Counted(Box::new(CountedWeights { json, report }))
    }
}

impl From<Failure> for Arc<LookupResult> {
    fn from(failure: Failure) -> Self {
        Self::new(LookupResult::Failed(failure))
    }
}

impl LookupResult {
    /// Returns whether the failure says nothing about the repository, so that an earlier result is better.
    pub(super) fn is_transient_failure(&self) -> bool {
        matches!(self, Self::Failed(failure) if failure.is_transient())
    }

    /// Returns whether the result is the same for every reader of a commit at any time.
    pub(super) fn is_permanent(&self) -> bool {
        match self {
            Self::Counted(_) => true,
            Self::Failed(failure) => failure.is_permanent(),
        }
    }

    /// Returns the time to live of the result, or `None` if it never expires. `ttl` applies to counts of a branch or
    /// tag.
    pub(super) fn ttl(&self, is_pinned: bool, ttl: Duration) -> Option<Duration> {
        match self {
            _ if is_pinned && self.is_permanent() => None,
            Self::Counted(_) => Some(ttl),
            Self::Failed(failure) => Some(failure.ttl(ttl)),
        }
    }

    /// Returns the outcome of the lookup as a label of metrics.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Counted(_) => "counted",
            Self::Failed(failure) => failure.code,
        }
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            // The report repeats the JSON in separate allocations.
            Self::Counted(counted) => size_of::<CountedWeights>() + 4 * counted.json.len(),
            Self::Failed(failure) => SMALL_RESULT_BYTES + size_of_sets(&failure.sets),
        }
    }
}

/// Returns the approximate size of sets of weights including the paths of their files, in bytes.
fn size_of_sets(sets: &[WeightSet]) -> usize {
    let file = |set: &WeightSet| 3 * size_of::<String>() + set.path.as_str().len();
    sets.iter().map(|set| size_of::<WeightSet>() + (set.files + 2) * file(set)).sum()
}
