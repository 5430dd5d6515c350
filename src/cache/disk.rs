//! Cache entries as files in a folder. Other processes may write or delete them at any time.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::{BoxFuture, FutureExt};
use tokio::sync::Semaphore;

use super::store::{Cache, CacheKey};
use crate::base::blocking::spawn_blocking_with;
use crate::base::environment;

/// The subfolder for entries of this version.
const VERSION: &str = "v1";

/// The subfolder for files that are being written.
const UNFINISHED: &str = "unfinished";

/// The age at which an unfinished file is deleted. The process that wrote it must have ended by then.
const UNFINISHED_AGE: Duration = Duration::from_secs(3_600);

/// One permit for each thread that waits for the disk.
static DISK_PERMITS: Semaphore = Semaphore::const_new(32);

/// The maximum size of an entry to read or write, in bytes.
const MAX_ENTRY_BYTES: u64 = 128 << 20;

/// The size of a disk block in bytes, the minimum disk space of a file.
const BLOCK: u64 = 4_096;

/// The minimum time between updates of an entry's modification time, which records its last use.
const TOUCH_INTERVAL: Duration = Duration::from_secs(3_600);

/// A cache in a local folder, which several processes may share.
///
/// Each entry is written to a temporary file and then renamed, so readers never see a partial entry, even if a
/// process is killed. When the folder exceeds its size limit, the least recently used entries are deleted.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cache = hf_meta::DiskCache::new(std::env::temp_dir().join("hf-meta-example"));
/// let client = hf_meta::Client::builder().header_cache(cache.clone()).build()?;
/// println!("{} entries", cache.usage()?.entries);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DiskCache(Arc<CacheFolder>);

#[derive(Debug)]
struct CacheFolder {
    path: PathBuf,
    limit: u64,
    /// The number of bytes written since this process last checked the size of the folder.
    written: AtomicU64,
    has_warned: AtomicBool,
}

/// The number and size of the entries in a [`DiskCache`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskUsage {
    /// The number of entries: one per weight set and commit, one per branch, one per reader and revision, and one per
    /// Hub for its known servers.
    pub entries: u64,
    /// The disk space used by the entries in bytes, counting whole blocks.
    pub bytes: u64,
}

impl DiskCache {
    /// Returns the cache in the folder named by `HF_META_CACHE`, or else in `hf-meta` in `XDG_CACHE_HOME` or
    /// `~/.cache`. Returns `None` if `HF_META_CACHE` is `off` or a URL, or if there is no home directory.
    ///
    /// ```no_run
    /// // `None` if the environment turns the cache off, or has no home folder.
    /// if let Some(cache) = hf_meta::DiskCache::from_env() {
    ///     let client = hf_meta::Client::builder().header_cache(cache).build()?;
    /// }
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn from_env() -> Option<Self> {
        environment::header_cache().map(Self::new)
    }

    /// The default size limit, in bytes.
    pub const DEFAULT_LIMIT: u64 = 256 << 20;

