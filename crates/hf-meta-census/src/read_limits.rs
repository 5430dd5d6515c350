//! Limits the number of repositories that are read concurrently.

use std::sync::Arc;

use tokio::sync::Semaphore;

use hf_meta::LargeCallLimit;

/// The maximum number of repositories that may use a lot of memory at the same time. Parsing the largest allowed
/// header takes 240 MB.
const LARGE_AT_ONCE: usize = 2;

/// The limits of all reads of a census. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct ReadLimits {
    /// One permit per concurrent repository.
    pub(super) jobs: Arc<Semaphore>,
    /// The limit of large repositories. Waits for it do not count towards the timeout of a call.
    pub(super) large: LargeCallLimit,
}

impl ReadLimits {
    pub(super) fn new(jobs: usize) -> Self {
        let large = LargeCallLimit::new(LARGE_AT_ONCE).exclude_waits_from_timeout(true);
        Self { jobs: Arc::new(Semaphore::new(jobs.max(1))), large }
    }
}
