//! Calls whose bytes are kept, and calls that are repeated with bytes that were kept.

use std::sync::Arc;

use super::{Inspected, Inspection};
use crate::backends::{CacheRecorder, CachedCommit, OnHeader};
use crate::cache::CachedHeaders;
use crate::error::Error;
use crate::formats::RepoPath;
use crate::hub::CommitSha;
use crate::report::CountReport;

/// The bytes that a result was computed from, and their commit.
pub(crate) type RecordedBytes = Option<(CommitSha, CachedHeaders)>;

/// The figures of a call.
#[derive(Debug)]
pub(crate) struct RecordedReport {
    /// The path of the file or the index, or the common path of shards without an index.
    pub(crate) path: RepoPath,
    pub(crate) report: CountReport,
}

/// A call and its cost.
#[derive(Debug)]
pub(crate) struct RecordedCall {
    pub(crate) result: Result<RecordedReport, Error>,
    pub(crate) bytes: RecordedBytes,
    pub(crate) requests: u64,
    pub(crate) bytes_read: u64,
}

impl Inspection {
    /// Reads all headers and returns their figures, and the bytes that were read, also those of a failed call.
    pub(crate) async fn record(
        self,
        on_header: OnHeader,
    ) -> (Result<RecordedReport, Error>, RecordedBytes) {
        let recorder = CacheRecorder::observed(Arc::clone(&self.backend), on_header);
        let read = Self { backend: Arc::new(recorder.clone()), ..self }.read(false).await;
        let read = read.map(|Inspected { path, report, .. }| RecordedReport { path, report });
        (read, recorder.take())
    }

    /// Returns the figures of headers that an earlier call has read, without a request.
    pub(crate) async fn replay(
        self,
        commit: CommitSha,
        headers: CachedHeaders,
    ) -> Result<CountReport, Error> {
        let inner = Arc::clone(&self.backend);
        let backend = Arc::new(CachedCommit { inner, commit, headers });
        Ok(Self { backend, ..self }.read(false).await?.report)
    }
}
