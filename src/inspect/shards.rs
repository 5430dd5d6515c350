//! Shards: read side by side, each from when it is known.

use std::collections::HashSet;
use std::mem::replace;
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::future::{Either, select};
use futures::stream::{self, Stream, StreamExt, TryStreamExt};

use super::Reader;
use crate::backends::{ByteStream, Fetched};
use crate::error::Error;
use crate::formats::RepoPath;
use crate::formats::safetensors::{FromIndex, IndexReader};
use crate::http::transfer::{BodyEvent, spawn_blocking_if_large};
use crate::inspect::{OnProgress, Plan, Progress};

/// A shard, and what of it is asked for first.
pub(super) type Ask = (RepoPath, Range<u64>);

/// Shards to be asked for, each once.
struct Asks<'a> {
    sender: UnboundedSender<Ask>,
    known: HashSet<RepoPath>,
    total: &'a AtomicUsize,
}

impl Asks<'_> {
    fn add(&mut self, (shard, first): Ask) {
        if self.known.insert(shard.clone()) {
            self.total.store(self.known.len(), Ordering::Relaxed);
            // Nobody takes them any more where a shard has failed.
            self.sender.unbounded_send((shard, first)).ok();
        }
    }
}

impl Reader {
    /// Reads an index, and what it names beside it. Gives the index, and what was read of each of its
    /// shards, in their order.
    ///
    /// What is wrong with the index is told before what is wrong with a shard, so the failure of a shard
    /// waits for the rest of the index. It may be of no account then: an index that breaks off is read
    /// again, and may name others.
    pub(super) async fn follow<T: FromIndex, R, E: From<Error>, F>(
        &self,
        path: &RepoPath,
        pieces: ByteStream,
        read: impl Fn(RepoPath, Range<u64>) -> F,
    ) -> Result<(T, Vec<(RepoPath, R)>), E>
    where
        F: Future<Output = Result<R, E>>,
    {
        let (total, (sender, asks)) = (AtomicUsize::new(0), unbounded());
        let new_asks = Asks { sender, known: HashSet::new(), total: &total };
        let mut index = pin!(self.index::<T>(path, pieces, new_asks));
        let mut reads = pin!(self.side_by_side(path, asks, &total, read));
        let mut early = Vec::new();
        // Reads that wait go on, too: each may have a connection that the index needs to be read again.
        let index = loop {
            match select(index.as_mut(), reads.next()).await {
                Either::Left((index, _)) => break index?,
                Either::Right((read, _)) => early.extend(read),
            }
        };
        let (mut all, mut reads) = (Vec::new(), pin!(stream::iter(early).chain(reads)));
        while let Some((shard, read)) = reads.next().await {
            if index.shards().binary_search(&shard).is_ok() {
                all.push((shard, read?));
            }
        }
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Ok((index, all))
    }

    /// Reads shards of which nothing more is to be known. Gives what was read of each, in their order.
    pub(super) async fn read_all<R, F>(
        &self,
        path: &RepoPath,
        asks: Vec<Ask>,
        read: impl Fn(RepoPath, Range<u64>) -> F,
    ) -> Result<Vec<(RepoPath, R)>, Error>
    where
        F: Future<Output = Result<R, Error>>,
    {
        let total = AtomicUsize::new(asks.len());
        let reads = self.side_by_side(path, stream::iter(asks), &total, read);
        let reads = reads.map(|(shard, read)| read.map(|read| (shard, read)));
        let mut reads: Vec<_> = reads.try_collect().await?;
        reads.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Ok(reads)
    }

    /// Reads shards side by side, and tells how far that is. Gives them as they come.
    fn side_by_side<R, E, F>(
        &self,
        path: &RepoPath,
        asks: impl Stream<Item = Ask>,
        total: &AtomicUsize,
        read: impl Fn(RepoPath, Range<u64>) -> F,
    ) -> impl Stream<Item = (RepoPath, Result<R, E>)>
    where
        F: Future<Output = Result<R, E>>,
    {
        let mut done = 0;
        let reads = asks.map(move |(shard, first)| {
            let read = read(path.sibling(&shard), first);
            async move { (shard, read.await) }
        });
        reads.buffer_unordered(self.limits.concurrency).inspect(move |(_, read)| {
            done += usize::from(read.is_ok());
            if let Some(OnProgress(tell)) = &self.on_progress {
                tell(Progress { done, total: total.load(Ordering::Relaxed) });
            }
        })
    }

    /// Reads an index, and asks for its shards as soon as the plan allows.
    async fn index<T: FromIndex>(
        &self,
        path: &RepoPath,
        mut pieces: ByteStream,
        mut asks: Asks<'_>,
    ) -> Result<T, Error> {
        let (mut arrived, mut is_early) = (Arrived::<T>::default(), false);
        while let Some(piece) = pieces.try_next().await? {
            match piece {
                BodyEvent::Start { response: commit, content_length: length } => {
                    self.of_commit(path, Fetched { value: (), commit })?;
                    arrived = Arrived::default();
                    is_early = self.plan.asks_early(length);
                }
                BodyEvent::Bytes(bytes) => {
                    arrived = arrived.and(bytes).await;
                    let new = if is_early { arrived.new_shards() } else { &[] };
                    for shard in new {
                        asks.add((shard.clone(), Plan::Exact.file()));
                    }
                }
            }
        }
        let Arrived { reader, length, .. } = arrived;
        let index = spawn_blocking_if_large(length, move || reader.finish()).await;
        let index =
            index.map_err(|source| Error::Index { file: self.backend.file_name(path), source })?;
        self.plan.shards(&index).into_iter().for_each(|ask| asks.add(ask));
        Ok(index)
    }
}

/// An index, as far as it has arrived.
struct Arrived<T: FromIndex> {
    reader: IndexReader<T>,
    length: usize,
    /// How many of its shards were looked at.
    seen: usize,
}

impl<T: FromIndex> Default for Arrived<T> {
    fn default() -> Self {
        Self { reader: IndexReader::default(), length: 0, seen: 0 }
    }
}

impl<T: FromIndex> Arrived<T> {
    /// Reads on. That something is wrong is told at the end, when all has arrived as it was sent.
    async fn and(mut self, piece: Bytes) -> Self {
        spawn_blocking_if_large(piece.len(), move || {
            self.length += piece.len();
            self.reader.feed(&piece).ok();
            self
        })
        .await
    }

    /// The shards that are known since the last time.
    fn new_shards(&mut self) -> &[RepoPath] {
        let shards = self.reader.shards();
        &shards[replace(&mut self.seen, shards.len())..]
    }
}
