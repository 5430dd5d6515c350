//! Reads the headers of a weight set: its file, or its index and its shards, each as soon as its name is known or
//! predicted.

use std::collections::HashSet;
use std::pin::pin;

use futures::future::{Either, pending, select};
use futures::stream::{self, Stream, StreamExt};
use hf_meta_count::results::{Plan, RangeRequest};
use hf_meta_count::steps::ConfigFile;
use hf_meta_count::steps::ReportBuilder;
use hf_meta_format::formats::safetensors::SafetensorsIndexJson;
use hf_meta_format::formats::weight_sets::numbered_shards;
use hf_meta_format::formats::{FileHeader, Formats, RepoPath};

use super::config::ConfigRead;
use super::error::Error;
use super::files::{OpenIndex, Part};
use super::header::UncountedHeader;
use super::locate::FoundWeights;
use super::set::{OnFailure, SetReader};

/// The maximum number of shards to read before the index names them.
const MAX_PREDICTED: u32 = 256;

/// The result of reading a shard.
type ShardResult = (RepoPath, Result<UncountedHeader, Error>);

/// The headers of a weight set, as far as they could be read.
pub(crate) struct SetReads {
    /// All headers that were read.
    pub(crate) builder: ReportBuilder,
    /// The paths of the shards that the index or the listing names; empty for a single file.
    pub(crate) shards: Vec<RepoPath>,
    /// The files that could not be read, sorted by path. Empty if a failure ends the call.
    pub(crate) failures: Vec<(RepoPath, Error)>,
    /// The configuration, if a header needs it.
    pub(crate) config: Option<Result<ConfigFile, Error>>,
    /// `true` if only the shards of a selection were read.
    pub(crate) is_partial: bool,
}

impl SetReader {
    /// Reads all headers of the set.
    pub(crate) async fn read(&self, weights: FoundWeights) -> Result<SetReads, Error> {
        let config = ConfigRead::new(self);
        match weights {
            FoundWeights::File { start } => Box::pin(self.read_file(start, config)).await,
            FoundWeights::Index { index } if self.call.settings.selection.is_some() => {
                Box::pin(self.read_selected_shards(index, config)).await
            }
            FoundWeights::Index { index } => {
                Box::pin(self.read_indexed_shards(index, config)).await
            }
            FoundWeights::Shards { shards } => {
                Box::pin(self.read_listed_shards(&shards, config)).await
            }
            FoundWeights::Headers { headers } => self.add_headers(headers, config).await,
        }
    }

    async fn read_file(&self, start: Part, mut config: ConfigRead<'_>) -> Result<SetReads, Error> {
        let (mut builder, mut failures) =
            (ReportBuilder::new_single(self.keep_headers), Vec::new());
        self.files.files.on_progress(0, 1)?;
        match self.parse_start(&self.path, start, None, false).await {
            Ok(UncountedHeader { header, .. }) => {
                builder = self.add_header(builder, self.path.clone(), header).await;
                self.files.files.on_progress(1, 1)?;
            }
            Err(error) if self.on_failure == OnFailure::Continue => {
                failures.push((self.path.clone(), error));
            }
            Err(error) => return Err(error),
        }
        if builder.needs_config() {
            config.start();
        }
        let (shards, config) = (Vec::new(), config.finish().await);
        Ok(SetReads { builder, shards, failures, config, is_partial: false })
    }

    /// Adds headers that were not read from files.
    async fn add_headers(
        &self,
        headers: Vec<(RepoPath, FileHeader)>,
        mut config: ConfigRead<'_>,
    ) -> Result<SetReads, Error> {
        let mut builder = self.builder(None);
        for (shard, header) in headers {
            builder = self.add_header(builder, shard, header).await;
        }
        if builder.needs_config() {
            config.start();
        }
        let (shards, failures, config) = (Vec::new(), Vec::new(), config.finish().await);
        Ok(SetReads { builder, shards, failures, config, is_partial: false })
    }

