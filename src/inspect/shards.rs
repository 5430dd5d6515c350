//! Reads shards concurrently, each as soon as its name is known or predicted.

use std::collections::HashSet;
use std::pin::pin;

use futures::future::{Either, select};
use futures::stream::{self, Stream, StreamExt};

use super::call::{Call, CallContext, OnFailure, ReadMode};
use super::header::UncountedHeader;
use super::locate::FoundWeights;
use crate::backends::OpenIndex;
use crate::base::budget::MemoryPermit;
use crate::base::{Callback, Progress, RangeBytes};
use crate::error::Error;
use crate::formats::safetensors::SafetensorsIndexJson;
use crate::formats::weight_sets::numbered_shards;
use crate::formats::{FileHeader, Formats, RepoPath};
use crate::results::{Plan, RangeRequest};
use crate::steps::ReportBuilder;

/// The result of reading a shard.
type ShardResult = (RepoPath, Result<UncountedHeader, Error>);

/// The headers of a weight set, as far as they could be read.
pub(super) struct SetReads {
    /// The path of the file or the index, or the pattern of shards without an index.
    pub(super) path: RepoPath,
    /// All headers that were read.
    pub(super) assembly: ReportBuilder,
    /// The paths of the shards that the index or the listing names; empty for a single file.
    pub(super) shards: Vec<RepoPath>,
    /// The files that could not be read, sorted by path. Empty if a failure ends the call.
    pub(super) failures: Vec<(RepoPath, Error)>,
}

/// The maximum number of shards to read before the index names them.
const MAX_PREDICTED: u32 = 256;

impl Call {
    /// Reads all headers of a set of weights.
    pub(super) async fn read_set(&mut self, weights: FoundWeights) -> Result<SetReads, Error> {
        self.state.weights = Some(weights.path().clone());
        match weights {
            FoundWeights::File { path, start } => self.read_file(path, start).await,
            FoundWeights::Index { path, index } => {
                Box::pin(self.read_indexed_shards(path, index)).await
            }
            FoundWeights::Shards { path, shards } => {
                Box::pin(self.read_listed_shards(path, &shards)).await
            }
        }
    }

    async fn read_file(&self, path: RepoPath, start: RangeBytes) -> Result<SetReads, Error> {
        let (mut assembly, mut failures) =
            (ReportBuilder::new_single(self.mode.keep_headers), Vec::new());
        match self.parse_start(&path, start, MemoryPermit::default()).await {
            Ok(UncountedHeader { header, .. }) => {
                assembly = self.add_header(assembly, path.clone(), header).await;
            }
            Err(error) if self.mode.on_failure == OnFailure::Continue => {
                failures.push((path.clone(), error));
            }
            Err(error) => return Err(error),
        }
        Ok(SetReads { path, assembly, shards: Vec::new(), failures })
    }

