//! The progress and the limits of a call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hf_meta::ErrorKind;
use hf_meta_census::{Census, CensusProgress, CensusStop};

use crate::clients::lock;

/// The number of repositories that are done, that a call has in total, and that failed, and the error code of an outage.
pub(crate) type Progress = (usize, usize, usize, Option<&'static str>);

/// The progress of a call, its end, and its limits on concurrent repositories and on an outage.
pub(crate) struct Job {
    pub(crate) jobs: usize,
    pub(crate) max_outage: Duration,
    pub(crate) progress: Arc<Mutex<Progress>>,
    pub(crate) stop: Arc<Mutex<Option<CensusStop>>>,
}

impl Job {
    /// Sets the limits and the progress of a census.
    pub(crate) fn set(self, census: Census) -> Census {
        *lock(&self.stop) = Some(census.stop_handle());
        let census = census.max_outage(self.max_outage).concurrency(self.jobs).tool(tool());
        census.on_progress(self.report())
    }

    /// Returns the function that records the progress of a census.
    pub(crate) fn report(self) -> impl Fn(CensusProgress) + Send + Sync + 'static {
        move |progress| {
            let outage = progress.outage.map(ErrorKind::code);
            *lock(&self.progress) = (progress.done, progress.total, progress.failed, outage);
        }
    }
}

/// Returns the name and the version of this module.
fn tool() -> String {
    let version = concat!("hf-meta ", env!("CARGO_PKG_VERSION"));
    option_env!("HF_META_COMMIT")
        .map_or_else(|| version.to_owned(), |commit| format!("{version} {commit}"))
}
