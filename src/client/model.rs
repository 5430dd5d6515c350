//! The weights that a call reads.

use std::sync::Arc;
use std::time::Duration;

use super::context::ClientContext;
use crate::backends::FileStore;
use crate::base::budget::{Budget, LargeCallLimit};
use crate::base::meter::CallMeter;
use crate::base::{Callback, OnHeader, OnProgress, Progress};
use crate::cache::CacheMode;
use crate::call::{ModelCall, ReadOptions};
use crate::error::Error;
use crate::formats::safetensors::Safetensors;
use crate::formats::weight_sets::WeightSet;
use crate::formats::{Format, RepoPath};
use crate::hub::{HubReportedCount, Source, SourceError};
use crate::memory::MemoryOptions;
use crate::results::VerifyReport;
use crate::results::{CountReport, Plan, SafetensorsParseFromRepo, Weights};

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
            on_progress: None,
            on_header: None,
            large_calls: None,
            budget: None,
            meter: None,
        }
    }

    /// Sets the branch, tag, ref or commit to read; `main` by default. Each call resolves it to a commit once and
    /// reads all files at that commit. Only repositories have revisions: for other sources, the call fails.
    /// `None` keeps the current revision.
    pub fn revision<'a>(mut self, revision: impl Into<Option<&'a str>>) -> Self {
        if let Some(revision) = revision.into() {
            self.source = self.source.and_then(|source| source.with_revision(revision));
        }
        self
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
    /// [`CountReport::other_sets`](crate::CountReport::other_sets) lists the rest. `None` keeps the current path.
    pub fn path<'a>(mut self, path: impl Into<Option<&'a str>>) -> Self {
        if let Some(path) = path.into() {
            self.source = self.source.and_then(|source| source.with_path(path));
        }
        self
    }

    /// Sets the name of the source in results and messages, such as the text from which it was parsed. By default, it is
    /// the `Display` output of [`Source`].
    pub fn named(mut self, name: &str) -> Self {
        self.options.name = Some(name.to_owned());
        self
    }

    /// Sets the format to read: `safetensors`, `gguf`, `pytorch`, or the name of a format registered with
    /// [`ClientBuilder::format`](crate::ClientBuilder::format). By default, safetensors is read if the repository has
    /// any, or else the first other format that it has; `None` selects this default.
    pub fn format<'a>(mut self, name: impl Into<Option<&'a str>>) -> Self {
        self.options.format = name.into().map(str::to_owned);
        self
    }

    /// Sets whether the report lists the other weight sets in the repository or folder; `false` by default. Examples
    /// are the modules of a sentence-transformers model, variants, and the checkpoints of a training run. Listing
    /// costs one request per 1,000 files.
    pub fn other_sets(mut self, enabled: bool) -> Self {
        self.options.list_sets = enabled;
        self
    }

    /// Sets whether [`verify`](Self::verify) checks every weight set in the repository or folder, including variants,
    /// quantizations and the checkpoints of a training run; `false` by default. At most 1,000 sets are checked.
    pub fn all_sets(mut self, enabled: bool) -> Self {
        self.options.all_sets = enabled;
        self
    }

    /// Sets the conditions for which the report computes the [memory](crate::CountReport::memory) that the model needs:
    /// its weights and its cache. By default, it computes none. Reads `config.json`, unless the weights are in GGUF
    /// format. Lists the files, as with [`other_sets`](Self::other_sets), because a pipeline needs the memory of all its
    /// components.
    ///
    /// ```no_run
    /// # async fn example(client: &hf_meta::Client) -> Result<(), hf_meta::Error> {
    /// # use hf_meta::memory::MemoryOptions;
    /// let options = MemoryOptions { context: Some(32_768), ..MemoryOptions::default() };
    /// let report = client.model("openai/gpt-oss-120b").memory(options).count().await?;
    /// let bytes = report.memory.and_then(|memory| memory.total_bytes);
    /// # Ok(())
    /// # }
    /// ```
    pub fn memory(mut self, options: MemoryOptions) -> Self {
        (self.options.memory, self.options.list_sets) = (Some(options), true);
        self
    }

    /// Sets how headers are requested; [`Plan::Exact`] by default. [`Model::verify`] always reads the files.
    pub fn plan(mut self, plan: Plan) -> Self {
        self.options.plan = plan;
        self
    }

    /// Sets the timeout of each call, overriding [`call_timeout`](crate::ClientBuilder::call_timeout). It includes
    /// waits for rate limits: a call that would have to wait longer than the time left fails immediately. `None` restores
    /// the default.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.options.timeout = timeout.into();
        self
    }

    /// Sets a callback that is invoked after each shard is read, but never for a single file. It runs on the task
    /// that drives the call and must not block.
    pub fn on_progress(mut self, report: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Callback(Arc::new(report)));
        self
    }

    /// Sets how calls use the [header cache](crate::ClientBuilder::header_cache); [`CacheMode::Default`] by default.
    pub fn cache_mode(mut self, mode: CacheMode) -> Self {
        self.options.cache_mode = mode;
        self
    }

    /// Reads the files from a store instead of the Hub, such as a bucket or a mirror with its own protocol. The name of
    /// the repository then only names the store in results and messages. Revisions and the header cache are not used.
    /// For a mirror that speaks the protocol of the Hub, set
    /// [`ClientBuilder::endpoint`](crate::ClientBuilder::endpoint).
    pub fn store(mut self, store: impl FileStore) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Counts the requests and bytes of all calls of this model in a meter of
    /// [`Client::meter`](crate::Client::meter), which also shows them while a call runs, and after it has
    /// failed.
    pub fn meter(mut self, meter: &CallMeter) -> Self {
        self.meter = Some(meter.clone());
        self
    }

    /// Counts the parameters. Sends the same requests as [`Model::parse_safetensors_metadata`] but uses less memory,
    /// because the headers are discarded.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Model::parse_safetensors_metadata`].
    pub fn count(&self) -> impl Future<Output = Result<CountReport, Error>> + Send + use<> {
        self.call(ModelCall::count)
    }

    /// Reads and validates the header of every safetensors file, and counts the parameters.
    ///
    /// Dropping the future cancels the call and its requests.
    ///
    /// # Errors
    ///
    /// Returns the first [`Error`] that occurs. [`Error::is_not_found`], [`Error::is_denied`],
    /// [`Error::is_malformed`] and [`Error::is_usage`] classify it; all other errors are network, server or disk
    /// failures.
    pub fn parse_safetensors_metadata(
        &self,
    ) -> impl Future<Output = Result<SafetensorsParseFromRepo, Error>> + Send + use<> {
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
    /// Returns the same errors as [`Model::parse_safetensors_metadata`].
    pub fn inspect(&self) -> impl Future<Output = Result<Weights, Error>> + Send + use<> {
        self.call(ModelCall::weights)
    }

    /// Checks everything that headers can reveal. Reads every header and continues after an error.
    ///
    /// Checks the weights that a loader of the repository loads: the main weight set, all components of a diffusers
    /// pipeline, or all modules of a `sentence-transformers` model. With [`all_sets`](Self::all_sets), checks every
    /// weight set. [`VerifyReport::unchecked`] lists the rest; listing the files costs one request per 1,000 of them.
    ///
    /// May read `config.json`, whose `tie_word_embeddings` distinguishes a tied embedding from a missing one. For
    /// weights at the root of a repository, one more request fetches the parameter count that the Hub reports, with a
    /// timeout of 5 seconds.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Model::parse_safetensors_metadata`] that occur before the index, or the first bytes of
    /// a single file, have been read, and [`Error::DeadlineExceeded`]. Later errors become findings in the report.
    pub fn verify(&self) -> impl Future<Output = Result<VerifyReport, Error>> + Send + use<> {
        self.call(|call| Box::pin(call.verify()))
    }

    /// Returns the parameter count that the Hub reports for the repository, or `None` if it reports none or the
    /// source is not on a Hub. The count covers the whole repository, regardless of [`path`](Self::path), and is not
    /// verified. The Hub reports it for gated repositories as well.
    ///
    /// # Errors
    ///
    /// Returns an error if the repository does not exist or is not accessible, if no response arrives, or if the
    /// timeout elapses ([`Error::DeadlineExceeded`]).
    pub fn hub_reported_count(
        &self,
    ) -> impl Future<Output = Result<Option<HubReportedCount>, Error>> + Send + use<> {
        self.call(ModelCall::hub_count)
    }

    /// Lists all weight sets in the repository or folder, judging by file names alone. Returns `None` if the files
    /// cannot be listed, as on a plain web server. Listing costs one request per 1,000 files.
    ///
    /// # Errors
    ///
    /// Returns an error if the listing cannot be fetched or is invalid, or if the timeout elapses
    /// ([`Error::DeadlineExceeded`]).
    pub fn weight_sets(
        &self,
    ) -> impl Future<Output = Result<Option<Vec<WeightSet>>, Error>> + Send + use<> {
        self.call(ModelCall::list_sets)
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
    ) -> impl Future<Output = Result<Vec<u8>, Error>> + Send + use<> {
        let path = path.clone();
        self.call(move |call| call.read_file(path.clone(), max_bytes))
    }
}
