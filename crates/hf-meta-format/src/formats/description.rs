//! Model descriptions in file headers.

use serde::Serialize;

/// The model description in a file header. Fields that the format or the file lacks are `None`.
///
/// All values are taken from the file as they are. Only the expert counts affect the parameter count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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
