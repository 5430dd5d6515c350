//! Computes the number of parameters of common language models from `config.json` alone.
//!
//! This uses no tensors, so it is an independent check of a count. Source of the layer definitions:
//! `transformers/models`.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::count::{CountBreakdown, ParameterCount};
use crate::formats::whole_number;
use crate::report::Finding;

/// Compares a count with the arithmetic of `config.json`. Returns the expected parameters, and a finding if the count
/// differs; `None` if the architecture is not supported.
#[must_use]
pub fn check_config(
    config_json: &[u8],
    count: &ParameterCount,
    breakdown: &CountBreakdown,
) -> Option<(u64, Option<Finding>)> {
    let expected = ExpectedParameters::from_config_json(config_json)?;
    let buffers = breakdown.groups.iter().filter(|group| group.buffer.is_some());
    let buffers: u64 = buffers.map(|group| group.count.parameters).sum();
    let found = count.total();
    // If the count is uncertain, its unresolved modules are already reported.
    let differs = breakdown.is_exact() && !expected.allows(found.saturating_sub(buffers));
    let finding = Finding::ConfigCountMismatch { expected: expected.total, found };
    Some((expected.total, differs.then_some(finding)))
}

/// The fields of `config.json` that determine the size of a language model.
#[derive(Debug, Deserialize)]
struct LanguageModelConfig {
    architectures: Vec<String>,
    model_type: String,
    #[serde(deserialize_with = "number")]
    vocab_size: u64,
    #[serde(deserialize_with = "number")]
    hidden_size: u64,
    #[serde(deserialize_with = "number")]
    intermediate_size: u64,
    #[serde(deserialize_with = "number")]
    num_hidden_layers: u64,
    #[serde(deserialize_with = "number")]
    num_attention_heads: u64,
    #[serde(default, deserialize_with = "optional")]
    num_key_value_heads: Option<u64>,
    #[serde(default, deserialize_with = "optional")]
    head_dim: Option<u64>,
    tie_word_embeddings: Option<bool>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    num_local_experts: Option<u64>,
    num_experts: Option<u64>,
    moe_intermediate_size: Option<u64>,
    #[serde(default)]
    mlp_only_layers: Vec<u64>,
    decoder_sparse_step: Option<u64>,
}

/// The differences between families.
struct Family {
    /// The number of norms of the hidden size per layer.
    norms: u64,
    /// True if queries and keys have a norm.
    normalizes_heads: bool,
    /// True if queries, keys and values have a bias.
    has_qkv_bias: bool,
    /// True if the embeddings are tied unless the configuration says otherwise.
    is_tied: bool,
}

/// The parameter counts that fit a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExpectedParameters {
    total: u64,
    /// The total if a tied output embedding is stored anyway.
    with_output: u64,
}

impl ExpectedParameters {
    /// Computes the parameters of a model; `None` if the family is unknown or a value is absurd.
    fn from_config_json(json: &[u8]) -> Option<Self> {
        serde_json::from_slice::<LanguageModelConfig>(json).ok()?.parameters()
    }

    fn allows(self, parameters: u64) -> bool {
        parameters == self.total || parameters == self.with_output
    }
}

impl LanguageModelConfig {
    fn family(&self) -> Option<Family> {
        let family = |norms, normalizes_heads, has_qkv_bias, is_tied| {
            Some(Family { norms, normalizes_heads, has_qkv_bias, is_tied })
        };
        match self.model_type.as_str() {
            "llama" | "mistral" | "mixtral" => family(2, false, false, false),
            "qwen2" => family(2, false, true, false),
            "qwen3" | "qwen3_moe" => family(2, true, false, false),
            "gemma" => family(2, false, false, true),
            "gemma2" => family(4, false, false, true),
            "gemma3_text" => family(4, true, false, true),
            _ => None,
        }
    }

    fn parameters(&self) -> Option<ExpectedParameters> {
        let family = self.family()?;
        if !self.architectures.iter().any(|name| name.ends_with("ForCausalLM")) {
            return None;
        }
        let hidden = self.hidden_size;
        let layer =
            sum(&[self.attention(&family)?, self.mlp()?, hidden.checked_mul(family.norms)?])?;
        let embedding = self.vocab_size.checked_mul(hidden)?;
        let layers = layer.checked_mul(self.num_hidden_layers)?;
        let one = sum(&[layers, embedding, hidden])?;
        let two = one.checked_add(embedding)?;
        let is_tied = self.tie_word_embeddings.unwrap_or(family.is_tied);
        Some(ExpectedParameters { total: if is_tied { one } else { two }, with_output: two })
    }

