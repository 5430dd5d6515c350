//! Short names of errors, for the matrix.

use hf_meta::{Error, ErrorKind, HttpError, RangeError, TransportKind};

/// Returns the short name of an error.
pub(crate) fn name(error: &Error) -> String {
    let name = match error {
        Error::RequestFailed { source, .. } => return http(source),
        Error::Refused { kind: ErrorKind::Forbidden, .. } => "forbidden",
        Error::Refused { kind: ErrorKind::RepoNotFound, .. } => "repo not found",
        Error::Refused { kind: ErrorKind::Gated, .. } => "gated",
        Error::Refused { kind: ErrorKind::Refused | ErrorKind::RateLimited, source, .. } => {
            return format!("status {}", source.status);
        }
        Error::NoWeights { .. } => "no weights",
        Error::FileNotFound { .. } => "file not found",
        Error::InvalidHeader { .. } => "invalid header",
        Error::InvalidIndex { .. } => "invalid index",
        Error::TooLarge { .. } => "too large",
        Error::Changed { .. } => "changed",
        other => return format!("{other:?}"),
    };
    name.to_owned()
}

fn http(error: &HttpError) -> String {
    let name = match error {
        HttpError::Redirect { reason, .. } => return format!("redirect: {reason}"),
        HttpError::UnexpectedResponse { source, .. } => return range(source),
        HttpError::Transport { kind: TransportKind::Connect, .. } => "no connection",
        HttpError::Transport { kind: TransportKind::Timeout, .. } => "timeout",
        HttpError::Transport { kind: TransportKind::Interrupted, .. } => "interrupted",
        HttpError::RateLimited { .. } => "rate limited",
        HttpError::TooLarge { .. } => "too large",
        HttpError::ForbiddenAddress { .. } => "private address",
        other => return format!("{other:?}"),
    };
    name.to_owned()
}

fn range(error: &RangeError) -> String {
    let name = match error {
        RangeError::WebPage => "web page",
        RangeError::UnknownLength => "unknown size",
        RangeError::InvalidContentRange => "no `Content-Range`",
        RangeError::Mismatch { .. } => "wrong range",
        RangeError::WrongLength { .. } => "wrong length",
        RangeError::BodyTooLong { .. } => "body too long",
        RangeError::UnexpectedEncoding => "unexpected encoding",
        other => return format!("{other:?}"),
    };
    name.to_owned()
}
