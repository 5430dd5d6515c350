//! Computes the number of parameters of common language models from `config.json` alone.
//!
//! This uses no tensors, so it is an independent check of a count. A configuration that is incomplete, or that is of
//! another family, has no expected number. Source of the layer definitions: `transformers/models` 5.23, with which
//! `tests/oracles/architectures.py` compares the result.

use serde_json::value::RawValue;

use super::gemma4;
use crate::base::json_object::{JsonObject, read};
use crate::count::module::divide;

/// The parameter counts that fit a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedParameters {
    pub(crate) total: u64,
    /// The total if a tied output embedding is stored anyway, or if the default of an omitted setting is different.
    alternative: u64,
    hidden: u64,
    vocabulary: u64,
}

/// A family of language models with the same layers.
struct Family {
    model_types: &'static [&'static str],
    /// The number of norms of the hidden size per layer.
    norms: u128,
    head_norms: HeadNorms,
    biases: Biases,
    feed_forward: FeedForward,
    /// The settings that the model class reads. It ignores others in the configuration.
    settings: &'static [&'static str],
}

/// The norms of the queries and keys of a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeadNorms {
    Without,
    /// One weight for each dimension of a head.
    Shared,
    /// One weight for each dimension of each head.
    PerHead,
    /// The attention is multi-head latent attention (MLA), which has norms of its ranks.
    Latent,
}

/// The biases of the attention of a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Biases {
    /// `attention_bias` adds one to each projection.
    Configured,
    /// `attention_bias` adds one to queries, keys and values.
    ConfiguredInputs,
    /// Queries, keys and values have one.
    Inputs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FeedForward {
    Dense,
    Experts,
    /// Experts and a router with biases. In such models, each attention head has a sink.
    BiasedExperts,
}

const FAMILIES: [Family; 20] = {
    use Biases::{Configured, ConfiguredInputs, Inputs};
    use FeedForward::{BiasedExperts, Dense, Experts};
    use HeadNorms::{Latent, PerHead, Shared, Without};

    const BIAS: &[&str] = &["attention_bias"];
    const BIAS_AND_NORM: &[&str] = &["attention_bias", "use_qk_norm"];
    const BIASES: &[&str] = &["attention_bias", "mlp_bias"];

    [
        family(&["llama", "granite", "smollm3"], 2, Without, Configured, Dense, BIASES),
        family(&["mistral", "ministral3", "phi3"], 2, Without, Configured, Dense, &[]),
        family(&["gemma"], 2, Without, Configured, Dense, BIAS),
        family(&["gemma2"], 4, Without, Configured, Dense, BIAS),
        family(&["gemma3_text"], 4, Shared, Configured, Dense, BIAS),
        family(&["qwen2"], 2, Without, Inputs, Dense, &[]),
        family(&["qwen3"], 2, Shared, Configured, Dense, BIAS),
        family(&["exaone4"], 2, Shared, Configured, Dense, &[]),
        family(&["glm"], 2, Without, ConfiguredInputs, Dense, BIAS),
        family(&["glm4"], 4, Without, ConfiguredInputs, Dense, BIAS),
        family(&["olmo2", "olmo3"], 2, PerHead, Configured, Dense, BIAS),
        family(&["mixtral"], 2, Without, Configured, Experts, &[]),
        family(&["granitemoe"], 2, Without, Configured, Experts, BIAS),
        family(&["qwen2_moe"], 2, Without, Inputs, Experts, &[]),
        family(&["qwen3_moe"], 2, Shared, Configured, Experts, BIAS),
        family(&["olmoe"], 2, PerHead, Configured, Experts, BIAS),
        family(&["glm4_moe"], 2, Without, ConfiguredInputs, Experts, BIAS_AND_NORM),
        family(&["deepseek_v2", "deepseek_v3", "kimi_k2"], 2, Latent, Configured, Experts, BIAS),
        family(&["minimax_m2"], 2, PerHead, Configured, Experts, &[]),
        family(&["gpt_oss"], 2, Without, Configured, BiasedExperts, BIAS),
    ]
};

const fn family(
    model_types: &'static [&'static str],
    norms: u128,
    head_norms: HeadNorms,
    biases: Biases,
    feed_forward: FeedForward,
    settings: &'static [&'static str],
) -> Family {
    Family { model_types, norms, head_norms, biases, feed_forward, settings }
}

