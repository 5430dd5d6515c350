//! The files of a commit, read by JavaScript, and errors.

use std::cell::RefCell;
use std::fmt;
use std::future::ready;
use std::ops::Range;
use std::sync::Arc;

use hf_meta_format::formats::safetensors::DEFAULT_HEADER_LIMIT;
use hf_meta_format::formats::weight_sets::ListedFile;
use hf_meta_format::formats::{DetectedFormat, Formats, chain};
use hf_meta_format::{CommitSha, RepoId, RepoPath};
use hf_meta_inspect::{BoxFuture, Error, ErrorKind, Files, Listing, Loaded, Part, shared};
use wasm_bindgen::prelude::*;

use super::json::json;
use super::options::Options;

#[wasm_bindgen]
extern "C" {
    /// The files of a commit. Every promise that it rejects has a [`Failure`] as its reason.
    #[derive(Debug)]
    pub type Reader;

    /// Reads a range of a file. The part is shorter only if the file ends inside the range.
    #[wasm_bindgen(method, catch)]
    async fn read(this: &Reader, path: &str, start: u64, end: u64) -> Result<JsPart, Failure>;

    /// Reads a whole file of at most `limit` bytes.
    #[wasm_bindgen(method, catch)]
    async fn load(this: &Reader, path: &str, limit: u64) -> Result<JsPart, Failure>;

    /// Loads the second module of the core and the tables of architectures, unless a call has loaded them.
    #[wasm_bindgen(method, catch, js_name = "loadSecond")]
    async fn load_second(this: &Reader) -> Result<JsValue, Failure>;

    /// Reports the number of shards whose headers have been read.
    #[wasm_bindgen(method, catch)]
    fn progress(this: &Reader, done: usize, total: usize) -> Result<(), Failure>;

    /// Creates an error with a code of the command and the weight sets to choose from, as JSON.
    #[wasm_bindgen(method)]
    pub(crate) fn failure(
        this: &Reader,
        code: &str,
        message: &str,
        sets: Option<String>,
    ) -> Failure;

    /// A part of a file.
    #[derive(Debug)]
    #[wasm_bindgen(js_name = "Part")]
    type JsPart;

    #[wasm_bindgen(method, getter)]
    fn bytes(this: &JsPart) -> Vec<u8>;

    /// Returns the size of the whole file in bytes, if it is known.
    #[wasm_bindgen(method, getter)]
    fn size(this: &JsPart) -> Option<u64>;

    /// An error of the package, or the reason of an aborted call, which may be any value.
    #[derive(Debug)]
    pub type Failure;

    #[wasm_bindgen(method, getter, catch)]
    fn code(this: &Failure) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(method, getter, catch)]
    fn message(this: &Failure) -> Result<JsValue, JsValue>;
}

/// The files of a commit, which are listed in advance.
#[derive(Clone, Debug)]
pub(crate) struct JsFiles(Arc<State>);

#[derive(Debug)]
struct State {
    reader: Reader,
    /// The name of the repository, as shown in errors.
    repo: String,
    renamed: Option<RepoId>,
    commit: Option<CommitSha>,
    hub_count: Option<u64>,
    files: Arc<Vec<ListedFile>>,
    /// The failures of reads, by their numbers.
    failures: RefCell<Vec<Failure>>,
}

/// The number of a failure in [`State::failures`], and its message.
#[derive(Debug)]
struct Cause {
    number: usize,
    message: String,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Cause {}

impl JsFiles {
    pub(crate) fn new(reader: Reader, options: &Options) -> Self {
        let Options { repo, renamed, commit, hub_count, files, .. } = options;
        Self(Arc::new(State {
            reader,
            repo: repo.clone(),
            renamed: renamed.as_deref().and_then(|name| name.parse().ok()),
            commit: commit.clone(),
            hub_count: *hub_count,
            files: Arc::clone(files),
            failures: RefCell::default(),
        }))
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.0.reader
    }

    /// Loads what a plain count does not need.
    pub(crate) async fn load_second(&self) -> Result<(), Error> {
        let loaded = self.0.reader.load_second().await;
        loaded.map(drop).map_err(|failure| self.error(failure, None))
    }

    /// Returns the error of the package for an error of a call.
    pub(crate) fn failure(&self, error: &Error) -> Failure {
        let number = match error {
            Error::Reader { number, .. } => Some(*number),
            Error::FileNotFound { source, .. } => {
                source.downcast_ref::<Cause>().map(|cause| cause.number)
            }
            _ => None,
        };
        let mut failures = self.0.failures.borrow_mut();
        if let Some(number) = number.filter(|number| *number < failures.len()) {
            return failures.swap_remove(number);
        }
        let message = match error {
            Error::InvalidHeader { .. } | Error::InvalidIndex { .. } => chain(error),
            error => error.to_string(),
        };
        let sets = match error {
            Error::SeveralSets { sets, .. } => Some(json(sets)),
            _ => None,
        };
        self.0.reader.failure(error.code(), &message, sets)
    }

