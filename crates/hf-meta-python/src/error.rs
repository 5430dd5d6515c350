//! Errors as Python exceptions.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use hf_meta::{Error, ErrorKind};
use hf_meta_census::CensusError;
use hf_meta_edit::FileEditError;
use hf_meta_format::formats::chain;
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// Returns an error as an exception: an `OSError` for files, a `ValueError` for lists and tables that cannot be used, a
/// `hf_meta.HfMetaError` for the Hub, and a `RuntimeError` for an incomplete census. `hint` says what to do about an error.
pub(crate) fn exception(error: &CensusError, hint: impl Fn(&Error) -> Option<String>) -> PyErr {
    // The error of a call is transparent: its source is that of the error in it.
    let cause = match error {
        CensusError::Hub(error) => Some(error),
        _ => find::<Error>(error),
    };
    let help = cause.and_then(hint);
    let hub_exception = |message, error: &Error| hub_exception(message, error, help.as_deref());
    match error {
        CensusError::Hub(error) => match error {
            Error::Io { file, .. } | Error::FileNotFound { file, .. } => {
                let is_local =
                    error.kind() == ErrorKind::LocalIo || find::<io::Error>(error).is_some();
                if is_local {
                    with_help(os_error(error, file), help.as_deref())
                } else {
                    hub_exception(error.chain(), error)
                }
            }
            _ => hub_exception(error.chain(), error),
        },
        CensusError::Io { target, .. } => os_error(error, target),
        CensusError::NoCensus { .. } => PyFileNotFoundError::new_err(error.to_string()),
        CensusError::Manifest { .. }
        | CensusError::ManifestMismatch { .. }
        | CensusError::Table { .. } => PyValueError::new_err(chain(error)),
        _ => match find::<Error>(error) {
            Some(cause) => hub_exception(chain(error), cause),
            None => PyRuntimeError::new_err(chain(error)),
        },
    }
}

/// Returns the error of an edit as an exception: a `ValueError` for metadata that exceed a limit or contradict the data, a
/// `hf_meta.HfMetaError` for an invalid file, and an `OSError` for a file that cannot be changed.
pub(crate) fn edit_exception(error: &FileEditError) -> PyErr {
    match error {
        FileEditError::InvalidHeader { .. } => {
            hub_error((chain(error), "malformedHeader", None, None, None, None))
        }
        FileEditError::Edit { .. } | FileEditError::WrongHash { .. } => {
            PyValueError::new_err(chain(error))
        }
        FileEditError::Io { path, .. } | FileEditError::Interrupted { path, .. } => {
            os_error(error, path)
        }
        _ => PyOSError::new_err(chain(error)),
    }
}

/// Returns a `hf_meta.HfMetaError` for an error of the Hub.
fn hub_exception(message: String, error: &Error, help: Option<&str>) -> PyErr {
    let retry_after = error.retry_after().map(|wait| wait.as_secs_f64());
    let sets = match error {
        Error::SeveralSets { sets, .. } => serde_json::to_string(sets).ok(),
        _ => None,
    };
    hub_error((message, error.code(), error.status(), retry_after, help, sets))
}

/// The arguments of `hf_meta._calls.to_error`.
type ErrorArguments<'a> =
    (String, &'a str, Option<u16>, Option<f64>, Option<&'a str>, Option<String>);

/// Returns a `hf_meta.HfMetaError`, which is defined in Python.
fn hub_error(arguments: ErrorArguments<'_>) -> PyErr {
    Python::attach(|py| {
        let function = py.import("hf_meta._calls").and_then(|module| module.getattr("to_error"));
        match function.and_then(|function| function.call1(arguments)) {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        }
    })
}

/// Adds the help to an exception of Python, as an attribute and as a note.
fn with_help(error: PyErr, help: Option<&str>) -> PyErr {
    let Some(help) = help else { return error };
    Python::attach(|py| {
        let value = error.value(py);
        // Python 3.10 has no notes.
        let _ = value.setattr("help", help);
        let _ = value.call_method1("add_note", (format!("help: {help}"),));
    });
    error
}

/// Returns an `OSError`, or the subclass of its number, such as `FileNotFoundError`.
fn os_error(error: &(dyn StdError + 'static), file: &str) -> PyErr {
    let cause = find::<io::Error>(error).and_then(|cause| Some((cause.raw_os_error()?, cause)));
    let Some((number, cause)) = cause else { return PyOSError::new_err(chain(error)) };
    // The number follows the message.
    let message = cause.to_string();
    let message = message.split(" (os error").next().unwrap_or_default();
    PyOSError::new_err((number, message.to_owned(), file.to_owned()))
}

/// Returns the first error of a type in a chain of causes.
fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.into_iter().find_map(|error| {
        let shared = || error.downcast_ref::<Arc<dyn StdError + Send + Sync>>()?.downcast_ref();
        error.downcast_ref().or_else(shared)
    })
}
