//! Errors as Python exceptions.

use std::error::Error as _;

use hf_meta::Error;
use pyo3::prelude::*;

/// Returns an error as a `hf_meta.HfMetaError`, which is defined in Python.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    let retry_after = error.retry_after().map(|wait| wait.as_secs_f64());
    let arguments = (message, error.code(), error.status(), retry_after);
    let class = py.import("hf_meta").and_then(|module| module.getattr("HfMetaError"));
    match class.and_then(|class| class.call1(arguments)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}
