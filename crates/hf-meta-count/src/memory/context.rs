//! The maximum context of a model in vLLM.

use hf_meta_format::base::json_object::{JsonObject, read};

/// Returns the maximum number of tokens in vLLM: the one of the configuration, or `stated`, times the factor by which its
/// position embeddings are stretched. Returns `None` if the factor has a fraction.
///
/// Source: `derive_max_model_len_and_key` in `transformers_utils/model_arch_config_convertor.py` and
/// `_get_and_verify_max_len` in `config/model.py` of vLLM 0.33.0.
pub(super) fn vllm_context(model: &JsonObject<'_>, stated: Option<u64>) -> Option<u64> {
    let own = model.number("model_max_length").filter(|tokens| *tokens > 0);
    let tokens = own.or(stated)?;
    let kind: Option<String> = model.get("model_type");
    // The maximum of these models includes the factor.
    if kind.is_some_and(|kind| kind.contains("gemma3")) {
        return Some(tokens);
    }
    let rope = |key| model.get::<JsonObject<'_>>(key);
    let Some(rope) = rope("rope_parameters").or_else(|| rope("rope_scaling")) else {
        return Some(tokens);
    };
    // Each kind of layer may have its own parameters.
    let nested = rope.entries().filter_map(|(_, value)| read::<JsonObject<'_>>(value));
    let factor = nested.filter_map(|rope| stretch(&rope)).last().or_else(|| stretch(&rope));
    tokens.checked_mul(factor.unwrap_or(1)).filter(|tokens| *tokens > 0)
}

/// Returns the factor of position embeddings, if they have one that the maximum does not include; 0 if it has a fraction.
fn stretch(rope: &JsonObject<'_>) -> Option<u64> {
    /// The kinds whose factor belongs to the maximum.
    const INCLUDED: [&str; 6] =
        ["su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"];

    let kind: Option<String> = rope.get("rope_type").or_else(|| rope.get("type"));
    let is_included = kind.is_some_and(|kind| INCLUDED.contains(&&*kind));
    let is_stated = rope.raw("factor").is_some_and(|factor| factor.get() != "null");
    (!is_included && is_stated).then(|| rope.number("factor").unwrap_or(0))
}
