//! The threads, connections and calls of a process.

use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_pyarrow::PyArrowType;
use hf_meta::{CacheMode, Client, Endpoint, Model, Source};
use hf_meta_census::arrow_array::RecordBatch;
use hf_meta_census::{
    Census, CensusError, CensusStop, CensusSummary, Listing, Manifest, PublishOptions, diff,
    read_batch, verify,
};
use hf_meta_count::results::Plan;
use hf_meta_count::results::metadata::MetadataDocument;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde::Serialize;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{AbortHandle, JoinError};

use crate::clients::{Clients, Request, lock, timeout};
use crate::diff::{compare, value_check};
use crate::edit::EditArguments;
use crate::help::{CallError, Help, NamedSource, about};
use crate::job::{Job, Progress};
use crate::memory::{engine_options, memory_options};
use crate::pairs::{given_pairs, read_pair};
use crate::tensors::TensorStream;

/// The time that calls have to end when the interpreter exits.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of rows of a census: by status and error code, in existing parts, carried over, and not recounted.
type Summary = (Vec<((String, String), usize)>, usize, usize, usize);

/// The threads and clients of all calls. They belong to the process that made them, because a fork has none of the
/// threads.
#[pyclass(frozen, module = "hf_meta._native")]
pub(crate) struct Engine {
    /// `None` at exit. Never dropped in a fork, which would wait for threads of the other process.
    runtime: Mutex<Option<ManuallyDrop<Runtime>>>,
    clients: Clients,
    process: u32,
}

/// A call that runs.
#[pyclass(frozen, module = "hf_meta._native")]
pub(crate) struct NativeCall {
    work: AbortHandle,
    progress: Arc<Mutex<Progress>>,
    /// Ends a census after all complete rows are stored.
    stop: Arc<Mutex<Option<CensusStop>>>,
}

#[pymethods]
impl NativeCall {
    /// Stops the call at its next wait. `done` is not called.
    fn cancel(&self) {
        self.work.abort();
    }

    /// Ends the call early, if it is a census: all complete rows are stored before `done` is called. Returns false for
    /// other calls.
    fn stop(&self) -> bool {
        lock(&self.stop).as_ref().map(CensusStop::stop).is_some()
    }

    /// Returns the number of repositories that are done, that the call has in total, and that failed, and the error code of
    /// an outage.
    fn progress(&self) -> Progress {
        *lock(&self.progress)
    }
}

#[pymethods]
impl Engine {
    #[new]
    fn new() -> PyResult<Self> {
        let runtime = Builder::new_multi_thread().enable_all().build()?;
        let runtime = Mutex::new(Some(ManuallyDrop::new(runtime)));
        Ok(Self { runtime, clients: Clients::default(), process: std::process::id() })
    }

    /// Cancels all calls and waits until none uses Python.
    fn close(&self, py: Python<'_>) {
        let Some(runtime) = lock(&self.runtime).take() else { return };
        // A forked process has none of the threads.
        if self.process == std::process::id() {
            py.detach(|| ManuallyDrop::into_inner(runtime).shutdown_timeout(EXIT_TIMEOUT));
        }
    }

    /// Reads the headers of a source. The results are the JSON of `hf-meta --json` and of `hf-meta --metadata --json`.
    #[expect(clippy::too_many_arguments, reason = "the keyword arguments of a Python function")]
    #[expect(clippy::needless_pass_by_value, reason = "a list of Python is owned")]
    fn inspect(
        &self,
        request: Request,
        source: NamedSource,
        revision: Option<String>,
        path: Option<String>,
        weights: Option<String>,
        plan: &str,
        headers: bool,
        has_memory: bool,
        options: Vec<(String, String)>,
        cache: bool,
    ) -> PyResult<NativeCall> {
        let (plan, timeout) = (plan_by_name(plan)?, timeout(request.timeout)?);
        let options = memory_options(has_memory, &options)?;
        self.start(request, vec![source.clone()], move |client, _| async move {
            let model = model(&client, &source, timeout).map_err(about(0))?.plan(plan);
            let model = model.set_some(revision.as_ref(), Model::revision);
            let model = model.set_some(path.as_ref(), Model::path);
            let mut model = model.set_some(weights.as_ref(), Model::format);
            if !cache {
                model = model.cache_mode(CacheMode::Bypass);
            }
            let weights = model.inspect().memory(options).await.map_err(about(0))?;
            let json = if headers { to_json(&weights) } else { to_json(weights.report()) };
            Ok::<_, CallError>((json?, to_json(&MetadataDocument::new(&weights))?))
        })
    }

