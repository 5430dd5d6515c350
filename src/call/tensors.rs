//! Plans and reads the data of selected tensors.

use std::ops::Range;
use std::sync::Arc;

use hf_meta_count::results::{Plan, Weights};
use hf_meta_format::read_plan::{PlanOptions, PlannedFile, ReadPlan, TensorSelection};

use super::ModelCall;
use crate::base::body_sink::BodySink;
use crate::error::Error;
use crate::hub::CommitSha;

/// A plan, and the commit that its files belong to.
#[derive(Clone, Debug)]
pub(crate) struct PinnedPlan {
    pub(crate) source: String,
    pub(crate) commit: Option<CommitSha>,
    pub(crate) plan: Arc<ReadPlan>,
}

impl ModelCall {
    /// Reads all headers from the bytes of their files.
    pub(crate) async fn weights_of_bytes(mut self) -> Result<Weights, Error> {
        if self.settings.plan == Plan::Hub {
            // The headers that the Hub has parsed do not state where the data begin.
            self.settings.plan = Plan::Prefetch;
        }
        Box::pin(self.weights()).await
    }

    /// Reads all headers, and plans the ranges of the selected tensors.
    pub(crate) async fn plan_tensors(
        self,
        selection: TensorSelection,
        options: PlanOptions,
    ) -> Result<PinnedPlan, Error> {
        let files = self.files.clone();
        let limited = self.call();
        let weights = Box::pin(self.weights_of_bytes()).await?;
        let plan = move || {
            let plan = ReadPlan::new(weights.files(), &selection, &options);
            let report = weights.report();
            let (source, commit) = (report.source.clone(), report.commit.clone());
            plan.map(|plan| PinnedPlan { source, commit, plan: Arc::new(plan) })
        };
        let planned = files.run(plan).await;
        let planned = planned.map_err(|error| Error::InvalidOption {
            option: "tensors",
            message: error.to_string(),
        })?;
        limited.files.admit_requests(planned.plan.ranges.len())?;
        Ok(planned)
    }

    /// Asks the budget for the requests of a plan.
    pub(crate) fn admit_requests(&self, requests: usize) -> Result<(), Error> {
        self.call().files.admit_requests(requests)
    }

    /// Reads exactly a range of a file at a commit. The bytes that were passed on to a receiver are not part of the result.
    pub(crate) async fn read_data(
        self,
        file: Arc<PlannedFile>,
        range: Range<u64>,
        commit: Option<CommitSha>,
        sink: Option<BodySink>,
    ) -> Result<Vec<u8>, Error> {
        let passed_on = || sink.as_ref().map_or(0, BodySink::received);
        self.call().read_data(&file, range, commit, passed_on).await
    }
}
