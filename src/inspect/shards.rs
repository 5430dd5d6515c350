//! Reads shards concurrently, each as soon as it is known.

use std::collections::HashSet;
use std::mem::replace;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::future::{Either, select};
use futures::stream::{self, Stream, StreamExt, TryStreamExt};

use super::call::{Call, CallContext, OnFailure, ReadMode};
use super::header::UncountedHeader;
use super::locate::FoundWeights;
use super::memory::MemoryPermit;
use crate::backends::{Fetched, FileStream};
use crate::base::blocking::spawn_blocking_if_large;
use crate::base::{BodyEvent, Callback, Progress, RangeBytes};
use crate::error::Error;
use crate::formats::safetensors::{IndexReader, SafetensorsIndexJson};
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

/// The queue of shards to read, without duplicates.
struct ShardQueue<'a> {
    sender: UnboundedSender<RangeRequest>,
    known: HashSet<RepoPath>,
    total: &'a AtomicUsize,
}

impl ShardQueue<'_> {
    fn add(&mut self, (shard, first): RangeRequest) {
        if self.known.insert(shard.clone()) {
            self.total.store(self.known.len(), Ordering::Relaxed);
            // The receiver is dropped once a shard has failed.
            self.sender.unbounded_send((shard, first)).ok();
        }
    }
}

impl Call {
    /// Reads all headers of a set of weights.
    pub(super) async fn read_set(&mut self, weights: FoundWeights) -> Result<SetReads, Error> {
        self.state.weights = Some(weights.path().clone());
        match weights {
            FoundWeights::File { path, start } => self.read_file(path, start).await,
            FoundWeights::Index { path, stream } => {
                Box::pin(self.read_indexed_shards(path, stream)).await
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

    /// Reads an index and the shards it names.
    ///
    /// Errors of the index take precedence over errors of shards, so a failed shard is reported after the rest of the
    /// index has arrived. It may even turn out not to matter: if the transfer of the index fails, the index is read
    /// again and may name other shards.
    async fn read_indexed_shards(
        &self,
        path: RepoPath,
        stream: FileStream,
    ) -> Result<SetReads, Error> {
        let (total, (sender, requests)) = (AtomicUsize::new(0), unbounded());
        let queue = ShardQueue { sender, known: HashSet::new(), total: &total };
        let mut index = pin!(self.read_index(&path, stream, queue));
        let mut reads = pin!(self.read_concurrently(&path, requests, &total));
        let mut early = Vec::new();
        // Keep polling the reads while the index arrives: each may hold a connection that a retry of the index needs.
        let index = loop {
            match select(index.as_mut(), reads.next()).await {
                Either::Left((index, _)) => break index?,
                Either::Right((read, _)) => early.extend(read),
            }
        };
        let named: HashSet<_> = index.shards().iter().cloned().collect();
        let reads = stream::iter(early).chain(reads).filter(|(shard, _)| {
            let is_named = named.contains(shard);
            async move { is_named }
        });
        let shards = index.shards().to_vec();
        Box::pin(self.assemble(path.clone(), Some(index), &shards, reads)).await
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
        let total = AtomicUsize::new(requests.len());
        self.before_requests(requests.len()).await;
        let reads = self.read_concurrently(&path, stream::iter(requests), &total);
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
        let (mut reads, mut failures) = (pin!(reads), Vec::new());
        while let Some((shard, read)) = reads.next().await {
            match read {
                Ok(UncountedHeader { header, permit }) => {
                    assembly = self.add_header(assembly, shard, header).await;
                    drop(permit);
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
        let add = move || {
            assembly.add(shard, header);
            assembly
        };
        self.state.work.run(0, add).await
    }

    /// Reads shards concurrently and reports progress. Yields them in the order of completion.
    fn read_concurrently(
        &self,
        path: &RepoPath,
        requests: impl Stream<Item = RangeRequest>,
        total: &AtomicUsize,
    ) -> impl Stream<Item = ShardResult> {
        let mut done = 0;
        let reads = requests.map(move |(shard, first)| {
            let read = self.read_header(path.sibling(&shard), first);
            async move { (shard, read.await) }
        });
        reads.buffer_unordered(self.context.limits.concurrency).inspect(move |(_, read)| {
            done += usize::from(read.is_ok());
            if let Some(Callback(report)) = &self.context.on_progress {
                report(Progress { done, total: total.load(Ordering::Relaxed) });
            }
        })
    }

    /// Reads an index, and queues its shards as soon as the plan allows.
    async fn read_index(
        &self,
        path: &RepoPath,
        mut stream: FileStream,
        mut queue: ShardQueue<'_>,
    ) -> Result<SafetensorsIndexJson, Error> {
        let (mut arrived, mut is_early) = (ArrivingIndex::new(path), false);
        while let Some(event) = stream.try_next().await? {
            match event {
                BodyEvent::Start { response: commit, content_length } => {
                    self.check_commit(path, Fetched::new((), commit))?;
                    arrived = ArrivingIndex::new(path);
                    // A call with a budget waits for it once, for all shards.
                    is_early = self.context.meter.allows.is_none()
                        && self.context.large.is_none()
                        && self.context.options.plan.reads_shards_early(content_length);
                }
                BodyEvent::Bytes(bytes) => {
                    // The bytes of a cached index were reserved before it was decompressed.
                    if !self.files.is_cached() {
                        self.context.before_allocation(bytes.len() as u64).await;
                    }
                    arrived = arrived.feed(bytes).await;
                    let new = if is_early { arrived.new_shards() } else { &[] };
                    for shard in new {
                        queue.add((
                            shard.clone(),
                            Plan::Exact.first_range(&self.context.formats, shard),
                        ));
                    }
                }
            }
        }
        let ArrivingIndex { reader, length, .. } = arrived;
        let index = self.state.work.run(length, move || reader.finish()).await;
        let index = index.map_err(|source| self.index_error(path, source))?;
        self.before_requests(index.shards().len()).await;
        self.context.options.plan.shards(&index).into_iter().for_each(|request| queue.add(request));
        Ok(index)
    }
}

/// An index that is still arriving.
struct ArrivingIndex {
    reader: IndexReader,
    /// The number of bytes that have arrived.
    length: usize,
    /// The number of shards already queued.
    queued: usize,
}

impl ArrivingIndex {
    /// Creates the reader of an index. Its name implies the format of its shards.
    fn new(path: &RepoPath) -> Self {
        let format = Formats::built_in().find_or_safetensors(path);
        let reader = IndexReader::with_extension(format.extension());
        Self { reader, length: 0, queued: 0 }
    }

    /// Feeds the next bytes to the reader. Errors are reported at the end of the index, because only then it is
    /// certain that all bytes arrived intact.
    async fn feed(mut self, bytes: Bytes) -> Self {
        spawn_blocking_if_large(bytes.len(), move || {
            self.length += bytes.len();
            self.reader.feed(&bytes).ok();
            self
        })
        .await
    }

    /// Returns the shards discovered since the last call.
    fn new_shards(&mut self) -> &[RepoPath] {
        let shards = self.reader.shards();
        &shards[replace(&mut self.queued, shards.len())..]
    }
}
