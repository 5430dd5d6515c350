//! The core of the npm package `hf-meta`.
//!
//! The crate `hf-meta-inspect` decides which bytes to read, and JavaScript sends the requests: `JsFiles` calls the methods
//! of a `Reader` and waits for their promises. Results cross the border as JSON text, the JSON of the command.
//!
//! The build splits the compiled module in two. `build.mjs` lists the functions of the second one, which a count of plain
//! safetensors files never calls. The core calls them only after `Reader::load_second`.
//!
//! | module | content |
//! |---|---|
//! | `js_files` | the files of a commit, read by JavaScript, and errors |
//! | `json` | the JSON of results |
//! | `metadata` | the metadata of files |
//! | `options` | the options of a call |
//! | `tensors` | the byte ranges of tensors |

#![cfg(target_family = "wasm")]

mod js_files;
mod json;
mod metadata;
mod options;
mod tensors;

use std::sync::Arc;

use hf_meta_count::SafetensorsParseFromRepo::{Sharded, Single};
use hf_meta_count::engines::add_pair;
use hf_meta_count::results::EnginePairKind;
use hf_meta_count::{CountReport, Diff, Tree, VerifyReport, Weights};
use hf_meta_format::{PUBLIC_HUB_HOSTS, RepoSource, is_local_path};
use hf_meta_inspect::{Call, Error, Files};
use serde::Serialize;
use wasm_bindgen::prelude::*;

use self::js_files::JsFiles;
pub use self::js_files::{Failure, Reader};
use self::json::json;
use self::options::Options;

/// A checkpoint whose headers were read.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Inspection {
    report: CountReport,
    /// The headers, unless only the counts were requested.
    weights: Option<Weights>,
    is_partial: bool,
}

#[wasm_bindgen]
impl Inspection {
    /// Returns `true` if only the shards of some tensors were read.
    #[wasm_bindgen(getter, js_name = isPartial)]
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Returns the JSON of `hf-meta --json --summary`.
    pub fn json(&self) -> String {
        json(&self.report)
    }

    /// Returns what the JSON of `hf-meta --json` has in addition, in parts: the index, and one header each. As one text,
    /// the headers of a large model would take most of the memory of the call.
    pub fn part(&self, at: usize) -> Option<String> {
        match self.weights.as_ref()? {
            Weights::Safetensors(Single(file)) => (at == 0).then(|| json(&file.header)),
            Weights::Safetensors(Sharded(shards)) if at == 0 => Some(json(&shards.index)),
            Weights::Safetensors(Sharded(shards)) => {
                shards.headers.iter().nth(at - 1).map(|header| json(&header))
            }
            Weights::Other(files) => files.headers.iter().nth(at).map(|header| json(&header)),
            _ => None,
        }
    }

    /// Returns the tree of modules as JSON. It is empty if the headers were not kept.
    pub fn tree(&self) -> String {
        json(&self.weights.as_ref().map_or_else(|| Tree::from_tensors([]), Tree::new))
    }

    /// Returns the JSON of `hf-meta --metadata --json`. Returns `undefined` if the headers were not kept. The second module
    /// must be loaded.
    pub fn metadata(&self) -> Option<String> {
        self.weights.as_ref().map(metadata::document)
    }

    /// Returns the byte ranges of tensors as JSON. `names` is a JSON list of names and patterns, and `max_range` the maximum
    /// length of a range in bytes. `headers` are the bytes of the local headers of ZIP archives; if they are missing, returns
    /// a list of their ranges. The second module must be loaded.
    ///
    /// # Errors
    ///
    /// Returns an error if the headers were not kept, or if the tensors cannot be read by range.
    pub fn plan(&self, names: &str, max_range: u32, headers: &[u8]) -> Result<String, JsError> {
        let weights = self.weights.as_ref();
        let weights = weights.ok_or_else(|| JsError::new("the headers were not kept"))?;
        tensors::plan(weights, names, max_range.into(), headers)
            .map_err(|error| JsError::new(&error))
    }

    /// Returns the first thumbnail that is an image, as a data URL. The second module must be loaded.
    pub fn thumbnail(&self) -> Option<String> {
        self.weights.as_ref().and_then(metadata::thumbnail)
    }

    /// Returns the memory under other conditions as JSON. `changed` is a JSON list of the names and values that differ
    /// from the requested ones. Returns `undefined` if no memory was requested, or if a value is invalid.
    pub fn memory(&self, changed: &str) -> Option<String> {
        let memory = self.report.memory.as_deref()?;
        let mut options = memory.options;
        let changed: Vec<(String, String)> = serde_json::from_str(changed).ok()?;
        for (name, value) in &changed {
            options.set(name, value).ok()?;
        }
        Some(json(&memory.under(options)))
    }

    /// Returns the JSON of `hf-meta diff --json`. Returns `undefined` if the headers were not kept.
    pub fn diff(&self, after: &Self, ignore_shards: bool) -> Option<String> {
        Some(json(&Diff::new(self.weights.as_ref()?, after.weights.as_ref()?, ignore_shards)))
    }
}

