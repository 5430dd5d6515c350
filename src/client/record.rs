//! Calls whose bytes are kept for a later count.

use super::Model;
use crate::backends::OnHeader;
use crate::cache::CachedHeaders;
use crate::error::Error;
use crate::hub::CommitSha;
use crate::inspect::{RecordedBytes, RecordedReport};
use crate::report::CountReport;

impl Model {
    /// Reads all headers and returns their figures, and the bytes that were read, also those of a failed call.
    pub(crate) fn record(
        &self,
        on_header: OnHeader,
    ) -> impl Future<Output = (Result<RecordedReport, Error>, RecordedBytes)> + Send + use<> {
        let call = self.call(|inspection| async move { Ok(inspection.record(on_header).await) });
        async move { call.await.unwrap_or_else(|error| (Err(error), None)) }
    }

    /// Returns the figures of headers that an earlier call has read, without a request.
    pub(crate) fn replay(
        &self,
        commit: CommitSha,
        headers: CachedHeaders,
    ) -> impl Future<Output = Result<CountReport, Error>> + Send + use<> {
        self.call(|inspection| inspection.replay(commit, headers))
    }
}