    /// Creates a cache in a folder, with the size limit [`Self::DEFAULT_LIMIT`]. The folder is created on first
    /// write. Other files in it stay untouched.
    ///
    /// ```
    /// let folder = std::env::temp_dir().join("hf-meta-example");
    /// let client = hf_meta::Client::builder().header_cache(hf_meta::DiskCache::new(folder)).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self::with_limit(folder, Self::DEFAULT_LIMIT)
    }

    /// Creates a cache with a custom size limit, in bytes. The limit is approximate, because each process checks the
    /// size of the folder only occasionally.
    ///
    /// ```
    /// let folder = std::env::temp_dir().join("hf-meta-example");
    /// let cache = hf_meta::DiskCache::with_limit(folder, 100_000_000);
    /// let client = hf_meta::Client::builder().header_cache(cache).build()?;
    /// # Ok::<(), hf_meta::Error>(())
    /// ```
    pub fn with_limit(folder: impl Into<PathBuf>, bytes: u64) -> Self {
        Self(Arc::new(CacheFolder {
            path: folder.into(),
            limit: bytes,
            written: AtomicU64::new(0),
            has_warned: AtomicBool::new(false),
        }))
    }

    /// Returns the path of the cache folder.
    ///
    /// ```
    /// let cache = hf_meta::DiskCache::new("/var/cache/hf-meta");
    /// assert_eq!(cache.folder(), std::path::Path::new("/var/cache/hf-meta"));
    /// ```
    pub fn folder(&self) -> &Path {
        &self.0.path
    }

    /// Returns the number and size of the entries. Blocks while it lists the folder.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed. A folder that does not exist counts as empty.
    pub fn usage(&self) -> io::Result<DiskUsage> {
        Ok(DiskUsage::of(&self.0.entries()?))
    }

    /// Deletes all entries and returns their number and size. Blocks until they are deleted.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed or an entry cannot be deleted.
    pub fn clear(&self) -> io::Result<DiskUsage> {
        let entries = self.0.entries()?;
        entries.iter().try_for_each(|entry| remove_file(&entry.path))?;
        Ok(DiskUsage::of(&entries))
    }
}

impl DiskUsage {
    fn of(entries: &[CacheFile]) -> Self {
        let bytes = entries.iter().map(|entry| entry.bytes).sum();
        Self { entries: entries.len() as u64, bytes }
    }
}

impl Cache for DiskCache {
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        let (folder, path) = (Arc::clone(&self.0), self.0.entry(key));
        let read = move || folder.warn_once(read_entry(&path)).flatten();
        spawn_blocking_with(&DISK_PERMITS, read).boxed()
    }

    fn put<'a>(&'a self, key: &'a CacheKey, entry: Vec<u8>) -> BoxFuture<'a, ()> {
        let (folder, key) = (Arc::clone(&self.0), *key);
        let write = move || folder.warn_once(folder.write(&key, &entry)).unwrap_or_default();
        spawn_blocking_with(&DISK_PERMITS, write).boxed()
    }
}

impl CacheFolder {
    /// Returns the path of an entry: `{folder}/v1/{2 hex digits}/{62 hex digits}`.
    fn entry(&self, key: &CacheKey) -> PathBuf {
        let name = key.to_string();
        let (group, rest) = name.split_at(2);
        self.path.join(VERSION).join(group).join(rest)
    }

    fn write(&self, key: &CacheKey, entry: &[u8]) -> io::Result<()> {
        if entry.len() as u64 > MAX_ENTRY_BYTES.min(self.limit) {
            return Ok(());
        }
        write_entry(&self.entry(key), &self.temporary(), entry)?;
        self.check_size(key, disk_space(entry.len() as u64))
    }

    /// Returns a temporary path with a random name. Process IDs are not unique across containers.
    fn temporary(&self) -> PathBuf {
        let name = RandomState::new().build_hasher().finish();
        self.path.join(VERSION).join(UNFINISHED).join(format!("{name:016x}"))
    }

    /// Deletes old entries from time to time. A process checks after each sixteenth of the limit that it writes, and
    /// one process in about 16 checks at its first write.
    fn check_size(&self, key: &CacheKey, bytes: u64) -> io::Result<()> {
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        let is_chosen = before == 0 && key.as_bytes()[31].is_multiple_of(16);
        if !is_chosen && before + bytes < self.limit / 16 {
            return Ok(());
        }
        self.written.store(1, Ordering::Relaxed);
        self.remove_unfinished()?;
        self.make_room()
    }

    /// If the folder is over the limit, deletes the least recently used entries down to three quarters of
    /// the limit.
    fn make_room(&self) -> io::Result<()> {
        let mut entries = self.entries()?;
        let DiskUsage { mut bytes, .. } = DiskUsage::of(&entries);
        if bytes <= self.limit {
            return Ok(());
        }
        entries.sort_unstable_by_key(|entry| entry.used);
        for entry in entries {
            if bytes <= self.limit / 4 * 3 {
                break;
            }
            remove_file(&entry.path)?;
            bytes -= entry.bytes;
        }
        Ok(())
    }

