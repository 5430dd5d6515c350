//! Calls whose bytes are kept for a later count.

use super::Model;
use crate::backends::OnHeader;
use crate::cache::CachedHeaders;
use crate::error::Error;
use crate::hub::CommitSha;
use crate::inspect::RecordedCall;
use crate::report::CountReport;

impl Model {
    /// Reads all headers and returns their figures, the bytes that were read, also those of a failed call, and the cost.
    pub(crate) fn record(
        &self,
        on_header: OnHeader,
    ) -> impl Future<Output = RecordedCall> + Send + use<> {
        let (model, meter) = self.metered();
        let call = model.call(|inspection| async move { Ok(inspection.record(on_header).await) });
        async move {
            let (result, bytes) = call.await.unwrap_or_else(|error| (Err(error), None));
            RecordedCall { result, bytes, requests: meter.requests(), bytes_read: meter.bytes() }
        }
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
