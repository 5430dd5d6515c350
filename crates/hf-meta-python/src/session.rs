//! Clients, each with its own threads.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use arrow_pyarrow::PyArrowType;
use hf_meta::memory::MemoryOptions;
use hf_meta::report::Plan;
use hf_meta::{Client, ClientBuilder, DiskCache, Error, RetryPolicy, Source};
use hf_meta_census::arrow_array::RecordBatch;
use hf_meta_census::{
    Census, CensusSummary, MAX_HEADER_BYTES, MAX_QUOTA_WAIT, Manifest, read_batch,
};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::error::{census_exception, exception};

/// The time between two checks for Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// The numbers of rows of a census: by status and kind of error, existing, and carried over.
type CensusNumbers = (Vec<((String, String), usize)>, usize, usize);

/// A client and its threads. It belongs to the process that made it, because a fork has none of the threads.
#[pyclass(frozen)]
pub(crate) struct Session {
    client: Client,
    /// `None` after the drop.
    runtime: Option<Runtime>,
    process: u32,
}

#[pymethods]
impl Session {
    /// Creates a client with the settings of the environment and these. With a share of the quota, it is a client for
    /// many repositories.
    #[new]
    fn new(
        py: Python<'_>,
        endpoint: Option<&str>,
        token: Option<&str>,
        timeout: Option<f64>,
        cache: bool,
        quota_share: Option<f64>,
    ) -> PyResult<Self> {
        let mut builder = ClientBuilder::from_env();
        if let Some(endpoint) = endpoint {
            builder = builder.endpoint(endpoint);
        }
        if let Some(token) = token {
            builder = builder.token(token);
        }
        if let Some(seconds) = timeout {
            let timeout = Duration::try_from_secs_f64(seconds);
            let timeout = timeout.ok().filter(|timeout| !timeout.is_zero());
            let invalid =
                || PyValueError::new_err("`timeout` must be a positive number of seconds");
            builder = builder.call_timeout(timeout.ok_or_else(invalid)?);
        }
        if let Some(cache) = DiskCache::from_env().filter(|_| cache) {
            builder = builder.header_cache(cache);
        }
        if let Some(share) = quota_share {
            let retry = RetryPolicy::default().max_wait(MAX_QUOTA_WAIT);
            let many = builder.quota_share(share).retry_policy(retry);
            builder = many.max_total_header_bytes(MAX_HEADER_BYTES).user_agent("census");
        }
        let client = builder.build().map_err(|error| exception(py, &error))?;
        let runtime = Builder::new_multi_thread().enable_all().build()?;
        Ok(Self { client, runtime: Some(runtime), process: std::process::id() })
    }

    /// Reads the headers of a source. Returns the JSON of `hf-meta --json`.
    #[expect(clippy::too_many_arguments, reason = "the keyword arguments of a Python function")]
    fn inspect(
        &self,
        py: Python<'_>,
        source: &str,
        revision: Option<&str>,
        path: Option<&str>,
        plan: &str,
        headers: bool,
        memory: Option<u64>,
    ) -> PyResult<String> {
        let plan = plan_by_name(plan)?;
        let source = Source::parse(source, self.client.endpoint());
        let model = match source {
            Ok(source) => self.client.source(source).plan(plan),
            Err(error) => return Err(exception(py, &error.into())),
        };
        let mut model = model.revision(revision).path(path);
        if let Some(context) = memory {
            let context = Some(context).filter(|context| *context > 0);
            model = model.memory(MemoryOptions { context, ..MemoryOptions::default() });
        }
        let json = self.wait(py, async move {
            Ok::<_, Error>(if headers {
                serde_json::to_string(&model.inspect().await?)
            } else {
                serde_json::to_string(&model.count().await?)
            })
        })?;
        let json = json.map_err(|error| exception(py, &error))?;
        json.map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// Reads the repositories of a record batch. Returns their rows in the same order.
    fn read(
        &self,
        py: Python<'_>,
        repos: PyArrowType<RecordBatch>,
        jobs: usize,
    ) -> PyResult<PyArrowType<RecordBatch>> {
        let client = self.client.clone();
        let rows = self.wait(py, async move { read_batch(&client, &repos.0, jobs).await })?;
        rows.map(PyArrowType).map_err(|error| census_exception(py, &error))
    }

    /// Reads a slice of a manifest into a folder or an object store. Returns the number of rows by status and kind of
    /// error, of rows that existed, and of rows that were carried over.
    fn census(
        &self,
        py: Python<'_>,
        manifest: PathBuf,
        target: String,
        slice: (usize, usize),
        previous: Option<String>,
        jobs: usize,
    ) -> PyResult<CensusNumbers> {
        if slice.0 >= slice.1 {
            return Err(PyValueError::new_err("`slice` must be (k, n) with 0 <= k < n"));
        }
        let client = self.client.clone();
        let summary = self.wait(py, async move {
            let manifest = Manifest::open(&manifest, None)?;
            let census = Census::create(client, &target)?.concurrency(jobs).slice(slice.0, slice.1);
            let census = match previous {
                Some(previous) => census.previous(previous),
                None => census,
            };
            census.read(&manifest).await
        })?;
        let CensusSummary { rows, already_read, carried_over, .. } =
            summary.map_err(|error| census_exception(py, &error))?;
        Ok((rows.into_iter().collect(), already_read, carried_over))
    }
}

impl Session {
    /// Waits for a call without the GIL. A signal such as Ctrl-C cancels the call.
    fn wait<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl Future<Output = T> + Send + 'static,
    ) -> PyResult<T> {
        let runtime = self.runtime.as_ref().filter(|_| self.process == std::process::id());
        let runtime =
            runtime.ok_or_else(|| PyRuntimeError::new_err("created in another process"))?;
        let (sender, mut receiver) = mpsc::channel();
        let task = runtime.spawn(async move {
            let _ = sender.send(call.await);
        });
        loop {
            let (result, moved) =
                py.detach(move || (receiver.recv_timeout(SIGNAL_INTERVAL), receiver));
            receiver = moved;
            match result {
                Ok(output) => return Ok(output),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err("the call has panicked"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    py.check_signals().inspect_err(|_| task.abort())?;
                }
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if self.process == std::process::id() {
            runtime.shutdown_background();
        } else {
            // The threads are in the other process, so waiting for them would never end.
            std::mem::forget(runtime);
        }
    }
}

fn plan_by_name(name: &str) -> PyResult<Plan> {
    match name {
        "exact" => Ok(Plan::Exact),
        "prefetch" => Ok(Plan::Prefetch),
        "hub" => Ok(Plan::Hub),
        _ => Err(PyValueError::new_err("`plan` must be `exact`, `prefetch` or `hub`")),
    }
}
