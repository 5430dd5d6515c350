//! Comparisons of two models.

use hf_meta::Model;
use hf_meta_count::results::ValueCheck;
use hf_meta_count::results::diff::Diff;
use pyo3::PyResult;
use pyo3::exceptions::PyValueError;

use crate::help::{CallError, about};

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
) -> Result<Diff, CallError> {
    let read = async |number, model: &Model| model.inspect().await.map_err(about(number));
    let (one, other) = tokio::try_join!(read(0, before), read(1, after))?;
    let values = match check {
        None => None,
        Some(check) => Some(before.compare_values(after, check).await.map_err(about(0))?),
    };
    Ok(Diff::new(&one, &other, ignore_shards).with_values(values))
}
