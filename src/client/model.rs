//! A set of weights that a client can read.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use percent_encoding::percent_decode_str;
use tracing::Instrument;
use url::Url;

use crate::backends::{
    Backend, DiskFolder, HeaderCache, HubCacheSnapshot, HubRepo, Listing, WebFolder,
};
use crate::error::Error;
use crate::formats::RepoPath;
use crate::formats::weight_sets::{Layout, WeightSet};
use crate::http::Http;
use crate::http::transfer::RequestMeter;
use crate::hub::{Endpoint, HubReportedCount, HubWarnings, RepoId, Revision};
use crate::hub::{Source, SourceError};
use crate::inspect::{Limits, Load, OnProgress, Plan, Progress, Target};
use crate::report::verify::VerifyReport;
use crate::report::{CountReport, SafetensorsParseFromRepo};

/// What all the calls of a client share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) http: Http,
    pub(crate) endpoint: Endpoint,
    pub(crate) warnings: Arc<HubWarnings>,
    pub(crate) limits: Limits,
    pub(crate) call_timeout: Duration,
    pub(crate) header_cache: Option<HeaderCache>,
    /// The cache that stands in for the Hub and for all other servers.
    pub(crate) offline: Option<PathBuf>,
}

impl Context {
    /// A repo on the Hub, or what the cache has of it.
    async fn repo(&self, repo: &RepoId, revision: Revision) -> Result<Arc<dyn Backend>, Error> {
        let repo = repo.clone();
        if let Some(cache) = &self.offline {
            return Ok(Arc::new(HubCacheSnapshot::find(cache, repo, revision).await?));
        }
        let (http, endpoint) = (self.http.clone(), self.endpoint.clone());
        let warnings = Arc::clone(&self.warnings);
        Ok(Arc::new(HubRepo { http, endpoint, repo, revision, warnings }))
    }
}

/// A repo, a URL or a local path, and what of it to read. Made by [`Client::model`] and
/// [`Client::source`]; nothing is asked for before [`Model::parse_safetensors_metadata`].
///
/// [`Client::model`]: crate::Client::model
/// [`Client::source`]: crate::Client::source
#[derive(Clone, Debug)]
#[must_use]
pub struct Model {
    context: Arc<Context>,
    source: Result<Source, SourceError>,
    plan: Plan,
    lists_sets: bool,
    on_progress: Option<OnProgress>,
}

impl Model {
    pub(crate) fn new(context: Arc<Context>, source: Result<Source, SourceError>) -> Self {
        let plan = Plan::default();
        Self { context, source, plan, lists_sets: false, on_progress: None }
    }

    /// The branch, tag, ref or commit to read; `main` by default. Whatever it is, all shards are read
    /// at the commit that it is when the call begins.
    pub fn revision(mut self, revision: impl AsRef<str>) -> Self {
        self.source = self.source.and_then(|source| source.with_revision(revision.as_ref()));
        self
    }

    /// The file to read, weights or an index, or the folder to look in; shards that have no index are
    /// named all together, as in `model-*-of-00003.safetensors`.
    ///
    /// A folder, or the whole repo where no path is given, is searched for `model.safetensors` and
    /// `model.safetensors.index.json`. If neither is there its files are listed, and the weights are the
    /// first of: shards named `model` without an index or a variant such as `model.fp16.safetensors`;
    /// those of a diffusers pipeline's `transformer`, then its `unet`, then the repo's own
    /// `diffusion_pytorch_model`; `consolidated`, `adapter_model`, `pytorch_lora_weights`; the first
    /// module of a sentence-transformers model; the only ones at the top; the only ones there are. The
    /// others are in [`CountReport::other_sets`](crate::CountReport::other_sets).
    pub fn path(mut self, path: impl AsRef<str>) -> Self {
        self.source = self.source.and_then(|source| source.with_path(path.as_ref()));
        self
    }

    /// Whether to list the other sets of weights that the repo or the folder has, too: the modules of a
    /// sentence-transformers model, variants, the checkpoints of a training. It takes one more request
    /// per 1,000 files, and is not done otherwise, unless the weights had to be looked for.
    pub fn other_sets(mut self, yes: bool) -> Self {
        self.lists_sets = yes;
        self
    }

    /// Whether to read each header in one request that is expected to hold it, where the default is two
    /// that hold it exactly.
    ///
    /// Halves the requests, and reads some bytes in vain. The first range of a shard is as long as the
    /// names of its tensors in the index let expect, at most 8 MiB; that of a single file is 64 KiB.
    /// Where it was too short, a second one reads what is missing.
    pub fn prefetch(mut self, prefetch: bool) -> Self {
        self.plan = if prefetch { Plan::Prefetch } else { Plan::Exact };
        self
    }

    /// Calls a function after each shard that is read; never for weights in a single file. The function
    /// is called on the way and must not block.
    pub fn on_progress(mut self, tell: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(OnProgress(Arc::new(tell)));
        self
    }

    /// Counts as [`Model::parse_safetensors_metadata`] does, with the same requests, and keeps no header:
    /// in memory there are eight bytes for a tensor, as long as the call takes.
    ///
    /// Where that cannot tell all, the headers are kept for as long as the call takes: of shards that
    /// have no index; and, read once more, when index and headers do not put the same tensors into the
    /// same shards, and for a model that was quantized with MLX. A client with a cache keeps them anyway, for
    /// later calls.
    ///
    /// # Errors
    ///
    /// As [`Model::parse_safetensors_metadata`].
    pub async fn count(&self) -> Result<CountReport, Error> {
        let cache = self.context.header_cache.as_ref();
        self.in_time(async { self.load().await?.count(cache).await }).await
    }

