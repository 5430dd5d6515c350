//! The options of a call.

use std::sync::Arc;

use hf_meta_count::Plan;
use hf_meta_count::memory::MemoryOptions;
use hf_meta_count::steps::Target;
use hf_meta_format::formats::weight_sets::ListedFile;
use hf_meta_format::formats::{Formats, clip};
use hf_meta_format::read_plan::TensorSelection;
use hf_meta_format::{CommitSha, RepoPath};
use hf_meta_inspect::{Limits, Settings};
use serde::{Deserialize, Deserializer};

/// The options of a call, and the files of the repository.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Options {
    /// The name of the source, as shown in the result.
    pub(crate) source: String,
    /// The name of the repository, as shown in errors.
    pub(crate) repo: String,
    /// The current name of the repository, if it was renamed.
    pub(crate) renamed: Option<String>,
    pub(crate) commit: Option<CommitSha>,
    /// The file, folder or quantization to read.
    pub(crate) path: Option<RepoPath>,
    /// The name of the selected format.
    pub(crate) weights: Option<String>,
    pub(crate) plan: Plan,
    /// `true` to list the other weight sets even if the weights have a standard name. A pipeline needs them for its memory.
    pub(crate) other_sets: bool,
    pub(crate) keep_headers: bool,
    /// The names and patterns of the tensors whose shards to read; all shards if it is missing.
    pub(crate) tensors: Option<Vec<String>>,
    /// `true` to verify all weight sets.
    pub(crate) all_sets: bool,
    /// The parameter count that the Hub reports.
    pub(crate) hub_count: Option<u64>,
    /// The maximum size of a header in bytes.
    pub(crate) max_header_bytes: u64,
    /// The names and values of the options of `--fit` and `--memory`.
    pub(crate) memory: Option<Vec<(String, String)>>,
    #[serde(deserialize_with = "shared_files")]
    pub(crate) files: Arc<Vec<ListedFile>>,
}

fn shared_files<'de, D: Deserializer<'de>>(files: D) -> Result<Arc<Vec<ListedFile>>, D::Error> {
    Vec::deserialize(files).map(Arc::new)
}

impl Options {
    /// Returns the settings of a call, or the reason why an option is invalid.
    pub(crate) fn settings(&self) -> Result<Settings, String> {
        let formats = match &self.weights {
            Some(name) => Formats::built_in().only(name),
            None => Some(Formats::built_in().clone()),
        };
        let formats = formats.ok_or("the format is unknown")?;
        let mut memory = self.memory.as_ref().map(|_| MemoryOptions::default());
        let mut given: Vec<_> = self.memory.iter().flatten().collect();
        // A number of stages divides the GPUs of the set, and a number of GPUs replaces their number.
        given.sort_by_key(|(name, _)| match &**name {
            "gpu" => 0,
            "pp" => 1,
            _ => 2,
        });
        for (name, value) in given {
            let set = memory.as_mut().map_or(Ok(()), |memory| memory.set(name, value));
            set.map_err(|error| format!("`{}`: {error}", clip(name)))?;
        }
        memory.as_mut().map_or(Ok(()), MemoryOptions::finish)?;
        Ok(Settings {
            source: self.source.clone(),
            target: Target::from_path(&formats, self.path.clone()),
            formats,
            plan: self.plan,
            list_sets: self.other_sets || memory.is_some(),
            all_sets: self.all_sets,
            memory,
            known_files: Some(Arc::clone(&self.files)),
            limits: Limits { header: self.max_header_bytes, ..Limits::default() },
            keep_headers: self.keep_headers,
            read_all_shards: false,
            selection: self.tensors.clone().map(TensorSelection::patterns),
        })
    }
}
