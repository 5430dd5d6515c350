//! The number of weights of each module that a configuration implies.
//!
//! This uses no shape of a packed tensor, so it is an independent check of a count. The table of layouts has the shapes
//! of the modules of most architectures.

use std::collections::HashMap;

use super::Configs;
use crate::architectures::architecture::Definitions;
use crate::architectures::blueprint::Blueprint;
use hf_meta_format::base::json_object::{JsonObject, parse};
use hf_meta_format::formats::product;

/// The number of weights of each module, by the blueprint of the model.
pub(crate) struct ExpectedWeights<'a> {
    blueprint: Blueprint<'a>,
    /// The start of the names of all modules but the head. Files of other model classes have no head.
    prefix: &'static str,
    has_head: bool,
    /// The weights of a module in a layer, by its entry.
    known: HashMap<(usize, u32), Option<u64>>,
}

impl<'a> ExpectedWeights<'a> {
    /// Returns `None` if the architecture is unknown.
    pub(crate) fn new(configs: &'a Configs) -> Option<Self> {
        let object: JsonObject<'_> = parse(configs.json.as_deref()?).ok()?;
        let classes: Vec<String> = object.get("architectures").unwrap_or_default();
        let blueprint = Blueprint::new(&object.get::<String>("model_type")?, object)?;
        let is_head = |class: &String| class.ends_with(blueprint.head_class);
        let has_head = classes.is_empty() || classes.iter().any(is_head);
        let prefix = if has_head { blueprint.prefix } else { "" };
        Some(Self { blueprint, prefix, has_head, known: HashMap::new() })
    }

    /// Returns the entry of a module, and the number of its layer.
    fn find_entry(&self, module: &str) -> Option<(usize, u32)> {
        let inside = module.strip_prefix(self.prefix);
        let inside = inside.and_then(|path| self.blueprint.find(path, false));
        let head = || if self.has_head { self.blueprint.find(module, true) } else { None };
        inside.or_else(head).map(|(entry, place)| (entry, place[0]))
    }

    /// Returns the number of weights of a module; `None` if the configuration does not imply it.
    pub(crate) fn of_module(&mut self, module: &str) -> Option<u64> {
        let (entry, layer) = self.find_entry(module)?;
        let weights = || weights(&mut self.blueprint, entry, layer);
        *self.known.entry((entry, layer)).or_insert_with(weights)
    }

    /// Returns whether all models of the architecture store a module, whatever their configuration says.
    pub(super) fn requires(&self, module: &str) -> bool {
        self.find_entry(module).is_some_and(|(entry, _)| self.blueprint.entries[entry].is_required)
    }

    /// Returns whether a module has a bias, whatever is stored; `None` if it is unknown.
    pub(super) fn has_bias(&self, module: &str) -> Option<bool> {
        let (entry, _) = self.find_entry(module)?;
        let entry = &self.blueprint.entries[entry];
        // The table has no biases of lists, and a module with sides of a nested model may follow the keys of either.
        if entry.is_list || entry.formulas.contains('.') {
            return None;
        }
        // A bias in a group depends on the configuration.
        let bias = self.find_entry(&format!("{module}.bias"));
        let has_own = bias.is_some_and(|(bias, _)| self.blueprint.entries[bias].group.is_none());
        let has_bias = entry.has_bias || has_own;
        let model = |scope: usize| &self.blueprint.scopes[scope].object;
        let has_code = || model(0).raw("auto_map").is_some();
        let of_class = &self.blueprint.scopes[entry.scope].names.of_class;
        let is_known = has_bias || !has_code() && excludes_biases(model(entry.scope), of_class);
        is_known.then_some(has_bias)
    }
}

/// Returns whether all keys such as `attention_bias` are off, as they are stated, or by default of the class. In all
/// architectures of transformers 5.23 such a key states which linear layers have a bias, if some have one only in some
/// models.
fn excludes_biases(object: &JsonObject<'_>, of_class: &Definitions) -> bool {
    let stated = object.entries().map(|(key, value)| (key, value.get()));
    let defaults = of_class.entries.iter().map(|(key, value)| (*key, *value));
    let defaults = defaults.filter(|(key, _)| object.raw(key).is_none());
    let mut keys = stated.chain(defaults).filter(|(key, _)| key.contains("bias")).peekable();
    keys.peek().is_some()
        && keys.all(|(key, value)| {
            let is_off = matches!(value, "false" | "0" | "0.0");
            is_off != key.starts_with("no_")
        })
}

