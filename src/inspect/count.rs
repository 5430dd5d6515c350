//! Counts the weights of a call: from the header cache, or from what its source sends.

use futures::future::{BoxFuture, FutureExt};

use super::cache_lookup::CacheLookup;
use super::call::{Call, CallState, OnFailure};
use super::locate::FoundWeights;
use super::shards::SetReads;
use crate::cache::HeaderBytes;
use crate::check::last_checkpoint;
use crate::error::Error;
use crate::error_kind::ErrorKind;
use crate::formats::RepoPath;
use crate::formats::safetensors::IndexError;
use crate::hub::CommitSha;
use crate::memory::{CacheError, CacheLayout};
use crate::results::{CountReport, Finding, Plan, SafetensorsParseFromRepo, Weights};
use crate::steps::BuiltReport;

/// A weight set whose headers have been read.
pub(super) struct Inspected {
    /// The path of the file or the index, or the pattern of shards without an index.
    pub(super) path: RepoPath,
    assembled: BuiltReport,
    pub(super) report: CountReport,
    /// The cache of the model, if it is known.
    pub(super) cache: Result<CacheLayout, CacheError>,
}

/// The result of [`Model::count_and_record`](crate::Model::count_and_record).
pub(crate) type RecordedCount = (Result<CountReport, Error>, Option<RepoPath>, Option<HeaderBytes>);

impl Call {
    /// Reads all headers and returns them with their counts. Stops at the first error.
    pub(crate) fn parse(self) -> impl Future<Output = Result<SafetensorsParseFromRepo, Error>> {
        self.keep_headers(BuiltReport::into_parsed)
    }

    /// Reads all headers, in any format, and returns them with their counts. Stops at the first error.
    pub(crate) fn weights(self) -> impl Future<Output = Result<Weights, Error>> {
        self.keep_headers(BuiltReport::into_weights)
    }

