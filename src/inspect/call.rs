//! One call: its inputs, the state of its reads, and its results.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt};
use tokio::sync::OnceCell;

use super::cache_lookup::{CachedRefAge, HeaderCache};
use super::config_file::ConfigFile;
use super::files::CallFiles;
use super::hooks::{CallHooks, OnHeader, OnProgress};
use super::locate::FoundWeights;
use super::memory::{CallMemory, LargeCall};
use super::{Limits, Target};
use crate::backends::{Fetched, FileListing};
use crate::cache::{CacheMode, HeaderBytes};
use crate::error::Error;
use crate::formats::safetensors::{IndexError, IndexErrorKind};
use crate::formats::{Format, Formats, HeaderError, RepoPath};
use crate::http::blocking::CallWork;
use crate::http::transfer::CallMeter;
use crate::hub::CommitSha;
use crate::memory::{CacheError, CacheLayout, Memory, MemoryOptions};
use crate::report::{
    BuiltReport, CountReport, FetchStats, Finding, Plan, ReportBuilder, SafetensorsParseFromRepo,
    Weights,
};

/// One call.
///
/// [`Model`](crate::Model) fills in the inputs. The files are pinned to the commit of the first response, so that a
/// push during the call has no effect.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The name of the source, as shown in the result.
    pub(crate) source: String,
    pub(crate) files: CallFiles,
    pub(crate) target: Target,
    /// The formats that the call accepts.
    pub(crate) formats: Formats,
    pub(crate) options: ReadOptions,
    pub(crate) limits: Limits,
    /// The cache that may serve the call.
    pub(crate) cache: Option<HeaderCache>,
    /// The cached branch that was used without asking its server.
    pub(crate) cached_ref: Option<CachedRefAge>,
    /// The files of the source, if the caller knows them.
    pub(crate) known_files: Option<FileListing>,
    pub(crate) on_progress: Option<OnProgress>,
    pub(crate) on_header: Option<OnHeader>,
    pub(crate) hooks: Option<Arc<dyn CallHooks>>,
    pub(crate) started: Instant,
    pub(crate) meter: CallMeter,
    /// The memory of headers that are not counted yet.
    pub(crate) memory: CallMemory,
    /// The permit to use a lot of memory.
    pub(crate) large: Option<Arc<LargeCall>>,
    /// True to read all shards even if one is malformed, so that equal repositories have equal records.
    pub(crate) reads_all_shards: bool,
    pub(crate) state: CallState,
}

/// The options that decide what a call reads and how long it takes. Calls are shared only if they are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ReadOptions {
    /// The name of the selected format.
    pub(crate) format: Option<String>,
    pub(crate) plan: Plan,
    /// True to list the other sets of weights even if the weights have a standard name.
    pub(crate) list_sets: bool,
    /// True to verify all sets of weights.
    pub(crate) all_sets: bool,
    /// The conditions for which to compute the memory of the model.
    pub(crate) memory: Option<MemoryOptions>,
    pub(crate) cache_mode: CacheMode,
    /// The files of the repository, if known in advance.
    pub(crate) known_files: Option<Arc<Vec<RepoPath>>>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) exclude_waits: bool,
}

/// The state of the reads of a call. Each attempt to read begins with an empty one.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallState {
    pub(super) commit: Option<CommitSha>,
    /// The path of the weights, once it is known.
    pub(super) weights: Option<RepoPath>,
    /// The total size of the headers so far, in bytes.
    pub(super) header_bytes: Arc<AtomicU64>,
    /// The work on the headers and the configuration.
    pub(super) work: CallWork,
    /// The configuration, once a header needs it.
    pub(super) config: OnceCell<Result<ConfigFile, Error>>,
}

/// A weight set whose headers have been read.
pub(super) struct Inspected {
    /// The path of the file or the index, or the pattern of shards without an index.
    pub(super) path: RepoPath,
    pub(super) assembled: BuiltReport,
    pub(super) report: CountReport,
}

