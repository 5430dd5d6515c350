//! Edits of metadata, and the fields of the SAI Model Spec.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use hf_meta::formats::safetensors::MetadataEdit;
use hf_meta::metadata::ModelSpec;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Edits a file. Returns whether it changed.
#[pyfunction]
pub(crate) fn edit_metadata(
    py: Python<'_>,
    path: PathBuf,
    set: Vec<(String, String)>,
    delete: Vec<String>,
    delete_all: bool,
    reserve: usize,
) -> PyResult<bool> {
    let all = delete_all.then_some(MetadataEdit::DeleteAll);
    let deletes = all.into_iter().chain(delete.into_iter().map(MetadataEdit::Delete));
    let sets = set.into_iter().map(|(key, value)| MetadataEdit::Set { key, value });
    let edits: Vec<_> = deletes.chain(sets).collect();
    let edited = py.detach(|| hf_meta_cli::edit_metadata(&path, &edits, reserve));
    edited.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            PyValueError::new_err(error.to_string())
        }
        _ => error.into(),
    })
}

/// Returns the JSON of the fields in metadata; `None` without any.
#[pyfunction]
pub(crate) fn model_spec(metadata: BTreeMap<String, String>) -> PyResult<Option<String>> {
    let spec = ModelSpec::from_metadata(&metadata);
    let json = spec.as_ref().map(serde_json::to_string).transpose();
    json.map_err(|error| PyValueError::new_err(error.to_string()))
}
