//! Converts failures to an HTTP status, a JSON error and a short reason for a badge.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::lookup::LookupOutcome;
use super::lookup_result::LookupResult;
use super::reply::{CachePolicy, Reply};
use super::weights_query::InvalidQuery;
use hf_meta::Error;
use hf_meta::ListingError;
use hf_meta::formats::weight_sets::WeightSet;
use hf_meta_badge::{MetricValues, short_reason};

/// The cache lifetime of a permanent failure, such as a missing repository.
const PERMANENT: CachePolicy = CachePolicy::Short(Duration::from_secs(60));

/// The cache lifetime of a transient failure as JSON.
const TRANSIENT: CachePolicy = CachePolicy::Short(Duration::from_secs(5));

/// The cache policy of a rejection. It concerns one client and must not be shown to others.
const REFUSED: CachePolicy = CachePolicy::Private;

/// The cache lifetime of a transient failure as a badge, and so the minimum time between requests of an image proxy.
const TRANSIENT_BADGE: CachePolicy = CachePolicy::Short(Duration::from_secs(10));

/// A machine-readable reason for a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum ErrorCode {
    /// The repository name, the revision or the path is invalid.
    Invalid,
    /// The query is too long.
    QueryTooLong,
    /// The repository, revision or file does not exist or is private.
    NotFound,
    /// The repository contains no safetensors weights.
    NoSafetensors,
    /// The repository contains several weight sets. Select one with `path`.
    SeveralSets,
    /// The repository is gated or private, or this service does not read repositories of its owner.
    Denied,
    /// The files are invalid.
    Malformed,
    /// The weights are split into more files than this service reads.
    TooManyFiles,
    /// The Hub is currently unavailable.
    Unavailable,
    /// The lookup is in progress.
    Pending,
    /// This client, or all clients together, sent too many requests.
    Busy,
}

impl From<&Error> for ErrorCode {
    fn from(error: &Error) -> Self {
        match error {
            Error::SeveralSets { .. } => Self::SeveralSets,
            Error::NoWeights { .. } => Self::NoSafetensors,
            // Listing the same commit later would find as many files.
            Error::ListingFailed {
                source: ListingError::TooManyFiles { .. } | ListingError::EndlessPages,
                ..
            } => Self::TooManyFiles,
            error if error.is_not_found() => Self::NotFound,
            error if error.is_denied() => Self::Denied,
            error if error.is_malformed() => Self::Malformed,
            error if error.is_usage() => Self::Invalid,
            _ => Self::Unavailable,
        }
    }
}

impl ErrorCode {
    fn status(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::QueryTooLong => StatusCode::URI_TOO_LONG,
            Self::NotFound | Self::NoSafetensors => StatusCode::NOT_FOUND,
            Self::SeveralSets => StatusCode::MULTIPLE_CHOICES,
            Self::Denied => StatusCode::FORBIDDEN,
            Self::Malformed | Self::TooManyFiles => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unavailable => StatusCode::BAD_GATEWAY,
            Self::Pending => StatusCode::ACCEPTED,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

/// Returns whether a later lookup could succeed without a change of the repository.
pub(super) fn is_transient(error: &Error) -> bool {
    matches!(ErrorCode::from(error), ErrorCode::Unavailable | ErrorCode::Invalid)
}

/// An error response.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ErrorReply<'a> {
    /// The machine-readable reason.
    code: ErrorCode,
    /// The human-readable reason.
    error: String,
    /// The parameter count that the Hub reports for a gated repository. It is not verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    hub_reported: Option<ReportedParameters<'a>>,
    /// The weight sets to choose from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<super::routes::schemas::WeightSetSchema>>)]
    sets: Option<&'a [WeightSet]>,
    /// The reason to show on a badge, in one or two words.
    #[serde(skip)]
    pub(super) short_reason: &'static str,
    /// The values of `hub_reported`, for a badge.
    #[serde(skip)]
    pub(super) reported: Option<&'a MetricValues>,
    #[serde(skip)]
    lifetime: Lifetime,
}

/// The lifetime of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifetime {
    Permanent,
    Transient,
    /// A failure that concerns one client.
    Refused,
}

/// A parameter count that the Hub reports.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ReportedParameters<'a> {
    /// The number of parameters per dtype.
    #[schema(value_type = BTreeMap<String, u64>)]
    parameter_count: BTreeMap<&'a str, u64>,
    /// The total number of parameters.
    parameter_total: u64,
}

impl<'a> ErrorReply<'a> {
    fn new(code: ErrorCode, error: impl Into<String>, short_reason: &'static str) -> Self {
        Self {
            code,
            error: error.into(),
            hub_reported: None,
            sets: None,
            short_reason,
            reported: None,
            lifetime: Lifetime::Permanent,
        }
    }