/// The keys of the number of experts in these families.
const EXPERTS: [&str; 3] = ["num_local_experts", "num_experts", "n_routed_experts"];

impl ExpectedParameters {
    /// Computes the parameters of a model; `None` if the family is unknown or a value is missing or absurd.
    pub(crate) fn from_config(config: &JsonObject<'_>) -> Option<Self> {
        let architectures = config.get::<Vec<String>>("architectures")?;
        let outer = model_type(config)?;
        let text = ["gemma3", "gemma4"].contains(&&*outer).then(|| config.get("text_config"));
        let text = text.flatten();
        let class = if text.is_some() { "ForConditionalGeneration" } else { "ForCausalLM" };
        if !architectures.iter().any(|name| name.ends_with(class)) {
            return None;
        }
        let is_multimodal = text.is_some();
        let text = text.as_ref().unwrap_or(config);
        let hidden = number(text, "hidden_size")?;
        let embedding = number(text, "vocab_size")? * hidden;
        let layers = match &*model_type(text)? {
            gemma4::TEXT => gemma4::language_model(text)?,
            _ => LanguageModel::new(text)?.layers()? + hidden,
        };
        let vision = match &*outer {
            "gemma3" if is_multimodal => siglip(&config.get("vision_config")?, hidden)?,
            "gemma4" => gemma4::vision(config, hidden)?,
            _ => 0,
        };
        let one = layers + embedding + vision;
        let two = u64::try_from(one + embedding).ok()?;
        let one = u64::try_from(one).ok()?;
        let is_tied = [text, config].iter().find_map(|config| config.get("tie_word_embeddings"));
        let (total, alternative) = match is_tied {
            Some(true) => (one, two),
            Some(false) => (two, two),
            None if model_type(text)?.starts_with("gemma") => (one, two),
            None => (two, one),
        };
        let [hidden, vocabulary] =
            [hidden, number(text, "vocab_size")?].map(|number| u64::try_from(number).ok());
        Some(Self { total, alternative, hidden: hidden?, vocabulary: vocabulary? })
    }

    /// Returns whether the size of a model is between two numbers of parameters.
    pub(crate) fn is_between(self, least: u64, most: u64) -> bool {
        let sizes = [self.total, self.alternative];
        sizes.iter().any(|total| (least..=most).contains(total)) || self.is_padded(most)
    }

    /// Returns whether a size is that of a model whose vocabulary was padded, as `resize_token_embeddings` does.
    fn is_padded(self, size: u64) -> bool {
        /// The smallest common multiple of padded vocabularies.
        const MULTIPLE: u64 = 64;
        /// The largest common one.
        const MAX_ROWS: u64 = 1024;

        let sizes = [self.total, self.alternative];
        let with_output = self.total.max(self.alternative);
        let mut rows = sizes.iter().filter_map(|total| {
            let copies = if *total == with_output { 2 } else { 1 };
            divide(size.checked_sub(*total)?, copies * self.hidden)
        });
        rows.any(|rows| rows < MAX_ROWS && (self.vocabulary + rows).is_multiple_of(MULTIPLE))
    }
}

/// Returns a number from the configuration. Five of them can be multiplied without overflow.
pub(super) fn number(config: &JsonObject<'_>, key: &str) -> Option<u128> {
    const MAX: u64 = 1 << 24;

    config.number(key).filter(|number| *number <= MAX).map(u128::from)
}

fn model_type(config: &JsonObject<'_>) -> Option<String> {
    config.get("model_type")
}

/// Returns the parameters of the vision tower of Gemma 3, which is a `SigLIP` model without a head, and of the
/// projector, which has one matrix and the norm of its inputs.
fn siglip(config: &JsonObject<'_>, outputs: u128) -> Option<u128> {
    config.get("vision_use_head").filter(|has_head: &bool| !has_head)?;
    let [hidden, intermediate, layers, image, patch] =
        ["hidden_size", "intermediate_size", "num_hidden_layers", "image_size", "patch_size"]
            .map(|key| number(config, key));
    let (hidden, intermediate, patch) = (hidden?, intermediate?, patch?);
    let positions = image?.checked_div(patch)?.pow(2);
    let attention = 4 * (hidden + 1) * hidden;
    let feed_forward = 2 * hidden * intermediate + intermediate + hidden;
    let layers = layers? * (attention + feed_forward + 4 * hidden);
    let projector = (outputs + 1) * hidden;
    Some((3 * patch * patch + 1 + positions) * hidden + layers + 2 * hidden + projector)
}

