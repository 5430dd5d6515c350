//! Reads the headers of one commit, concurrently and within limits.

use std::mem::take;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::OnceCell;

use super::config_file::ConfigFile;
use super::locate::FoundWeights;
use super::memory::{CallMemory, MemoryPermit};
use super::{Inspected, Inspection, Limits, OnProgress};
use crate::backends::{Backend, CallHooks, Fetched};
use crate::count::needs_config;
use crate::error::Error;
use crate::formats::safetensors::IndexError;
use crate::formats::{FileHeader, Format, Formats, HeaderError, HeaderParser, RepoPath, Step};
use crate::http::blocking::spawn_blocking_if_large;
use crate::http::transfer::{CallMeter, RangeBytes};
use crate::hub::CommitSha;
use crate::report::{FetchStats, Finding, Plan, ReportBuilder};

/// Reads the headers of one commit.
pub struct Reader {
    pub(super) source: String,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) commit: Option<CommitSha>,
    pub(super) plan: Plan,
    pub(super) formats: Formats,
    pub(super) limits: Limits,
    pub(super) on_progress: Option<OnProgress>,
    started: Instant,
    pub(super) meter: CallMeter,
    pub(super) gate: Option<Arc<dyn CallHooks>>,
    /// The total size of the headers so far, in bytes.
    header_bytes: AtomicU64,
    memory: CallMemory,
    /// The path of the weights, once it is known.
    pub(super) weights: Option<RepoPath>,
    /// The configuration, once a header needs it.
    pub(super) config: OnceCell<Result<ConfigFile, Error>>,
}

impl Reader {
    /// Creates a reader pinned to the commit of the call's first response, so that a push during the call has no
    /// effect.
    pub(super) fn new(inspection: Inspection, commit: Option<CommitSha>) -> Self {
        let memory = CallMemory::new(&inspection.memory);
        let Inspection { source, backend, plan, limits, on_progress, started, .. } = inspection;
        let Inspection { formats, meter, gate, .. } = inspection;
        Self {
            source,
            backend,
            commit,
            plan,
            formats,
            limits,
            on_progress,
            started,
            meter,
            gate,
            header_bytes: AtomicU64::new(0),
            memory,
            weights: None,
            config: OnceCell::new(),
        }
    }

    /// Reads all headers of a set of weights and counts. Stops at the first error.
    pub(super) async fn read_weights(
        mut self,
        weights: FoundWeights,
        keeps_headers: bool,
    ) -> Result<Inspected, Error> {
        self.weights = Some(weights.path().clone());
        let (path, assembly) = match weights {
            FoundWeights::File { path, start } => {
                let header = self.parse_header(&path, start).await?;
                let mut assembly = ReportBuilder::new_single(keeps_headers);
                assembly.add(path.clone(), header);
                (path, assembly)
            }
            FoundWeights::Index { path, stream } => {
                let reads = self.read_indexed_shards(&path, stream, keeps_headers, true).await?;
                (path, reads.assembly)
            }
            FoundWeights::Shards { path, shards } => {
                let requests = self.plan.shards_without_index(&self.formats, &shards);
                let requests = requests.map_err(|source| self.index_error(&path, source))?;
                let reads = self.read_listed_shards(&path, requests, keeps_headers, true).await?;
                (path, reads.assembly)
            }
        };
        self.finish(path, assembly).await
    }

    pub(super) async fn finish(
        mut self,
        path: RepoPath,
        assembly: ReportBuilder,
    ) -> Result<Inspected, Error> {
        let mut config = self.config.take().transpose()?.unwrap_or_default();
        self.read_other_config(&assembly, &mut config).await?;
        let filepaths = assembly.filepaths(&path);
        let assembled = assembly.finish(&config.configs);
        let report = assembled.report(filepaths);
        let mut report = report.map_err(|source| self.index_error(&path, source))?;
        report.findings.extend(config.finding);
        report.findings.extend(self.source_findings());
        report.fetch = self.fetch_stats(assembled.totals.file_bytes);
        report.format = self.format(&path).name();
        report.source = self.source;
        report.commit = self.commit;
        // Without the Hub's response, the files were read with the next best plan.
        report.plan = if self.plan == Plan::Hub { Plan::Prefetch } else { self.plan };
        Ok(Inspected { path, backend: self.backend, assembled, report })
    }

