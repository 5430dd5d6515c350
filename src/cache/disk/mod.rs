//! Entries as files of a folder, for any number of processes at once.

mod file;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::{BoxFuture, FutureExt};

use self::file::Kept;
use super::{Cache, CacheKey};

/// The folder in which this version keeps its entries.
const VERSION: &str = "v1";

/// The folder in it of the files that are being written.
const UNFINISHED: &str = "unfinished";

/// After so long, a file that is still being written belongs to a process that is no more.
const ABANDONED: Duration = Duration::from_secs(3_600);

/// A folder of entries, which any number of processes may use at once.
///
/// An entry is written to a file of its own and then renamed, so that readers see all of it or nothing,
/// and a process that is killed leaves nothing behind that could be taken for one. The entries that
/// were not found for the longest time are deleted where there are too many.
#[derive(Clone, Debug)]
pub struct DiskCache(Arc<Folder>);

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    limit: u64,
    /// Bytes written since the folder was last looked through.
    written: AtomicU64,
    has_complained: AtomicBool,
}

/// What a [`DiskCache`] holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskUsage {
    /// Entries: one for each set of headers, one for each branch.
    pub entries: u64,
    /// The bytes of disk that they take, in whole blocks.
    pub bytes: u64,
}

impl DiskUsage {
    fn add(&mut self, entry: &Kept) {
        self.entries += 1;
        self.bytes += entry.bytes;
    }
}

impl DiskCache {
    /// Bytes of disk that entries take at most by default.
    pub const DEFAULT_LIMIT: u64 = 256 << 20;

    /// A cache in a folder, which is made when it is first needed. Other files in it are let be.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self::with_limit(folder, Self::DEFAULT_LIMIT)
    }

    /// A cache of about so many bytes: each process looks through the folder only now and then.
    pub fn with_limit(folder: impl Into<PathBuf>, bytes: u64) -> Self {
        Self(Arc::new(Folder {
            path: folder.into(),
            limit: bytes,
            written: AtomicU64::new(0),
            has_complained: AtomicBool::new(false),
        }))
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0.path
    }

    /// What it holds now.
    ///
    /// # Errors
    ///
    /// When the folder cannot be listed; one that is not there yet is empty.
    pub fn usage(&self) -> io::Result<DiskUsage> {
        let mut usage = DiskUsage::default();
        self.0.each(|entry| {
            usage.add(entry);
            Ok(())
        })?;
        Ok(usage)
    }

    /// Deletes all entries, and tells what they were.
    ///
    /// # Errors
    ///
    /// When the folder cannot be listed, or an entry cannot be deleted.
    pub fn clear(&self) -> io::Result<DiskUsage> {
        let mut usage = DiskUsage::default();
        self.0.each(|entry| {
            usage.add(entry);
            file::remove(&entry.path)
        })?;
        Ok(usage)
    }
}

impl Cache for DiskCache {
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        let (folder, path) = (Arc::clone(&self.0), self.0.entry(key));
        blocking(move || folder.complain(file::read(&path)).flatten()).map(Option::flatten).boxed()
    }

    fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()> {
        let (folder, key) = (Arc::clone(&self.0), *key);
        blocking(move || folder.complain(folder.write(&key, &entry))).map(|_| ()).boxed()
    }
}

/// Runs what waits for the disk where no other task has to wait with it.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

impl Folder {
    /// `{folder}/v1/{2 hex digits}/{62 hex digits}`
    fn entry(&self, key: &CacheKey) -> PathBuf {
        let name = key.to_string();
        let (group, rest) = name.split_at(2);
        self.path.join(VERSION).join(group).join(rest)
    }

    fn write(&self, key: &CacheKey, entry: &[u8]) -> io::Result<()> {
        if entry.len() as u64 > file::LONGEST.min(self.limit) {
            return Ok(());
        }
        file::write(&self.entry(key), &self.unfinished(), entry)?;
        self.look_through(key, file::on_disk(entry.len() as u64))
    }

    /// A name that no other writer takes, not even one in another container with the same process id.
    fn unfinished(&self) -> PathBuf {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let count = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let name = format!("{}-{count}-{nanos}", std::process::id());
        self.path.join(VERSION).join(UNFINISHED).join(name)
    }

    /// Deletes what is too much, now and then: a process that writes much looks after each 16th of the
    /// limit, and of those that write little, about one in 16 looks.
    fn look_through(&self, key: &CacheKey, bytes: u64) -> io::Result<()> {
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        let is_chosen = before == 0 && key.as_bytes()[31].is_multiple_of(16);
        if !is_chosen && before + bytes < self.limit / 16 {
            return Ok(());
        }
        self.written.store(1, Ordering::Relaxed);
        self.remove_abandoned()?;
        self.make_room()
    }

    /// Deletes the entries that were not found for the longest time, where there is more than may be,
    /// until there is a quarter less.
    fn make_room(&self) -> io::Result<()> {
        let (mut ages, mut total) = (Vec::new(), 0);
        self.each(|entry| {
            ages.push((entry.used, entry.bytes));
            total += entry.bytes;
            Ok(())
        })?;
        if total <= self.limit {
            return Ok(());
        }
        ages.sort_unstable();
        let mut excess = total - self.limit / 4 * 3;
        let mut summed = 0;
        let last = ages.iter().find(|(_, bytes)| {
            summed += bytes;
            summed >= excess
        });
        let Some((last, _)) = last else { return Ok(()) };
        self.each(|entry| {
            if excess > 0 && entry.used <= *last {
                excess = excess.saturating_sub(entry.bytes);
                file::remove(&entry.path)?;
            }
            Ok(())
        })
    }

    fn remove_abandoned(&self) -> io::Result<()> {
        for unfinished in file::list(&self.path.join(VERSION).join(UNFINISHED))? {
            let is_old = unfinished.used.elapsed().is_ok_and(|age| age > ABANDONED);
            if is_old {
                file::remove(&unfinished.path)?;
            }
        }
        Ok(())
    }

    /// Visits all entries, of which a 256th is listed at a time: there may be very many.
    fn each(&self, mut visit: impl FnMut(&Kept) -> io::Result<()>) -> io::Result<()> {
        for group in 0..=u8::MAX {
            let entries = file::list(&self.path.join(VERSION).join(format!("{group:02x}")))?;
            entries.iter().try_for_each(&mut visit)?;
        }
        Ok(())
    }

    /// What came of an access to the disk. A folder that cannot be used is told of once.
    fn complain<T>(&self, result: io::Result<T>) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let folder = self.path.display();
        if self.has_complained.swap(true, Ordering::Relaxed) {
            tracing::debug!(%folder, %error, "the cache cannot be used");
        } else {
            tracing::warn!(%folder, %error, "the cache cannot be used");
        }
        None
    }
}
