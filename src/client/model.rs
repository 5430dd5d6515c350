//! The weights that a call reads.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hf_meta_count::memory::MemoryOptions;
use hf_meta_count::{CountReport, Plan, SafetensorsParseFromRepo, Weights};
use hf_meta_format::formats::safetensors::Safetensors;
use hf_meta_format::formats::weight_sets::WeightSet;
use hf_meta_format::formats::{FileHeader, Format, RepoPath};

use super::context::ClientContext;
use crate::backends::{FileStore, FileVersions};
use crate::base::budget::{Budget, LargeCallLimit};
use crate::base::meter::CallMeter;
use crate::base::{Callback, OnHeader, OnProgress, Progress};
use crate::cache::CacheMode;
use crate::call::{ModelCall, ReadOptions};
use crate::error::Error;
use crate::hub::{HubReportedCount, Manifest, Source, SourceError};

/// The weights of a repository, a URL or a local path, with options for reading them.
///
/// Created by [`Client::model`] and [`Client::source`]. No request is sent until a method such as
/// [`count`](Self::count) is awaited. Invalid options, such as a malformed revision, are reported then.
///
/// ```no_run
/// # async fn example() -> Result<(), hf_meta::Error> {
/// let client = hf_meta::Client::new()?;
/// let model = client.model("bigscience/bloom").revision("main").plan(hf_meta::Plan::Prefetch);
/// let report = model.count().await?;
/// println!("{} parameters", report.parameter_count.total());
/// # Ok(())
/// # }
/// ```
///
/// [`Client::model`]: crate::Client::model
/// [`Client::source`]: crate::Client::source
#[derive(Clone, Debug)]
#[must_use]
pub struct Model {
    pub(super) context: Arc<ClientContext>,
    pub(super) source: Result<Source, SourceError>,
    pub(super) options: ReadOptions,
    /// The store that is read instead of the Hub.
    pub(super) store: Option<Arc<dyn FileStore>>,
    /// The versions of files that all calls must agree on; `None` if each call has separate ones.
    pub(super) versions: Option<FileVersions>,
    pub(super) on_progress: Option<OnProgress>,
    pub(super) on_header: Option<OnHeader>,
    pub(super) large_calls: Option<LargeCallLimit>,
    /// The budget that the caller enforces.
    pub(super) budget: Option<Arc<dyn Budget>>,
    /// The meter that all calls share; `None` if each call has a separate one.
    pub(super) meter: Option<CallMeter>,
}

impl Model {
    pub(crate) fn new(context: Arc<ClientContext>, source: Result<Source, SourceError>) -> Self {
        Self {
            context,
            source,
            options: ReadOptions::default(),
            store: None,
            versions: None,
            on_progress: None,
            on_header: None,
            large_calls: None,
            budget: None,
            meter: None,
        }
    }

    /// Sets the branch, tag, ref or commit to read; `main` by default. Each call resolves it to a commit once and
    /// reads all files at that commit. Only repositories have revisions: for other sources, the call fails.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// let report = client.model("org/model").revision("main").count().await?;
    /// assert_eq!(report.parameter_count.total(), 6);
    /// let error = client.model("org/model").revision("missing").count().await.unwrap_err();
    /// assert_eq!(error.kind(), hf_meta::ErrorKind::RevisionNotFound);
    /// # Ok(())
    /// # }
    /// ```
    pub fn revision(mut self, revision: impl AsRef<str>) -> Self {
        self.source = self.source.and_then(|source| source.with_revision(revision.as_ref()));
        self
    }

