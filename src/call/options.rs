//! The options of a call.

use std::sync::Arc;
use std::time::Duration;

use hf_meta_count::memory::MemoryOptions;
use hf_meta_count::results::Plan;
use hf_meta_format::formats::RepoPath;

use crate::cache::CacheMode;

/// The options that decide what a call reads and how long it takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadOptions {
    /// The name of the selected format.
    pub(crate) format: Option<String>,
    /// The plan for requesting headers. Tensors have another default than counts.
    pub(crate) plan: Option<Plan>,
    /// The name of the source in results, if it is not the formatted source.
    pub(crate) name: Option<String>,
    /// True to list the other sets of weights even if the weights have a standard name.
    pub(crate) list_sets: bool,
    /// True to verify all sets of weights.
    pub(crate) all_sets: bool,
    /// The conditions for which to compute the memory of the model.
    pub(crate) memory: Option<MemoryOptions>,
    pub(crate) cache_mode: CacheMode,
    /// The files of the repository, if known in advance.
    pub(crate) known_files: Option<Arc<Vec<RepoPath>>>,
    pub(crate) timeout: Option<Duration>,
    /// The time for the transfer of a long range, in addition to the default timeout.
    pub(crate) transfer_time: Duration,
}
