//! Errors by their type, as the table names them.

use hf_meta::{Error, HttpError, RangeError, TransportKind};

/// The name of an error.
pub(crate) fn name(error: &Error) -> String {
    let name = match error {
        Error::Fetch { source, .. } => return http(source),
        Error::Refused { source, .. } => return format!("status {}", source.status),
        Error::Forbidden { .. } => "forbidden",
        Error::RepoNotFound { .. } => "repo not found",
        Error::Gated { .. } => "gated",
        Error::NoSafetensors { .. } => "no weights",
        Error::FileNotFound { .. } => "file not found",
        Error::Header { .. } => "bad header",
        Error::Index { .. } => "bad index",
        Error::TooLarge { .. } => "too large",
        Error::Changed { .. } => "changed",
        other => return format!("{other:?}"),
    };
    name.to_owned()
}

fn http(error: &HttpError) -> String {
    let name = match error {
        HttpError::Redirect { reason, .. } => return format!("redirect: {reason}"),
        HttpError::Range { source, .. } => return range(source),
        HttpError::Transport { kind: TransportKind::Connect, .. } => "no connection",
        HttpError::Transport { kind: TransportKind::Timeout, .. } => "timeout",
        HttpError::Transport { kind: TransportKind::Interrupted, .. } => "interrupted",
        HttpError::RateLimited { .. } => "busy",
        HttpError::TooLarge { .. } => "over limit",
        HttpError::PrivateAddress { .. } => "not public",
        other => return format!("{other:?}"),
    };
    name.to_owned()
}

fn range(error: &RangeError) -> String {
    let name = match error {
        RangeError::Unsupported => "range ignored",
        RangeError::UnknownLength => "unknown size",
        RangeError::InvalidContentRange => "no range told",
        RangeError::Mismatch { .. } => "other range",
        RangeError::WrongLength { .. } => "other length",
        RangeError::BodyTooLong { .. } => "too long",
        RangeError::UnexpectedEncoding => "encoded",
        other => return format!("{other:?}"),
    };
    name.to_owned()
}