    /// Reads an index and the shards it names. Shards that its first name predicts are read while it arrives.
    ///
    /// Errors of the index take precedence over errors of shards. A wrong prediction costs requests: the shards that the
    /// index does not name are dropped, with their errors.
    async fn read_indexed_shards(
        &self,
        index: OpenIndex,
        mut config: ConfigRead<'_>,
    ) -> Result<SetReads, Error> {
        let predicted = self.predict_shards(&index);
        let first = |shard: &RepoPath| Plan::Exact.first_range(&self.call.settings.formats, shard);
        let requests: Vec<_> =
            predicted.iter().map(|shard| (shard.clone(), first(shard))).collect();
        let mut early = Box::pin(self.read_concurrently(requests, true));
        let (index, mut done) = {
            let (mut index, mut done) = (pin!(self.read_index(index)), Vec::new());
            // Keep polling the reads while the index arrives: each may hold a connection that a retry of the index needs.
            loop {
                let read = pin!(next_or_pending(&mut early));
                match config.beside(select(index.as_mut(), read)).await {
                    Either::Left((index, _)) => break (index?, done),
                    Either::Right((read, _)) => {
                        if read.1.as_ref().is_ok_and(|read| read.needs_config) {
                            config.start();
                        }
                        done.push(read);
                    }
                }
            }
        };
        let named: HashSet<_> = index.shards().iter().collect();
        done.retain(|(shard, _)| named.contains(shard));
        let early = if predicted.iter().all(|shard| named.contains(shard)) {
            Either::Left(early)
        } else {
            // Ends the requests for shards that do not exist.
            drop(early);
            Either::Right(stream::empty())
        };
        let mut requests = self.call.settings.plan.shards(&index);
        let read: HashSet<_> = match &early {
            Either::Left(_) => predicted.iter().collect(),
            Either::Right(_) => done.iter().map(|(shard, _)| shard).collect(),
        };
        requests.retain(|(shard, _)| !read.contains(shard));
        self.files.files.admit_requests(requests.len())?;
        let reads = stream::select(early, self.read_concurrently(requests, false));
        let shards = index.shards().to_vec();
        self.assemble(Some(index), &shards, stream::iter(done).chain(reads), config).await
    }