/// A language model of a known family.
struct LanguageModel<'a> {
    config: &'a JsonObject<'a>,
    family: &'static Family,
    hidden: u128,
}

impl<'a> LanguageModel<'a> {
    fn new(config: &'a JsonObject<'a>) -> Option<Self> {
        let name = model_type(config)?;
        let family = FAMILIES.iter().find(|family| family.model_types.contains(&&*name))?;
        Some(Self { config, family, hidden: number(config, "hidden_size")? })
    }

    fn number(&self, key: &str) -> Option<u128> {
        number(self.config, key)
    }

    fn has(&self, key: &str) -> bool {
        self.family.settings.contains(&key) && self.config.get(key).unwrap_or(false)
    }

    /// Returns the parameters of all layers.
    fn layers(&self) -> Option<u128> {
        let layers = self.number("num_hidden_layers")?;
        let norms = self.family.norms * self.hidden;
        Some(layers * (self.attention()? + norms) + self.feed_forward(layers)?)
    }

    fn attention(&self) -> Option<u128> {
        let heads = self.number("num_attention_heads")?;
        if self.family.head_norms == HeadNorms::Latent {
            return self.latent_attention(heads);
        }
        // Elsewhere the default width is not the hidden size divided by the number of heads.
        let is_width_known = self.family.biases != Biases::ConfiguredInputs
            && self.family.head_norms != HeadNorms::Shared
            && self.family.feed_forward != FeedForward::BiasedExperts
            && !model_type(self.config)?.starts_with("gemma");
        let width = match self.number("head_dim") {
            // Its norms have another width than its heads.
            Some(_) if model_type(self.config)? == "olmoe" => return None,
            Some(width) => width,
            None if is_width_known => self.hidden.checked_div(heads)?,
            None => return None,
        };
        let queries = heads * width;
        let keys = self.number("num_key_value_heads").unwrap_or(heads) * width;
        let inputs = queries + 2 * keys;
        let is_configured = self.has("attention_bias");
        let biases = match self.family.biases {
            Biases::Configured if is_configured => inputs + self.hidden,
            Biases::ConfiguredInputs if is_configured => inputs,
            Biases::Inputs => inputs,
            _ => 0,
        };
        let norms = match self.family.head_norms {
            HeadNorms::PerHead => queries + keys,
            HeadNorms::Shared => 2 * width,
            HeadNorms::Without if self.has("use_qk_norm") => 2 * width,
            HeadNorms::Without | HeadNorms::Latent => 0,
        };
        let is_biased = self.family.feed_forward == FeedForward::BiasedExperts;
        let sinks = if is_biased { heads } else { 0 };
        Some((inputs + queries) * self.hidden + biases + norms + sinks)
    }

    /// Returns the parameters of multi-head latent attention (MLA).
    fn latent_attention(&self, heads: u128) -> Option<u128> {
        let rank = self.number("kv_lora_rank")?;
        self.config.raw("q_lora_rank")?;
        let (rope, nope) = (self.number("qk_rope_head_dim")?, self.number("qk_nope_head_dim")?);
        let values = self.number("v_head_dim")?;
        let queries = heads * (nope + rope);
        let queries = match self.number("q_lora_rank") {
            Some(rank) => rank * (self.hidden + 1 + queries),
            None => self.hidden * queries,
        };
        let keys = self.hidden * (rank + rope) + rank + rank * heads * (nope + values);
        let outputs = heads * values * self.hidden;
        // DeepSeek V2 adds biases to some of its feed-forward blocks.
        let is_biased = self.has("attention_bias") || self.config.get("mlp_bias") == Some(true);
        (!is_biased).then_some(queries + keys + outputs)
    }

