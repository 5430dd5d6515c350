//! Errors as Python exceptions.

use hf_meta::Error;
use hf_meta_census::CensusError;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// Returns an error of a census as an exception. A table without a column of names is a `ValueError`.
pub(crate) fn census_exception(py: Python<'_>, error: &CensusError) -> PyErr {
    match error {
        CensusError::Hub(error) => exception(py, error),
        CensusError::Manifest { .. } => PyValueError::new_err(chain(error)),
        _ => PyRuntimeError::new_err(chain(error)),
    }
}

/// Returns an error as a `hf_meta.HfMetaError`, which is defined in Python.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let retry_after = error.retry_after().map(|wait| wait.as_secs_f64());
    let arguments = (chain(error), error.code(), error.status(), retry_after);
    let class = py.import("hf_meta").and_then(|module| module.getattr("HfMetaError"));
    match class.and_then(|class| class.call1(arguments)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// Returns an error and its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    message
}