    /// Reads the header of every file of weights, checks them, and counts.
    ///
    /// Dropping the future ends the call and its requests.
    ///
    /// # Errors
    ///
    /// The first of: a name that names nothing, a repo, revision or file that is not there or not open
    /// to this reader, an response that is not the bytes asked for, a header or an index that breaks a
    /// rule, headers that contradict their index, a deadline. See [`Error`].
    pub async fn parse_safetensors_metadata(&self) -> Result<SafetensorsParseFromRepo, Error> {
        let cache = self.context.header_cache.as_ref();
        self.in_time(async { self.load().await?.run(cache).await }).await
    }

    /// Checks everything that headers can show: reads every header, and goes on where one is wrong.
    ///
    /// May ask for `config.json`, to tell an output embedding that was lost from one that is tied.
    ///
    /// # Errors
    ///
    /// When there is nothing to check: as [`Model::parse_safetensors_metadata`] up to the index or the
    /// first bytes of a single file, and for the deadline. What is wrong behind that is a finding.
    pub async fn verify(&self) -> Result<VerifyReport, Error> {
        self.in_time(async { self.load().await?.verify().await }).await
    }

    /// The parameters that the Hub itself shows for the repo, of which a gated one shows nothing else to
    /// strangers. Not checked, and of the whole repo, whatever path is asked for. `None` where the Hub
    /// shows none, and for what is not on a Hub.
    ///
    /// # Errors
    ///
    /// When the repo is not there or not open to this reader, when no response comes, and at the deadline.
    pub async fn hub_reported_count(&self) -> Result<Option<HubReportedCount>, Error> {
        self.in_time(async { self.load().await?.backend.reported_count().await }).await
    }

    /// All sets of weights in the repo or the folder, told by the names of its files alone; `None` where
    /// files cannot be listed, as on a plain web server. Takes a request per 1,000 files.
    ///
    /// Unlike [`Model::other_sets`] it reads none of them, and names them all.
    ///
    /// # Errors
    ///
    /// When the listing does not come or makes no sense, and at the deadline.
    pub async fn weight_sets(&self) -> Result<Option<Vec<WeightSet>>, Error> {
        self.in_time(async {
            let Load { backend, target, meter, .. } = self.load().await?;
            let folder = target.folder();
            let listed = list(&*backend, folder, &meter).await?;
            Ok(listed.map(|listed| Layout::of(folder, &listed.files).sets))
        })
        .await
    }

    async fn in_time<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let limit = self.context.call_timeout;
        let source = self.source.as_ref().ok().map(tracing::field::display);
        let span = tracing::info_span!("call", source);
        let call = call.instrument(span);
        tokio::time::timeout(limit, call).await.map_err(|_| Error::DeadlineExceeded { limit })?
    }

    async fn load(&self) -> Result<Load, Error> {
        let source = self.source.clone()?;
        let (backend, target): (Arc<dyn Backend>, _) = match &source {
            Source::Repo { repo, revision, path } => {
                let revision = revision.clone().unwrap_or_default();
                (self.context.repo(repo, revision).await?, Target::of(path.clone()))
            }
            Source::Url(_) if self.context.offline.is_some() => {
                return Err(Error::Offline { what: source.to_string() });
            }
            Source::Url(url) => {
                let file = file_of(url);
                let target = Target::of_file(file.clone());
                let (http, url) = (self.context.http.clone(), url.clone());
                (Arc::new(WebFolder { http, url, file }), target)
            }
            Source::Local(path) => {
                let (folder, target) = on_disk(path).await?;
                (Arc::new(folder), target)
            }
        };
        Ok(Load {
            source: source.to_string(),
            backend,
            target,
            plan: self.plan,
            limits: self.context.limits,
            lists_sets: self.lists_sets,
            on_progress: self.on_progress.clone(),
            started: Instant::now(),
            meter: RequestMeter::default(),
        })
    }
}

/// The files of a store, read without the token if that is not valid: a public repo needs none.
async fn list(
    backend: &dyn Backend,
    folder: Option<&RepoPath>,
    meter: &RequestMeter,
) -> Result<Option<Listing>, Error> {
    match (backend.list(folder, meter).await, backend.anonymous()) {
        (Err(error @ Error::RejectedToken { .. }), Some(backend)) => {
            backend.list(folder, meter).await.map_err(|_| error)
        }
        (listed, _) => listed,
    }
}

/// The name of the file that a URL leads to.
fn file_of(url: &Url) -> RepoPath {
    let name = url.path_segments().and_then(Iterator::last).unwrap_or_default();
    let name = percent_decode_str(name).decode_utf8_lossy();
    RepoPath::trusted(&name)
}

/// A local folder, or a file in one.
async fn on_disk(path: &Path) -> Result<(DiskFolder, Target), Error> {
    let failed = |error| Error::from_io(path.display().to_string(), error);
    let metadata = tokio::fs::metadata(path).await.map_err(failed)?;
    if metadata.is_dir() {
        return Ok((DiskFolder { folder: path.to_owned() }, Target::Folder(None)));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let target = Target::of_file(RepoPath::trusted(&name));
    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
    Ok((DiskFolder { folder }, target))
}