    /// Reads an index and the shards it names. Shards that its first name predicts are read while it arrives.
    ///
    /// Errors of the index take precedence over errors of shards. A wrong prediction costs requests: the shards that the
    /// index does not name are dropped, with their errors.
    async fn read_indexed_shards(
        &self,
        path: RepoPath,
        index: OpenIndex,
    ) -> Result<SetReads, Error> {
        let plan = self.context.options.plan;
        let predicted = self.predict_shards(&path, &index);
        let first = |shard: &RepoPath| Plan::Exact.first_range(&self.context.formats, shard);
        let requests: Vec<_> =
            predicted.iter().map(|shard| (shard.clone(), first(shard))).collect();
        let mut early = Box::pin(self.read_concurrently(&path, requests));
        let (index, mut done) = {
            let (mut index, mut done) = (pin!(self.read_index(&path, index)), Vec::new());
            // Keep polling the reads while the index arrives: each may hold a connection that a retry of the index needs.
            loop {
                match select(index.as_mut(), early.next()).await {
                    Either::Left((index, _)) => break (index?, done),
                    Either::Right((Some(read), _)) => done.push(read),
                    Either::Right((None, index)) => break (index.await?, done),
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
        let mut requests = plan.shards(&index);
        let read: HashSet<_> = match &early {
            Either::Left(_) => predicted.iter().collect(),
            Either::Right(_) => done.iter().map(|(shard, _)| shard).collect(),
        };
        requests.retain(|(shard, _)| !read.contains(shard));
        self.admit_requests(requests.len())?;
        let reads = stream::iter(done)
            .chain(stream::select(early, self.read_concurrently(&path, requests)));
        let shards = index.shards().to_vec();
        Box::pin(self.assemble(path.clone(), Some(index), &shards, reads)).await
    }

    /// Returns the shards to read while the index arrives, according to its first shard. A call with a budget waits for
    /// the number of its requests instead.
    fn predict_shards(&self, path: &RepoPath, index: &OpenIndex) -> Vec<RepoPath> {
        let CallContext { options, budget, .. } = &*self.context;
        let is_early = budget.is_unlimited() && options.plan.reads_shards_early(index.length);
        let Some(first) = index.first_shard.as_ref().filter(|_| is_early) else {
            return Vec::new();
        };
        let mut shards = numbered_shards(first, MAX_PREDICTED);
        if shards.is_empty() {
            shards.push(first.clone());
        }
        // Each takes two ranges.
        let requests = 2 * shards.len();
        if self.files.may_guess(&path.sibling(first), requests) { shards } else { Vec::new() }
    }

    /// Reads the shards of a set without an index.
    async fn read_listed_shards(
        &self,
        path: RepoPath,
        shards: &[RepoPath],
    ) -> Result<SetReads, Error> {
        let CallContext { options, formats, .. } = &*self.context;
        let requests = options.plan.shards_without_index(formats, shards);
        let requests = requests.map_err(|source| self.index_error(&path, source))?;
        let shards: Vec<_> = requests.iter().map(|(shard, _)| shard.clone()).collect();
        self.admit_requests(requests.len())?;
        let reads = self.read_concurrently(&path, requests);
        Box::pin(self.assemble(path.clone(), None, &shards, reads)).await
    }

    /// Adds shards to a set as they arrive.
    async fn assemble(
        &self,
        path: RepoPath,
        index: Option<SafetensorsIndexJson>,
        shards: &[RepoPath],
        reads: impl Stream<Item = ShardResult>,
    ) -> Result<SetReads, Error> {
        let ReadMode { keep_headers, on_failure } = self.mode;
        let mut assembly = ReportBuilder::new_sharded(&path, index, keep_headers);
        let (mut reads, mut failures, mut done) = (pin!(reads), Vec::new(), 0);
        while let Some((shard, read)) = reads.next().await {
            match read {
                Ok(UncountedHeader { header, permit }) => {
                    assembly = self.add_header(assembly, shard, header).await;
                    drop(permit);
                    done += 1;
                    if let Some(Callback(report)) = &self.context.on_progress {
                        report(Progress { done, total: shards.len() });
                    }
                }
                Err(error) => {
                    let error = error.of_shard();
                    let is_final = match on_failure {
                        OnFailure::Stop => true,
                        OnFailure::StopAfterAll => !error.is_malformed(),
                        OnFailure::Continue => false,
                    };
                    if is_final {
                        return Err(error);
                    }
                    failures.push((path.sibling(&shard), error));
                }
            }
        }
        failures.sort_by(|(one, _), (other, _)| one.cmp(other));
        if on_failure == OnFailure::StopAfterAll && !failures.is_empty() {
            return Err(failures.swap_remove(0).1);
        }
        let shards = shards.iter().map(|shard| path.sibling(shard)).collect();
        Ok(SetReads { path, assembly, shards, failures })
    }

    /// Adds a header to a set.
    pub(super) async fn add_header(
        &self,
        mut assembly: ReportBuilder,
        shard: RepoPath,
        header: FileHeader,
    ) -> ReportBuilder {
        if let Some(Callback(on_header)) = &self.context.on_header {
            on_header(&header);
        }
        let add = move || {
            assembly.add(shard, header);
            assembly
        };
        self.state.work.run(0, add).await
    }

    /// Reads shards concurrently. Yields them in the order of completion.
    fn read_concurrently(
        &self,
        path: &RepoPath,
        requests: Vec<RangeRequest>,
    ) -> impl Stream<Item = ShardResult> {
        let reads = requests.into_iter().map(move |(shard, first)| {
            let read = self.read_header(path.sibling(&shard), first);
            async move { (shard, read.await) }
        });
        stream::iter(reads).buffer_unordered(self.context.limits.concurrency)
    }

    /// Reads and parses an index. Its name implies the format of its shards.
    async fn read_index(
        &self,
        path: &RepoPath,
        index: OpenIndex,
    ) -> Result<SafetensorsIndexJson, Error> {
        let json = self.check_commit(path, index.rest.await?)?;
        let extension = Formats::built_in().find_or_safetensors(path).extension();
        let length = json.len();
        let parse = move || SafetensorsIndexJson::with_extension(&json, extension);
        let index = self.state.work.run(length, parse).await;
        index.map_err(|source| self.index_error(path, source))
    }
}