    /// Sets an option if a value is given, and otherwise returns the model as it is.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// use hf_meta::Model;
    ///
    /// let (revision, path): (Option<String>, Option<&str>) = (None, Some("model.safetensors"));
    /// let model = client.model("org/model");
    /// let model = model.set_some(revision, Model::revision).set_some(path, Model::path);
    /// assert_eq!(model.count().await?.parameter_total(), 6);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_some<T>(self, value: Option<T>, set: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => set(self, value),
            None => self,
        }
    }

    /// Sets the file to read (a weight file or an index), the folder to search, or the quantization to read from a
    /// GGUF repository, such as `q4_k_m`. Shards without an index are selected by their common path, such as
    /// `model-*-of-00003.safetensors`.
    ///
    /// In a folder, or in the whole repository if no path is set, `model.safetensors` or
    /// `model.safetensors.index.json` is read. If neither exists, the files are listed, and the first match is read:
    ///
    /// 1. shards named `model` without an index, or a variant such as `model.fp16.safetensors`
    /// 2. in a diffusers pipeline, the `transformer`, then the `unet`, then the repository's own
    ///    `diffusion_pytorch_model`
    /// 3. `consolidated`, `adapter_model`, `pytorch_lora_weights`
    /// 4. the first module of a sentence-transformers model
    /// 5. the only weight set at the top level
    /// 6. the only weight set
    ///
    /// [`CountReport::other_sets`](crate::CountReport::other_sets) lists the rest.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// let model = client.model("org/model").path("model.safetensors");
    /// assert_eq!(model.count().await?.parameter_count.total(), 6);
    /// assert!(client.model("org/model").path("missing").count().await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn path(mut self, path: impl AsRef<str>) -> Self {
        self.source = self.source.and_then(|source| source.with_path(path.as_ref()));
        self
    }

    /// Sets the name of the source in results and messages, such as the text from which it was parsed. By default, it is
    /// the `Display` output of [`Source`].
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// let report = client.model("org/model").named("the model of the user").count().await?;
    /// assert_eq!(report.source, "the model of the user");
    /// # Ok(())
    /// # }
    /// ```
    pub fn named(mut self, name: &str) -> Self {
        self.options.name = Some(name.to_owned());
        self
    }

    /// Sets the format to read: `safetensors`, `gguf`, `pytorch`, or the name of a format registered with
    /// [`ClientBuilder::format`](crate::ClientBuilder::format). By default, safetensors is read if the repository has
    /// any, or else the first other format that it has.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// let model = client.model("org/model");
    /// assert_eq!(model.clone().format("safetensors").count().await?.format, "safetensors");
    /// // The repository has no GGUF file.
    /// assert!(model.format("gguf").count().await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn format(mut self, name: impl AsRef<str>) -> Self {
        self.options.format = Some(name.as_ref().to_owned());
        self
    }

    /// Sets whether the report lists the other weight sets in the repository or folder; `false` by default. Examples
    /// are the modules of a sentence-transformers model, variants, and the checkpoints of a training run. Listing
    /// costs one request per 1,000 files.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// let report = client.model("org/model").other_sets(true).count().await?;
    /// // The repository has one set, which is the main one.
    /// assert_eq!(report.other_sets, Some(Vec::new()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn other_sets(mut self, enabled: bool) -> Self {
        self.options.list_sets = enabled;
        self
    }

    /// Sets how headers are requested. The default is [`Plan::Prefetch`] for [tensors](Self::tensors) on a server, and
    /// [`Plan::Exact`] for all other calls. [`Model::verify`] always reads the files.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// let report = client.model("org/model").plan(hf_meta::Plan::Prefetch).count().await?;
    /// assert_eq!(report.parameter_count.total(), 6);
    /// # Ok(())
    /// # }
    /// ```
    pub fn plan(mut self, plan: Plan) -> Self {
        self.options.plan = Some(plan);
        self
    }

    /// Sets the timeout of each call, overriding [`call_timeout`](crate::ClientBuilder::call_timeout). It includes
    /// waits for rate limits: a call that would have to wait longer than the time left fails immediately. `None` restores
    /// the default.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// use hf_meta_testing::Fault;
    ///
    /// hub.inject(|_, _| Some(Fault::Stall));
    /// let timeout = std::time::Duration::from_millis(50);
    /// let error = client.model("org/model").timeout(timeout).count().await.unwrap_err();
    /// assert_eq!(error.kind(), hf_meta::ErrorKind::Timeout);
    /// # Ok(())
    /// # }
    /// ```
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.options.timeout = timeout.into();
        self
    }

    /// Sets a callback that is invoked after each shard is read. For a single file, it is invoked when its header begins to
    /// arrive and after it is read. It runs on the task that drives the call and must not block.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// let model = client.model("org/model").on_progress(|progress| println!("{progress:?}"));
    /// assert_eq!(model.count().await?.parameter_count.total(), 6);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_progress(mut self, report: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Callback(Arc::new(report)));
        self
    }

    /// Sets how calls use the [header cache](crate::ClientBuilder::header_cache); [`CacheMode::Default`] by default.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// use hf_meta::CacheMode;
    ///
    /// // After a notification that the repository has changed.
    /// let report = client.model("org/model").cache_mode(CacheMode::Revalidate).count().await?;
    /// assert_eq!(report.parameter_count.total(), 6);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cache_mode(mut self, mode: CacheMode) -> Self {
        self.options.cache_mode = mode;
        self
    }

    /// Reads the files from a store instead of the Hub, such as a bucket or a mirror with its own protocol. The name of
    /// the repository then only names the store in results and messages. Revisions and the header cache are not used.
    /// For a mirror that speaks the protocol of the Hub, set
    /// [`ClientBuilder::endpoint`](crate::ClientBuilder::endpoint).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::{io, ops::Range};
    /// # use futures::future::{FutureExt, ready};
    /// # use hf_meta::{BoxFuture, FileStore, RangeBytes, RepoPath};
    /// # #[derive(Debug)]
    /// # struct Bucket;
    /// # impl FileStore for Bucket {
    /// #     fn read_range<'a>(&'a self, _: &'a RepoPath, _: Range<u64>) -> BoxFuture<'a, io::Result<RangeBytes>> {
    /// #         ready(Err(io::ErrorKind::NotFound.into())).boxed()
    /// #     }
    /// # }
    /// let client = hf_meta::Client::new()?;
    /// // `FileStore` shows how to write one. This one is empty.
    /// let error = client.model("bucket/models").store(Bucket).count().await.unwrap_err();
    /// assert!(error.has_no_weights());
    /// # Ok(())
    /// # }
    /// ```
    pub fn store(mut self, store: impl FileStore) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Counts the requests and bytes of all calls of this model in a meter of
    /// [`Client::meter`](crate::Client::meter), which also shows them while a call runs, and after it has
    /// failed.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// let meter = client.meter();
    /// client.model("org/model").meter(&meter).count().await?;
    /// assert!(meter.stats().requests > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn meter(mut self, meter: &CallMeter) -> Self {
        self.meter = Some(meter.clone());
        self
    }

    /// Sets a callback that is invoked with each header after it is read, in any order. Headers need not be kept in
    /// memory to look at all of them. It runs on the task that drives the call and must not block.
    ///
    /// ```
    /// # async fn example(client: &hf_meta::Client) -> Result<(), hf_meta::Error> {
    /// let print = |header: &hf_meta_format::formats::FileHeader| {
    ///     for (name, tensor) in header.tensors() {
    ///         println!("{name} {:?}", tensor.shape);
    ///     }
    /// };
    /// client.model("bigscience/bloom").on_header(print).count().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_header(mut self, read: impl Fn(&FileHeader) + Send + Sync + 'static) -> Self {
        self.on_header = Some(Callback(Arc::new(read)));
        self
    }

    /// Sets the paths of all files in the repository, if you know them. No name is probed then, and listing the other
    /// sets costs no request.
    ///
    /// ```
    /// # async fn example(client: &hf_meta::Client) -> Result<(), hf_meta::Error> {
    /// let files = ["README.md", "model.safetensors"].map(|path| path.parse().unwrap());
    /// let report = client.model("openai-community/gpt2").known_files(files).count().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn known_files(mut self, files: impl IntoIterator<Item = RepoPath>) -> Self {
        self.options.known_files = Some(Arc::new(files.into_iter().collect()));
        self
    }

    /// Sets a limit that this call shares with other calls that need more than 8 MiB for their index and headers.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// let limit = hf_meta::LargeCallLimit::new(2);
    /// let report = client.model("org/model").large_calls(&limit).count().await?;
    /// assert_eq!(report.parameter_count.total(), 6);
    /// # Ok(())
    /// # }
    /// ```
    pub fn large_calls(mut self, limit: &LargeCallLimit) -> Self {
        self.large_calls = Some(limit.clone());
        self
    }

    /// Sets a budget, which may end the call before it sends more requests or uses more memory. The call then returns
    /// [`Error::OverBudget`].
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let shard = |name: &str| File::safetensors([(name, "U8", &[1][..])]);
    /// # let index = r#"{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}"#;
    /// # let repo = Repo::new("org/sharded").file("model.safetensors.index.json", File::from_bytes(index));
    /// # let hub = MockHub::start([repo.file("1.safetensors", shard("a")).file("2.safetensors", shard("b"))])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// use std::sync::Arc;
    ///
    /// use hf_meta::{Budget, Demand};
    ///
    /// #[derive(Debug)]
    /// struct Nothing;
    ///
    /// impl Budget for Nothing {
    ///     fn admit(&self, _: Demand) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    ///         Err("the user has no requests left".into())
    ///     }
    /// }
    ///
    /// let model = client.model("org/sharded").budget(Arc::new(Nothing));
    /// let error = model.count().await.unwrap_err();
    /// assert!(matches!(error, hf_meta::Error::OverBudget { .. }));
    /// # Ok(())
    /// # }
    /// ```
    pub fn budget(mut self, budget: Arc<impl Budget>) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Returns the model with these conditions for its memory.
    fn with_memory(mut self, options: Option<MemoryOptions>) -> Self {
        if options.is_some() {
            (self.options.memory, self.options.list_sets) = (options, true);
        }
        self
    }

    /// Counts the parameters. Sends the same requests as [`Model::parse_safetensors_metadata`] but uses less memory,
    /// because the headers are discarded.
    ///
    /// ```no_run
    /// # async fn example(client: &hf_meta::Client) -> Result<(), hf_meta::Error> {
    /// let report = client.model("bigscience/bloom").count().await?;
    /// println!("{} parameters", report.parameter_count.total());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Awaiting the count returns the same errors as [`Model::parse_safetensors_metadata`].
    pub fn count(&self) -> Count {
        Count(self.clone())
    }

    /// Reads and validates the header of every safetensors file, and counts the parameters.
    ///
    /// Dropping the future cancels the call and its requests.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// let parsed = client.model("org/model").parse_safetensors_metadata().await?;
    /// assert_eq!(parsed.parameter_count().total(), 6);
    /// assert!(client.model("org/none").parse_safetensors_metadata().await.unwrap_err().is_not_found());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the first [`Error`] that occurs. [`Error::is_not_found`], [`Error::is_denied`],
    /// [`Error::is_malformed`] and [`Error::is_usage`] classify it; all other errors are network, server or disk
    /// failures.
    pub fn parse_safetensors_metadata(
        &self,
    ) -> BoxFuture<'static, Result<SafetensorsParseFromRepo, Error>> {
        self.clone().format(Safetensors.name()).call(ModelCall::parse)
    }

    /// Reads and validates the header of every weight file, in any format, and counts the parameters.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), hf_meta::Error> {
    /// let model = hf_meta::Client::new()?.model("ggml-org/gemma-3-4b-it-GGUF").path("q4_k_m");
    /// if let hf_meta::Weights::Other(files) = model.inspect().await? {
    ///     println!("{:?}", files.report.model);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Awaiting the headers returns the same errors as [`Model::parse_safetensors_metadata`].
    pub fn inspect(&self) -> Inspect {
        Inspect(self.clone())
    }

    /// Returns the parameter count that the Hub reports for the repository, or `None` if it reports none or the
    /// source is not on a Hub. The count covers the whole repository, regardless of [`path`](Self::path), and is not
    /// verified. The Hub reports it for gated repositories as well.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// // This Hub reports none.
    /// assert_eq!(client.model("org/model").hub_reported_count().await?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the repository does not exist or is not accessible, if no response arrives, or if the
    /// timeout elapses ([`Error::DeadlineExceeded`]).
    pub fn hub_reported_count(
        &self,
    ) -> BoxFuture<'static, Result<Option<HubReportedCount>, Error>> {
        self.call(ModelCall::hub_count)
    }

    /// Lists all weight sets in the repository or folder, judging by file names alone. Returns `None` if the files
    /// cannot be listed, as on a plain web server. Listing costs one request per 1,000 files.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// let sets = client.model("org/model").weight_sets().await?.unwrap_or_default();
    /// assert_eq!(sets[0].path.as_str(), "model.safetensors");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the listing cannot be fetched or is invalid, or if the timeout elapses
    /// ([`Error::DeadlineExceeded`]).
    pub fn weight_sets(&self) -> BoxFuture<'static, Result<Option<Vec<WeightSet>>, Error>> {
        self.call(ModelCall::list_sets)
    }

    /// Lists all files of the repository with their sizes and hashes, in one request per 1,000 files. The
    /// [path](Self::path) has no effect.
    ///
    /// # Errors
    ///
    /// Returns [`Error::InvalidOption`] if the source is not on a Hub or the client is offline, and the errors of
    /// [`Model::weight_sets`].
    pub fn manifest(&self) -> BoxFuture<'static, Result<Manifest, Error>> {
        self.call(ModelCall::manifest)
    }

    /// Reads a small file at the revision of this model, such as `config.json`. `path` starts at the root of the
    /// repository. Does not use the header cache.
    ///
    /// ```no_run
    /// # async fn example(client: &hf_meta::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let model = client.model("openai-community/gpt2");
    /// let config = model.read_file(&"config.json".parse()?, 1_000_000).await?;
    /// let config: serde_json::Value = serde_json::from_slice(&config)?;
    /// println!("{}", config["architectures"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`Error::FileNotFound`] if the file does not exist, [`Error::TooLarge`] if it has more than `max_bytes`
    /// bytes, and the errors of [`Model::weight_sets`].
    pub fn read_file(
        &self,
        path: &RepoPath,
        max_bytes: u64,
    ) -> BoxFuture<'static, Result<Vec<u8>, Error>> {
        let path = path.clone();
        self.call(move |call| call.read_file(path.clone(), max_bytes))
    }
}