    /// Reads and checks the header of a file, starting with the range `first`.
    pub(super) async fn read_header(
        &self,
        path: RepoPath,
        first: Range<u64>,
    ) -> Result<UncountedHeader, Error> {
        let permit = self.memory.acquire(first.end).await;
        let start = self.read(&path, first).await?;
        self.parse_start(&path, start, permit).await
    }

    /// Parses and checks the header of a single file, given its first bytes.
    pub(super) async fn parse_header(
        &self,
        path: &RepoPath,
        first: RangeBytes,
    ) -> Result<FileHeader, Error> {
        Ok(self.parse_start(path, first, MemoryPermit::default()).await?.header)
    }

    /// Parses and checks the header of a file, given its first bytes. Reads the missing bytes, and reads the
    /// configuration if a tensor needs it.
    async fn parse_start(
        &self,
        path: &RepoPath,
        first: RangeBytes,
        mut permit: MemoryPermit,
    ) -> Result<UncountedHeader, Error> {
        let RangeBytes { mut bytes, file_size } = first;
        let mut parser = self.format(path).parser(path, self.limits.header);
        // First pass the parser only its prefix, so that the header's memory is reserved before the header is parsed.
        let prefix = parser.first_range().end;
        let mut prefetched =
            bytes.split_off(bytes.len().min(usize::try_from(prefix).unwrap_or(usize::MAX)));
        let (mut start, mut reserved) = (0, 0);
        loop {
            let length = bytes.len();
            let parsed =
                spawn_blocking_if_large(length, move || advance(parser, start, bytes, file_size));
            match parsed.await.map_err(|source| self.header_error(path, source))? {
                Parsed::Incomplete { missing, parser: continued } => {
                    self.reserve(path, missing.end.saturating_sub(missing.start.max(reserved)))
                        .await?;
                    reserved = reserved.max(missing.end);
                    (start, bytes) = (prefix, take(&mut prefetched));
                    if bytes.is_empty() {
                        // Holding one permit while waiting for another could deadlock.
                        drop(take(&mut permit));
                        permit = self.memory.acquire(missing.end).await;
                        start = missing.start;
                        bytes = self.read_more(path, missing, file_size).await?;
                    }
                    parser = continued;
                }
                Parsed::Complete { header, needs_config } => {
                    let checked = header.check_file_size(file_size);
                    checked.map_err(|source| self.header_error(path, source))?;
                    self.backend.header_read(path, &header).await;
                    if needs_config {
                        // The result is used when all headers are complete.
                        let _ = self.config().await;
                    }
                    return Ok(UncountedHeader::new(header, permit));
                }
            }
        }
    }

    /// Reads another range of a file whose size is known.
    async fn read_more(
        &self,
        path: &RepoPath,
        range: Range<u64>,
        file_size: u64,
    ) -> Result<Vec<u8>, Error> {
        let more = self.read(path, range).await?;
        if more.file_size != file_size {
            let (before, after) = (file_size, more.file_size);
            return Err(Error::FileChanged { file: self.backend.file_name(path), before, after });
        }
        Ok(more.bytes)
    }

    /// Reads a range of a file at the pinned commit.
    async fn read(&self, path: &RepoPath, range: Range<u64>) -> Result<RangeBytes, Error> {
        self.check_commit(path, self.backend.read_range(path, range).await?)
    }

    /// Returns the value if it belongs to the pinned commit, or an error.
    pub(super) fn check_commit<T>(&self, path: &RepoPath, read: Fetched<T>) -> Result<T, Error> {
        match (&self.commit, read.commit) {
            (Some(pinned), Some(found)) if *pinned != found => Err(Error::CommitMismatch {
                file: self.backend.file_name(path),
                pinned: pinned.clone(),
                found,
            }),
            _ => Ok(read.value),
        }
    }

