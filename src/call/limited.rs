//! Files within the budget of a call.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, TryFutureExt};
use hf_meta_format::formats::weight_sets::WeightSet;
use hf_meta_format::formats::{FileHeader, RepoPath};
use hf_meta_inspect::{Files, HeldRam, Listing, Loaded, OpenIndex, Part, Work};

use super::forward::forward;
use crate::base::budget::CallBudget;
use crate::error::Error;
use crate::hub::{CommitSha, RepoId};

/// Files whose requests and memory a [`CallBudget`] admits. The length of a body is unknown until it arrives, so the HTTP
/// client asks the same budget while it reads one.
#[derive(Debug)]
pub(super) struct LimitedFiles {
    files: Arc<dyn Files>,
    budget: CallBudget,
    /// False for stored bytes.
    sends_requests: bool,
}

impl LimitedFiles {
    pub(super) fn new(files: impl Files, budget: CallBudget) -> Self {
        Self { files: Arc::new(files), budget, sends_requests: true }
    }

    /// Limits files whose reads cost no requests, but memory.
    pub(super) fn without_requests(files: impl Files, budget: CallBudget) -> Self {
        Self { sends_requests: false, ..Self::new(files, budget) }
    }
}

impl Files for LimitedFiles {
    forward! {
        read load list open_index run_work file_name commit is_repo renamed end_header on_header on_progress
        parsed_headers reported_count missing_shards
    }

    fn at_commit(&self, commit: &CommitSha) -> Option<Arc<dyn Files>> {
        let (files, budget) = (self.files.at_commit(commit)?, self.budget.clone());
        Some(Arc::new(Self { files, budget, sends_requests: self.sends_requests }))
    }

    fn may_guess(&self, path: &RepoPath, requests: usize) -> bool {
        // A call with a budget waits for the number of its requests instead.
        self.budget.is_unlimited() && self.files.may_guess(path, requests)
    }

    fn admit_requests(&self, requests: usize) -> Result<(), Error> {
        if self.sends_requests {
            self.budget.admit_requests(requests)?;
        }
        Ok(())
    }

    fn admit_bytes(&self, bytes: u64) -> BoxFuture<'_, Result<(), Error>> {
        self.budget.admit_bytes(bytes).map_err(Error::from).boxed()
    }

    fn hold(&self, bytes: u64) -> BoxFuture<'_, HeldRam> {
        self.budget.hold(bytes).map(|permit| -> HeldRam { Some(Box::new(permit)) }).boxed()
    }
}
