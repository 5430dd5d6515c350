//! Errors as Python exceptions.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use hf_meta::formats::chain;
use hf_meta::{Error, ErrorKind};
use hf_meta_census::CensusError;
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// Returns an error as an exception: an `OSError` for files, a `ValueError` for lists and tables that cannot be used, a
/// `hf_meta.HfMetaError` for the Hub, and a `RuntimeError` for an incomplete census.
pub(crate) fn exception(error: &CensusError) -> PyErr {
    match error {
        CensusError::Hub(error) => match error {
            Error::Io { file, .. } | Error::FileNotFound { file, .. } => {
                let is_local =
                    error.kind() == ErrorKind::LocalIo || find::<io::Error>(error).is_some();
                if is_local { os_error(error, file) } else { hub_exception(error.chain(), error) }
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

/// Returns a `hf_meta.HfMetaError`, which is defined in Python.
fn hub_exception(message: String, error: &Error) -> PyErr {
    let retry_after = error.retry_after().map(|wait| wait.as_secs_f64());
    let arguments = (message, error.code(), error.status(), retry_after);
    Python::attach(|py| {
        let class = py.import("hf_meta").and_then(|module| module.getattr("HfMetaError"));
        match class.and_then(|class| class.call1(arguments)) {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        }
    })
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