/// Evaluates the shape of a module in a layer. Defaults do not count: models with custom code may have others.
fn weights(blueprint: &mut Blueprint<'_>, entry: usize, layer: u32) -> Option<u64> {
    let entry = &blueprint.entries[entry];
    if entry.is_list {
        return None;
    }
    let names = &mut blueprint.scopes[entry.scope].names;
    names.layer.set(layer.into());
    let side = |formula| {
        let (side, keys) = names.trace(formula).ok()?;
        keys.keys().all(|key| !names.is_default(key)).then_some(side)
    };
    let sides: Option<Vec<_>> = entry.formulas.split(',').map(side).collect();
    product(&sides?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_follow_from_the_layout_of_the_architecture() {
        const LLAMA: &str = r#""model_type":"llama","hidden_size":8,"intermediate_size":16,"num_attention_heads":2"#;
        const GEMMA: &str = r#""model_type":"gemma4_text","hidden_size":8,"intermediate_size":16,
            "num_hidden_layers":4,"num_kv_shared_layers":1,"use_double_wide_mlp":true"#;
        const KIMI: &str = r#""model_type":"kimi_k2","hidden_size":8,"moe_intermediate_size":4,"num_hidden_layers":2"#;

        let kimi = format!(r#""model_type":"kimi_k25","text_config":{{{KIMI}}}"#);
        let expert = "model.layers.1.mlp.experts.3.up_proj";
        let cases = [
            (LLAMA, "LlamaForCausalLM", "model.layers.3.mlp.up_proj", Some(16 * 8)),
            (LLAMA, "LlamaForCausalLM", "layers.3.mlp.up_proj", None),
            (LLAMA, "LlamaForCausalLM", "model.layers.3.mlp.new_proj", None),
            (LLAMA, "LlamaModel", "layers.3.mlp.up_proj", Some(16 * 8)),
            (LLAMA, "LlamaModel", "model.layers.3.mlp.up_proj", None),
            // The default of the class is 256, and may be another one in other code.
            (
                r#""model_type":"gemma2","hidden_size":8,"num_attention_heads":2"#,
                "Gemma2Model",
                "layers.0.self_attn.q_proj",
                None,
            ),
            (GEMMA, "Gemma4TextModel", "layers.2.mlp.up_proj", Some(16 * 8)),
            (GEMMA, "Gemma4TextModel", "layers.3.mlp.up_proj", Some(32 * 8)),
            (KIMI, "DeepseekV3ForCausalLM", expert, Some(4 * 8)),
            (
                &kimi,
                "KimiK25ForConditionalGeneration",
                &format!("language_model.{expert}"),
                Some(4 * 8),
            ),
        ];
        for (config, class, module, expected) in cases {
            let json = format!(r#"{{{config},"architectures":["{class}"]}}"#);
            let configs = Configs::from_config_json(json.as_bytes()).unwrap();
            let found = ExpectedWeights::new(&configs).and_then(|mut all| all.of_module(module));
            assert_eq!(found, expected, "{class} {module}");
        }
    }

    /// The key may be on although the class does not tie its head.
    #[test]
    fn some_architectures_always_store_their_head() {
        for (model_type, is_required) in
            [("bigbird_pegasus", true), ("pop2piano", true), ("llama", false), ("unknown", false)]
        {
            let json = format!(r#"{{"model_type":"{model_type}"}}"#);
            let configs = Configs::from_config_json(json.as_bytes()).unwrap();
            assert_eq!(
                ExpectedWeights::new(&configs).is_some_and(|expected| expected.requires("lm_head")),
                is_required,
                "{model_type}"
            );
        }
    }

    /// The aligner of Janus is a list of layers, whose biases the table does not have.
    #[test]
    fn modules_of_a_list_may_have_biases() {
        let part =
            |name| format!(r#"{{"model_type":"{name}","attention_bias":false,"mlp_bias":false}}"#);
        let json = format!(
            r#"{{"model_type":"janus","attention_bias":false,"text_config":{},"vision_config":{}}}"#,
            part("llama"),
            part("janus_vision_model"),
        );
        let configs = Configs::from_config_json(json.as_bytes()).unwrap();
        let expected = ExpectedWeights::new(&configs).unwrap();
        let excludes = |module| expected.has_bias(&format!("model.{module}")) == Some(false);
        assert!(excludes("language_model.layers.0.mlp.up_proj"));
        assert!(!excludes("aligner.hidden_layers.0"));
    }

    /// The table has the biases of GPT-NeoX in a group that depends on a key.
    #[test]
    fn a_bias_that_depends_on_the_configuration_is_not_certain() {
        for (stated, expected) in [("false", Some(false)), ("true", None)] {
            let json = format!(r#"{{"model_type":"gpt_neox","attention_bias":{stated}}}"#);
            let configs = Configs::from_config_json(json.as_bytes()).unwrap();
            let weights = ExpectedWeights::new(&configs).unwrap();
            assert_eq!(weights.has_bias("gpt_neox.layers.1.attention.dense"), expected);
        }
    }

    /// The key of another nested model says nothing.
    #[test]
    fn each_nested_model_states_whether_it_has_biases() {
        const OFF: &str = r#","attention_bias":false"#;

        let excludes = |outer: &str, text: &str| {
            let text = format!(r#"{{"model_type":"kimi_k2","num_hidden_layers":2{text}}}"#);
            let json = format!(r#"{{"model_type":"kimi_k25"{outer},"text_config":{text}}}"#);
            let configs = Configs::from_config_json(json.as_bytes()).unwrap();
            let expected = ExpectedWeights::new(&configs).unwrap();
            expected.has_bias("language_model.model.layers.1.mlp.experts.3.up_proj") == Some(false)
        };
        assert!(excludes("", OFF));
        assert!(!excludes(OFF, ""));
        assert!(!excludes(r#","auto_map":{}"#, OFF));
        assert!(!excludes("", r#","attention_bias":true"#));
    }
}
