//! One call: the inputs that stay the same, the part of a source that it reads, its files, and the state of its reads.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use percent_encoding::percent_decode_str;
use tokio::sync::OnceCell;
use url::Url;

use super::Limits;
use super::files::CallFiles;
use super::memory::{CallMemory, LargeCall};
use crate::backends::Fetched;
use crate::base::blocking::CallWork;
use crate::base::meter::{CallMeter, Demand};
use crate::base::{OnHeader, OnProgress};
use crate::cache::{CacheMode, CachedRefAge, HeaderCache};
use crate::error::Error;
use crate::formats::safetensors::{IndexError, IndexErrorKind};
use crate::formats::weight_sets::is_shard_pattern;
use crate::formats::{Format, Formats, HeaderError, RepoPath};
use crate::hub::CommitSha;
use crate::memory::MemoryOptions;
use crate::results::{FetchStats, Finding, Plan};
use crate::steps::ConfigFile;
use crate::steps::Target;

/// One call.
///
/// The files are pinned to the commit of the first response, so that a push during the call has no effect.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) context: Arc<CallContext>,
    pub(crate) files: CallFiles,
    pub(crate) mode: ReadMode,
    pub(crate) state: CallState,
}

/// The inputs of a call, which [`Model`](crate::Model) fills in. They stay the same while it runs.
#[derive(Debug)]
pub(crate) struct CallContext {
    /// The name of the source, as shown in the result.
    pub(crate) source: String,
    pub(crate) target: Target,
    /// The formats that the call accepts.
    pub(crate) formats: Formats,
    pub(crate) options: ReadOptions,
    pub(crate) limits: Limits,
    /// The cache that may serve the call.
    pub(crate) cache: Option<HeaderCache>,
    pub(crate) on_progress: Option<OnProgress>,
    pub(crate) on_header: Option<OnHeader>,
    pub(crate) started: Instant,
    pub(crate) meter: CallMeter,
    /// The memory of headers that are not counted yet.
    pub(crate) memory: CallMemory,
    /// The permit to use a lot of memory.
    pub(crate) large: Option<LargeCall>,
}

/// The options that decide what a call reads and how long it takes. Calls are shared only if they are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ReadOptions {
    /// The name of the source in results, if it is not the formatted source.
    pub(crate) name: Option<String>,
    /// The name of the selected format.
    pub(crate) format: Option<String>,
    pub(crate) plan: Plan,
    /// True to list the other sets of weights even if the weights have a standard name.
    pub(crate) list_sets: bool,
    /// True to verify all sets of weights.
    pub(crate) all_sets: bool,
    /// The conditions for which to compute the memory of the model.
    pub(crate) memory: Option<MemoryOptions>,
    pub(crate) cache_mode: CacheMode,
    /// The files of the repository, if known in advance.
    pub(crate) known_files: Option<Arc<Vec<RepoPath>>>,
    pub(crate) timeout: Option<Duration>,
}

/// The use of the headers of a call, and its reaction to files that cannot be read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadMode {
    /// True to keep each header after it is counted.
    pub(super) keep_headers: bool,
    pub(super) on_failure: OnFailure,
}

/// The reaction of a call to a shard that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OnFailure {
    /// Ends the call.
    #[default]
    Stop,
    /// Ends the call, but after a malformed shard only once all others are read, so that equal repositories have equal
    /// records.
    StopAfterAll,
    /// Reads all others, and collects the failures.
    Continue,
}

/// The state of the reads of a call. Each attempt to read begins with an empty one.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallState {
    pub(super) commit: Option<CommitSha>,
    /// The cached branch that was used without asking its server.
    pub(super) cached_ref: Option<CachedRefAge>,
    /// The path of the weights, once it is known.
    pub(super) weights: Option<RepoPath>,
    /// The total size of the headers so far, in bytes.
    pub(super) header_bytes: Arc<AtomicU64>,
    /// The part of the limit for all headers that these reads may use: one over this number.
    pub(super) shares: u64,
    /// The work on the headers and the configuration.
    pub(super) work: CallWork,
    /// The configuration, once a header needs it.
    pub(super) config: OnceCell<Result<ConfigFile, Error>>,
}

