//! Plans and reads the data of selected tensors.

use std::ops::Range;
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use hf_meta_count::results::{Plan, Weights};
use hf_meta_format::read_plan::{
    LocalHeader, PlanError, PlanOptions, PlannedFile, ReadPlan, StorageStarts, TensorSelection,
};

use super::ModelCall;
use crate::base::body_sink::BodySink;
use crate::error::Error;
use crate::hub::CommitSha;

/// The maximum number of local headers of archives in flight.
const MAX_HEADERS_IN_FLIGHT: usize = 64;

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
        self.read_bytes();
        Box::pin(self.weights()).await
    }

    /// The headers that the Hub has parsed do not state where the data begin.
    fn read_bytes(&mut self) {
        if self.settings.plan == Plan::Hub {
            self.settings.plan = Plan::Prefetch;
        }
    }

    /// Reads the headers of the shards that contain the selected tensors according to the index, or else all headers, and
    /// plans the ranges of the tensors.
    pub(crate) async fn plan_tensors(
        mut self,
        selection: TensorSelection,
        options: PlanOptions,
    ) -> Result<PinnedPlan, Error> {
        self.read_bytes();
        self.settings.selection = Some(selection.clone());
        let planned = match Box::pin(self.try_plan(&selection, &options)).await {
            // An index may name the wrong shard.
            Ok((Err(PlanError::NoMatch { .. }), true)) | Err(Error::InvalidIndex { .. }) => {
                self.settings.selection = None;
                Box::pin(self.try_plan(&selection, &options)).await?.0
            }
            planned => planned?.0,
        };
        let planned = planned.map_err(|error| not_planned(&error))?;
        self.admit_requests(planned.plan.ranges.len())?;
        Ok(planned)
    }

    /// Returns the plan, and whether only the shards of a selection were read.
    async fn try_plan(
        &mut self,
        selection: &TensorSelection,
        options: &PlanOptions,
    ) -> Result<(Result<PinnedPlan, PlanError>, bool), Error> {
        let (weights, is_partial) = self.selected_weights().await?;
        let (selection, options) = (selection.clone(), options.clone());
        let report = weights.report();
        let (source, commit) = (report.source.clone(), report.commit.clone());
        let needed = match ReadPlan::local_headers(weights.files(), &selection) {
            Ok(needed) => needed,
            Err(error) => return Ok((Err(error), is_partial)),
        };
        let starts = self.storage_starts(needed, commit.clone()).await?;
        let options = options.storage_starts(starts);
        let plan = move || {
            let plan = ReadPlan::new(weights.files(), &selection, &options);
            plan.map(|plan| PinnedPlan { source, commit, plan: Arc::new(plan) })
        };
        Ok((self.files.run(plan).await, is_partial))
    }

    /// Reads the positions of storages in ZIP archives.
    pub(crate) async fn storage_starts(
        &self,
        needed: Vec<LocalHeader>,
        commit: Option<CommitSha>,
    ) -> Result<StorageStarts, Error> {
        self.admit_requests(needed.len())?;
        let call = &self.call();
        let read = |header: LocalHeader| {
            let commit = commit.clone();
            async move {
                let range = header.range.clone();
                let bytes = call.read_data(&header.file, range, commit, || 0).await?;
                Ok::<_, Error>((header, bytes))
            }
        };
        let reads = stream::iter(needed).map(read).buffer_unordered(MAX_HEADERS_IN_FLIGHT);
        let headers: Vec<_> = reads.try_collect().await?;
        StorageStarts::new(headers).map_err(|error| not_planned(&error))
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

fn not_planned(error: &PlanError) -> Error {
    Error::InvalidOption { option: "tensors", message: error.to_string() }
}