    /// Reads an index, and then the shards with tensors of the selection.
    async fn read_selected_shards<'a>(
        &'a self,
        index: OpenIndex,
        config: ConfigRead<'a>,
    ) -> Result<SetReads, Error> {
        let (index, selection) = (self.read_index(index).await?, &self.call.settings.selection);
        let (names, selection) = (index.names_per_shard(), selection.clone());
        let length = names.iter().map(|(_, bytes)| usize::try_from(*bytes).unwrap_or(usize::MAX));
        let choose = move || {
            let selected = selection.and_then(|selection| selection.shards_in(&index));
            let is_partial = selected.is_some();
            (selected.unwrap_or(index), is_partial)
        };
        let length = length.fold(0, usize::saturating_add);
        let (index, is_partial) = self.files.files.run(length, choose).await;
        let requests = self.call.settings.plan.shards(&index);
        self.files.files.admit_requests(requests.len())?;
        let reads = self.read_concurrently(requests, false);
        let shards = index.shards().to_vec();
        // Nothing is counted, so the configuration is only for the cache, which gets whole sets.
        let config = if is_partial { ConfigRead::skipped(self) } else { config };
        let reads = self.assemble(Some(index), &shards, reads, config).await?;
        Ok(SetReads { is_partial, ..reads })
    }

    /// Returns the shards to read while the index arrives, according to its first shard.
    fn predict_shards(&self, index: &OpenIndex) -> Vec<RepoPath> {
        if !self.call.settings.plan.reads_shards_early(index.length) {
            return Vec::new();
        }
        let Some(first) = &index.first_shard else { return Vec::new() };
        let mut shards = numbered_shards(first, MAX_PREDICTED);
        if shards.is_empty() {
            shards.push(first.clone());
        }
        // Each takes two ranges.
        let requests = 2 * shards.len();
        let path = self.path.sibling(first);
        if self.files.files.may_guess(&path, requests) { shards } else { Vec::new() }
    }

    /// Reads the shards of a set without an index.
    async fn read_listed_shards(
        &self,
        shards: &[RepoPath],
        config: ConfigRead<'_>,
    ) -> Result<SetReads, Error> {
        let settings = &self.call.settings;
        let requests = settings.plan.shards_without_index(&settings.formats, shards);
        let requests = requests.map_err(|source| self.call.index_error(&self.path, source))?;
        let shards: Vec<_> = requests.iter().map(|(shard, _)| shard.clone()).collect();
        self.files.files.admit_requests(requests.len())?;
        let reads = self.read_concurrently(requests, false);
        self.assemble(None, &shards, reads, config).await
    }

    /// Adds shards to a set as they arrive, and reads the configuration once one of them needs it.
    async fn assemble(
        &self,
        index: Option<SafetensorsIndexJson>,
        shards: &[RepoPath],
        reads: impl Stream<Item = ShardResult>,
        mut config: ConfigRead<'_>,
    ) -> Result<SetReads, Error> {
        let mut builder = self.builder(index);
        let (mut reads, mut failures, mut done) = (pin!(reads), Vec::new(), 0);
        while let Some((shard, read)) = config.beside(reads.next()).await {
            match read {
                Ok(UncountedHeader { header, permit, .. }) => {
                    builder = self.add_header(builder, shard, header).await;
                    drop(permit);
                    done += 1;
                    self.files.files.on_progress(done, shards.len())?;
                    if builder.needs_config() {
                        config.start();
                    }
                }
                Err(error) => {
                    let error = error.of_shard();
                    let is_final = match self.on_failure {
                        OnFailure::Stop => true,
                        OnFailure::StopAfterAll => !error.is_malformed(),
                        OnFailure::Continue => false,
                    };
                    if is_final {
                        return Err(error);
                    }
                    failures.push((self.path.sibling(&shard), error));
                }
            }
        }
        failures.sort_by(|(one, _), (other, _)| one.cmp(other));
        if self.on_failure == OnFailure::StopAfterAll && !failures.is_empty() {
            return Err(failures.swap_remove(0).1);
        }
        let shards = shards.iter().map(|shard| self.path.sibling(shard)).collect();
        let config = config.finish().await;
        Ok(SetReads { builder, shards, failures, config, is_partial: false })
    }

    /// Adds a header to a set.
    async fn add_header(
        &self,
        mut builder: ReportBuilder,
        shard: RepoPath,
        header: FileHeader,
    ) -> ReportBuilder {
        self.files.files.on_header(&header);
        let add = move || {
            builder.add(shard, header);
            builder
        };
        self.files.files.run(0, add).await
    }

    /// Reads shards concurrently. Yields them in the order of completion.
    fn read_concurrently(
        &self,
        requests: Vec<RangeRequest>,
        are_early: bool,
    ) -> impl Stream<Item = ShardResult> {
        let reads = requests.into_iter().map(move |(shard, first)| {
            let read = self.read_header(self.path.sibling(&shard), first, are_early);
            async move { (shard, read.await) }
        });
        stream::iter(reads).buffer_unordered(self.call.settings.limits.concurrency)
    }

    /// Reads and parses the index. Its name implies the format of its shards.
    async fn read_index(&self, index: OpenIndex) -> Result<SafetensorsIndexJson, Error> {
        let index = index.rest.await?;
        self.files.check(&self.path, index.commit.as_ref())?;
        let extension = Formats::built_in().find_or_safetensors(&self.path).extension();
        let (length, json) = (index.bytes.len(), index.bytes);
        let parse = move || SafetensorsIndexJson::with_extension(&json, extension);
        let index = self.files.files.run(length, parse).await;
        index.map_err(|source| self.call.index_error(&self.path, source))
    }
}

/// Returns the next item of a stream, and never completes at its end.
async fn next_or_pending<T>(stream: &mut (impl Stream<Item = T> + Unpin)) -> T {
    match stream.next().await {
        Some(item) => item,
        None => pending().await,
    }
}
