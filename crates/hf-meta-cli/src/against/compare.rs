//! Compares local files with a list of files.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hf_meta::ManifestFile;
use hf_meta_count::results::text::{bytes, counted, duration, thousands};
use serde::Serialize;

use super::hash::{Method, check};
use super::select::{SelectedFile, Selection};
use crate::exit::failed_to;
use crate::stderr::lock;

/// The maximum number of threads that hash files. More wait for the disk.
const MAX_THREADS: usize = 8;

/// The maximum number of local files and folders. Stops at the root of a disk.
const MAX_ENTRIES: usize = 100_000;

/// The differences between local files and a list.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct Comparison {
    /// The number of files that are the same.
    pub(super) files: u64,
    /// Their size in bytes.
    pub(super) bytes: u64,
    /// The number of files that were compared by their SHA-256 hash, by their Git hash, and by their size only.
    by_sha256: u64,
    by_git_hash: u64,
    by_size: u64,
    pub(super) differing: Vec<Difference>,
    pub(super) missing: Vec<String>,
    pub(super) extra: Vec<String>,
}

/// A file with another content.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Difference {
    pub(super) path: String,
    /// The expected and the found size or hash.
    pub(super) reason: String,
}

impl Comparison {
    pub(super) fn is_equal(&self) -> bool {
        self.differing.is_empty() && self.missing.is_empty()
    }

    /// Adds a file that was compared. `other` is its hash if it differs.
    fn add(&mut self, path: &str, file: &ManifestFile, method: Method, other: Option<String>) {
        let Some(found) = other else {
            self.files += 1;
            self.bytes = self.bytes.saturating_add(file.size);
            return;
        };
        let (name, expected) = match method {
            Method::Sha256 => ("SHA-256", file.sha256.as_deref()),
            _ => ("Git hash", file.git_sha1.as_deref()),
        };
        let reason = format!("{name} {found} instead of {}", expected.unwrap_or_default());
        self.differing.push(Difference { path: path.to_owned(), reason });
    }

    /// Describes how the files were compared.
    pub(super) fn methods(&self) -> String {
        let counts = [
            (self.by_sha256, "by SHA-256"),
            (self.by_git_hash, "by Git hash"),
            (self.by_size, "by size only"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<_> = counts.map(|(count, how)| format!("{count} {how}")).collect();
        counts.join(", ")
    }
}

/// The bytes that were hashed.
#[derive(Debug)]
pub(super) struct HashProgress {
    done: AtomicU64,
    total: AtomicU64,
    started: Instant,
}

impl Default for HashProgress {
    fn default() -> Self {
        Self { done: AtomicU64::new(0), total: AtomicU64::new(0), started: Instant::now() }
    }
}

impl HashProgress {
    pub(super) fn describe(&self, name: &str) -> String {
        let [done, total] = [&self.done, &self.total].map(|bytes| bytes.load(Ordering::Relaxed));
        let mut text = format!("{name}  {} of {} compared", bytes(done), bytes(total));
        if done > 0 {
            #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
            let share = total.saturating_sub(done) as f64 / done as f64;
            let left = self.started.elapsed().as_secs_f64() * share;
            let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
            text.push_str(", ");
            text.push_str(&duration(left));
            text.push_str(" left");
        }
        text
    }
}

/// Compares local files with a list.
pub(super) fn compare(
    selection: &Selection<'_>,
    progress: &HashProgress,
) -> io::Result<Comparison> {
    let mut comparison = Comparison::default();
    let mut present = Vec::new();
    for selected in &selection.files {
        let SelectedFile { path, file, place } = selected;
        match size(place)? {
            None => comparison.missing.push(path.clone()),
            Some(found) if found == file.size => {
                progress.total.fetch_add(found, Ordering::Relaxed);
                present.push(selected);
            }
            Some(found) => {
                let (found, expected) = (counted(found, "byte"), thousands(file.size));
                let reason = format!("{found} instead of {expected}");
                comparison.differing.push(Difference { path: path.clone(), reason });
            }
        }
    }
    hash_all(&present, progress, &mut comparison)?;
    if let (Some(folder), true) = (&selection.folder, selection.is_whole_folder) {
        let known = selection.files.iter().map(|file| &*file.path).collect();
        comparison.extra = extra_files(folder, &known)?;
    }
    Ok(comparison)
}

/// Returns the size of a file, or `None` if there is none.
fn size(path: &Path) -> io::Result<Option<u64>> {
    match fs::metadata(path) {
        Ok(found) => Ok(found.is_file().then_some(found.len())),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(failed_to(format!("read `{}`", path.display()))(error)),
    }
}

/// Hashes files on several threads, and adds the results in the order of the files.
fn hash_all(
    files: &[&SelectedFile<'_>],
    progress: &HashProgress,
    comparison: &mut Comparison,
) -> io::Result<()> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(SelectedFile { file, place, .. }) = files.get(at) else { break };
            let read = |bytes| {
                progress.done.fetch_add(bytes, Ordering::Relaxed);
            };
            let found = check(place, file, read);
            if found.is_err() {
                // The other threads end after their file.
                next.store(files.len(), Ordering::Relaxed);
            }
            lock(&results).push((at, found));
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
    thread::scope(|scope| {
        for _ in 1..threads.min(files.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_by_key(|(at, _)| *at);
    for (at, found) in results {
        let SelectedFile { path, file, place } = files[at];
        let (method, other) = found.map_err(failed_to(format!("read `{}`", place.display())))?;
        *match method {
            Method::Sha256 => &mut comparison.by_sha256,
            Method::Git => &mut comparison.by_git_hash,
            Method::Size => &mut comparison.by_size,
        } += 1;
        comparison.add(path, file, method, other);
    }
    Ok(())
}

/// Returns the paths of all files of a folder that are not known, except hidden ones. A link to a folder is followed only
/// on the way to a known file: others could form a loop.
fn extra_files(folder: &Path, known: &BTreeSet<&str>) -> io::Result<Vec<String>> {
    let (mut files, mut folders, mut seen) = (Vec::new(), vec![String::new()], 0);
    while let Some(below) = folders.pop() {
        let path = folder.join(&below);
        let failed = || failed_to(format!("read `{}`", path.display()));
        for entry in fs::read_dir(&path).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            seen += 1;
            if seen > MAX_ENTRIES {
                let error = io::Error::other(format!("it contains more than {MAX_ENTRIES} files"));
                return Err(failed()(error));
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            let kind = entry.file_type().map_err(failed())?;
            let is_linked =
                || kind.is_symlink() && is_above_known(&path, known) && entry.path().is_dir();
            if kind.is_dir() || is_linked() {
                folders.push(path);
            } else if !known.contains(&*path) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns whether a known file is below a path.
fn is_above_known(path: &str, known: &BTreeSet<&str>) -> bool {
    let start = format!("{path}/");
    known.range(&*start..).next().is_some_and(|first| first.starts_with(&start))
}
