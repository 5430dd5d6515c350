//! Shards: read side by side, each from when it is known.

use std::collections::HashSet;
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::future::{Either, select};
use futures::stream::{self, Stream, StreamExt, TryStreamExt};

use super::Reader;
use crate::error::Error;
use crate::load::{OnProgress, Progress};
use crate::read::{Piece, off_the_workers};
use crate::safetensors::{FromIndex, IndexError, IndexReader, RepoPath};
use crate::store::{Fetched, Pieces};

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
            // Whoever takes them is gone only when the call is.
            self.sender.unbounded_send((shard, first)).ok();
        }
    }
}

impl Reader {
    /// Reads an index, and what it names beside it. Gives the index, and what was read of each of its
    /// shards, in their order.
    pub(super) async fn follow<T: FromIndex, R, F>(
        &self,
        path: &RepoPath,
        pieces: Pieces,
        read: impl Fn(RepoPath, Range<u64>) -> F,
    ) -> Result<(T, Vec<(RepoPath, R)>), Error>
    where
        F: Future<Output = Result<R, Error>>,
    {
        let (total, (sender, asks)) = (AtomicUsize::new(0), unbounded());
        let asks_for = Asks { sender, known: HashSet::new(), total: &total };
        let index = pin!(self.index::<T>(path, pieces, asks_for));
        let reads = self.side_by_side(path, asks, &total, read);
        let (index, mut reads) = match select(index, reads.try_collect::<Vec<_>>()).await {
            Either::Left((index, reads)) => (index?, reads.await?),
            // What is wrong with the index comes first, whenever it is found.
            Either::Right((reads, index)) => (index.await?, reads?),
        };
        // Of an index that was sent twice, the first may have named others.
        reads.retain(|(shard, _)| index.shards().binary_search(shard).is_ok());
        reads.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Ok((index, reads))
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
        let mut reads: Vec<_> = reads.try_collect().await?;
        reads.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Ok(reads)
    }

    /// Reads shards side by side, and tells how far that is. Gives them as they come.
    fn side_by_side<R, F>(
        &self,
        path: &RepoPath,
        asks: impl Stream<Item = Ask>,
        total: &AtomicUsize,
        read: impl Fn(RepoPath, Range<u64>) -> F,
    ) -> impl Stream<Item = Result<(RepoPath, R), Error>>
    where
        F: Future<Output = Result<R, Error>>,
    {
        let mut done = 0;
        let reads = asks.map(move |(shard, first)| {
            let read = read(path.sibling(&shard), first);
            async move { Ok((shard, read.await?)) }
        });
        reads.buffer_unordered(self.limits.concurrency).inspect_ok(move |_| {
            done += 1;
            if let Some(OnProgress(tell)) = &self.on_progress {
                tell(Progress { done, total: total.load(Ordering::Relaxed) });
            }
        })
    }

    /// Reads an index, and asks for its shards as soon as the plan allows.
    async fn index<T: FromIndex>(
        &self,
        path: &RepoPath,
        mut pieces: Pieces,
        mut asks: Asks<'_>,
    ) -> Result<T, Error> {
        let wrong = |source| Error::Index { file: self.store.name(path), source };
        let (mut reader, mut length, mut json) = (IndexReader::<T>::default(), 0, Vec::new());
        while let Some(piece) = pieces.try_next().await? {
            match piece {
                Piece::Start(commit) => {
                    self.of_commit(path, Fetched { value: (), commit })?;
                    (reader, length) = (IndexReader::default(), 0);
                    json.clear();
                }
                Piece::Bytes(bytes) => {
                    length += bytes.len();
                    if self.record.is_on() {
                        json.extend_from_slice(&bytes);
                    }
                    let known = reader.shards().len();
                    reader = feed(reader, bytes).await.map_err(wrong)?;
                    self.plan.at_once(&reader.shards()[known..]).for_each(|ask| asks.add(ask));
                }
            }
        }
        let index = off_the_workers(length, move || reader.finish()).await.map_err(wrong)?;
        self.record.file(path, [&json, &[]], length as u64);
        self.plan.shards(&index).into_iter().for_each(|ask| asks.add(ask));
        Ok(index)
    }
}

async fn feed<T: FromIndex>(
    mut reader: IndexReader<T>,
    piece: Bytes,
) -> Result<IndexReader<T>, IndexError> {
    off_the_workers(piece.len(), move || reader.feed(&piece).map(|()| reader)).await
}