/// The result of [`Model::count_and_record`](crate::Model::count_and_record).
#[derive(Debug)]
#[non_exhaustive]
pub struct RecordedCount {
    /// The counts.
    pub result: Result<CountReport, Error>,
    /// The path of the weight file or the index, or the path pattern of shards without an index. `None` if the call
    /// failed.
    pub path: Option<RepoPath>,
    /// The bytes that were read, even if the call failed. `None` if the commit is unknown, if access to a small file
    /// was denied, or if they are too many to record.
    pub bytes: Option<HeaderBytes>,
}

impl Call {
    /// Reads all headers and returns them with their counts. Stops at the first error.
    pub(crate) async fn parse(mut self) -> Result<SafetensorsParseFromRepo, Error> {
        let Inspected { path, assembled, report } = self.inspect(true).await?;
        let file = self.files.file_name(&path);
        let parsed = self.state.work.run(0, move || assembled.into_parsed(path, report)).await;
        parsed.map_err(|source| Error::InvalidIndex { file, source })
    }

    /// Reads all headers, in any format, and returns them with their counts. Stops at the first error.
    pub(crate) async fn weights(mut self) -> Result<Weights, Error> {
        let Inspected { path, assembled, report } = self.inspect(true).await?;
        let file = self.files.file_name(&path);
        let weights = self.state.work.run(0, move || assembled.into_weights(path, report)).await;
        weights.map_err(|source| Error::InvalidIndex { file, source })
    }

    /// Reads all headers and returns their counts. Drops each header once it is counted.
    pub(crate) async fn count(mut self) -> Result<CountReport, Error> {
        Ok(self.inspect(false).await?.report)
    }

    /// Like [`Call::count`], but without the cache. Also returns the bytes that were read.
    pub(crate) async fn record(mut self) -> RecordedCount {
        self.files = CallFiles::recorded(self.files.origin.clone());
        self.reads_all_shards = true;
        let (path, result) = match self.read(false).await {
            Ok(Inspected { path, report, .. }) => (Some(path), Ok(report)),
            Err(error) => (None, Err(error)),
        };
        RecordedCount { result, path, bytes: self.files.take_recorded() }
    }

    /// Recomputes a report from the bytes of an earlier call, without any requests.
    pub(crate) async fn recount(mut self, bytes: HeaderBytes) -> Result<CountReport, Error> {
        self.files = CallFiles::from_bytes(self.files.origin.clone(), bytes);
        Ok(self.read(false).await?.report)
    }

    /// Reads all headers, from the cache on a hit. Stops at the first error.
    async fn inspect(&mut self, keep_headers: bool) -> Result<Inspected, Error> {
        match self.cache.clone().filter(|_| self.options.cache_mode != CacheMode::Bypass) {
            Some(cache) => Box::pin(cache.inspect(self, keep_headers)).await,
            None => self.read(keep_headers).await,
        }
    }

