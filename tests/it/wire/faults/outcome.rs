//! Short names of errors, for the matrix.

use hf_meta::{Error, ErrorKind, HttpError, HttpErrorKind};
use hf_meta_format::formats::chain;

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
    let chain = chain(error);
    let name = match &error.kind {
        HttpErrorKind::Redirect => {
            let (_, reason) = chain.rsplit_once(": ").unwrap();
            return format!("redirect: {reason}");
        }
        HttpErrorKind::Connect => "no connection",
        HttpErrorKind::Timeout => "timeout",
        HttpErrorKind::Interrupted => "interrupted",
        HttpErrorKind::RateLimited { .. } => "rate limited",
        HttpErrorKind::TooLarge { .. } => "too large",
        HttpErrorKind::ForbiddenAddress => "private address",
        HttpErrorKind::WebPage => "web page",
        HttpErrorKind::WrongHeaders if chain.ends_with("without a `Content-Length`") => {
            "unknown size"
        }
        HttpErrorKind::WrongHeaders if chain.contains("`Content-Range`") => "no `Content-Range`",
        HttpErrorKind::WrongHeaders if chain.contains("requested bytes") => "wrong range",
        HttpErrorKind::WrongHeaders => "unexpected encoding",
        HttpErrorKind::WrongBody if chain.ends_with("got more") => "body too long",
        HttpErrorKind::WrongBody if chain.contains("expected") => "wrong length",
        other => return format!("{other:?}"),
    };
    name.to_owned()
}
