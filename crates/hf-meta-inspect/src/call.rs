//! One call: its settings and its files.

use std::sync::Arc;

use hf_meta_count::count::Configs;
use hf_meta_count::memory::MemoryOptions;
use hf_meta_count::results::{DEFAULT_HEADERS_LIMIT, Finding, Plan};
use hf_meta_count::steps::Target;
use hf_meta_format::formats::safetensors::{
    DEFAULT_HEADER_LIMIT, IndexError, IndexErrorKind, SafetensorsIndexJson,
};
use hf_meta_format::formats::weight_sets::ListedFile;
use hf_meta_format::formats::{Format, Formats, HeaderError, HeaderErrorKind, RepoPath};
use hf_meta_format::read_plan::TensorSelection;

use super::error::Error;
use super::files::Files;
use super::pinned::Pinned;

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The inputs of the call.
    pub settings: Arc<Settings>,
    /// The files, at the requested revision.
    pub files: Arc<dyn Files>,
}

/// The inputs of a call.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the options of a call are independent")]
pub struct Settings {
    /// The name of the source, as shown in the result.
    pub source: String,
    /// The part of the source to read.
    pub target: Target,
    /// The formats that the call accepts.
    pub formats: Formats,
    /// The plan of the requests.
    pub plan: Plan,
    /// `true` to list the other sets of weights even if the weights have a standard name.
    pub list_sets: bool,
    /// `true` to verify all sets of weights.
    pub all_sets: bool,
    /// The conditions for which to compute the memory of the model.
    pub memory: Option<MemoryOptions>,
    /// The files of the source, if they are known in advance.
    pub known_files: Option<Arc<Vec<ListedFile>>>,
    /// The limits.
    pub limits: Limits,
    /// `true` to keep the headers, and not only to count them.
    pub keep_headers: bool,
    /// `true` to read all other shards after a malformed one, before the call ends, so that equal repositories have
    /// equal records.
    pub read_all_shards: bool,
    /// The tensors whose headers are needed, if an index names their shards; `None` for all.
    pub selection: Option<TensorSelection>,
}

/// The limits of a call.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum size of a header in bytes.
    pub header: u64,
    /// Maximum size of all headers together in bytes.
    pub headers: u64,
    /// Maximum size of an index in bytes.
    pub index: u64,
    /// Maximum size of `config.json` in bytes.
    pub config: u64,
    /// Maximum number of shards to read concurrently.
    pub concurrency: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header: DEFAULT_HEADER_LIMIT,
            headers: DEFAULT_HEADERS_LIMIT as u64,
            index: SafetensorsIndexJson::DEFAULT_LIMIT,
            config: Configs::DEFAULT_LIMIT,
            concurrency: 256,
        }
    }
}

impl Settings {
    /// Returns the format of a file.
    pub(crate) fn format(&self, path: &RepoPath) -> &dyn Format {
        self.formats.find_or_safetensors(path)
    }
}

impl Call {
    pub(crate) fn header_error(&self, path: &RepoPath, source: HeaderError) -> Error {
        let format = match source.kind {
            // The file is in a format of this library, whatever its name says.
            HeaderErrorKind::NotACheckpoint => "PyTorch",
            HeaderErrorKind::NotAModel => "GGUF",
            _ => self.settings.format(path).title(),
        };
        Error::InvalidHeader { file: self.files.file_name(path), format, source }
    }

    /// Returns the error for a set of weights, or for the single file at `path`.
    pub(crate) fn index_error(&self, path: &RepoPath, source: IndexError) -> Error {
        match &source.tensor {
            Some(tensor) if source.kind == IndexErrorKind::CountOverflow => {
                self.header_error(path, HeaderError::overflow(tensor))
            }
            _ => Error::InvalidIndex { file: self.files.file_name(path), source },
        }
    }

    /// Returns the findings about the source itself: it was renamed, its files may come from different commits, or it
    /// is one shard.
    pub(crate) fn source_findings(&self, pinned: &Pinned) -> impl Iterator<Item = Finding> {
        let renamed = pinned.files.renamed();
        let renamed = renamed.map(|repo| Finding::Renamed { repo: repo.to_string() });
        let is_pinned = pinned.commit.is_some() || !self.files.is_repo();
        let found = renamed.into_iter().chain((!is_pinned).then_some(Finding::NotPinned));
        found.chain(self.settings.target.single_shard())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_send<T: Send>(_: T) {}

    /// Services spawn calls on the threads of their runtime.
    #[test]
    fn the_futures_of_calls_are_send() {
        let check = |call: &Call, main: &RepoPath| {
            is_send(call.locate());
            is_send(call.inspect());
            is_send(call.verify());
            is_send(call.list_sets());
            is_send(call.loaded_with(main));
        };
        // It compiles.
        let _ = check;
    }
}
