//! The calls of the client: their files, the sources that may serve them, and what they cost.
//!
//! The crate `hf-meta-inspect` contains the call itself. [`ModelCall`] asks the header cache which sources may serve it,
//! and tries them in their order. [`CallFiles`] are the files at their origin; recording for the cache and the budget of
//! the call are types around them.

mod cache_lookup;
mod files;
mod forward;
mod limited;
mod options;
mod part;
mod recorded;
mod tensors;

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use futures::stream::TryStreamExt;
use hf_meta_count::results::VerifyReport;
use hf_meta_count::results::{CountReport, FetchStats, SafetensorsParseFromRepo, Weights};
use hf_meta_count::steps::Target;
use hf_meta_format::formats::weight_sets::{WeightSet, is_shard_pattern};
use hf_meta_format::formats::{Formats, RepoPath};
use hf_meta_inspect::{Call, Files, Inspected, Settings};
use percent_encoding::percent_decode_str;
use url::Url;

pub(crate) use self::cache_lookup::CacheLookup;
use self::cache_lookup::CallSource;
pub(crate) use self::files::CallFiles;
use self::limited::LimitedFiles;
pub(crate) use self::options::ReadOptions;
pub(crate) use self::part::{part_of_repo, probe_path};
use self::recorded::RecordedFiles;
pub(crate) use self::tensors::PinnedPlan;
use crate::base::budget::CallBudget;
use crate::base::meter::CallMeter;
use crate::cache::{CachedRefAge, HeaderBytes};
use crate::error::{Error, ErrorKind};
use crate::hub::{CommitSha, HubReportedCount, Manifest};

/// One call of a model.
#[derive(Debug)]
pub(crate) struct ModelCall {
    pub(crate) settings: Settings,
    pub(crate) files: CallFiles,
    pub(crate) budget: CallBudget,
    /// The entries of the header cache that may serve the call; `None` without a cache.
    pub(crate) cache: Option<CacheLookup>,
    pub(crate) meter: CallMeter,
    pub(crate) started: Instant,
}

/// The result of [`count_and_record`](crate::internal::count_and_record).
pub(crate) type RecordedCount = (Result<CountReport, Error>, Option<RepoPath>, Option<HeaderBytes>);

/// A result, and the age of the cached branch that was used without asking its server.
type FoundResult = (Inspected, Option<CachedRefAge>);

impl ModelCall {
    /// Reads all headers of safetensors files and returns them with their counts. Stops at the first error.
    pub(crate) async fn parse(mut self) -> Result<SafetensorsParseFromRepo, Error> {
        self.settings.keep_headers = true;
        let (inspected, file) = self.inspect_file().await?;
        let converted = self.files.run(move || inspected.into_parsed()).await;
        converted.map_err(|source| Error::InvalidIndex { file, source })
    }

    /// Reads all headers, in any format, and returns them with their counts. Stops at the first error.
    pub(crate) async fn weights(mut self) -> Result<Weights, Error> {
        Ok(self.selected_weights().await?.0)
    }

    /// Like [`ModelCall::weights`], but only reads the shards of the selected tensors. Returns `true` if there are others.
    pub(crate) async fn selected_weights(&mut self) -> Result<(Weights, bool), Error> {
        self.settings.keep_headers = true;
        let (inspected, file) = self.inspect_file().await?;
        let is_partial = inspected.is_partial;
        let converted = self.files.run(move || inspected.into_weights()).await;
        let weights = converted.map_err(|source| Error::InvalidIndex { file, source })?;
        Ok((weights, is_partial))
    }

    /// Reads all headers and returns their counts. Drops each header once it is counted.
    pub(crate) async fn count(self) -> Result<CountReport, Error> {
        Ok(self.inspect().await?.report)
    }

    /// Like [`ModelCall::count`], but without the cache. Also returns the bytes that were read.
    pub(crate) async fn record(mut self) -> Result<RecordedCount, Error> {
        self.settings.read_all_shards = true;
        let files = RecordedFiles::new(self.files.clone());
        let call = self.call_of(LimitedFiles::new(files.clone(), self.budget.clone()));
        let (path, result) = match call.inspect().await {
            Ok(Inspected { path, report, .. }) => (Some(path), Ok(self.finished(report, None))),
            // The call decides whether the token is the cause.
            Err(error) if error.is_denied() || error.kind() == ErrorKind::RepoNotFound => {
                return Err(error);
            }
            Err(error) => (None, Err(error)),
        };
        Ok((result, path, files.take().await))
    }

