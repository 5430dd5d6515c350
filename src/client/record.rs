//! Calls that record the bytes they read, so that a later call can recount them.

use std::sync::Arc;

use super::Model;
use crate::backends::{CallHooks, OnHeader};
use crate::cache::CachedHeaders;
use crate::error::Error;
use crate::http::transfer::CallMeter;
use crate::hub::CommitSha;
use crate::inspect::RecordedCall;
use crate::report::CountReport;

impl Model {
    /// Reads all headers. Returns the counts, the bytes that were read (even if the call fails) and the cost.
    pub fn record<Gate: FnOnce(CallMeter) -> Arc<dyn CallHooks>>(
        &self,
        on_header: OnHeader,
        gate: Gate,
    ) -> impl Future<Output = RecordedCall> + Send + use<Gate> {
        let (model, meter) = self.metered();
        let model = model.gate(gate(meter.clone()), meter.clone());
        let call = model.call(|inspection| async move { Ok(inspection.record(on_header).await) });
        async move {
            let (result, bytes) = call.await.unwrap_or_else(|error| (Err(error), None));
            RecordedCall { result, bytes, requests: meter.requests(), bytes_read: meter.bytes() }
        }
    }

    /// Counts headers that an earlier call recorded, without a request.
    pub fn replay(
        &self,
        commit: CommitSha,
        headers: CachedHeaders,
    ) -> impl Future<Output = Result<CountReport, Error>> + Send + use<> {
        self.call(|inspection| inspection.replay(commit, headers))
    }
}