impl Call {
    /// Returns the value if it belongs to the pinned commit, or an error.
    pub(super) fn check_commit<T>(&self, path: &RepoPath, read: Fetched<T>) -> Result<T, Error> {
        match (&self.state.commit, read.commit) {
            (Some(pinned), Some(found)) if *pinned != found => {
                let file = self.files.file_name(path);
                let message = format!("expected `{file}` at commit {pinned}, got commit {found}");
                Err(Error::Changed { message })
            }
            _ => Ok(read.value),
        }
    }

    /// Pins the files to a commit, if it is known.
    pub(super) fn pin(&mut self, commit: Option<CommitSha>) {
        self.files = self.files.pinned(commit.as_ref());
        self.state.commit = commit;
    }

    /// Waits forever if the call may not send `requests` more requests. Cached files cost none.
    pub(super) async fn before_requests(&self, requests: usize) {
        if !self.files.is_cached() {
            self.context.meter.before(Demand::Requests(requests)).await;
        }
    }

    /// Reserves bytes of the limit for all headers before they are read, because many headers within their own limit
    /// can be too large together.
    pub(super) async fn reserve(&self, path: &RepoPath, length: u64) -> Result<(), Error> {
        let before = self.state.header_bytes.fetch_add(length, Ordering::Relaxed);
        let limit = self.context.limits.headers / self.state.shares.max(1);
        if before.saturating_add(length) > limit {
            return Err(Error::HeadersTooLarge { file: self.files.file_name(path), limit });
        }
        self.context.before_allocation(length).await;
        Ok(())
    }

    pub(super) fn header_error(&self, path: &RepoPath, source: HeaderError) -> Error {
        let format = self.format(path).title();
        Error::InvalidHeader { file: self.files.file_name(path), format, source }
    }

    /// Returns the format of a file.
    pub(super) fn format(&self, path: &RepoPath) -> &dyn Format {
        self.context.formats.find_or_safetensors(path)
    }

    /// Returns the error for a set of weights, or for the single file at `path`.
    pub(super) fn index_error(&self, path: &RepoPath, source: IndexError) -> Error {
        match &source.tensor {
            Some(tensor) if source.kind == IndexErrorKind::CountOverflow => {
                self.header_error(path, HeaderError::overflow(tensor))
            }
            _ => Error::InvalidIndex { file: self.files.file_name(path), source },
        }
    }

    /// Returns the findings about the source itself: it was renamed, its files may come from different commits, or it
    /// is one shard.
    pub(super) fn source_findings(&self) -> impl Iterator<Item = Finding> {
        let renamed = self.files.canonical_name();
        let renamed = renamed.map(|repo| Finding::Renamed { repo: repo.to_string() });
        let is_pinned = self.state.commit.is_some() || self.files.origin.repo().is_none();
        let found = renamed.into_iter().chain((!is_pinned).then_some(Finding::NotPinned));
        found.chain(self.context.target.single_shard())
    }

    pub(super) fn fetch_stats(&self, weight_bytes: u64) -> FetchStats {
        let (mut stats, sent) = (FetchStats::default(), self.context.meter.stats());
        (stats.requests, stats.bytes_read) = (sent.requests, sent.bytes_read);
        stats.weight_bytes = weight_bytes;
        stats.elapsed = self.context.started.elapsed();
        stats.age_seconds = self.state.cached_ref.map(|cached| cached.seconds);
        stats.stale = self.state.cached_ref.is_some_and(|cached| cached.is_stale);
        stats
    }
}

impl CallContext {
    /// Waits until the call may use `bytes` more bytes of memory.
    pub(super) async fn before_allocation(&self, bytes: u64) {
        if let Some(large) = &self.large {
            large.allocate(bytes, &self.meter).await;
        }
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