    /// Verifies a source, and an adapter with its base model. The result is the JSON of `hf-meta verify --json`.
    #[expect(clippy::too_many_arguments, reason = "the keyword arguments of a Python function")]
    #[expect(clippy::needless_pass_by_value, reason = "a list of Python is owned")]
    fn verify(
        &self,
        request: Request,
        source: NamedSource,
        revision: Option<String>,
        path: Option<String>,
        weights: Option<String>,
        all: bool,
        base: Option<NamedSource>,
        pairs: [Option<NamedSource>; 3],
        options: Vec<(String, String)>,
        values: Option<&str>,
    ) -> PyResult<NativeCall> {
        let options = engine_options(&options)?;
        let (timeout, values) = (timeout(request.timeout)?, value_check(values)?);
        let pairs = given_pairs(pairs, options.as_ref())?;
        let others = base.clone().into_iter().chain(pairs.iter().map(|(_, pair)| pair.clone()));
        let sources = [source.clone()].into_iter().chain(others).collect();
        self.start(request, sources, move |client, _| async move {
            let first = 1 + usize::from(base.is_some());
            let base = base.map(|base| model(&client, &base, timeout)).transpose();
            let base = base.map_err(about(1))?;
            let model = model(&client, &source, timeout).map_err(about(0))?;
            let model = model.set_some(weights.as_ref(), Model::format);
            let model = model.set_some(revision.as_ref(), Model::revision);
            let model = model.set_some(path.as_ref(), Model::path);
            let verify = model.verify().all_sets(all).engine(options).values(values);
            let mut report = verify.await.map_err(about(0))?;
            if let Some(base) = base {
                report.check_base(&base.inspect().await.map_err(about(1))?);
            }
            for (at, (kind, pair)) in (first..).zip(pairs) {
                let pair = self::model(&client, &pair, timeout).map_err(about(at))?;
                read_pair(&mut report, kind, &pair, options).await.map_err(about(at))?;
            }
            to_json(&report).map_err(CallError::from)
        })
    }

    /// Compares the tensors of two sources. The result is the JSON of `hf-meta diff --json`.
    fn diff(
        &self,
        request: Request,
        before: NamedSource,
        after: NamedSource,
        ignore_shards: bool,
        values: Option<&str>,
    ) -> PyResult<NativeCall> {
        let (timeout, check) = (timeout(request.timeout)?, value_check(values)?);
        let sources = vec![before.clone(), after.clone()];
        self.start(request, sources, move |client, _| async move {
            let one = model(&client, &before, timeout).map_err(about(0))?;
            let other = model(&client, &after, timeout).map_err(about(1))?;
            to_json(&compare(&one, &other, ignore_shards, check).await?).map_err(CallError::from)
        })
    }

    /// Selects tensors of a source to read. The result is the stream of their data.
    #[expect(clippy::too_many_arguments, reason = "the keyword arguments of a Python function")]
    fn open_tensors(
        &self,
        request: Request,
        source: NamedSource,
        names: Vec<String>,
        revision: Option<String>,
        path: Option<String>,
        weights: Option<String>,
        max_memory: Option<u64>,
    ) -> PyResult<NativeCall> {
        let timeout = timeout(request.timeout)?;
        self.start(request, vec![source.clone()], move |client, _| async move {
            let model = model(&client, &source, timeout).map_err(about(0))?;
            let model = model.set_some(revision.as_ref(), Model::revision);
            let model = model.set_some(path.as_ref(), Model::path);
            let model = model.set_some(weights.as_ref(), Model::format);
            TensorStream::open(model, names, max_memory).await
        })
    }

    /// Reads the next tensor of a stream. The result is its name, dtype, shape and data, or None after the last one.
    fn next_tensor(
        &self,
        request: Request,
        source: NamedSource,
        stream: &TensorStream,
    ) -> PyResult<NativeCall> {
        let next = stream.next();
        self.start(request, vec![source], move |_, _| next)
    }