    /// Returns the parameters of the feed-forward blocks of all layers.
    fn feed_forward(&self, layers: u128) -> Option<u128> {
        let hidden = self.hidden;
        let intermediate = self.number("intermediate_size")?;
        let gated = |width: u128| 3 * hidden * width;
        let biases = if self.has("mlp_bias") { 2 * intermediate + hidden } else { 0 };
        let dense = gated(intermediate) + biases;
        let experts = EXPERTS.iter().find_map(|key| self.number(key));
        let has_experts = self.family.feed_forward != FeedForward::Dense;
        let Some(experts) = experts.filter(|_| has_experts) else {
            return (experts.is_none() && !has_experts).then_some(layers * dense);
        };
        let is_plain = self.family.biases == Biases::Configured
            && matches!(self.family.head_norms, HeadNorms::Without | HeadNorms::PerHead);
        let width = if is_plain { intermediate } else { self.number("moe_intermediate_size")? };
        let (router, biases) = match self.family.feed_forward {
            FeedForward::BiasedExperts => (hidden + 1, 2 * width + hidden),
            _ => (hidden, 0),
        };
        let shared = if self.family.biases == Biases::Inputs {
            // Qwen2 has a gate for the shared expert.
            gated(self.number("shared_expert_intermediate_size")?) + hidden
        } else if self.number("n_routed_experts").is_none() {
            0
        } else {
            gated(width) * self.number("n_shared_experts")?
        };
        let sparse = experts * (gated(width) + router + biases) + shared;
        let dense_layers = self.dense_layers()?;
        Some(dense_layers * dense + layers.checked_sub(dense_layers)? * sparse)
    }