    fn remove_unfinished(&self) -> io::Result<()> {
        for unfinished in list_files(&self.path.join(VERSION).join(UNFINISHED))? {
            if unfinished.used.elapsed().is_ok_and(|age| age > UNFINISHED_AGE) {
                remove_file(&unfinished.path)?;
            }
        }
        Ok(())
    }

    /// Lists all entries.
    fn entries(&self) -> io::Result<Vec<CacheFile>> {
        let mut entries = Vec::new();
        for group in 0..=u8::MAX {
            entries.extend(list_files(&self.path.join(VERSION).join(format!("{group:02x}")))?);
        }
        Ok(entries)
    }

    /// Returns the result of a disk access, and logs errors: the first per folder as a warning, later ones at debug
    /// level.
    fn warn_once<T>(&self, result: io::Result<T>) -> Option<T> {
        let log = |error: &io::Error| {
            let folder = self.path.display();
            if self.has_warned.swap(true, Ordering::Relaxed) {
                tracing::debug!(%folder, %error, "failed to access the cache");
            } else {
                tracing::warn!(%folder, %error, "failed to access the cache");
            }
        };
        result.inspect_err(log).ok()
    }
}

/// A file in a folder listing.
struct CacheFile {
    path: PathBuf,
    /// Disk space in bytes.
    bytes: u64,
    /// The time of the last use, accurate to about an hour.
    used: SystemTime,
}

/// Reads an entry and records its use. Returns `None` if it does not exist.
fn read_entry(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = if_found(open_entry(path))? else { return Ok(None) };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > MAX_ENTRY_BYTES {
        return Ok(None);
    }
    if metadata.modified()?.elapsed().is_ok_and(|age| age > TOUCH_INTERVAL) {
        // Entries of a read-only folder can still be read.
        let _ = file.set_modified(SystemTime::now());
    }
    let mut bytes = Vec::new();
    file.take(MAX_ENTRY_BYTES).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Opens an entry. Pipes and devices are rejected, because they could block the reader.
fn open_entry(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NOFOLLOW | libc::O_NONBLOCK,
    );
    options.open(path)
}

/// Writes an entry to a unique temporary file, and renames it when it is complete.
fn write_entry(path: &Path, temporary: &Path, entry: &[u8]) -> io::Result<()> {
    [path, temporary].into_iter().filter_map(Path::parent).try_for_each(create_folder)?;
    let written = create_file(temporary).and_then(|mut file| file.write_all(entry));
    let written = written.and_then(|()| fs::rename(temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(temporary);
    }
    written
}

/// Lists the files of a folder, or no files if it does not exist or is a link to another one.
fn list_files(folder: &Path) -> io::Result<Vec<CacheFile>> {
    if folder.is_symlink() {
        return Ok(Vec::new());
    }
    let Some(listing) = if_found(fs::read_dir(folder))? else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for file in listing {
        let file = file?;
        // Another process may have deleted it since it was listed.
        let Ok(metadata) = file.metadata() else { continue };
        // File servers create folders.
        if !metadata.is_file() {
            continue;
        }
        let used = metadata.modified().unwrap_or(UNIX_EPOCH);
        files.push(CacheFile { path: file.path(), bytes: disk_space(metadata.len()), used });
    }
    Ok(files)
}

/// Returns the disk space of a file, in bytes.
fn disk_space(length: u64) -> u64 {
    length.max(1).next_multiple_of(BLOCK)
}

/// Deletes a file. It is no error if another process has already deleted it.
fn remove_file(path: &Path) -> io::Result<()> {
    if_found(fs::remove_file(path)).map(drop)
}

/// Returns `None` if a file or folder does not exist.
fn if_found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Creates a folder that only this user can read, because entries may contain file names of private repositories.
fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
