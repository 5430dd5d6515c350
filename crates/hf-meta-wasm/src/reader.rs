//! The files of a commit, read by JavaScript, and errors.

use hf_meta_format::RepoPath;
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    /// The files of a commit. Every promise that it rejects has a [`Failure`] as its reason.
    #[derive(Debug)]
    pub type Reader;

    #[wasm_bindgen(method, catch, js_name = "read")]
    async fn read_part(this: &Reader, path: &str, start: f64, end: f64)
    -> Result<JsValue, JsValue>;

    #[wasm_bindgen(method, catch, js_name = "load")]
    async fn load_whole(this: &Reader, path: &str, limit: f64) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(method, catch, js_name = "loadLayouts")]
    async fn add_layouts(this: &Reader) -> Result<JsValue, JsValue>;

    /// Reports the number of shards whose headers have been read.
    #[wasm_bindgen(method)]
    pub(crate) fn progress(this: &Reader, done: usize, total: usize);

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
    pub type Part;

    #[wasm_bindgen(method, getter)]
    pub(crate) fn bytes(this: &Part) -> Vec<u8>;

    #[wasm_bindgen(method, getter, js_name = "size")]
    fn size_if_known(this: &Part) -> Option<f64>;

    /// An error of the package, or the reason of an aborted call, which may be any value.
    #[derive(Debug)]
    pub type Failure;

    #[wasm_bindgen(method, getter)]
    fn code(this: &Failure) -> Option<String>;

    #[wasm_bindgen(method, getter)]
    pub(crate) fn message(this: &Failure) -> Option<String>;
}

impl Reader {
    /// Reads a range of a file. The part is shorter only if the file ends inside the range.
    pub(crate) async fn read(
        &self,
        path: &RepoPath,
        start: u64,
        end: u64,
    ) -> Result<Part, Failure> {
        let read = self.read_part(path.as_str(), number(start), number(end)).await;
        read.map(JsCast::unchecked_into).map_err(JsCast::unchecked_into)
    }

    /// Adds the tables of layouts, unless a call has added them.
    pub(crate) async fn load_layouts(&self) -> Result<(), Failure> {
        self.add_layouts().await.map(drop).map_err(JsCast::unchecked_into)
    }

    /// Reads a whole file of at most `limit` bytes.
    pub(crate) async fn load(&self, path: &RepoPath, limit: u64) -> Result<Vec<u8>, Failure> {
        let read = self.load_whole(path.as_str(), number(limit)).await;
        read.map(|part| part.unchecked_into::<Part>().bytes()).map_err(JsCast::unchecked_into)
    }
}

impl Failure {
    /// Returns whether the failure has a code.
    pub(crate) fn is(&self, code: &str) -> bool {
        self.code().is_some_and(|found| found == code)
    }
}

impl Part {
    /// Returns the size of the whole file in bytes, if it is known.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
    pub(crate) fn size(&self) -> Option<u64> {
        self.size_if_known().map(|size| size as u64)
    }
}

/// Converts an offset. Offsets beyond 2^53 are beyond the end of every file, so they may be rounded.
#[expect(clippy::cast_precision_loss, reason = "see above")]
fn number(offset: u64) -> f64 {
    offset as f64
}
