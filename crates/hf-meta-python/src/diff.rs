//! Comparisons of two models.

use hf_meta::Model;
use hf_meta_count::results::ValueCheck;
use hf_meta_count::results::diff::Diff;
use hf_meta_count::values::ValueDiff;
use pyo3::PyResult;
use pyo3::exceptions::PyValueError;
use serde::Serialize;

use crate::help::{CallError, about};

/// The JSON of `hf-meta diff --json`.
#[derive(Serialize)]
pub(crate) struct DiffDocument {
    #[serde(flatten)]
    diff: Diff,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<ValueDiff>,
}

/// Returns the part of the values with a name.
pub(crate) fn value_check(name: Option<&str>) -> PyResult<Option<ValueCheck>> {
    match name {
        None => Ok(None),
        Some("sample") => Ok(Some(ValueCheck::Sample)),
        Some("all") => Ok(Some(ValueCheck::All)),
        Some(_) => Err(PyValueError::new_err("`values` must be `sample` or `all`")),
    }
}

/// Compares the headers of two models and, if requested, their values.
pub(crate) async fn compare(
    before: &Model,
    after: &Model,
    ignore_shards: bool,
    check: Option<ValueCheck>,
) -> Result<DiffDocument, CallError> {
    let read = async |number, model: &Model| model.inspect().await.map_err(about(number));
    let (one, other) = tokio::try_join!(read(0, before), read(1, after))?;
    let values = match check {
        None => None,
        Some(check) => Some(before.compare_values(after, check).await.map_err(about(0))?),
    };
    Ok(DiffDocument { diff: Diff::new(&one, &other, ignore_shards), values })
}