    /// Waits until the service accepts the commit.
    pub(super) async fn commit_resolved(&self) {
        if let (Some(gate), Some(commit)) = (&self.gate, &self.commit) {
            gate.commit_resolved(commit, self.backend.canonical_name()).await;
        }
    }

    /// Waits until the service allows requests for `files` files.
    pub(super) async fn before_requests(&self, files: usize) {
        if let Some(gate) = self.gate.as_ref().filter(|_| !self.backend.is_cached()) {
            gate.before_requests(files).await;
        }
    }

    /// Waits until the service allows `bytes` more bytes of memory.
    pub(super) async fn before_allocation(&self, bytes: u64) {
        if let Some(gate) = &self.gate {
            gate.before_allocation(bytes).await;
        }
    }

    /// Reserves bytes of the limit for all headers before they are read, because many headers within their own limit
    /// can be too large together.
    async fn reserve(&self, path: &RepoPath, length: u64) -> Result<(), Error> {
        let before = self.header_bytes.fetch_add(length, Ordering::Relaxed);
        let limit = self.limits.headers;
        if before.saturating_add(length) > limit {
            return Err(Error::HeadersTooLarge { file: self.backend.file_name(path), limit });
        }
        self.before_allocation(length).await;
        Ok(())
    }

    pub(super) fn header_error(&self, path: &RepoPath, source: HeaderError) -> Error {
        let format = self.format(path).title();
        Error::InvalidHeader { file: self.backend.file_name(path), format, source }
    }

    /// Returns the format of a file.
    fn format(&self, path: &RepoPath) -> &dyn Format {
        self.formats.find_or_safetensors(path)
    }

    /// Returns the error for a set of weights, or for the single file at `path`.
    pub(super) fn index_error(&self, path: &RepoPath, source: IndexError) -> Error {
        match source {
            IndexError::CountOverflow { tensor } => {
                self.header_error(path, HeaderError::Overflow { tensor })
            }
            source => Error::InvalidIndex { file: self.backend.file_name(path), source },
        }
    }

    /// Returns the findings about the repository itself: it was renamed, or its files may come from different
    /// commits.
    pub(super) fn source_findings(&self) -> impl Iterator<Item = Finding> {
        let renamed = self.backend.canonical_name().map(|repo| Finding::Renamed { repo });
        let is_pinned = self.commit.is_some() || !self.backend.has_commits();
        renamed.into_iter().chain((!is_pinned).then_some(Finding::NotPinned))
    }

    pub(super) fn fetch_stats(&self, weight_bytes: u64) -> FetchStats {
        let mut stats = FetchStats::default();
        stats.requests = self.meter.requests();
        stats.bytes_read = self.meter.bytes();
        stats.weight_bytes = weight_bytes;
        stats.elapsed = self.started.elapsed();
        stats
    }
}

/// A header that is not yet counted.
pub(super) struct UncountedHeader {
    pub(super) header: FileHeader,
    /// The memory permit, held until the header is counted.
    pub(super) permit: MemoryPermit,
}

impl UncountedHeader {
    /// Shrinks the permit to the memory of the parsed header.
    fn new(header: FileHeader, mut permit: MemoryPermit) -> Self {
        permit.shrink_to(header.tensors().memory());
        Self { header, permit }
    }
}

/// One step of parsing a header.
enum Parsed {
    Incomplete {
        /// The range that the parser needs.
        missing: Range<u64>,
        parser: Box<dyn HeaderParser>,
    },
    Complete {
        header: FileHeader,
        /// True if the configuration could change the count of a tensor.
        needs_config: bool,
    },
}

/// Feeds a parser. Once the header is complete, the parser and its bytes are dropped.
fn advance(
    mut parser: Box<dyn HeaderParser>,
    start: u64,
    bytes: Vec<u8>,
    file_size: u64,
) -> Result<Parsed, HeaderError> {
    Ok(match parser.advance(start, bytes, Some(file_size))? {
        Step::Read(missing) => Parsed::Incomplete { missing, parser },
        Step::Done(header) => {
            let needs_config = !header.is_self_describing()
                && header.tensors().iter().any(|(name, tensor)| needs_config(name, &tensor));
            Parsed::Complete { header, needs_config }
        }
    })
}