/// Reads the headers of a weight set and counts them. `options` is the JSON of the options.
///
/// # Errors
///
/// Returns the failure of a read, or a failure with the error code of the command.
#[wasm_bindgen]
pub async fn inspect(reader: Reader, options: String) -> Result<Inspection, Failure> {
    let (call, files) = prepare(reader, &options).await?;
    let inspect = async {
        let inspected = call.inspect().await?;
        let (report, file) = (inspected.report.clone(), files.file_name(&inspected.path));
        let is_partial = inspected.is_partial;
        let weights = call.settings.keep_headers.then(|| inspected.into_weights()).transpose();
        let weights = weights.map_err(|source| Error::InvalidIndex { file, source })?;
        Ok(Inspection { report, weights, is_partial })
    };
    inspect.await.map_err(|error| files.failure(&error))
}

/// A verified file that is loaded together with a model.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Pair {
    kind: EnginePairKind,
    report: VerifyReport,
}

/// Verifies a file that is loaded together with a model. `kind` is `draft`, `adapter` or `projector`.
///
/// # Errors
///
/// Returns an error if the weights cannot be found or read.
#[wasm_bindgen]
pub async fn verify_pair(reader: Reader, options: String, kind: String) -> Result<Pair, Failure> {
    let (call, files) = prepare(reader, &options).await?;
    let kind = match &*kind {
        "draft" => EnginePairKind::Draft,
        "adapter" => EnginePairKind::Adapter,
        _ => EnginePairKind::Projector,
    };
    let verify = async {
        files.load_second().await?;
        call.verify().await
    };
    let report = verify.await.map_err(|error| files.failure(&error))?;
    Ok(Pair { kind, report })
}

/// Verifies weight sets, and compares an adapter with its base model. Returns the JSON of `hf-meta verify --json`.
/// `options` is the JSON of the options.
///
/// # Errors
///
/// Returns an error if the weights cannot be found or read.
#[wasm_bindgen]
pub async fn verify(
    reader: Reader,
    options: String,
    base: Option<Inspection>,
    pairs: Vec<Pair>,
) -> Result<String, Failure> {
    let (call, files) = prepare(reader, &options).await?;
    let verify = async {
        files.load_second().await?;
        call.verify().await
    };
    let mut report = verify.await.map_err(|error| files.failure(&error))?;
    base.and_then(|base| base.weights).iter().for_each(|base| report.check_base(base));
    for pair in &pairs {
        if let Some(options) = &call.settings.memory {
            add_pair(&mut report, pair.kind, &pair.report, options);
        }
    }
    Ok(json(&report))
}

/// Creates a call from the JSON of its options. Also returns its files.
async fn prepare(reader: Reader, options: &str) -> Result<(Call, JsFiles), Failure> {
    let invalid = |reader: &Reader, message: &str| reader.failure("invalidOption", message, None);
    let options: Options =
        serde_json::from_str(options).map_err(|error| invalid(&reader, &error.to_string()))?;
    let files = JsFiles::new(reader, &options);
    if options.memory.is_some() || options.tensors.is_some() {
        // The second module has the GPUs and the patterns.
        files.load_second().await.map_err(|error| files.failure(&error))?;
    }
    let settings = options.settings().map_err(|message| invalid(files.reader(), &message))?;
    Ok((Call { settings: Arc::new(settings), files: Arc::new(files.clone()) }, files))
}

/// The parts of the name of a repository.
#[derive(Debug, Serialize)]
struct ParsedSource {
    /// The name as shown in results.
    source: String,
    repo: String,
    revision: String,
    path: Option<String>,
}

/// Parses the name of a repository, or the path of a page on the Hub with the file that it shows. A revision and a path
/// replace the parts in the name. Returns the parts as JSON.
///
/// # Errors
///
/// Returns an error if a part is invalid.
#[wasm_bindgen(js_name = "parseSource")]
#[expect(clippy::needless_pass_by_value, reason = "an optional text of JavaScript is owned")]
pub fn parse_source(
    text: &str,
    is_page: bool,
    shown: Option<String>,
    revision: Option<String>,
    path: Option<String>,
) -> Result<String, JsError> {
    if !is_page && !text.contains("://") && is_local_path(text) {
        return Err(JsError::new(
            "it is the path of a local file; pass the content of files as `{ files }`",
        ));
    }
    let source = if is_page { RepoSource::from_page(text, shown.as_deref()) } else { text.parse() };
    let source = revision.map_or(source.clone(), |revision| source?.with_revision(&revision));
    let source = path.map_or(source.clone(), |path| source?.with_path(&path))?;
    let shown = source.to_string();
    let RepoSource { repo, revision, path } = source;
    Ok(json(&ParsedSource {
        source: shown,
        repo: repo.to_string(),
        revision: revision.unwrap_or_default().to_string(),
        path: path.map(|path| path.to_string()),
    }))
}

/// Returns whether a host is the public Hub, whose pages are repositories with any URL of a Hub.
#[wasm_bindgen(js_name = "isPublicHub")]
pub fn is_public_hub(host: &str) -> bool {
    PUBLIC_HUB_HOSTS.contains(&host)
}

/// Adds the tables of architectures, which are in the second file of the package.
#[wasm_bindgen(js_name = "addTables")]
pub fn add_tables(tables: String) {
    hf_meta_count::add_tables(tables);
}
