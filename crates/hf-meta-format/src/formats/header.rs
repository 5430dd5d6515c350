//! The header of a file in any format.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

use super::pytorch::TensorPlaces;
use super::{Dtype, HeaderError, HeaderErrorKind, RepoPath, TensorInfo, TensorTable, clip};

/// The validated header of a weight file, in any format.
///
/// Every rule that can be checked from the header alone has been checked. Use
/// [`check_file_size`](Self::check_file_size) to check the size of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileHeader {
    tensors: TensorTable,
    metadata: Option<BTreeMap<String, String>>,
    header_range: Range<u64>,
    file_size: u64,
    /// True if whitespace precedes the content of the header. Some readers reject it.
    pub has_leading_space: bool,
    /// The model description, if the header has one.
    pub model: Option<Box<ModelDescription>>,
    /// True if the shapes describe the unpacked weights, regardless of how they are stored. Each element then
    /// counts as one parameter, and `config.json` is not needed.
    pub is_self_describing: bool,
    /// True if the tensor data is big-endian, as in some GGUF files.
    pub is_big_endian: bool,
    /// The imports and views of a pickle, if the file is one.
    pub pickle: Option<Box<PickleSummary>>,
    /// The name of the format, if it is not the format of the file's name.
    pub misnamed: Option<&'static str>,
}

crate::serialize_as_objects! {
    FileHeader, header {
        "metadata": header.metadata(),
        "tensors": header.tensors(),
        "pickle" ? header.pickle.as_deref(),
    }
}

impl FileHeader {
    /// Creates the header of a file whose tensor data begins at the end of `header_range` and extends to the end of
    /// the file. A range that ends before it starts becomes empty.
    pub fn new(tensors: TensorTable, header_range: Range<u64>) -> Self {
        let header_range = header_range.start.min(header_range.end)..header_range.end;
        Self {
            file_size: header_range.end.saturating_add(tensors.data_length()),
            tensors,
            metadata: None,
            header_range,
            has_leading_space: false,
            model: None,
            is_self_describing: false,
            is_big_endian: false,
            pickle: None,
            misnamed: None,
        }
    }

    /// Sets the metadata of the file.
    #[must_use]
    pub fn with_metadata(self, metadata: Option<BTreeMap<String, String>>) -> Self {
        Self { metadata, ..self }
    }

    /// Sets the size of the file in bytes, if the tensor data does not extend to its end.
    #[must_use]
    pub fn with_file_size(self, file_size: u64) -> Self {
        Self { file_size, ..self }
    }

    /// Returns the tensors in the file.
    pub fn tensors(&self) -> &TensorTable {
        &self.tensors
    }

    /// Returns the metadata of the file, or `None` if it has none.
    pub fn metadata(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.as_ref()
    }

    /// Returns the byte range of the header within the file.
    pub fn header_range(&self) -> Range<u64> {
        self.header_range.clone()
    }

    /// Returns the size of the tensor data, in bytes.
    pub fn data_length(&self) -> u64 {
        self.tensors.data_length()
    }

    /// Returns the size that a file with this header must have, in bytes.
    pub fn file_size(&self) -> u64 {
        self.file_size
    }

    /// Checks that the file has the size that the header implies.
    ///
    /// # Errors
    ///
    /// Returns [`HeaderErrorKind::FileSizeMismatch`] if the file is shorter or longer.
    pub fn check_file_size(&self, file_size: u64) -> Result<(), HeaderError> {
        let expected = self.file_size();
        if expected == file_size {
            return Ok(());
        }
        let last = self.tensors.iter().max_by_key(|(_, tensor)| tensor.data_offsets);
        let tensor = last.map(|(name, _)| clip(name));
        let end = match &tensor {
            Some(name) => format!("tensor `{name}`"),
            None => "its header".to_owned(),
        };
        let message = format!(
            "according to its header, the file ends with {end} at byte {expected}, but it has {file_size} bytes"
        );
        Err(HeaderError { tensor, ..HeaderError::new(HeaderErrorKind::FileSizeMismatch, message) })
    }

