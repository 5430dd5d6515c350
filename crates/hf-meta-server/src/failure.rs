//! Failures of lookups and requests, and everything that responses say about them.

use std::time::Duration;

use axum::http::StatusCode;
use serde::Serialize;

use super::reply::{CachePolicy, Reply};
use hf_meta::{Error, ErrorKind, HttpErrorKind, HubReportedCount};
use hf_meta_badge::{Badge, Metric, MetricValues, short_reason};
use hf_meta_format::formats::weight_sets::WeightSet;

/// A failure: an error in JSON, a placeholder on a badge, and a message on the page.
#[derive(Debug)]
pub(super) struct Failure {
    /// The code of the library's error, or one of the four codes that only a service has: `pending`, `busy`,
    /// `queryTooLong` and `tooManyFiles`.
    pub(super) code: &'static str,
    /// The message without its causes.
    pub(super) error: String,
    /// The details of an error of the library.
    details: Option<Box<Details>>,
    /// The parameter count that the Hub reports for a gated repository. It is not verified.
    hub_reported: Option<Box<HubReportedCount>>,
    /// The first weight sets to choose from.
    pub(super) sets: Vec<WeightSet>,
    /// A sentence about what to do next, unless the message says it.
    pub(super) help: &'static str,
    /// The reason to show on a badge, in one or two words.
    short_reason: &'static str,
    status: StatusCode,
    lifetime: Lifetime,
}

/// The details of an error of the library.
#[derive(Debug)]
struct Details {
    /// The message with its causes.
    message: String,
    /// The HTTP status of the response of the Hub, if there was one.
    status: Option<u16>,
    /// The time in seconds until the Hub accepts requests again, if it states one.
    retry_after: Option<u64>,
}

/// The JSON of a failure, in the form of the command. Its schema is `Failure` in `openapi.json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FailureDocument<'a> {
    source: &'a str,
    error: ErrorDocument<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hub_reported: Option<&'a HubReportedCount>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    other_sets: &'a [WeightSet],
}

/// The error in the JSON of a failure.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ErrorDocument<'a> {
    code: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

/// The lifetime of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifetime {
    /// A failure that every reader of the commit gets.
    Commit,
    /// A failure that lasts until the repository changes.
    Lasting,
    /// Invalid files. They are soon read again, because a Hub that sends garbage may recover.
    Malformed,
    /// A failure that may be over soon. It says nothing about the repository.
    Transient,
    /// A rejection. It concerns one client and must not be shown to others.
    Rejected,
}

/// The maximum number of weight sets to choose from. A response with 100,000 sets has 9 MB.
const MAX_SETS: usize = 1_000;

/// The help for a repository that is too large.
const CHOOSE_A_FILE: &str = "Choose a file or a folder.";

impl Failure {
    fn new(
        code: &'static str,
        status: StatusCode,
        lifetime: Lifetime,
        short_reason: &'static str,
        error: impl Into<String>,
    ) -> Self {
        Self {
            code,
            error: error.into(),
            details: None,
            hub_reported: None,
            sets: Vec::new(),
            help: "",
            short_reason,
            status,
            lifetime,
        }
    }

