//! A sample error of every kind, compared with the table in `src/docs/errors.md`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hf_meta_format::formats::safetensors::SafetensorsIndexJson;
use hf_meta_format::formats::{HeaderError, HeaderErrorKind};
use url::Url;

use super::*;
use crate::backends::explain;
use crate::http::{HttpError, HttpErrorKind, HubError, SafeUrl};
use crate::hub::{RepoId, Revision};

/// A row of the table: code, predicate and status.
type Row = (&'static str, &'static str, u16);

fn table() -> Vec<Row> {
    let rows = include_str!("../docs/errors.md").lines().filter(|line| line.starts_with("| `"));
    let row = |line: &'static str| {
        let cells: Vec<_> =
            line.split('|').map(|cell| cell.trim().trim_matches('`')).skip(1).collect();
        (cells[0], cells[1], cells[2].parse().unwrap())
    };
    rows.map(row).collect()
}

fn url() -> SafeUrl {
    let url = "https://huggingface.co/org/model/resolve/main/model.safetensors";
    SafeUrl::from(&Url::parse(url).unwrap())
}

fn response(status: u16, code: Option<&str>, retry_after: Option<Duration>) -> Box<HubError> {
    let mut response = HubError::new(url().to_string(), status);
    (response.code, response.retry_after) = (code.map(str::to_owned), retry_after);
    Box::new(response)
}

/// Returns the error for a response with a message.
fn explained_message(status: u16, message: &str) -> Error {
    let mut response = response(status, None, None);
    response.message = Some(message.to_owned());
    explained(response)
}

/// Returns the error for a response to a request for a file of a repository.
fn explained(response: Box<HubError>) -> Error {
    request_failed(HttpErrorKind::Status(response))
}

fn refused(status: u16) -> Error {
    explained(response(status, None, None))
}

fn request_failed(kind: HttpErrorKind) -> Error {
    let error = HttpError::new(kind, "the cause".to_owned());
    let (repo, revision) = ("org/model".parse().unwrap(), Revision::default());
    explain("org/model/x".to_owned(), error, Some((&repo, &revision)))
}

/// Returns errors of a kind, each of which has the predicate and the status of the table.
fn samples(kind: ErrorKind) -> Vec<Error> {
    let repo: RepoId = "org/model".parse().unwrap();
    let (location, file) = (repo.to_string(), "org/model/model.safetensors".to_owned());
    let wait = Duration::from_secs(60);
    let missing = || Arc::<HubError>::from(response(404, Some("EntryNotFound"), None));
    let invalid_name = || "a/b/c/d".parse::<RepoId>().unwrap_err();
    match kind {
        ErrorKind::InvalidSource => vec![Error::InvalidSource(invalid_name().into())],
        ErrorKind::InvalidSettings => {
            vec![Error::setting("jobs", "it must be at least 1"), Error::http_client("a reason")]
        }
        ErrorKind::InvalidOption => {
            let message = "the token contains invalid characters".to_owned();
            vec![Error::InvalidOption { option: "token", message }]
        }
        ErrorKind::RepoNotFound => vec![explained(response(401, Some("RepoNotFound"), None))],
        ErrorKind::RevisionNotFound => {
            vec![explained(response(404, Some("RevisionNotFound"), None))]
        }
        ErrorKind::FileNotFound => vec![Error::FileNotFound { file, source: missing() }],
        ErrorKind::Gated => vec![explained(response(403, Some("GatedRepo"), None))],
        ErrorKind::RejectedToken => {
            vec![explained_message(401, "Invalid credentials in Authorization header")]
        }
        ErrorKind::Forbidden => {
            vec![explained_message(403, "Access to this resource is disabled.")]
        }
        ErrorKind::NoWeights => vec![Error::NoWeights {
            location,
            single: "model.safetensors".to_owned(),
            index: "model.safetensors.index.json".to_owned(),
            other_formats: Vec::new(),
            source: missing(),
        }],
        ErrorKind::SeveralSets => vec![Error::SeveralSets { location, sets: Vec::new() }],
        ErrorKind::MissingShards => vec![
            Error::ShardNotFound { file, source: missing() },
            Error::IncompleteShards { set: location, found: 1, total: 2, first_missing: None },
        ],
        ErrorKind::MalformedHeader => {
            let source = HeaderError::new(HeaderErrorKind::FileTooShort, "the file is too short");
            vec![Error::InvalidHeader { file, format: "safetensors", source }]
        }
        ErrorKind::MalformedIndex => {
            let source = SafetensorsIndexJson::from_json(b"{}").unwrap_err();
            vec![Error::InvalidIndex { file, source }]
        }
        ErrorKind::MalformedListing => {
            let kinds = [HttpErrorKind::EndlessListing, HttpErrorKind::InvalidListing];
            kinds.map(request_failed).into()
        }
        ErrorKind::TooLarge => {
            let source = HeaderError::new(HeaderErrorKind::TooLarge, "too many tensors");
            vec![
                Error::TooLarge { file: file.clone(), limit: 100_000_000 },
                Error::HeadersTooLarge { file: file.clone(), limit: 500_000_000 },
                Error::InvalidHeader { file: file.clone(), format: "PyTorch", source },
                Error::InvalidHeader {
                    file,
                    format: "safetensors",
                    source: HeaderError::new(HeaderErrorKind::OverLimit, "over the limit"),
                },
            ]
        }
        ErrorKind::Changed => vec![Error::Changed { message: "its size changed".to_owned() }],
        ErrorKind::RateLimited => {
            vec![refused(429), request_failed(HttpErrorKind::RateLimited { wait })]
        }
        ErrorKind::Refused => [408, 500, 502, 503, 504].map(refused).into(),
        ErrorKind::Network => {
            vec![request_failed(HttpErrorKind::Connect), request_failed(HttpErrorKind::Interrupted)]
        }
        ErrorKind::Timeout => {
            vec![Error::DeadlineExceeded { limit: wait }, request_failed(HttpErrorKind::Timeout)]
        }
        ErrorKind::Offline => vec![Error::Offline { url: url().to_string() }],
        ErrorKind::NotCached => {
            let source = HubCacheMiss::new("refs/main".to_owned(), "does not exist");
            vec![Error::NotCached { repo, revision: Revision::default(), source }]
        }
        ErrorKind::LocalIo => {
            vec![Error::Io {
                file,
                source: shared(io::Error::from(io::ErrorKind::PermissionDenied)),
            }]
        }
        kind => panic!("{kind:?} has no sample"),
    }
}