    /// Recomputes a report from the bytes of an earlier call, without any requests.
    pub(crate) async fn recount(self, bytes: HeaderBytes) -> Result<CountReport, Error> {
        let inspected = self.call_of_stored(bytes).inspect().await?;
        Ok(self.finished(inspected.report, None))
    }

    /// Reads every header of the weights that a loader loads, or of all sets, and reports all findings. `keep_headers` makes
    /// the headers part of the report.
    pub(crate) async fn verify(mut self, keep_headers: bool) -> Result<VerifyReport, Error> {
        self.settings.keep_headers = keep_headers;
        let mut report = self.call().verify().await?;
        report.fetch = self.fetch_stats(report.fetch.weight_bytes, None);
        Ok(report)
    }

    pub(crate) async fn list_sets(self) -> Result<Option<Vec<WeightSet>>, Error> {
        self.call().list_sets().await
    }

    pub(crate) async fn loaded_with(self, main: RepoPath) -> Result<Vec<WeightSet>, Error> {
        self.call().loaded_with(&main).await
    }

    pub(crate) async fn read_file(self, path: RepoPath, limit: u64) -> Result<Vec<u8>, Error> {
        self.files.read_file(&path, limit).await
    }

    /// Lists all files with their hashes.
    pub(crate) async fn manifest(self) -> Result<Manifest, Error> {
        let Some((files, commit)) = self.files.hashed_files().await? else {
            let message =
                format!("`{}` has no hashes: only the Hub lists them", self.settings.source);
            return Err(Error::InvalidOption { option: "manifest", message });
        };
        Ok(Manifest::new(self.settings.source, commit, files))
    }

    pub(crate) async fn hub_count(self) -> Result<Option<HubReportedCount>, Error> {
        self.files.hub_count().await
    }

    /// Creates the call that reads the files at their origin.
    fn call(&self) -> Call {
        self.call_of(LimitedFiles::new(self.files.clone(), self.budget.clone()))
    }

    /// Creates the call that reads stored bytes.
    fn call_of_stored(&self, bytes: HeaderBytes) -> Call {
        let budget = self.budget.clone();
        let stored = self.files.stored(bytes, budget.clone());
        self.call_of(LimitedFiles::without_requests(stored, budget))
    }

    fn call_of(&self, files: LimitedFiles) -> Call {
        Call { settings: Arc::new(self.settings.clone()), files: Arc::new(files) }
    }

    /// Reads all headers. Also returns the name of the file or the index.
    async fn inspect_file(&self) -> Result<(Inspected, String), Error> {
        let inspected = self.inspect().await?;
        let file = self.files.file_name(&inspected.path);
        Ok((inspected, file))
    }

    /// Reads all headers: from the cache if it has them, or else from their origin, and then caches them. Stops at the
    /// first error.
    async fn inspect(&self) -> Result<Inspected, Error> {
        let (mut inspected, age) = match &self.cache {
            None => (self.call().inspect().await?, None),
            Some(cache) => self.inspect_cached(cache).await?,
        };
        if self.settings.list_sets && inspected.report.other_sets.is_none() {
            tracing::warn!(source = %self.settings.source, "the files cannot be listed");
        }
        inspected.report = self.finished(inspected.report, age);
        Ok(inspected)
    }

    /// Tries the sources that may serve the call.
    async fn inspect_cached(&self, cache: &CacheLookup) -> Result<FoundResult, Error> {
        let mut missing = Error::Offline { url: self.settings.source.clone() };
        let mut sources = cache.sources();
        while let Some(source) = sources.try_next().await? {
            match source {
                CallSource::Stored(bytes, age) => {
                    if let Some(found) = self.inspect_stored(cache, bytes).await? {
                        self.meter.count_lookup(true);
                        return Ok((found, age));
                    }
                }
                CallSource::Server(commit, age) => {
                    return Ok((self.inspect_server(cache, commit).await?, age));
                }
                CallSource::Downloads => match self.call().inspect().await {
                    Err(error) if error.is_not_found() || error.has_no_weights() => missing = error,
                    read => return Ok((read?, None)),
                },
            }
        }
        self.meter.count_lookup(false);
        Err(missing)
    }