    /// Reads all headers. Stops at the first error.
    ///
    /// Boxed, so that the future of a call does not contain the state of every way to read.
    pub(super) fn read(&mut self, keep_headers: bool) -> BoxFuture<'_, Result<Inspected, Error>> {
        async move {
            self.state = CallState::default();
            if self.options.plan == Plan::Hub
                && !self.options.list_sets
                && let Some(inspected) = self.read_from_hub(keep_headers).await?
            {
                return Ok(inspected);
            }
            let located = self.locate().await?;
            self.commit_resolved().await;
            let mut inspected = Box::pin(self.read_weights(located.weights, keep_headers)).await?;
            inspected.report.add_other_sets(located.layout.map(|layout| layout.sets));
            let partial = (!located.is_complete).then_some(Finding::PartialListing);
            inspected.report.findings.extend(partial);
            Ok(inspected)
        }
        .boxed()
    }

    /// Reads all headers of a set of weights and counts. Stops at the first error.
    async fn read_weights(
        &mut self,
        weights: FoundWeights,
        keep_headers: bool,
    ) -> Result<Inspected, Error> {
        self.state.weights = Some(weights.path().clone());
        let (path, assembly) = match weights {
            FoundWeights::File { path, start } => {
                let header = self.parse_header(&path, start).await?;
                let assembly = ReportBuilder::new_single(keep_headers);
                let assembly = self.add_header(assembly, path.clone(), header).await;
                (path, assembly)
            }
            FoundWeights::Index { path, stream } => {
                let reads = self.read_indexed_shards(&path, stream, keep_headers, true);
                let reads = Box::pin(reads).await?;
                (path, reads.assembly)
            }
            FoundWeights::Shards { path, shards } => {
                let requests = self.options.plan.shards_without_index(&self.formats, &shards);
                let requests = requests.map_err(|source| self.index_error(&path, source))?;
                let reads =
                    Box::pin(self.read_listed_shards(&path, requests, keep_headers, true)).await?;
                (path, reads.assembly)
            }
        };
        self.finish(path, assembly).await
    }

    /// Counts the headers of a set of weights and returns the report.
    pub(super) async fn finish(
        &mut self,
        path: RepoPath,
        assembly: ReportBuilder,
    ) -> Result<Inspected, Error> {
        if self.options.memory.is_some() && !assembly.describes_cache() {
            // The result is used below.
            let _ = self.config().await;
        }
        let config = self.state.config.take().transpose()?.unwrap_or_default();
        let work = self.state.work.clone();
        let find_other = move || {
            let other = assembly.other_config_file(&config.configs);
            (assembly, config, other)
        };
        let (assembly, mut config, other) = work.run(0, find_other).await;
        if let Some(name) = other {
            self.read_other_config(name, &mut config).await?;
        }
        let (weights, memory) = (path.clone(), self.options.memory);
        let counted = work.run(0, move || count(assembly, config, &weights, memory)).await;
        let (assembled, mut report) = counted.map_err(|source| self.index_error(&path, source))?;
        report.findings.extend(self.source_findings());
        report.fetch = self.fetch_stats(assembled.totals.file_bytes);
        report.format = self.format(&path).name();
        report.source.clone_from(&self.source);
        report.commit = self.state.commit.take();
        // Without the Hub's response, the files were read with the next best plan.
        report.plan =
            if self.options.plan == Plan::Hub { Plan::Prefetch } else { self.options.plan };
        Ok(Inspected { path, assembled, report })
    }

    /// Sends a request. If the Hub rejects the token, sends it again without the token, because a public repository
    /// needs no token.
    pub(crate) async fn with_token_fallback<T>(
        &mut self,
        request: impl for<'a> Fn(&'a Self) -> BoxFuture<'a, Result<T, Error>>,
    ) -> Result<T, Error> {
        let error = match request(self).await {
            Err(error @ Error::RejectedToken { .. }) => error,
            done => return done,
        };
        let Some(anonymous) = self.files.anonymous() else { return Err(error) };
        self.files = anonymous;
        let Ok(done) = request(self).await else { return Err(error) };
        self.files.warn_of_rejected_token();
        Ok(done)
    }

    /// Returns the value if it belongs to the pinned commit, or an error.
    pub(super) fn check_commit<T>(&self, path: &RepoPath, read: Fetched<T>) -> Result<T, Error> {
        match (&self.state.commit, read.commit) {
            (Some(pinned), Some(found)) if *pinned != found => Err(Error::CommitMismatch {
                file: self.files.file_name(path),
                pinned: pinned.clone(),
                found,
            }),
            _ => Ok(read.value),
        }
    }

    /// Waits until the hooks accept the commit.
    async fn commit_resolved(&self) {
        if let (Some(hooks), Some(commit)) = (&self.hooks, &self.state.commit) {
            hooks.commit_resolved(commit, self.files.canonical_name()).await;
        }
    }

    /// Waits until the hooks allow `requests` more requests.
    pub(super) async fn before_requests(&self, requests: usize) {
        if let Some(hooks) = self.hooks.as_ref().filter(|_| !self.files.is_cached()) {
            hooks.before_requests(requests).await;
        }
    }

    /// Waits until the call may use `bytes` more bytes of memory.
    pub(super) async fn before_allocation(&self, bytes: u64) {
        if let Some(large) = &self.large {
            large.allocate(bytes, &self.meter).await;
        }
    }

    /// Reserves bytes of the limit for all headers before they are read, because many headers within their own limit
    /// can be too large together.
    pub(super) async fn reserve(&self, path: &RepoPath, length: u64) -> Result<(), Error> {
        let before = self.state.header_bytes.fetch_add(length, Ordering::Relaxed);
        let limit = self.limits.headers;
        if before.saturating_add(length) > limit {
            return Err(Error::HeadersTooLarge { file: self.files.file_name(path), limit });
        }
        self.before_allocation(length).await;
        Ok(())
    }

    pub(super) fn header_error(&self, path: &RepoPath, source: HeaderError) -> Error {
        let format = self.format(path).title();
        Error::InvalidHeader { file: self.files.file_name(path), format, source }
    }

    /// Returns the format of a file.
    pub(super) fn format(&self, path: &RepoPath) -> &dyn Format {
        self.formats.find_or_safetensors(path)
    }

    /// Returns the error for a set of weights, or for the single file at `path`.
    pub(super) fn index_error(&self, path: &RepoPath, source: IndexError) -> Error {
        match &source.tensor {
            Some(tensor) if source.kind == IndexErrorKind::CountOverflow => {
                self.header_error(path, HeaderError::overflow(tensor))
            }
            _ => Error::InvalidIndex { file: self.files.file_name(path), source },
        }
    }

    /// Returns the findings about the source itself: it was renamed, its files may come from different commits, or it
    /// is one shard.
    pub(super) fn source_findings(&self) -> impl Iterator<Item = Finding> {
        let renamed = self.files.canonical_name().map(|repo| Finding::Renamed { repo });
        let is_pinned = self.state.commit.is_some() || !self.files.has_commits();
        let found = renamed.into_iter().chain((!is_pinned).then_some(Finding::NotPinned));
        found.chain(self.target.single_shard())
    }

    pub(super) fn fetch_stats(&self, weight_bytes: u64) -> FetchStats {
        let mut stats = FetchStats::default();
        stats.requests = self.meter.requests();
        stats.bytes_read = self.meter.bytes();
        stats.weight_bytes = weight_bytes;
        stats.elapsed = self.started.elapsed();
        stats.age_seconds = self.cached_ref.map(|cached| cached.seconds);
        stats.stale = self.cached_ref.is_some_and(|cached| cached.is_stale);
        stats
    }
}

/// Counts the headers of a set of weights. The caller adds what depends on how they were read.
fn count(
    assembly: ReportBuilder,
    config: ConfigFile,
    path: &RepoPath,
    memory: Option<MemoryOptions>,
) -> Result<(BuiltReport, CountReport), IndexError> {
    let filepaths = assembly.filepaths(path);
    let assembled = assembly.finish(&config.configs);
    let mut report = assembled.report(filepaths)?;
    let json = config.json.as_deref().ok_or(CacheError::NoConfig);
    let layout = || json.and_then(CacheLayout::from_config_json);
    let layout = assembled.cache.clone().unwrap_or_else(layout);
    report.layout = layout.clone().ok().map(Box::new);
    if let Some(options) = memory {
        let weight_bytes = report.parameter_count.totals().bytes;
        let memory = Memory::new(weight_bytes, layout, options);
        let unknown = memory.unknown.clone();
        report.findings.extend(unknown.map(|reason| Finding::UnknownCacheSize { reason }));
        report.memory = Some(Box::new(memory));
    }
    report.findings.extend(config.finding);
    Ok((assembled, report))
}
