//! Records the header bytes of calls, and replays calls from recorded bytes.

use std::sync::Arc;

use super::{Inspected, Inspection};
use crate::backends::{CacheRecorder, CachedCommit, OnHeader};
use crate::cache::CachedHeaders;
use crate::error::Error;
use crate::formats::RepoPath;
use crate::hub::CommitSha;
use crate::report::CountReport;

/// The commit and the header bytes that a result was computed from.
pub type RecordedBytes = Option<(CommitSha, CachedHeaders)>;

/// The report of a recorded call.
#[derive(Debug)]
pub struct RecordedReport {
    /// The path of the file or the index, or the pattern of shards without an index.
    pub path: RepoPath,
    pub report: CountReport,
}

/// A recorded call and its cost.
#[derive(Debug)]
pub struct RecordedCall {
    pub result: Result<RecordedReport, Error>,
    pub bytes: RecordedBytes,
    pub requests: u64,
    pub bytes_read: u64,
}

impl Inspection {
    /// Reads all headers and returns their counts and the bytes that were read, even if the call fails.
    pub(crate) async fn record(
        self,
        on_header: OnHeader,
    ) -> (Result<RecordedReport, Error>, RecordedBytes) {
        let recorder = CacheRecorder::observed(Arc::clone(&self.backend), on_header);
        let read = Self { backend: Arc::new(recorder.clone()), ..self }.read(false).await;
        let read = read.map(|Inspected { path, report, .. }| RecordedReport { path, report });
        (read, recorder.take())
    }

    /// Recomputes a report from the headers of an earlier call, without any requests.
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
