//! The errors of calls, with help for people who use the module.

use hf_meta::Endpoint;
use hf_meta_census::CensusError;
use hf_meta_cli::module_hint;
use hf_meta_edit::FileEditError;
use pyo3::prelude::*;

use crate::error::{edit_exception, exception};

/// A source, and its name in results.
pub(crate) type NamedSource = (String, String);

/// The error of a call.
pub(crate) enum CallError {
    /// The error of a read, and the number of the source that it is about.
    Read { error: CensusError, source: usize },
    /// The error of an edit.
    Edit(FileEditError),
}

impl From<CensusError> for CallError {
    fn from(error: CensusError) -> Self {
        Self::Read { error, source: 0 }
    }
}

impl From<FileEditError> for CallError {
    fn from(error: FileEditError) -> Self {
        Self::Edit(error)
    }
}

/// Returns a function that adds the number of a source to its error.
pub(crate) fn about(source: usize) -> impl Fn(hf_meta::Error) -> CallError {
    move |error| CallError::Read { error: error.into(), source }
}

/// The conditions of a call that the help for its errors depends on.
pub(crate) struct Help {
    pub(crate) sources: Vec<NamedSource>,
    pub(crate) endpoint: Endpoint,
    pub(crate) token_source: Option<String>,
    /// True if the function has the argument `path`.
    pub(crate) has_path: bool,
}

impl Help {
    /// Returns the exception for an error, with its help.
    pub(crate) fn exception(&self, error: &CallError) -> PyErr {
        let (error, source) = match error {
            CallError::Read { error, source } => (error, source),
            CallError::Edit(error) => return edit_exception(error),
        };
        let (name, has_path) = (self.sources.get(*source), self.has_path);
        let name = name.map_or("", |(text, _)| text);
        let hint = |error: &hf_meta::Error| {
            module_hint(name, error, &self.endpoint, self.token_source.clone(), has_path)
        };
        exception(error, hint)
    }
}
