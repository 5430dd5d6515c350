//! The description of a model in the header of a file.

use serde::Serialize;

/// The description of a model in the header of a file, as far as its format has one.
///
/// Every value is a statement of the file. None of them changes a count, except the numbers of experts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ModelDescription {
    /// The kind of the file, such as `model`, `adapter` or `mmproj`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The architecture, such as `llama`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// The name of the quantization of the whole file, such as `Q4_K_M`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_type: Option<String>,
    /// The longest context that the model was trained for, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_length: Option<u64>,
    /// The number of layers, including those that draft tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<u64>,
    /// The number of layers that draft tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_layers: Option<u64>,
    /// The number of routed experts in a layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<u64>,
    /// The number of experts that a token is routed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts_per_token: Option<u64>,
    /// The kind of the tokenizer, such as `gpt2` for byte pair encoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// The number of tokens in the vocabulary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<u64>,
    /// The number of files that the model is split into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// The number of tensors in all these files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<u64>,
}
