//! The function `read_tensors`: the data of tensors, one after the other.

use std::sync::Arc;

use futures::stream::{BoxStream, TryStreamExt};
use hf_meta::{Error, Model, Tensor, TensorSelection};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use tokio::sync::Mutex;

use crate::help::{CallError, about};

/// The tensors that are still to be read. `None` once the iterator was closed.
type Rest = Option<BoxStream<'static, Result<Tensor, Error>>>;

/// Tensors that are read one after the other.
#[pyclass(frozen, module = "hf_meta._native")]
pub(crate) struct TensorStream(Arc<Mutex<Rest>>);

#[pymethods]
impl TensorStream {
    /// Ends all requests.
    fn close(&self) {
        // A call that reads the next tensor is cancelled by itself, and releases the stream.
        if let Ok(mut rest) = self.0.try_lock() {
            *rest = None;
        }
    }
}

/// A tensor: its name, dtype, shape and data.
pub(crate) type TensorParts = (String, String, Vec<u64>, TensorBytes);

/// Data that become a `bytearray`, so that an array on top of it can be changed.
pub(crate) struct TensorBytes(bytes::Bytes);

impl<'py> IntoPyObject<'py> for TensorBytes {
    type Target = PyByteArray;
    type Output = Bound<'py, PyByteArray>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        PyByteArray::new_with(py, self.0.len(), |bytes| {
            bytes.copy_from_slice(&self.0);
            Ok(())
        })
    }
}

impl TensorStream {
    /// Reads all headers, and plans the ranges of the tensors.
    pub(crate) async fn open(
        model: Model,
        names: Vec<String>,
        max_memory: Option<u64>,
    ) -> Result<Self, CallError> {
        let mut tensors = model.tensors(TensorSelection::patterns(names));
        if let Some(bytes) = max_memory {
            tensors = tensors.max_memory(bytes);
        }
        let reader = tensors.await.map_err(about(0))?;
        Ok(Self(Arc::new(Mutex::new(Some(reader.tensors())))))
    }

    /// Reads the next tensor. Returns `None` after the last one.
    pub(crate) fn next(
        &self,
    ) -> impl Future<Output = Result<Option<TensorParts>, CallError>> + Send + use<> {
        next_of(Arc::clone(&self.0))
    }
}

async fn next_of(rest: Arc<Mutex<Rest>>) -> Result<Option<TensorParts>, CallError> {
    let mut rest = rest.lock().await;
    let Some(tensors) = rest.as_mut() else { return Ok(None) };
    let next = tensors.try_next().await;
    if !matches!(next, Ok(Some(_))) {
        *rest = None;
    }
    let tensor = next.map_err(about(0))?;
    Ok(tensor.map(|Tensor { name, dtype, shape, bytes, .. }| {
        (name, dtype.to_string(), shape, TensorBytes(bytes))
    }))
}