/// A count that starts when it is awaited. Created by [`Model::count`].
#[derive(Clone, Debug)]
#[must_use = "nothing is read before it is awaited"]
pub struct Count(Model);

impl Count {
    /// Sets the conditions for which the report computes the [memory](CountReport::memory) that the model needs: its
    /// weights and its cache. By default, it computes none; `None` keeps the current conditions. Reads `config.json`,
    /// unless the weights are in GGUF format. Lists the files, as with [`Model::other_sets`], because a pipeline needs
    /// the memory of all its components.
    ///
    /// ```no_run
    /// # async fn example(client: &hf_meta::Client) -> Result<(), hf_meta::Error> {
    /// # use hf_meta::MemoryOptions;
    /// let options = MemoryOptions { context: Some(32_768), ..MemoryOptions::default() };
    /// let report = client.model("openai/gpt-oss-120b").count().memory(options).await?;
    /// let bytes = report.memory.and_then(|memory| memory.total_bytes);
    /// # Ok(())
    /// # }
    /// ```
    pub fn memory(self, options: impl Into<Option<MemoryOptions>>) -> Self {
        Self(self.0.with_memory(options.into()))
    }
}

impl IntoFuture for Count {
    type Output = Result<CountReport, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.0.call(ModelCall::count)
    }
}

/// A read of all headers that starts when it is awaited. Created by [`Model::inspect`].
#[derive(Clone, Debug)]
#[must_use = "nothing is read before it is awaited"]
pub struct Inspect(Model);

impl Inspect {
    /// Sets the conditions for which the report computes the memory that the model needs; see [`Count::memory`].
    pub fn memory(self, options: impl Into<Option<MemoryOptions>>) -> Self {
        Self(self.0.with_memory(options.into()))
    }
}

impl IntoFuture for Inspect {
    type Output = Result<Weights, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.0.call(ModelCall::weights)
    }
}
