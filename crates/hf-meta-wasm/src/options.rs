//! The options of a call.

use hf_meta_format::formats::weight_sets::ListedFile;
use hf_meta_format::memory::{MemoryOptions, VllmOptions, parse_size, parse_tokens};
use hf_meta_format::{CommitSha, Plan, RepoPath};
use serde::Deserialize;

/// The options of a call, and the files of the repository.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "independent options")]
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
    /// `true` to read each header in one range instead of two.
    pub(crate) prefetch: bool,
    /// `true` to list the other weight sets even if the weights have a standard name.
    pub(crate) other_sets: bool,
    pub(crate) keep_headers: bool,
    /// `true` to verify all weight sets.
    pub(crate) all_sets: bool,
    /// The parameter count that the Hub reports.
    pub(crate) hub_count: Option<u64>,
    /// The maximum size of a header in bytes.
    pub(crate) max_header_bytes: u64,
    pub(crate) memory: Option<MemoryArgs>,
    pub(crate) files: Vec<(RepoPath, u64)>,
}

/// The options of `--fit` and `--memory`, with the names and values of the command.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemoryArgs {
    context: Option<String>,
    batch: Option<u64>,
    cache_dtype: Option<String>,
    engine: Option<String>,
    max_num_batched_tokens: Option<String>,
    tp: Option<u64>,
    budget: Option<String>,
}

impl Options {
    pub(crate) fn plan(&self) -> Plan {
        if self.prefetch { Plan::Prefetch } else { Plan::Exact }
    }

    /// Returns the files below a folder.
    pub(crate) fn files_below(&self, folder: Option<&RepoPath>) -> Vec<ListedFile> {
        let files = self.files.iter();
        let files = files.map(|(path, size)| ListedFile { path: path.clone(), size: *size });
        files.filter(|file| file.is_below(folder)).collect()
    }

    pub(crate) fn has_file(&self, path: &RepoPath) -> bool {
        self.files.iter().any(|(found, _)| found == path)
    }
}

impl MemoryArgs {
    /// Parses the values. Returns the name of the first invalid option as an error.
    pub(crate) fn options(&self) -> Result<MemoryOptions, &'static str> {
        let default = VllmOptions::default();
        let tokens = parsed(self.max_num_batched_tokens.as_ref(), parse_tokens);
        let vllm = VllmOptions {
            max_batched_tokens: tokens
                .ok_or("maxNumBatchedTokens")?
                .unwrap_or(default.max_batched_tokens),
            gpus: self.tp.unwrap_or(default.gpus),
            ..default
        };
        if !(1..=1024).contains(&vllm.gpus) {
            return Err("tp");
        }
        if self.batch == Some(0) {
            return Err("batch");
        }
        Ok(MemoryOptions {
            context: parsed(self.context.as_ref(), parse_tokens).ok_or("context")?,
            batch: self.batch,
            cache_dtype: parsed(self.cache_dtype.as_ref(), |name| name.parse().ok())
                .ok_or("cacheDtype")?,
            engine: parsed(self.engine.as_ref(), |name| name.parse().ok()).ok_or("engine")?,
            vllm,
            budget: parsed(self.budget.as_ref(), parse_size).ok_or("budget")?,
        })
    }
}

/// Parses a value if it is set. Returns `None` if it is invalid.
#[expect(clippy::option_option, reason = "an absent value is valid")]
fn parsed<T>(text: Option<&String>, parse: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    text.map_or(Some(None), |text| parse(text).map(Some))
}
