//! The options of a call.

use hf_meta_count::Plan;
use hf_meta_format::formats::weight_sets::ListedFile;
use hf_meta_format::{CommitSha, RepoPath};
use serde::Deserialize;

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
    /// `true` to verify all weight sets.
    pub(crate) all_sets: bool,
    /// The parameter count that the Hub reports.
    pub(crate) hub_count: Option<u64>,
    /// The maximum size of a header in bytes.
    pub(crate) max_header_bytes: u64,
    /// The names and values of the options of `--fit` and `--memory`.
    pub(crate) memory: Option<Vec<(String, String)>>,
    pub(crate) files: Vec<ListedFile>,
}

impl Options {
    pub(crate) fn has_file(&self, path: &RepoPath) -> bool {
        self.files.iter().any(|file| file.path == *path)
    }
}
