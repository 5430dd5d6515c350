//! The configuration of a model, and the models nested in it, such as `text_config`.

use hf_meta_format::base::json_object::{JsonObject, read};
use serde::{Deserialize, Deserializer};

/// The models in a `config.json`.
///
/// Every reader uses these objects, so each byte of a file is scanned at most [`MAX_DEPTH`](Self::MAX_DEPTH) times.
pub(crate) struct ModelConfig<'a> {
    /// The outermost model, then the models nested in it, then the models nested in those. A model follows its outer model.
    pub(crate) models: Vec<NestedModel<'a>>,
}

/// The configuration of one model.
#[derive(Default)]
pub(crate) struct NestedModel<'a> {
    /// The key in the outer model; empty for the outermost model.
    pub(crate) key: String,
    /// The index of the outer model.
    pub(crate) outer: Option<usize>,
    depth: usize,
    pub(crate) object: JsonObject<'a>,
}

/// The keys of quantization sections, in order of precedence.
const QUANTIZATION_SECTIONS: [&str; 3] =
    ["quantization_config", "quantization", "compression_config"];

/// The keys of language models, in order of precedence.
const TEXT_MODELS: [&str; 5] =
    ["text_config", "llm_config", "language_config", "thinker_config", "decoder"];

/// The keys of objects that configure the experts of the outer model.
const EXPERT_SECTIONS: [&str; 3] = ["moe_config", "ffn_config", "moe"];

/// The keys of models whose tensors have no common prefix.
const WITHOUT_PREFIX: [&str; 4] =
    ["text_config", "llm_config", "language_config", "decoder_config"];

impl<'a> ModelConfig<'a> {
    /// The maximum number of models inside each other. Known configurations have three.
    const MAX_DEPTH: usize = 8;
    /// The maximum number of models.
    const MAX_MODELS: usize = 64;
    /// The maximum number of entries of all models, which bounds the memory.
    const MAX_ENTRIES: usize = 100_000;

    pub(crate) fn new(object: JsonObject<'a>) -> Self {
        let mut entries = object.len();
        let mut models = vec![NestedModel { object, ..NestedModel::default() }];
        let mut outer = 0;
        while let Some(model) = models.get(outer) {
            let depth = model.depth + 1;
            let nested = if depth < Self::MAX_DEPTH { model.nested() } else { Vec::new() };
            for (key, object) in nested {
                let Some(object) = read::<JsonObject<'a>>(object) else { continue };
                entries += object.len();
                if entries > Self::MAX_ENTRIES || models.len() == Self::MAX_MODELS {
                    return Self { models };
                }
                models.push(NestedModel { key, outer: Some(outer), depth, object });
            }
            outer += 1;
        }
        Self { models }
    }

    /// Returns the outermost model.
    pub(crate) fn outermost(&self) -> &JsonObject<'a> {
        &self.models[0].object
    }

    /// Returns the outermost model, the language model in it, and the language model in that one.
    pub(crate) fn text_models(&self) -> impl Iterator<Item = &NestedModel<'a>> {
        let inner = |outer: &usize| {
            TEXT_MODELS.iter().find_map(|key| {
                let is_inner =
                    |model: &NestedModel<'_>| model.outer == Some(*outer) && model.key == *key;
                self.models.iter().rposition(is_inner)
            })
        };
        std::iter::successors(Some(0), inner).map(|at| &self.models[at])
    }

    /// Returns the innermost language model.
    pub(crate) fn text_model(&self) -> &JsonObject<'a> {
        self.text_models().last().map_or(self.outermost(), |model| &model.object)
    }

    /// Returns whether the embeddings are tied; `None` if the configuration does not state it, or contradicts itself.
    pub(crate) fn is_tied(&self) -> Option<bool> {
        let stated = |model: &NestedModel<'_>| model.object.get::<bool>("tie_word_embeddings");
        let mut stated = self.text_models().filter_map(stated);
        let first = stated.next()?;
        stated.all(|other| other == first).then_some(first)
    }

    /// Returns the quantization sections of all models.
    pub(crate) fn quantization_sections(&self) -> impl Iterator<Item = JsonObject<'a>> {
        self.models.iter().flat_map(|model| quantization_sections(&model.object))
    }
}