    /// Edits the metadata of local files. The result is the JSON of a list of edited files.
    fn edit_metadata(
        &self,
        request: Request,
        source: NamedSource,
        arguments: EditArguments,
    ) -> PyResult<NativeCall> {
        self.start(request, vec![source], move |client, _| async move {
            to_json(&arguments.run(&client).await?).map_err(CallError::from)
        })
    }

    /// Reads the repositories of a record batch. The result is their rows in the same order.
    fn read(&self, request: Request, repos: PyArrowType<RecordBatch>) -> PyResult<NativeCall> {
        self.start(request, Vec::new(), move |client, job| async move {
            let (jobs, max_outage) = (job.jobs, job.max_outage);
            let rows = read_batch(&client, &repos.0, jobs, max_outage, job.report()).await;
            rows.map(PyArrowType)
        })
    }

    /// Lists the models of a Hub in a file. The result is their number.
    fn census_list(
        &self,
        request: Request,
        output: PathBuf,
        filter: Option<String>,
        author: Option<String>,
        since: Option<i64>,
        since_list: Option<PathBuf>,
    ) -> PyResult<NativeCall> {
        self.start(request, Vec::new(), move |client, job| async move {
            let mut listing = Listing::new();
            if let Some(tag) = filter {
                listing = listing.filter(tag);
            }
            if let Some(author) = author {
                listing = listing.author(author);
            }
            if let Some(list) = since_list {
                listing = listing.update(&list)?;
            }
            if let Some(time) = since {
                listing = listing.since(time);
            }
            let report = move |models| *lock(&job.progress) = (models, 0, 0, None);
            listing.on_progress(report).write(&client, &output).await
        })
    }

    /// Reads a slice of a list into a folder or an object store. The result is the [`Summary`].
    fn census_read(
        &self,
        request: Request,
        list: PathBuf,
        column: Option<String>,
        target: String,
        slice: (usize, usize),
        previous: Option<String>,
    ) -> PyResult<NativeCall> {
        self.start(request, Vec::new(), move |client, job| async move {
            let manifest = Manifest::open(&list, column.as_deref())?;
            let mut census = job.set(Census::create(client, &target)?).slice(slice.0, slice.1);
            if let Some(previous) = previous {
                census = census.previous(previous);
            }
            census.read(&manifest).await.map(summary)
        })
    }

    /// Reads the failed repositories of a census again. The result is the [`Summary`].
    fn census_retry(&self, request: Request, target: String) -> PyResult<NativeCall> {
        self.start(request, Vec::new(), move |client, job| async move {
            job.set(Census::open(client, &target)?).retry().await.map(summary)
        })
    }

    /// Recounts the stored headers of a census. The result is the [`Summary`].
    fn census_count(&self, request: Request, target: String) -> PyResult<NativeCall> {
        self.start(request, Vec::new(), move |client, job| async move {
            job.set(Census::open(client, &target)?).count().await.map(summary)
        })
    }

    /// Writes the rows of a census to one file. The result is their number.
    fn census_pack(
        &self,
        request: Request,
        target: String,
        output: String,
    ) -> PyResult<NativeCall> {
        self.start(request, Vec::new(), move |client, job| {
            blocking(async move { job.set(Census::open(client, &target)?).pack(&output).await })
        })
    }

    /// Writes a data set for publication to a folder. The result is the number of repositories.
    fn census_publish(
        &self,
        request: Request,
        target: String,
        output: PathBuf,
        title: Option<String>,
        license: Option<String>,
        tensors: bool,
    ) -> PyResult<NativeCall> {
        self.start(request, Vec::new(), move |client, job| {
            blocking(async move {
                let options = PublishOptions { title, license, tensors };
                job.set(Census::open(client, &target)?).publish(&output, &options).await
            })
        })
    }

    /// Compares two censuses. The result is the JSON of the changes.
    fn census_diff(&self, request: Request, before: String, after: String) -> PyResult<NativeCall> {
        self.start(request, Vec::new(), move |_, _| {
            blocking(async move { to_json(&diff(&before, &after).await?) })
        })
    }

    /// Reads a sample of a census again. The result is the JSON of the changes.
    fn census_verify(
        &self,
        request: Request,
        target: String,
        sample: usize,
        seed: u64,
    ) -> PyResult<NativeCall> {
        self.start(request, Vec::new(), move |client, _| async move {
            to_json(&verify(&client, &target, sample, seed).await?.1)
        })
    }
}

