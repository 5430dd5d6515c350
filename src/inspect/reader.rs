//! Reading headers: all of one commit, side by side, within a budget, and held against each other.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::{Limits, Load, OnProgress, Plan};
use crate::backends::{Backend, ByteStream, Fetched};
use crate::count::CountBreakdown;
use crate::count::ParameterCount;
use crate::error::Error;
use crate::formats::RepoPath;
use crate::formats::safetensors::{HeaderLength, SafetensorsFileHeader, SafetensorsIndexJson};
use crate::http::transfer::{RangeBytes, RequestMeter, spawn_blocking_if_large};
use crate::hub::CommitSha;
use crate::report::{
    CountReport, FetchStats, SafetensorsFile, SafetensorsParseFromRepo, SafetensorsShards,
};
use crate::report::{Finding, agreement};

/// Reads headers of one commit.
pub(super) struct Reader {
    pub(super) source: String,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) commit: Option<CommitSha>,
    pub(super) plan: Plan,
    pub(super) limits: Limits,
    pub(super) on_progress: Option<OnProgress>,
    pub(super) started: Instant,
    pub(super) meter: RequestMeter,
    pub(super) header_bytes: AtomicU64,
}

impl Reader {
    /// A reader of a store that is pinned to the commit of the call's first answer, whatever becomes of
    /// the branch.
    pub(super) fn new(load: Load, commit: Option<CommitSha>) -> Self {
        let Load { source, backend, plan, limits, on_progress, started, meter, .. } = load;
        Self {
            source,
            backend,
            commit,
            plan,
            limits,
            on_progress,
            started,
            meter,
            header_bytes: AtomicU64::new(0),
        }
    }

    pub(super) async fn single(
        self,
        path: RepoPath,
        start: RangeBytes,
    ) -> Result<SafetensorsParseFromRepo, Error> {
        let header = self.rest(&path, start).await?;
        let mut findings = Vec::new();
        let counted = self.count(&[(&path, &header)], &mut findings).await?;
        let report = self.report(
            vec![path.clone()],
            header.file_size(),
            counted,
            header.declared_total(),
            findings,
        );
        Ok(SafetensorsParseFromRepo::Single(SafetensorsFile { path, header, report }))
    }

    pub(super) async fn sharded(
        self,
        path: RepoPath,
        pieces: ByteStream,
    ) -> Result<SafetensorsParseFromRepo, Error> {
        let read = |shard, first| self.header(shard, first);
        let (index, headers) = self.follow(&path, pieces, read).await?;
        self.sum(path, index, headers).await
    }

    /// Reads shards that no index lists; what is in which of them, their headers say.
    pub(super) async fn without_index(
        self,
        path: RepoPath,
        shards: &[RepoPath],
    ) -> Result<SafetensorsParseFromRepo, Error> {
        let wrong = |source| Error::Index { file: self.backend.file_name(&path), source };
        let asks = self.plan.shards_without_index(shards).map_err(wrong)?;
        let headers = self.read_all(&path, asks, |shard, first| self.header(shard, first)).await?;
        let index = SafetensorsIndexJson::from_headers(&headers).map_err(wrong)?;
        self.sum(path, index, headers).await
    }

    async fn sum(
        self,
        path: RepoPath,
        index: SafetensorsIndexJson,
        headers: Vec<(RepoPath, SafetensorsFileHeader)>,
    ) -> Result<SafetensorsParseFromRepo, Error> {
        let wrong = |source| Error::Index { file: self.backend.file_name(&path), source };
        let mut findings = agreement::check(&index, &headers).map_err(wrong)?;
        let files: Vec<_> = headers.iter().map(|(shard, header)| (shard, header)).collect();
        let counted = self.count(&files, &mut findings).await?;
        let bytes =
            headers.iter().map(|(_, header)| header.file_size()).fold(0, u64::saturating_add);
        let index_path = Some(path.clone()).filter(RepoPath::is_index);
        let shards = headers.iter().map(|(shard, _)| path.sibling(shard));
        let paths = index_path.into_iter().chain(shards).collect();
        let report = self.report(paths, bytes, counted, index.declared_total(), findings);
        Ok(SafetensorsParseFromRepo::Sharded(SafetensorsShards { path, index, headers, report }))
    }

    pub(super) async fn header(
        &self,
        path: RepoPath,
        first: Range<u64>,
    ) -> Result<SafetensorsFileHeader, Error> {
        let start = self.read(&path, &first).await?;
        self.rest(&path, start).await
    }