    fn attention(&self, family: &Family) -> Option<u64> {
        let hidden = self.hidden_size;
        let width = match self.head_dim {
            Some(width) => width,
            None => hidden.checked_div(self.num_attention_heads)?,
        };
        let heads = self.num_attention_heads;
        let queries = heads.checked_mul(width)?;
        let keys = self.num_key_value_heads.unwrap_or(heads).checked_mul(width)?;
        let outputs = sum(&[queries, keys, keys])?;
        let biases = match (self.attention_bias, family.has_qkv_bias) {
            (true, _) => outputs.checked_add(hidden)?,
            (false, true) => outputs,
            (false, false) => 0,
        };
        let norms = if family.normalizes_heads { width.checked_mul(2)? } else { 0 };
        let matrices = outputs.checked_add(queries)?.checked_mul(hidden)?;
        sum(&[matrices, biases, norms])
    }

    fn mlp(&self) -> Option<u64> {
        let hidden = self.hidden_size;
        let gated = |width: u64| hidden.checked_mul(width)?.checked_mul(3);
        let (experts, width) = match self.model_type.as_str() {
            "mixtral" => (self.num_local_experts?, self.intermediate_size),
            "qwen3_moe" if self.mlp_only_layers.is_empty() && self.decoder_sparse_step? == 1 => {
                (self.num_experts?, self.moe_intermediate_size?)
            }
            "qwen3_moe" => return None,
            _ if self.mlp_bias => {
                let biases = self.intermediate_size.checked_mul(2)?.checked_add(hidden)?;
                return gated(self.intermediate_size)?.checked_add(biases);
            }
            _ => return gated(self.intermediate_size),
        };
        gated(width)?.checked_add(hidden)?.checked_mul(experts)
    }
}

/// Reads a number like the counter does: `8`, `8.0` or `"8"`.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    optional(deserializer)?.ok_or_else(|| D::Error::custom("not a whole number"))
}

fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(whole_number(<&RawValue>::deserialize(deserializer)?.get()))
}

fn sum(numbers: &[u64]) -> Option<u64> {
    numbers.iter().try_fold(0_u64, |sum, &number| sum.checked_add(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Totals published by the authors.
    #[test]
    fn published_sizes_follow_from_configurations() {
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
            (
                "Qwen3-8B",
                "qwen3",
                [151_936, 4096, 12_288, 36, 32, 8],
                r#","head_dim":128"#,
                8_190_735_360,
            ),
            ("Qwen3-30B-A3B", "qwen3_moe", [151_936, 2048, 6144, 48, 32, 4], moe, 30_532_122_624),
            (
                "gemma-2b",
                "gemma",
                [256_000, 2048, 16_384, 18, 8, 1],
                r#","head_dim":256"#,
                2_506_172_416,
            ),
            (
                "gemma-2-9b",
                "gemma2",
                [256_000, 3584, 14_336, 42, 16, 8],
                r#","head_dim":256"#,
                9_241_705_984,
            ),
        ];
        for (name, model_type, numbers, rest, expected) in cases {
            let config = config(model_type, numbers, rest);
            let found = ExpectedParameters::from_config_json(config.as_bytes());
            assert_eq!(found.map(|found| found.total), Some(expected), "{name}");
        }
    }

    #[test]
    fn unsupported_configurations_return_none() {
        let llama = r#"{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":8,"hidden_size":4,
            "intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":2,"tie_word_embeddings":true}"#;
        let parameters = |json: &str| ExpectedParameters::from_config_json(json.as_bytes());
        // The layer has 4 · 4·4 + 3 · 4·8 + 2·4 parameters, the last norm 4, and the embeddings 8·4.
        let tied = parameters(llama).unwrap();
        assert_eq!(tied.total, 168 + 4 + 32);
        for same in ["4.0", "\"4\""] {
            let config = llama.replace("\"hidden_size\":4", &format!("\"hidden_size\":{same}"));
            assert_eq!(parameters(&config), Some(tied), "{same}");
        }
        assert!(tied.allows(168 + 4 + 32) && tied.allows(168 + 4 + 64) && !tied.allows(0));
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