    fn refused(error: &str, short_reason: &'static str) -> Self {
        Self { lifetime: Lifetime::Refused, ..Self::new(ErrorCode::Busy, error, short_reason) }
    }

    fn too_many_files(files: usize, limit: usize) -> Self {
        let error =
            format!("the weights are split into {files} files; this service reads at most {limit}");
        Self::new(ErrorCode::TooManyFiles, error, "too many files")
    }

    /// Creates the reply for a path without an endpoint.
    pub(super) fn no_endpoint() -> Self {
        let error = "no such endpoint; see /openapi.json for all endpoints";
        Self::new(ErrorCode::NotFound, error, "not found")
    }

    /// Creates the reply for a failed lookup. The causes of the error are logged, not sent.
    fn from_error(error: &'a Error, reported: Option<&'a MetricValues>) -> Self {
        Self {
            hub_reported: reported.map(|values| ReportedParameters {
                parameter_count: values
                    .dtypes
                    .iter()
                    .map(|(dtype, n)| (dtype.as_str(), *n))
                    .collect(),
                parameter_total: values.parameters,
            }),
            sets: match error {
                Error::SeveralSets { sets, .. } => Some(sets),
                _ => None,
            },
            reported,
            lifetime: match ErrorCode::from(error) {
                _ if reported.is_some() => Lifetime::Permanent,
                ErrorCode::Malformed => Lifetime::Transient,
                _ if is_transient(error) => Lifetime::Transient,
                _ => Lifetime::Permanent,
            },
            ..Self::new(ErrorCode::from(error), error.to_string(), short_reason(error))
        }
    }

    /// Returns the reason for people.
    pub(super) fn message(&self) -> &str {
        &self.error
    }

    /// Returns the status of a badge with this reason. Image proxies show no image for statuses other than 200. A
    /// query that is too long does not come from a badge in use.
    pub(super) fn badge_status(&self) -> StatusCode {
        match self.code {
            ErrorCode::QueryTooLong => self.code.status(),
            _ => StatusCode::OK,
        }
    }

    pub(super) fn badge_cache_policy(&self) -> CachePolicy {
        match self.lifetime {
            Lifetime::Permanent => PERMANENT,
            Lifetime::Transient => TRANSIENT_BADGE,
            Lifetime::Refused => REFUSED,
        }
    }

    pub(super) fn into_json(self) -> Reply {
        let cache_policy = match self.lifetime {
            Lifetime::Permanent => PERMANENT,
            Lifetime::Transient => TRANSIENT,
            Lifetime::Refused => REFUSED,
        };
        // Serializing numbers and strings cannot fail.
        let json = serde_json::to_vec(&self).unwrap_or_default();
        Reply::json(self.code.status(), json, cache_policy)
    }
}

impl From<InvalidQuery> for ErrorReply<'_> {
    fn from(invalid: InvalidQuery) -> Self {
        let code = match invalid {
            InvalidQuery::TooLong => ErrorCode::QueryTooLong,
            _ => ErrorCode::Invalid,
        };
        Self::new(code, invalid.as_str(), invalid.as_str())
    }
}

impl<'a> From<&'a LookupOutcome> for ErrorReply<'a> {
    fn from(outcome: &'a LookupOutcome) -> Self {
        match outcome {
            LookupOutcome::Ready(result) => match &**result {
                LookupResult::HubReported { values, error } => {
                    Self::from_error(error, Some(values))
                }
                LookupResult::Failed { error } => Self::from_error(error, None),
                LookupResult::TooManyFiles { files, limit } => Self::too_many_files(*files, *limit),
                LookupResult::Counted(_) | LookupResult::Detailed(_) | LookupResult::Listed(_) => {
                    Self::new(ErrorCode::NotFound, "no counts", "unknown")
                }
            },
            LookupOutcome::Pending => Self {
                lifetime: Lifetime::Transient,
                ..Self::new(
                    ErrorCode::Pending,
                    "the headers are being read; try again in a moment",
                    "pending",
                )
            },
            LookupOutcome::Busy => {
                Self::refused("too many repositories are being read; try again in a minute", "busy")
            }
            LookupOutcome::NotAllowed => Self::new(
                ErrorCode::Denied,
                "this service does not read repositories of this owner",
                "not allowed",
            ),
            LookupOutcome::RateLimited => Self::refused(
                "too many requests from this client; try again in a minute",
                "rate limited",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each lookup of such a listing would request a hundred pages.
    #[test]
    fn a_listing_without_an_end_is_no_transient_failure() {
        for source in [ListingError::TooManyFiles { limit: 9 }, ListingError::EndlessPages] {
            let error = Error::ListingFailed { location: "org/model".to_owned(), source };
            assert_eq!(ErrorCode::from(&error), ErrorCode::TooManyFiles);
            assert!(!is_transient(&error));
        }
    }
}
