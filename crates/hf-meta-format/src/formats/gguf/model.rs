//! The description of a model in the keys of a file.

use std::collections::BTreeMap;

use super::tensors::file_type;
use crate::formats::ModelDescription;

pub(super) const IMPORTANCE_MATRIX: &str = "an importance matrix";

/// Returns whether a tensor has the name of activation statistics. Source: `tools/imatrix/imatrix.cpp` of `llama.cpp`.
pub(super) fn is_importance(tensor: &str) -> bool {
    [".in_sum2", ".counts"].iter().any(|end| tensor.ends_with(end))
}

/// Returns the content of a file that is not a model: the importance matrices and control vectors that `llama-imatrix`
/// and `llama-cvector-generator` of `llama.cpp` write.
pub(super) fn other_content(metadata: &BTreeMap<String, String>) -> Option<&'static str> {
    let is = |key: &str, value: &str| metadata.get(key).is_some_and(|found| found == value);
    let contents = [
        ("general.type", "imatrix", IMPORTANCE_MATRIX),
        ("general.architecture", "controlvector", "a control vector"),
    ];
    contents.iter().find(|(key, value, _)| is(key, value)).map(|(.., content)| *content)
}

/// Returns the description of a model; `None` if the keys contain none, as in all but the first file of a split
/// model. `vocabulary` is the length of the token list.
pub(super) fn describe(
    metadata: &BTreeMap<String, String>,
    vocabulary: Option<u64>,
) -> Option<ModelDescription> {
    let text = |key: &str| metadata.get(key).cloned();
    let number = |key: &str| metadata.get(key)?.parse::<u64>().ok();
    let architecture = text("general.architecture")?;
    let of_model = |key: &str| number(&format!("{architecture}.{key}"));
    Some(ModelDescription {
        kind: text("general.type"),
        file_type: number("general.file_type").and_then(file_type).map(str::to_owned),
        context_length: of_model("context_length"),
        layers: of_model("block_count"),
        draft_layers: of_model("nextn_predict_layers").filter(|layers| *layers > 0),
        experts: of_model("expert_count").filter(|experts| *experts > 0),
        experts_per_token: of_model("expert_used_count").filter(|experts| *experts > 0),
        tokenizer: text("tokenizer.ggml.model"),
        vocabulary,
        files: number("split.count").filter(|files| *files > 1),
        tensors: number("split.tensors.count"),
        architecture: Some(architecture),
    })
}