    /// Reads from the server, and caches the bytes.
    async fn inspect_server(
        &self,
        cache: &CacheLookup,
        commit: Option<CommitSha>,
    ) -> Result<Inspected, Error> {
        let files = commit.map_or_else(|| self.files.clone(), |commit| self.files.pinned(&commit));
        let recorded = RecordedFiles::new(files);
        let call = self.call_of(LimitedFiles::new(recorded.clone(), self.budget.clone()));
        let read = async {
            let located = call.locate().await?;
            match self.inspect_known(cache, located.readable_commit()).await? {
                Some(found) => Ok((found, true)),
                None => Ok((call.read(located).await?, false)),
            }
        };
        let read: Result<_, Error> = read.await;
        self.meter.count_lookup(matches!(read, Ok((_, true))));
        let (read, is_stored) = read?;
        if !is_stored
            && !read.is_partial
            && let Some(bytes) = recorded.take().await
        {
            cache.store(bytes).await;
        }
        Ok(read)
    }

    /// Returns the result from the stored bytes of a commit, if there are any. The response that contains the commit shows
    /// that this reader may read it.
    async fn inspect_known(
        &self,
        cache: &CacheLookup,
        commit: Option<&CommitSha>,
    ) -> Result<Option<Inspected>, Error> {
        let Some(commit) = commit else { return Ok(None) };
        let Some(stored) = cache.stored(commit).await? else { return Ok(None) };
        let found = self.inspect_stored(cache, stored).await?;
        if found.is_some() {
            cache.store_ref(commit).await;
        }
        Ok(found)
    }

    /// Returns the result from stored bytes. Returns `None` if this call cannot use them.
    async fn inspect_stored(
        &self,
        cache: &CacheLookup,
        stored: HeaderBytes,
    ) -> Result<Option<Inspected>, Error> {
        let commit = stored.commit.clone();
        match self.call_of_stored(stored).inspect().await {
            Ok(found) => Ok(Some(found)),
            // The call that stored the entry may have had higher limits.
            Err(error) if error.is_over_limit() => Err(error),
            Err(error @ Error::OverBudget { .. }) => Err(error),
            // It may also have read other formats.
            Err(Error::NoWeights { .. }) => Ok(None),
            Err(error) => {
                cache.warn_of_corrupt_headers(&commit, &error);
                Ok(None)
            }
        }
    }

    /// Adds the cost of the call to its report.
    fn finished(&self, mut report: CountReport, age: Option<CachedRefAge>) -> CountReport {
        report.fetch = self.fetch_stats(report.fetch.weight_bytes, age);
        report
    }

    fn fetch_stats(&self, weight_bytes: u64, age: Option<CachedRefAge>) -> FetchStats {
        let (mut stats, sent) = (FetchStats::default(), self.meter.stats());
        (stats.requests, stats.bytes_read) = (sent.requests, sent.bytes_read);
        stats.weight_bytes = weight_bytes;
        stats.elapsed = self.started.elapsed();
        stats.age_seconds = age.map(|age| age.seconds);
        stats.stale = age.is_some_and(|age| age.is_stale);
        stats
    }
}

/// Returns the name of the file at a URL.
pub(crate) fn file_of(url: &Url) -> RepoPath {
    let name = url.path_segments().and_then(Iterator::last).unwrap_or_default();
    let name = percent_decode_str(name).decode_utf8_lossy();
    RepoPath::new_unchecked(&name)
}

/// Returns the folder of a local path, and the file, shards or folder to read in it.
pub(crate) async fn on_disk(formats: &Formats, path: &Path) -> Result<(PathBuf, Target), Error> {
    let metadata = tokio::fs::metadata(path).await;
    if metadata.as_ref().is_ok_and(Metadata::is_dir) {
        return Ok((path.to_owned(), Target::Folder(None)));
    }
    let Some(name) = path.file_name().unwrap_or_default().to_str() else {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "the file name is not UTF-8");
        return Err(Error::from_io(path.display().to_string(), error));
    };
    let name = RepoPath::new_unchecked(name);
    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
    let target = match metadata {
        Err(_) if is_shard_pattern(formats, &name) => Target::Shards(name),
        Err(_)
            if formats.is_quantization(name.as_str())
                && tokio::fs::metadata(&folder).await.is_ok() =>
        {
            Target::Quantization(name)
        }
        Err(error) => return Err(Error::from_io(path.display().to_string(), error)),
        Ok(_) => Target::File(name),
    };
    Ok((folder, target))
}