    /// Converts a failure, and the file and the limit in bytes if it was the failure of a read.
    fn error(&self, failure: Failure, read: Option<(&RepoPath, Option<u64>)>) -> Error {
        let text = |value: Result<JsValue, JsValue>| value.ok().and_then(|value| value.as_string());
        // The code of an aborted request is a number.
        let (code, message) = (text(failure.code()).unwrap_or_default(), text(failure.message()));
        let message = message.unwrap_or_default();
        let number = self.0.failures.borrow().len();
        self.0.failures.borrow_mut().push(failure);
        match (&*code, read) {
            ("fileNotFound", Some((path, _))) => {
                let source = shared(Cause { number, message });
                Error::FileNotFound { file: self.file_name(path), source }
            }
            ("tooLarge", Some((path, Some(limit)))) => {
                Error::TooLarge { file: self.file_name(path), limit }
            }
            _ => {
                let kind = ErrorKind::ALL.iter().find(|kind| kind.code() == code);
                Error::Reader { kind: kind.copied().unwrap_or(ErrorKind::Network), message, number }
            }
        }
    }

    /// Returns an error if a file is not listed. A request for it would fail.
    fn check(&self, path: &RepoPath) -> Result<(), Error> {
        if self.0.files.iter().any(|file| file.path == *path) {
            return Ok(());
        }
        let source = shared("it is not listed");
        Err(Error::FileNotFound { file: self.file_name(path), source })
    }
}

/// Returns whether the second module parses a file, judging by its first bytes. The name of the file may be wrong.
fn is_other_format(start: &[u8]) -> bool {
    match DetectedFormat::recognize(start) {
        Some(DetectedFormat::Gguf | DetectedFormat::Zip) => true,
        // The length of a header of safetensors may begin with the same bytes.
        Some(DetectedFormat::Pickle) => {
            let length = start.first_chunk().map(|prefix| u64::from_le_bytes(*prefix));
            length.is_none_or(|length| length > DEFAULT_HEADER_LIMIT)
        }
        _ => false,
    }
}

impl Files for JsFiles {
    fn read<'a>(
        &'a self,
        path: &'a RepoPath,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Part, Error>> {
        Box::pin(async move {
            self.check(path)?;
            if Formats::built_in().find_or_safetensors(path).name() != "safetensors" {
                self.load_second().await?;
            }
            let read = self.0.reader.read(path.as_str(), range.start, range.end).await;
            let part = read.map_err(|failure| self.error(failure, Some((path, None))))?;
            let (bytes, file_size) = (part.bytes(), part.size());
            if range.start == 0 && is_other_format(&bytes) {
                self.load_second().await?;
            }
            Ok(Part { bytes, file_size, commit: self.0.commit.clone(), sha256: None })
        })
    }

    fn load<'a>(&'a self, path: &'a RepoPath, limit: u64) -> BoxFuture<'a, Result<Loaded, Error>> {
        Box::pin(async move {
            self.check(path)?;
            if !path.is_index() {
                self.load_second().await?;
            }
            let read = self.0.reader.load(path.as_str(), limit).await;
            let part = read.map_err(|failure| self.error(failure, Some((path, Some(limit)))))?;
            Ok(Loaded { bytes: Arc::new(part.bytes()), commit: self.0.commit.clone() })
        })
    }

    fn list<'a>(
        &'a self,
        folder: Option<&'a RepoPath>,
    ) -> BoxFuture<'a, Result<Option<Listing>, Error>> {
        let files = self.0.files.iter().filter(|file| file.is_below(folder)).cloned().collect();
        let commit = self.0.commit.clone();
        Box::pin(ready(Ok(Some(Listing { files, commit, is_complete: true }))))
    }

    fn file_name(&self, path: &RepoPath) -> String {
        format!("{}/{path}", self.0.repo)
    }

    fn commit(&self) -> Option<CommitSha> {
        self.0.commit.clone()
    }

    fn is_repo(&self) -> bool {
        self.0.commit.is_some()
    }

    fn renamed(&self) -> Option<RepoId> {
        self.0.renamed.clone()
    }

    fn on_progress(&self, done: usize, total: usize) -> Result<(), Error> {
        let told = self.0.reader.progress(done, total);
        told.map_err(|failure| self.error(failure, None))
    }

    fn reported_count(&self) -> BoxFuture<'_, Result<Option<u64>, String>> {
        Box::pin(ready(Ok(self.0.hub_count)))
    }
}
