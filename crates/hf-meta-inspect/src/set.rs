//! A weight set to read, once its location and its commit are known.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use hf_meta_count::memory::Engine;
use hf_meta_count::steps::ReportBuilder;
use hf_meta_format::formats::RepoPath;
use hf_meta_format::formats::safetensors::SafetensorsIndexJson;

use super::call::Call;
use super::pinned::Pinned;
use super::shared_configs::SharedConfigs;

/// The reaction of a call to a shard that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// Ends the call.
    Stop,
    /// Ends the call, but after a malformed shard only once all others are read.
    StopAfterAll,
    /// Reads all others, and collects the failures.
    Continue,
}

/// Reads a weight set whose location and commit are known.
pub(crate) struct SetReader {
    pub(crate) call: Call,
    pub(crate) files: Pinned,
    /// The path of the file or the index, or the pattern of shards without an index.
    pub(crate) path: RepoPath,
    pub(crate) on_failure: OnFailure,
    pub(crate) keep_headers: bool,
    /// The total size of the headers so far, in bytes.
    pub(crate) header_bytes: AtomicU64,
    /// The part of the limit for all headers that this set may use: one over this number.
    pub(crate) shares: u64,
    /// The configurations that sets of the call have read.
    pub(crate) configs: Arc<SharedConfigs>,
}

impl SetReader {
    /// Creates the reader of a set that stops at the first error.
    pub(crate) fn new(call: &Call, files: Pinned, path: RepoPath) -> Self {
        let settings = &call.settings;
        let on_failure =
            if settings.read_all_shards { OnFailure::StopAfterAll } else { OnFailure::Stop };
        // The division of the weights among GPUs depends on all tensors, and on the configuration, which is read later.
        let is_divided = settings.memory.is_some_and(|memory| memory.engine == Engine::Vllm);
        let (call, keep_headers) = (call.clone(), settings.keep_headers || is_divided);
        let (header_bytes, shares, configs) = (AtomicU64::new(0), 1, Arc::default());
        Self { call, files, path, on_failure, keep_headers, header_bytes, shares, configs }
    }

    /// Sets the number of sets that are read concurrently.
    pub(crate) fn sharing(self, sets: u64) -> Self {
        Self { shares: sets.max(1), ..self }
    }

    /// Shares the configurations with other sets.
    pub(crate) fn with_configs(self, configs: &Arc<SharedConfigs>) -> Self {
        Self { configs: Arc::clone(configs), ..self }
    }

    /// Keeps the headers, and collects the failures instead of stopping at the first one.
    pub(crate) fn continuing(self) -> Self {
        Self { on_failure: OnFailure::Continue, keep_headers: true, ..self }
    }

    /// Creates the builder of the set's report.
    pub(crate) fn builder(&self, index: Option<SafetensorsIndexJson>) -> ReportBuilder {
        ReportBuilder::new_sharded(&self.path, index, self.keep_headers)
    }
}