#[test]
fn the_source_can_be_downcast_to_the_type_of_the_field() {
    let held = request_failed(HttpErrorKind::RateLimited { wait: Duration::ZERO });
    let source = std::error::Error::source(&held).unwrap();
    let cause = source.downcast_ref::<Arc<HttpError>>().map(|cause| &cause.kind);
    assert!(matches!(cause, Some(HttpErrorKind::RateLimited { .. })), "{source:?}");
    let refused = refused(500);
    let source = std::error::Error::source(&refused).unwrap();
    let response = source.downcast_ref::<Arc<HubError>>();
    assert_eq!(response.map(|response| response.status), Some(500));
    assert!(size_of::<Error>() <= 128, "{} bytes", size_of::<Error>());
}

/// Returns the predicates that hold.
fn predicates(error: &Error) -> Vec<&'static str> {
    let all = [
        ("is_usage", error.is_usage()),
        ("is_not_found", error.is_not_found()),
        ("is_denied", error.is_denied()),
        ("has_no_weights", error.has_no_weights()),
        ("is_malformed", error.is_malformed()),
        ("is_transient", error.is_transient()),
    ];
    all.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| name).collect()
}

#[test]
fn every_kind_has_the_code_predicate_and_status_of_the_documentation() {
    let table = table();
    assert_eq!(table.len(), ErrorKind::ALL.len());
    for ((code, predicate, status), kind) in table.into_iter().zip(ErrorKind::ALL.iter().copied()) {
        assert_eq!((kind.code(), kind.http_status()), (code, status));
        for error in samples(kind) {
            assert_eq!((error.kind(), error.code()), (kind, code), "{error:?}");
            let expected: Vec<_> =
                Some(predicate).filter(|name| !name.is_empty()).into_iter().collect();
            assert_eq!(predicates(&error), expected, "{error:?}");
        }
    }
}

#[test]
fn refusals_and_network_failures_may_be_permanent() {
    for status in [400, 405, 416, 501] {
        assert_eq!(
            (refused(status).kind(), refused(status).is_transient()),
            (ErrorKind::Refused, false)
        );
    }
    let failed = [
        request_failed(HttpErrorKind::Certificate),
        request_failed(HttpErrorKind::Setup),
        request_failed(HttpErrorKind::ForbiddenAddress),
        request_failed(HttpErrorKind::Redirect),
    ];
    for error in failed {
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Network, false), "{error:?}");
    }
}

#[test]
fn the_wait_and_the_status_come_from_the_response_or_from_the_gate() {
    let wait = Duration::from_secs(60);
    let refused = explained(response(429, None, Some(wait)));
    assert_eq!((refused.status(), refused.retry_after()), (Some(429), Some(wait)));
    assert_eq!(refused.kind(), ErrorKind::RateLimited);
    let held = request_failed(HttpErrorKind::RateLimited { wait });
    assert_eq!((held.status(), held.retry_after()), (None, Some(wait)));
    let wait = Duration::from_millis(1_001);
    let rounded = request_failed(HttpErrorKind::RateLimited { wait });
    assert_eq!((held.retry_after_secs(), rounded.retry_after_secs()), (Some(60), Some(2)));
    let (file, source) = ("x".to_owned(), response(404, None, None));
    let missing = Error::FileNotFound { file, source: Arc::<HubError>::from(source) };
    assert_eq!((missing.status(), missing.retry_after()), (Some(404), None));
    assert_eq!(missing.retry_after_secs(), None);
    assert_eq!([refused, missing].map(|error| error.http_status()), [503, 404]);
    let certificate = request_failed(HttpErrorKind::Certificate);
    assert_eq!(certificate.http_status(), 502, "repeating the call does not help");
    assert!(certificate.chain().ends_with(": the cause"), "{}", certificate.chain());
}
