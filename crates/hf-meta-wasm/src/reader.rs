//! The files of a commit, read by JavaScript, and errors.

use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    /// The files of a commit. Every promise that it rejects has a [`Failure`] as its reason.
    #[derive(Debug)]
    pub type Reader;

    /// Reads a range of a file. The part is shorter only if the file ends inside the range.
    #[wasm_bindgen(method, catch)]
    pub(crate) async fn read(
        this: &Reader,
        path: &str,
        start: u64,
        end: u64,
    ) -> Result<Part, Failure>;

    /// Reads a whole file of at most `limit` bytes.
    #[wasm_bindgen(method, catch)]
    pub(crate) async fn load(this: &Reader, path: &str, limit: u64) -> Result<Part, Failure>;

    /// Loads the second module of the core and the tables of architectures, unless a call has loaded them.
    #[wasm_bindgen(method, catch, js_name = "loadSecond")]
    pub(crate) async fn load_second(this: &Reader) -> Result<JsValue, Failure>;

    /// Reports the number of shards whose headers have been read.
    #[wasm_bindgen(method, catch)]
    pub(crate) fn progress(this: &Reader, done: usize, total: usize) -> Result<(), Failure>;

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

    /// Returns the size of the whole file in bytes, if it is known.
    #[wasm_bindgen(method, getter)]
    pub(crate) fn size(this: &Part) -> Option<u64>;

    /// An error of the package, or the reason of an aborted call, which may be any value.
    #[derive(Debug)]
    pub type Failure;

    #[wasm_bindgen(method, getter, catch)]
    fn code(this: &Failure) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(method, getter, catch)]
    fn message(this: &Failure) -> Result<JsValue, JsValue>;
}

impl Failure {
    /// Returns whether the failure has a code. The code of an aborted request is a number.
    pub(crate) fn is(&self, code: &str) -> bool {
        self.code().is_ok_and(|found| found.as_string().as_deref() == Some(code))
    }

    /// Returns the message; empty if there is none.
    pub(crate) fn text(&self) -> String {
        self.message().ok().and_then(|message| message.as_string()).unwrap_or_default()
    }
}