    /// Reads and checks the header of a file of which the first bytes are known.
    pub(super) async fn rest(
        &self,
        path: &RepoPath,
        start: RangeBytes,
    ) -> Result<SafetensorsFileHeader, Error> {
        let wrong = |source| Error::Header { file: self.backend.file_name(path), source };
        let file_size = start.file_size;
        let json = self.header_json(path, start).await?;
        let header =
            spawn_blocking_if_large(json.len(), move || SafetensorsFileHeader::from_json(&json));
        let header = header.await.map_err(wrong)?;
        header.check_file_size(file_size).map_err(wrong)?;
        Ok(header)
    }

    /// Reads the header of a file of which the first bytes are known.
    pub(super) async fn header_json(
        &self,
        path: &RepoPath,
        start: RangeBytes,
    ) -> Result<Vec<u8>, Error> {
        let wrong = |source| Error::Header { file: self.backend.file_name(path), source };
        let file_size = start.file_size;
        let length = HeaderLength::from_prefix(&start.bytes, file_size, self.limits.header);
        let range = length.map_err(wrong)?.range();
        self.take_from_budget(path, range.end - range.start)?;
        let json = self.complete(path, start, &range).await?;
        self.backend.header_end(path, range.end);
        Ok(json)
    }

    /// The bytes of a range of a file of which the first bytes are known; asks for what is missing.
    async fn complete(
        &self,
        path: &RepoPath,
        start: RangeBytes,
        range: &Range<u64>,
    ) -> Result<Vec<u8>, Error> {
        let RangeBytes { mut bytes, file_size } = start;
        let known = bytes.len() as u64;
        bytes.truncate(usize::try_from(range.end).unwrap_or(usize::MAX));
        bytes.drain(..bytes.len().min(usize::try_from(range.start).unwrap_or(usize::MAX)));
        if known < range.end {
            let missing = self.read(path, &(known..range.end)).await?;
            if missing.file_size != file_size {
                let (before, after) = (file_size, missing.file_size);
                return Err(Error::Changed { file: self.backend.file_name(path), before, after });
            }
            if bytes.is_empty() {
                return Ok(missing.bytes);
            }
            bytes.extend_from_slice(&missing.bytes);
        }
        Ok(bytes)
    }

    /// Reads a range of a file of the commit.
    pub(super) async fn read(
        &self,
        path: &RepoPath,
        range: &Range<u64>,
    ) -> Result<RangeBytes, Error> {
        self.of_commit(path, self.backend.read_range(path, range, &self.meter).await?)
    }

    /// What was read of a file, if it is of the commit.
    pub(super) fn of_commit<T>(&self, path: &RepoPath, read: Fetched<T>) -> Result<T, Error> {
        match (&self.commit, read.commit) {
            (Some(pinned), Some(found)) if *pinned != found => Err(Error::OtherCommit {
                file: self.backend.file_name(path),
                pinned: pinned.clone(),
                found,
            }),
            _ => Ok(read.value),
        }
    }

    /// Counts a header before it is read: many that are each within their limit are too much together.
    fn take_from_budget(&self, path: &RepoPath, length: u64) -> Result<(), Error> {
        let before = self.header_bytes.fetch_add(length, Ordering::Relaxed);
        let limit = self.limits.headers;
        if before.saturating_add(length) > limit {
            return Err(Error::TooManyHeaders { file: self.backend.file_name(path), limit });
        }
        Ok(())
    }

    pub(super) fn report(
        self,
        filepaths: Vec<RepoPath>,
        bytes_total: u64,
        (parameter_count, breakdown): (ParameterCount, CountBreakdown),
        declared_total: Option<u64>,
        mut findings: Vec<Finding>,
    ) -> CountReport {
        findings.extend(agreement::check_count(&parameter_count, declared_total));
        findings.extend(self.not_pinned());
        let fetch = self.fetch_stats(bytes_total);
        CountReport {
            source: self.source,
            commit: self.commit,
            sharded: filepaths.len() > 1,
            filepaths,
            parameter_count,
            breakdown,
            declared_total,
            findings,
            other_sets: None,
            fetch,
        }
    }

    pub(super) fn not_pinned(&self) -> Option<Finding> {
        (self.commit.is_none() && self.backend.has_commits()).then_some(Finding::NotPinned)
    }

    pub(super) fn fetch_stats(&self, bytes_total: u64) -> FetchStats {
        FetchStats {
            requests: self.meter.requests(),
            bytes_read: self.meter.bytes(),
            bytes_total,
            elapsed: self.started.elapsed(),
        }
    }
}