    async fn keep_headers<T: Send + 'static>(
        mut self,
        convert: fn(BuiltReport, RepoPath, CountReport) -> Result<T, IndexError>,
    ) -> Result<T, Error> {
        self.mode.keep_headers = true;
        let Inspected { path, assembled, report, .. } = self.inspect().await?;
        let file = self.files.file_name(&path);
        let converted = self.state.work.run(0, move || convert(assembled, path, report)).await;
        converted.map_err(|source| Error::InvalidIndex { file, source })
    }

    /// Reads all headers and returns their counts. Drops each header once it is counted.
    pub(crate) async fn count(mut self) -> Result<CountReport, Error> {
        Ok(self.inspect().await?.report)
    }

    /// Like [`Call::count`], but without the cache. Also returns the bytes that were read.
    pub(crate) async fn record(mut self) -> Result<RecordedCount, Error> {
        self.files = self.files.recorded();
        self.mode.on_failure = OnFailure::StopAfterAll;
        let (path, result) = match self.read(None).await {
            Ok(Inspected { path, report, .. }) => (Some(path), Ok(report)),
            // The call decides whether the token is the cause.
            Err(error) if error.is_denied() || error.kind() == ErrorKind::RepoNotFound => {
                return Err(error);
            }
            Err(error) => (None, Err(error)),
        };
        Ok((result, path, self.files.take_recorded()))
    }

    /// Recomputes a report from the bytes of an earlier call, without any requests.
    pub(crate) async fn recount(mut self, bytes: HeaderBytes) -> Result<CountReport, Error> {
        self.files = self.files.cached(bytes);
        Ok(self.read(None).await?.report)
    }

    /// Reads all headers: from the cache if it has them, or else from their origin, and then caches them. Stops at the
    /// first error.
    async fn inspect(&mut self) -> Result<Inspected, Error> {
        match CacheLookup::new(&self.context, &self.files.origin) {
            Some(lookup) if self.files.origin.online().is_some() => {
                Box::pin(self.inspect_cached(&lookup)).await
            }
            Some(lookup) => match self.read(None).await {
                // Downloaded files take precedence, because programs on this machine load them.
                Err(error) if error.is_not_found() || error.has_no_weights() => {
                    let found = self.find_cached(&lookup).await?;
                    self.context.meter.count_lookup(found.is_some());
                    found.ok_or(error)
                }
                read => read,
            },
            None => self.read(None).await,
        }
    }

    async fn inspect_cached(&mut self, lookup: &CacheLookup) -> Result<Inspected, Error> {
        if let Some(found) = self.find_cached(lookup).await? {
            self.context.meter.count_lookup(true);
            return Ok(found);
        }
        self.files = self.files.recorded();
        let read = self.read(Some(lookup)).await;
        self.context.meter.count_lookup(self.files.is_cached());
        let read = read?;
        if let Some(bytes) = self.files.take_recorded() {
            lookup.store(bytes).await;
        }
        Ok(read)
    }

    /// Returns the cached result of the commit that this reader may read. If the commit is known but its headers are
    /// not cached, pins the call to it.
    async fn find_cached(&mut self, lookup: &CacheLookup) -> Result<Option<Inspected>, Error> {
        let Some((commit, age)) = lookup.readable_commit().await? else { return Ok(None) };
        self.state.cached_ref = age;
        self.files = self.files.pinned(Some(&commit));
        self.read_cached(lookup, &commit).await
    }

    /// Returns the result from the cached headers of a commit. Returns `None` if there are none, or if this call cannot
    /// use them.
    async fn read_cached(
        &mut self,
        lookup: &CacheLookup,
        commit: &CommitSha,
    ) -> Result<Option<Inspected>, Error> {
        let Some(headers) = lookup.headers(commit).await else { return Ok(None) };
        let bytes = HeaderBytes { commit: commit.clone(), headers, canonical_name: None };
        let mut call = Self { files: self.files.cached(bytes), ..self.clone() };
        match call.read(None).await {
            Ok(found) => {
                *self = call;
                Ok(Some(found))
            }
            // The call that stored the entry may have had higher limits.
            Err(error) if error.is_over_limit() => Err(error),
            // It may also have read other formats.
            Err(Error::NoWeights { .. }) => Ok(None),
            Err(error) => {
                lookup.warn_of_corrupt_headers(commit, &error);
                Ok(None)
            }
        }
    }

    /// Reads all headers. Stops at the first error. Looks into the cache again once the commit is known, because the
    /// response that contains it shows that this reader may read it.
    ///
    /// Boxed, so that the future of a call does not contain the state of every way to read.
    fn read<'a>(
        &'a mut self,
        lookup: Option<&'a CacheLookup>,
    ) -> BoxFuture<'a, Result<Inspected, Error>> {
        async move {
            self.state = CallState { cached_ref: self.state.cached_ref, ..CallState::default() };
            let options = &self.context.options;
            if options.plan == Plan::Hub
                && !options.list_sets
                && let Some(reads) = self.read_from_hub().await?
            {
                let mut inspected = self.finish(reads).await?;
                inspected.report.plan = Plan::Hub;
                self.add_memory(&mut inspected, None).await?;
                return Ok(inspected);
            }
            let located = self.locate().await?;
            // A listing of shards may be open to readers who may not read the shards.
            let lookup = lookup.filter(|_| !matches!(located.weights, FoundWeights::Shards { .. }));
            if let (Some(lookup), Some(commit)) = (lookup, self.state.commit.clone())
                && let Some(found) = self.read_cached(lookup, &commit).await?
            {
                lookup.store_ref(&commit).await;
                return Ok(found);
            }
            let reads = Box::pin(self.read_set(located.weights)).await?;
            let mut inspected = self.finish(reads).await?;
            self.add_memory(&mut inspected, located.layout.as_ref()).await?;
            let layout = located.layout.as_ref().filter(|_| self.context.target.is_folder());
            let checkpoint = layout.and_then(|layout| last_checkpoint(layout, &inspected.path));
            inspected.report.findings.extend(checkpoint);
            inspected.report.add_other_sets(located.layout.map(|layout| layout.sets));
            let partial = (!located.is_complete).then_some(Finding::PartialListing);
            inspected.report.findings.extend(partial);
            Ok(inspected)
        }
        .boxed()
    }

    /// Counts the headers of a set of weights and returns the report.
    async fn finish(&mut self, reads: SetReads) -> Result<Inspected, Error> {
        let SetReads { path, assembly, .. } = reads;
        let (plan, memory) = (self.context.options.plan, self.context.options.memory);
        if memory.is_some() && !assembly.describes_cache() {
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
        let weights = path.clone();
        let counted = work.run(0, move || assembly.count(config, &weights, memory)).await;
        let (assembled, mut report, cache) =
            counted.map_err(|source| self.index_error(&path, source))?;
        report.findings.extend(self.source_findings());
        report.fetch = self.fetch_stats(report.fetch.weight_bytes);
        report.format = self.format(&path).name();
        report.source.clone_from(&self.context.source);
        report.commit.clone_from(&self.state.commit);
        // Without the Hub's response, the files were read with the next best plan.
        report.plan = if plan == Plan::Hub { Plan::Prefetch } else { plan };
        Ok(Inspected { path, assembled, report, cache })
    }
}