/// Returns the quantization sections of an object, in order of precedence.
pub(crate) fn quantization_sections<'a>(
    object: &JsonObject<'a>,
) -> impl Iterator<Item = JsonObject<'a>> {
    QUANTIZATION_SECTIONS.iter().filter_map(|key| object.get(key))
}

impl<'a> NestedModel<'a> {
    /// Returns whether the object configures the experts of the outer model.
    pub(crate) fn is_expert_section(&self) -> bool {
        EXPERT_SECTIONS.contains(&&*self.key)
    }

    /// Returns the prefix that name segments of this model have; `None` if it is not certain.
    pub(crate) fn name_prefix(&self) -> Option<&str> {
        let is_certain = !self.is_expert_section() && !WITHOUT_PREFIX.contains(&&*self.key);
        if is_certain { self.key.strip_suffix("_config") } else { None }
    }

    /// Returns the entries that may be nested models.
    fn nested(&self) -> Vec<(String, &'a serde_json::value::RawValue)> {
        let is_model = |key: &str| {
            let is_known = TEXT_MODELS.contains(&key) || EXPERT_SECTIONS.contains(&key);
            is_known || key.ends_with("_config") && !QUANTIZATION_SECTIONS.contains(&key)
        };
        let objects = self.object.entries().filter(|(_, value)| value.get().starts_with('{'));
        let models = objects.filter(|(key, _)| is_model(key)).take(ModelConfig::MAX_MODELS);
        models.map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ModelConfig<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        JsonObject::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> ModelConfig<'_> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn language_models_are_found_inside_each_other() {
        let cases = [
            (r#"{"model_type":"a"}"#, Some("a")),
            (r#"{"model_type":"a","llm_config":{},"text_config":{"model_type":"b"}}"#, Some("b")),
            (r#"{"model_type":"a","llm_config":{"model_type":"b"},"text_config":{}}"#, Some("a")),
            (
                r#"{"talker_config":{"text_config":{"model_type":"a"}},
                    "thinker_config":{"text_config":{"model_type":"b"}}}"#,
                Some("b"),
            ),
            (r#"{"text_config":{"model_type":"a"},"text_config":{"model_type":"b"}}"#, Some("b")),
            (r#"{"text_config":"a","quantization_config":{"model_type":"a"}}"#, None),
        ];
        for (json, expected) in cases {
            let config = config(json);
            let stated = config.text_models().filter_map(|model| model.object.get("model_type"));
            assert_eq!(stated.last(), expected.map(str::to_owned), "{json}");
        }
    }

    #[test]
    fn a_contradiction_about_tied_embeddings_is_no_answer() {
        let cases = [
            ("{}", None),
            (r#"{"tie_word_embeddings":true}"#, Some(true)),
            (r#"{"llm_config":{"tie_word_embeddings":false}}"#, Some(false)),
            (
                r#"{"tie_word_embeddings":"yes","text_config":{"tie_word_embeddings":true}}"#,
                Some(true),
            ),
            (r#"{"tie_word_embeddings":true,"text_config":{"tie_word_embeddings":false}}"#, None),
            (r#"{"vision_config":{"tie_word_embeddings":true}}"#, None),
        ];
        for (json, expected) in cases {
            assert_eq!(config(json).is_tied(), expected, "{json}");
        }
    }

    #[test]
    fn the_number_of_models_and_entries_is_limited() {
        let nested = r#"{"text_config":"#.repeat(1_000) + "{}" + &"}".repeat(1_000);
        assert_eq!(config(&nested).models.len(), ModelConfig::MAX_DEPTH);
        let object = |value: &str, entries: usize| {
            let entries = (0..entries).map(|at| format!(r#""m{at}_config":{value}"#));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        };
        let many = object("{}", 1_000);
        assert_eq!(config(&many).models.len(), ModelConfig::MAX_MODELS);
        let large = object(&object("1", 40_000), 4);
        assert_eq!(config(&large).models.len(), 3);
    }
}