    /// Returns the number of layers without experts; `None` if it is not certain.
    fn dense_layers(&self) -> Option<u128> {
        let has_dense_layers = self.number("n_routed_experts").is_some();
        let types = self.config.get::<Vec<String>>("mlp_layer_types");
        if let Some(types) = types.filter(|_| has_dense_layers) {
            let is_known = types.iter().all(|kind| ["dense", "sparse"].contains(&&**kind));
            let dense = types.iter().filter(|kind| *kind == "dense").count();
            return u128::try_from(dense).ok().filter(|_| is_known);
        }
        let is_one = |key: &str| self.number(key).is_none_or(|step| step == 1);
        let listed = self.config.raw("mlp_only_layers").and_then(read::<Vec<&RawValue>>);
        let has_pattern = listed.is_some_and(|layers| !layers.is_empty());
        let first = if has_dense_layers { self.number("first_k_dense_replace")? } else { 0 };
        (is_one("decoder_sparse_step") && is_one("moe_layer_freq") && !has_pattern).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(json: &str) -> Option<ExpectedParameters> {
        ExpectedParameters::from_config(&serde_json::from_str(json).unwrap())
    }

    /// Totals published by the authors.
    #[test]
    fn published_sizes_follow_from_configurations() {
        const HEAD_128: &str = r#","head_dim":128"#;
        const HEAD_256: &str = r#","head_dim":256"#;

        let config = |model_type: &str, numbers: [u64; 6], rest: &str| {
            let [vocabulary, hidden, intermediate, layers, heads, groups] = numbers;
            format!(
                r#"{{"architectures":["XForCausalLM"],"model_type":"{model_type}","vocab_size":{vocabulary},
                "hidden_size":{hidden},"intermediate_size":{intermediate},"num_hidden_layers":{layers},
                "num_attention_heads":{heads},"num_key_value_heads":{groups}{rest}}}"#
            )
        };
        let moe = r#","num_experts":128,"moe_intermediate_size":768,"head_dim":128,"mlp_only_layers":[],
            "decoder_sparse_step":1"#;
        let cases = [
            ("Llama-3.1-8B", "llama", [128_256, 4096, 14_336, 32, 32, 8], "", 8_030_261_248),
            ("Llama-3.3-70B", "llama", [128_256, 8192, 28_672, 80, 64, 8], "", 70_553_706_496),
            ("Mistral-7B", "mistral", [32_000, 4096, 14_336, 32, 32, 8], "", 7_241_732_096),
            (
                "Mixtral-8x7B",
                "mixtral",
                [32_000, 4096, 14_336, 32, 32, 8],
                r#","num_local_experts":8"#,
                46_702_792_704,
            ),
            ("Qwen2.5-7B", "qwen2", [152_064, 3584, 18_944, 28, 28, 4], "", 7_615_616_512),
            ("Qwen3-8B", "qwen3", [151_936, 4096, 12_288, 36, 32, 8], HEAD_128, 8_190_735_360),
            ("Qwen3-30B-A3B", "qwen3_moe", [151_936, 2048, 6144, 48, 32, 4], moe, 30_532_122_624),
            ("gemma-2b", "gemma", [256_000, 2048, 16_384, 18, 8, 1], HEAD_256, 2_506_172_416),
            ("gemma-2-9b", "gemma2", [256_000, 3584, 14_336, 42, 16, 8], HEAD_256, 9_241_705_984),
        ];
        for (name, model_type, numbers, rest, expected) in cases {
            let found = parameters(&config(model_type, numbers, rest));
            assert_eq!(found.map(|found| found.total), Some(expected), "{name}");
        }
    }

    /// The model classes of transformers build the same modules with and without these settings.
    #[test]
    fn settings_that_a_family_ignores_do_not_change_the_size() {
        const WIDTH: &str = r#","head_dim":2"#;
        const EXPERTS: &str = r#","num_local_experts":4"#;

        let size = |model_type: &str, rest: &str| {
            let json = format!(
                r#"{{"architectures":["XForCausalLM"],"model_type":"{model_type}","vocab_size":8,"hidden_size":4,
                "intermediate_size":8,"num_hidden_layers":2,"num_attention_heads":2{rest}}}"#
            );
            parameters(&json)
        };
        for (model_type, needed, setting) in [
            ("llama", "", r#","use_qk_norm":true"#),
            ("mistral", "", r#","attention_bias":true,"mlp_bias":true"#),
            ("gemma2", WIDTH, r#","mlp_bias":true"#),
            ("exaone4", WIDTH, r#","attention_bias":true"#),
            ("mixtral", EXPERTS, r#","mlp_layer_types":["dense","sparse"]"#),
            ("mixtral", EXPERTS, r#","shared_expert_intermediate_size":16"#),
        ] {
            let expected = size(model_type, needed);
            assert!(expected.is_some(), "{model_type}");
            assert_eq!(size(model_type, &format!("{needed}{setting}")), expected, "{setting}");
        }
        assert!(size("olmoe", EXPERTS).is_some());
        assert_eq!(size("olmoe", &[EXPERTS, WIDTH].concat()), None);
        for setting in [r#","attention_bias":true"#, r#","mlp_bias":true"#] {
            assert_ne!(size("llama", setting), size("llama", ""), "{setting}");
        }
    }

    #[test]
    fn unsupported_configurations_return_none() {
        let llama = r#"{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":8,"hidden_size":4,
            "intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":2,"tie_word_embeddings":true}"#;
        // The layer has 4 · 4·4 + 3 · 4·8 + 2·4 parameters, the last norm 4, and the embeddings 8·4.
        let tied = parameters(llama).unwrap();
        assert_eq!(tied.total, 168 + 4 + 32);
        for same in ["4.0", "\"4\""] {
            let config = llama.replace("\"hidden_size\":4", &format!("\"hidden_size\":{same}"));
            assert_eq!(parameters(&config), Some(tied), "{same}");
        }
        let allows = |size: u64| tied.is_between(size, size);
        assert_eq!([204, 236, 0, 220].map(allows), [true, true, false, false]);
        // 56 more rows of each embedding make 64. 57 do not.
        let padded = [204 + 56 * 4, 236 + 2 * 56 * 4, 204 + 57 * 4, 204 + (56 + 1024) * 4];
        assert_eq!(padded.map(allows), [true, true, false, false]);
        for (from, to) in [
            ("\"llama\"", "\"bloom\""),
            ("\"hidden_size\":4", "\"hidden_size\":4.5"),
            ("ForCausalLM", "Model"),
            ("_heads\":2", "_heads\":0"),
            ("\"hidden_size\":4", "\"hidden_size\":18446744073709551615"),
            ("\"hidden_size\":4,", ""),
            ("\"hidden_size\":4", "\"hidden_size\":-4"),
        ] {
            assert_eq!(parameters(&llama.replace(from, to)), None, "{to}");
        }
    }
}
