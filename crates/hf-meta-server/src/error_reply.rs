//! Responses about failures: a JSON error, and a short reason for a badge.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde::Serialize;

use super::error_code::{ErrorCode, FailureLifetime};
use super::lookup_result::{LookupOutcome, LookupResult};
use super::reply::{CachePolicy, Reply};
use super::weights_query::InvalidQuery;
use hf_meta::Error;
use hf_meta::formats::weight_sets::WeightSet;
use hf_meta_badge::{MetricValues, short_reason};

/// An error response. Its schema is `ErrorReply` in `openapi.json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ErrorReply<'a> {
    /// The machine-readable reason.
    code: ErrorCode,
    /// The human-readable reason.
    pub(super) error: String,
    /// The parameter count that the Hub reports for a gated repository. It is not verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    hub_reported: Option<ReportedParameters<'a>>,
    /// The weight sets to choose from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sets: Option<&'a [WeightSet]>,
    /// The reason to show on a badge, in one or two words.
    #[serde(skip)]
    pub(super) short_reason: &'static str,
    /// The values of `hub_reported`, for a badge.
    #[serde(skip)]
    pub(super) reported: Option<&'a MetricValues>,
    #[serde(skip)]
    lifetime: FailureLifetime,
}

/// A parameter count that the Hub reports.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReportedParameters<'a> {
    /// The number of parameters per dtype.
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
            lifetime: code.lifetime(),
        }
    }

    /// Creates the reply for a path without an endpoint.
    pub(super) fn no_endpoint() -> Self {
        let error = "no such endpoint; see /openapi.json for all endpoints";
        Self::new(ErrorCode::NotFound, error, "not found")
    }

    /// Creates the reply for a failed lookup. The causes of the error are logged, not sent.
    fn from_error(error: &'a Error) -> Self {
        let sets = match error {
            Error::SeveralSets { sets, .. } => Some(&**sets),
            _ => None,
        };
        Self { sets, ..Self::new(error.into(), error.to_string(), short_reason(error)) }
    }

    /// Creates the reply for a gated repository.
    fn from_reported(error: &'a Error, values: &'a MetricValues) -> Self {
        let dtypes = values.dtypes.iter().map(|(dtype, count)| (dtype.as_str(), *count));
        let (parameter_count, parameter_total) = (dtypes.collect(), values.parameters);
        Self {
            hub_reported: Some(ReportedParameters { parameter_count, parameter_total }),
            reported: Some(values),
            ..Self::from_error(error)
        }
    }

    fn from_result(result: &'a LookupResult) -> Self {
        match result {
            LookupResult::HubReported { values, error } => Self::from_reported(error, values),
            LookupResult::Failed { error } => Self::from_error(error),
            LookupResult::TooManyFiles { requests, limit } => {
                let error = format!(
                    "reading the weights takes {requests} requests; this service sends at most {limit}"
                );
                Self::new(ErrorCode::TooManyFiles, error, "too many files")
            }
            LookupResult::Counted(_) | LookupResult::Detailed(_) | LookupResult::Listed(_) => {
                Self::new(ErrorCode::NotFound, "no counts", "unknown")
            }
        }
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
        self.lifetime.badge_policy()
    }

    pub(super) fn into_json(self) -> Reply {
        // Serializing numbers and strings cannot fail.
        let json = serde_json::to_vec(&self).unwrap_or_default();
        Reply::json(self.code.status(), json, self.lifetime.json_policy())
    }
}

impl From<InvalidQuery> for ErrorReply<'_> {
    fn from(invalid: InvalidQuery) -> Self {
        let code = match invalid {
            InvalidQuery::TooLong => ErrorCode::QueryTooLong,
            _ => ErrorCode::Invalid,
        };
        let reply = Self::new(code, invalid.as_str(), invalid.as_str());
        // Unlike an invalid setting of the service, the query stays invalid.
        Self { lifetime: FailureLifetime::Permanent, ..reply }
    }
}

impl<'a> From<&'a LookupOutcome> for ErrorReply<'a> {
    fn from(outcome: &'a LookupOutcome) -> Self {
        let (code, error, short_reason) = match outcome {
            LookupOutcome::Ready(result) => return Self::from_result(result),
            LookupOutcome::Pending => {
                (ErrorCode::Pending, "the headers are being read; try again in a moment", "pending")
            }
            LookupOutcome::Busy => (
                ErrorCode::Busy,
                "too many repositories are being read; try again in a minute",
                "busy",
            ),
            LookupOutcome::RateLimited => (
                ErrorCode::Busy,
                "too many requests from this client; try again in a minute",
                "rate limited",
            ),
            LookupOutcome::NotAllowed => (
                ErrorCode::Denied,
                "this service does not read repositories of this owner",
                "not allowed",
            ),
        };
        Self::new(code, error, short_reason)
    }
}
