//! Builds the description of a model from the keys of its header.

use std::collections::BTreeMap;

use super::types;
use crate::formats::ModelDescription;

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
        file_type: number("general.file_type").and_then(types::file_type).map(str::to_owned),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Absent features are stored as zeros, and an unsplit file as a split count of 1.
    #[test]
    fn what_is_not_there_has_no_number() {
        let counts = |experts: u64, files: u64| {
            let keys = [
                ("a.nextn_predict_layers", experts),
                ("a.expert_count", experts),
                ("a.expert_used_count", experts),
                ("split.count", files),
            ];
            let numbers = keys.map(|(key, number)| (key.to_owned(), number.to_string()));
            let name = ("general.architecture".to_owned(), "a".to_owned());
            let found = describe(&numbers.into_iter().chain([name]).collect(), None).unwrap();
            [found.draft_layers, found.experts, found.experts_per_token, found.files]
        };
        assert_eq!(counts(0, 1), [None; 4]);
        assert_eq!(counts(1, 2), [Some(1), Some(1), Some(1), Some(2)]);
    }
}