    /// Creates the failure of a lookup, for a gated repository with the count that the Hub reports.
    pub(super) fn from_error(error: Error, reported: Option<HubReportedCount>) -> Self {
        let message = error.to_string();
        if is_endless_listing(&error) {
            return Self::too_many_files(message);
        }
        let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::BAD_GATEWAY);
        let (lifetime, help) = lifetime_and_help(error.kind());
        let failure = Self {
            details: Some(Box::new(Details {
                message: error.chain(),
                status: error.status(),
                retry_after: error.retry_after_secs(),
            })),
            hub_reported: reported.map(Box::new),
            help,
            ..Self::new(error.code(), status, lifetime, short_reason(&error), message)
        };
        let mut sets = match error {
            Error::SeveralSets { sets, .. } => sets,
            _ => Vec::new(),
        };
        sets.truncate(MAX_SETS);
        Self { sets, ..failure }
    }

    /// Creates the failure of weights that take too many requests.
    pub(super) fn too_many_files(error: String) -> Self {
        let (status, reason) = (StatusCode::UNPROCESSABLE_ENTITY, "too many files");
        let failure = Self::new("tooManyFiles", status, Lifetime::Commit, reason, error);
        Self { help: CHOOSE_A_FILE, ..failure }
    }

    /// Creates the failure of a query for something that is not a name, a revision or a path.
    pub(super) fn invalid(short_reason: &'static str, error: impl Into<String>) -> Self {
        let (code, status) = (ErrorKind::InvalidSource.code(), StatusCode::BAD_REQUEST);
        let failure = Self::new(code, status, Lifetime::Lasting, short_reason, error);
        Self { help: "Enter a name such as org/name, or the URL of a model.", ..failure }
    }

    /// Creates the failure of a query with an invalid option, which the error names.
    pub(super) fn invalid_option(short_reason: &'static str, error: String) -> Self {
        let (code, status) = (ErrorKind::InvalidOption.code(), StatusCode::BAD_REQUEST);
        Self::new(code, status, Lifetime::Lasting, short_reason, error)
    }

    /// Creates the failure of a query that is too long to be parsed.
    pub(super) fn query_too_long() -> Self {
        let (status, reason) = (StatusCode::URI_TOO_LONG, "query too long");
        Self::new("queryTooLong", status, Lifetime::Lasting, reason, reason)
    }

    /// Creates the failure of a request that does not wait any longer for its lookup.
    pub(super) fn pending() -> Self {
        let error = "the headers are being read; the count will be here in a moment";
        Self::new("pending", StatusCode::ACCEPTED, Lifetime::Transient, "pending", error)
    }

    /// Creates the failure of a request without a lookup, because the service or the client has too many.
    pub(super) fn busy(short_reason: &'static str, error: &str) -> Self {
        let status = StatusCode::TOO_MANY_REQUESTS;
        Self::new("busy", status, Lifetime::Rejected, short_reason, error)
    }

    /// Creates the failure of a request for a repository of an owner whose repositories are not read.
    pub(super) fn not_allowed() -> Self {
        let (code, status) = (ErrorKind::Forbidden.code(), StatusCode::FORBIDDEN);
        let error = "this service does not read repositories of this owner";
        Self::new(code, status, Lifetime::Lasting, "not allowed", error)
    }

    /// Returns whether the lookup is still in flight.
    pub(super) fn is_pending(&self) -> bool {
        self.status == StatusCode::ACCEPTED
    }

    /// Returns whether a later lookup could succeed without a change of the repository.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self.lifetime, Lifetime::Transient | Lifetime::Rejected)
    }

    /// Returns whether every reader of the commit gets this failure.
    pub(super) fn is_permanent(&self) -> bool {
        self.lifetime == Lifetime::Commit
    }

    /// Returns the time for which the service remembers the failure. `ttl` applies to results for a branch.
    pub(super) fn ttl(&self, ttl: Duration) -> Duration {
        match self.lifetime {
            Lifetime::Commit => ttl,
            Lifetime::Lasting if self.hub_reported.is_some() => ttl.max(self.badge_ttl()),
            _ => self.badge_ttl(),
        }
    }

    /// Returns the minimum time between requests of an image proxy.
    fn badge_ttl(&self) -> Duration {
        let is_short = matches!(self.lifetime, Lifetime::Malformed | Lifetime::Transient);
        Duration::from_secs(if is_short { 10 } else { 60 })
    }

    /// Returns the values that the Hub reports, if any.
    pub(super) fn reported(&self) -> Option<MetricValues> {
        let HubReportedCount { parameters, total, .. } = &**self.hub_reported.as_ref()?;
        let dtypes = parameters.iter().map(|(dtype, count)| (dtype.as_str().into(), *count));
        Some(MetricValues::from_unverified(dtypes, *total))
    }

    /// Returns the badge: for a gated repository the value that the Hub reports, or else the reason.
    pub(super) fn badge(&self, metric: Metric) -> Badge {
        let reported = self.reported().and_then(|values| values.badge(metric));
        reported.unwrap_or_else(|| Badge::placeholder(metric, self.short_reason))
    }

    /// Returns the status of the badge. Image proxies show no image for statuses other than 200. A query that is too
    /// long does not come from a badge in use.
    pub(super) fn badge_status(&self) -> StatusCode {
        if self.status == StatusCode::URI_TOO_LONG { self.status } else { StatusCode::OK }
    }

    /// Returns the cache policy of the badge.
    pub(super) fn badge_policy(&self) -> CachePolicy {
        match self.lifetime {
            Lifetime::Rejected => CachePolicy::NoStore,
            _ => CachePolicy::Short(self.badge_ttl()),
        }
    }

    /// Returns the response of the JSON API for a source.
    pub(super) fn json(&self, source: &str) -> Reply {
        let policy = match self.lifetime {
            Lifetime::Malformed | Lifetime::Transient => CachePolicy::Short(Duration::from_secs(5)),
            _ => self.badge_policy(),
        };
        let details = self.details.as_deref();
        let document = FailureDocument {
            source,
            error: ErrorDocument {
                code: self.code,
                message: details.map_or(&self.error, |details| &details.message),
                status: details.and_then(|details| details.status),
                retry_after: details.and_then(|details| details.retry_after),
            },
            hub_reported: self.hub_reported.as_deref(),
            other_sets: &self.sets,
        };
        // Serializing numbers and strings cannot fail.
        Reply::json(self.status, serde_json::to_vec(&document).unwrap_or_default(), policy)
    }
}

/// Returns the lifetime of a failed lookup, and what to do next.
fn lifetime_and_help(kind: ErrorKind) -> (Lifetime, &'static str) {
    use Lifetime::{Lasting, Malformed, Transient};
    match kind {
        ErrorKind::RepoNotFound | ErrorKind::NotCached => {
            (Lasting, "Check the spelling. A private repository is visible only with access.")
        }
        ErrorKind::RevisionNotFound => (Lasting, "Check the branch, tag or commit."),
        ErrorKind::FileNotFound => (Lasting, "Check the file or folder."),
        ErrorKind::NoWeights => (Lasting, "Choose a repository with weights."),
        ErrorKind::SeveralSets => (Lasting, "Choose one of them."),
        ErrorKind::Gated | ErrorKind::Forbidden | ErrorKind::RejectedToken => {
            (Lasting, "The account of this service has no access to the files.")
        }
        ErrorKind::MalformedHeader | ErrorKind::MalformedIndex | ErrorKind::MissingShards => {
            (Malformed, "Only the authors of the repository can repair its files.")
        }
        ErrorKind::TooLarge => (Malformed, CHOOSE_A_FILE),
        ErrorKind::InvalidOption | ErrorKind::InvalidSettings | ErrorKind::Offline => {
            (Transient, "The operator of this service has to correct its settings.")
        }
        _ => (Transient, "Try again in a minute."),
    }
}

/// Returns whether the repository has too many files to list. Listing the same commit later would find as many.
fn is_endless_listing(error: &Error) -> bool {
    matches!(error, Error::RequestFailed { source, .. } if source.kind == HttpErrorKind::EndlessListing)
}
