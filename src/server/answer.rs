//! What is known of a place, and for how long it will do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::badge::MetricValues;
use crate::error::Error;
use crate::formats::weight_sets::WeightSet;
use crate::report::SafetensorsParseFromRepo;
use crate::server::page::Found;

/// After so long, a badge that says why there is no figure is looked at again.
const FAILURE_LIFETIME: Duration = Duration::from_secs(60);

/// The same for failures that may pass any moment.
const PASSING_LIFETIME: Duration = Duration::from_secs(15);

/// For so long after an answer was fresh it is given at once, while there is a look for a new one.
const LONGEST_STALE: Duration = Duration::from_secs(24 * 3_600);

/// What a look at a place has told.
#[derive(Debug)]
pub(super) enum Answer {
    /// MetricValues that we have read and checked.
    Read(Box<Read>),
    /// The figures that the Hub gives for weights that are closed to us.
    Claimed { figures: MetricValues, error: Arc<Error> },
    /// Why there are none.
    Failed { error: Arc<Error> },
    /// The sets of weights that are there; `None` where files cannot be listed.
    Listed(Option<Vec<WeightSet>>),
}

/// What was read of a set of weights, in the forms in which it is given.
#[derive(Debug)]
pub(super) struct Read {
    /// For badges.
    pub(super) figures: MetricValues,
    /// For programs: JSON.
    pub(super) summary: Bytes,
    /// For the page.
    pub(super) found: Found,
}

/// An answer and its age.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) answer: Arc<Answer>,
    /// Until when it is given without looking again; `None` for ever.
    fresh_until: Option<Instant>,
}

impl Answer {
    pub(super) fn read(parsed: &SafetensorsParseFromRepo) -> Self {
        // Only figures and texts, which always can be written as JSON.
        let summary = serde_json::to_vec(&parsed.report()).unwrap_or_default();
        let summary = summary.into_boxed_slice().into();
        let (figures, found) = (MetricValues::from_parsed(parsed), Found::of(parsed));
        Self::Read(Box::new(Read { figures, summary, found }))
    }

    /// Why there are no figures of ours.
    pub(super) fn error(&self) -> Option<&Error> {
        match self {
            Self::Claimed { error, .. } | Self::Failed { error } => Some(error),
            Self::Read(_) | Self::Listed(_) => None,
        }
    }

    /// Whether it says nothing of the place, but of the moment.
    pub(super) fn is_retryable(&self) -> bool {
        let Self::Failed { error } = self else { return false };
        let is_of_the_place = error.is_not_found()
            || error.is_denied()
            || error.is_malformed()
            || matches!(**error, Error::SeveralSets { .. });
        !is_of_the_place
    }

    /// How long it is given, where answers for branches are given for `fresh`. `None` for ever.
    pub(super) fn lifetime(&self, is_pinned: bool, fresh: Duration) -> Option<Duration> {
        match self {
            Self::Read(_) | Self::Listed(Some(_)) if is_pinned => None,
            Self::Read(_) | Self::Listed(_) => Some(fresh),
            Self::Claimed { .. } => Some(fresh.max(FAILURE_LIFETIME)),
            Self::Failed { .. } if self.is_retryable() => Some(PASSING_LIFETIME),
            Self::Failed { .. } => Some(FAILURE_LIFETIME),
        }
    }

    /// About how many bytes it takes in memory.
    pub(super) fn weight(&self) -> usize {
        match self {
            // What the page tells is a part of what the JSON does, in more pieces.
            Self::Read(read) => size_of::<Read>() + 3 * read.summary.len(),
            Self::Listed(sets) => size_of::<Self>() + weight(sets.iter().flatten()),
            Self::Failed { error } => match &**error {
                Error::SeveralSets { sets, .. } => 2_048 + weight(sets),
                _ => 2_048,
            },
            Self::Claimed { .. } => 2_048,
        }
    }
}

/// About how many bytes sets of weights take in memory, with the paths of all their files.
fn weight<'a>(sets: impl IntoIterator<Item = &'a WeightSet>) -> usize {
    let file = |set: &WeightSet| 3 * size_of::<String>() + set.path.as_str().len();
    sets.into_iter().map(|set| size_of::<WeightSet>() + (set.files + 2) * file(set)).sum()
}

impl Known {
    pub(super) fn new(answer: Arc<Answer>, lifetime: Option<Duration>) -> Self {
        let fresh_until = lifetime.and_then(|lifetime| Instant::now().checked_add(lifetime));
        Self { answer, fresh_until }
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.age().is_none()
    }

    /// Whether it will do while there is a look for a new one.
    pub(super) fn is_usable(&self) -> bool {
        !self.answer.is_retryable() && self.age().is_none_or(|age| age < LONGEST_STALE)
    }

    /// For how long it has not been fresh; `None` while it is.
    fn age(&self) -> Option<Duration> {
        Instant::now().checked_duration_since(self.fresh_until?)
    }
}