    /// Returns the number of parameters declared in the metadata (`total_parameters`).
    ///
    /// This number is not verified; in published files it has been wrong by orders of magnitude
    /// (`huggingface_hub` #4221).
    pub fn declared_total(&self) -> Option<u64> {
        self.metadata.as_ref()?.get("total_parameters")?.parse().ok()
    }
}

/// The headers of a checkpoint, with the paths of their files.
pub type Headers = [(RepoPath, FileHeader)];

/// Returns the tensors in all headers.
pub fn all_tensors(headers: &Headers) -> impl Iterator<Item = (&str, TensorInfo)> {
    headers.iter().flat_map(|(_, header)| header.tensors())
}

/// Returns the tensors of all files, and those of pickles whose elements other tensors contain.
#[doc(hidden)]
pub fn loaded_tensors(headers: &Headers) -> impl Iterator<Item = (&str, TensorInfo)> {
    let aliases = headers.iter().filter_map(|(_, header)| header.pickle.as_ref());
    let aliases = aliases.flat_map(|pickle| pickle.aliases()).map(|view| {
        let tensor = TensorInfo::new(view.dtype.clone(), view.shape.clone(), (0, 0));
        (view.name.as_str(), tensor)
    });
    all_tensors(headers).chain(aliases)
}

/// The content of a pickle besides its stored tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PickleSummary {
    /// The functions and classes that the pickle names, as `module.name`, sorted. Each is truncated to 256 bytes.
    pub imports: Vec<String>,
    /// The tensors that are not stored as they are loaded, sorted by name.
    pub views: Vec<TensorView>,
    /// The entries of a training checkpoint that are not the model, by their names.
    #[serde(skip)]
    pub entries: Vec<(String, TrainingEntry)>,
    /// The positions of the tensors in the file.
    #[serde(skip)]
    pub places: TensorPlaces,
}

/// The role of an entry of a training checkpoint that is not the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingEntry {
    /// A copy of the model, such as a moving average (EMA) of its weights.
    Copy,
    /// The state of an optimizer.
    OptimizerState,
    /// A value of the training run, such as a hyperparameter.
    Value,
}

/// A tensor whose elements are not all stored for it alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TensorView {
    /// The name of the tensor.
    pub name: String,
    /// The dtype of the tensor.
    pub dtype: Dtype,
    /// The shape of the loaded tensor.
    pub shape: Vec<u64>,
    /// The name of a tensor in the table that contains the elements. It is the tensor itself if only some elements
    /// are shared or repeated.
    pub stored_in: String,
}

impl TensorView {
    /// Creates a view of the tensor `stored_in`, whose bytes it shares.
    pub fn new(name: String, dtype: Dtype, shape: Vec<u64>, stored_in: String) -> Self {
        Self { name, dtype, shape, stored_in }
    }
}

impl PickleSummary {
    /// Returns the tensors that are not in the table, because others contain all of their elements.
    pub fn aliases(&self) -> impl Iterator<Item = &TensorView> {
        self.views.iter().filter(|view| view.name != view.stored_in)
    }

    /// Returns the entry of a training checkpoint that contains a tensor; `None` if the tensor may belong to the model.
    pub fn entry_of(&self, tensor: &str) -> Option<TrainingEntry> {
        let contains = |name: &str| {
            tensor.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.entries.iter().find(|(name, _)| contains(name)).map(|(_, entry)| *entry)
    }
}

/// The model description in a file header. Fields that the format or the file lacks are `None`.
///
/// All values are taken from the file as they are. Only the expert counts affect the parameter count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ModelDescription {
    /// The kind of file, such as `model`, `adapter` or `mmproj`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The architecture, such as `llama`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// The quantization of the file as a whole, such as `Q4_K_M`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_type: Option<String>,
    /// The maximum context length that the model was trained with, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_length: Option<u64>,
    /// The number of layers, including layers that draft tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<u64>,
    /// The number of layers that draft tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_layers: Option<u64>,
    /// The number of routed experts per layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<u64>,
    /// The number of experts that each token is routed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts_per_token: Option<u64>,
    /// The type of tokenizer, such as `gpt2` for byte pair encoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// The number of tokens in the vocabulary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<u64>,
    /// The number of files that the model is split into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// The total number of tensors in these files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<u64>,
}