impl Engine {
    /// Starts a call that reads some sources, or repositories of the Hub if there are none.
    fn start<T, Failed, Call>(
        &self,
        request: Request,
        sources: Vec<NamedSource>,
        call: impl FnOnce(Client, Job) -> Call,
    ) -> PyResult<NativeCall>
    where
        T: for<'py> IntoPyObject<'py> + Send + 'static,
        Failed: Into<CallError> + Send + 'static,
        Call: Future<Output = Result<T, Failed>> + Send + 'static,
    {
        let mut help = Help {
            // The two sources of a comparison have no separate paths.
            has_path: sources.len() < 2,
            sources,
            endpoint: Endpoint::default(),
            token_source: request.token_source(),
        };
        let client = self.clients.client(&request, &mut help)?;
        let (progress, stop) = (Arc::default(), Arc::default());
        let jobs = usize::try_from(request.jobs).unwrap_or_default();
        let max_outage = Duration::try_from_secs_f64(request.max_outage)
            .map_err(|_| PyValueError::new_err("`max_outage` must be a number of seconds"))?;
        let runtime = lock(&self.runtime);
        let runtime = if self.process == std::process::id() { runtime.as_ref() } else { None };
        let runtime =
            runtime.ok_or_else(|| PyRuntimeError::new_err("the interpreter is shutting down"))?;
        let shared = (Arc::clone(&progress), Arc::clone(&stop));
        let job = Job { jobs, max_outage, progress: shared.0, stop: shared.1 };
        let running = runtime.spawn(call(client, job));
        let work = running.abort_handle();
        runtime.spawn(async move {
            let result = match running.await {
                Err(error) if error.is_cancelled() => return,
                result => result,
            };
            // Waiting for the interpreter would block the other calls.
            tokio::task::spawn_blocking(move || deliver(result, &request.done, &help));
        });
        Ok(NativeCall { work, progress, stop })
    }
}

/// Passes the result of a call, or its exception, to the function of Python that waits for it.
fn deliver<T, Failed>(result: Result<Result<T, Failed>, JoinError>, done: &Py<PyAny>, help: &Help)
where
    T: for<'py> IntoPyObject<'py>,
    Failed: Into<CallError>,
{
    Python::try_attach(|py| {
        let result = match result {
            Ok(Ok(result)) => result.into_bound_py_any(py),
            Ok(Err(error)) => Err(help.exception(&error.into())),
            Err(_) => Err(PyRuntimeError::new_err("the call has panicked")),
        };
        let result = match result {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        if let Err(error) = done.call1(py, result) {
            error.write_unraisable(py, None);
        }
    });
}

/// Runs work that reads and writes files on a separate thread, because it would block the other calls.
async fn blocking<T: Send + 'static>(
    work: impl Future<Output = Result<T, CensusError>> + Send + 'static,
) -> Result<T, CensusError> {
    let runtime = Handle::current();
    let work = tokio::task::spawn_blocking(move || runtime.block_on(work)).await;
    work.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(CensusError::Stopped),
    })
}

/// Returns a call that reads a source.
fn model(
    client: &Client,
    (source, name): &NamedSource,
    timeout: Option<Duration>,
) -> Result<Model, hf_meta::Error> {
    let source = Source::parse(source, client.endpoint())?;
    let name = source.as_given(name);
    let model = client.source(source).named(&name);
    Ok(match timeout {
        Some(timeout) => model.timeout(timeout),
        None => model,
    })
}

fn summary(summary: CensusSummary) -> Summary {
    let CensusSummary { rows, already_read, carried_over, not_recounted, .. } = summary;
    (rows.into_iter().collect(), already_read, carried_over, not_recounted)
}

fn to_json(value: &impl Serialize) -> Result<String, CensusError> {
    serde_json::to_string(value).map_err(|error| CensusError::Io {
        action: "write",
        target: "JSON".to_owned(),
        source: error.into(),
    })
}

fn plan_by_name(name: &str) -> PyResult<Plan> {
    match name {
        "exact" => Ok(Plan::Exact),
        "prefetch" => Ok(Plan::Prefetch),
        "hub" => Ok(Plan::Hub),
        _ => Err(PyValueError::new_err("`plan` must be `exact`, `prefetch` or `hub`")),
    }
}
