//! The output embedding: stored, tied or missing.

use std::cmp::Reverse;

use crate::base::model_config::ModelConfig;
use crate::count::{Embedding, NamePatterns};
use crate::results::Finding;
use hf_meta_format::base::json_object::{parse, standard_json};
use hf_meta_format::formats::{Headers, TensorInfo, all_tensors, clip};

/// Compares `tie_word_embeddings` in `config.json` with the tensors of all files, and adds a finding about the output
/// embedding. If a missing tensor is tied, the finding replaces the error about it.
///
/// A language model with tied embeddings uses its input embedding as the output embedding, too. Only the input embedding
/// is saved, so the file contains fewer parameters than some tools report, which users often take for a defect.
pub(crate) fn check_embeddings(config_json: &[u8], headers: &Headers, findings: &mut Vec<Finding>) {
    let mut is_input = is_embedding(Embedding::Input);
    // Vision models name their class tokens like embeddings. Of several candidates, the largest one is the input.
    let inputs =
        all_tensors(headers).filter(|(name, info)| info.shape.len() == 2 && is_input(name));
    let input = inputs.max_by_key(|(name, info)| (info.elements(), Reverse(*name)));
    let Some((input, TensorInfo { shape, .. })) = input else { return };
    let json = standard_json(config_json);
    let Ok(config) = parse::<ModelConfig<'_>>(&json) else { return };
    let Some(is_tied) = config.is_tied() else { return };
    let mut is_output = is_embedding(Embedding::Output);
    let missing = findings.iter().position(
        |finding| matches!(finding, Finding::MissingTensor { tensor, .. } if is_output(tensor)),
    );
    let stored = clip(input);
    if let Some(at) = missing {
        if is_tied && let Finding::MissingTensor { tensor, shard } = findings.remove(at) {
            findings.push(Finding::DroppedTiedEmbedding { tensor, shard, stored });
        }
        return;
    }
    // The counter reports an output embedding that is stored although it is tied.
    if all_tensors(headers).any(|(name, _)| is_output(name)) {
        return;
    }
    // Another tensor with the same shape could be an output embedding with another name.
    let mut others = all_tensors(headers).filter(|(name, _)| *name != input);
    if is_tied && !is_base_model(&config) {
        findings.push(Finding::TiedEmbedding { stored });
    } else if !is_tied
        && is_language_model(&config)
        && !others.any(|(_, other)| other.shape == shape)
    {
        findings.push(Finding::MissingOutputEmbedding { stored });
    }
}

fn is_language_model(config: &ModelConfig<'_>) -> bool {
    let is_causal = |name: &String| name.ends_with("ForCausalLM") || name.ends_with("LMHeadModel");
    let architectures = config.outermost().get::<Vec<String>>("architectures");
    architectures.iter().flatten().any(is_causal)
}

/// Returns whether all classes are models without a head, such as `BertModel`, which have no output embedding. Their
/// configuration states whether it would be tied, as the one of every class in transformers.
fn is_base_model(config: &ModelConfig<'_>) -> bool {
    let is_base = |name: &String| {
        name.ends_with("Model")
            && !["LMHeadModel", "HeadsModel"].iter().any(|end| name.ends_with(end))
    };
    let classes = config.outermost().get::<Vec<String>>("architectures").unwrap_or_default();
    !classes.is_empty() && classes.iter().all(is_base)
}

/// Returns a function that returns whether a name belongs to an embedding, quantized or not.
fn is_embedding(kind: Embedding) -> impl FnMut(&str) -> bool {
    let mut names = NamePatterns::default();
    move |name| !name.ends_with("bias") && names.read(name).embedding() == Some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(config: &str, tensors: &[&str], missing: &[&str]) -> Vec<Finding> {
        let entry = |(at, name): (usize, &&str)| {
            format!(r#""{name}":{{"dtype":"U8","shape":[1,1],"data_offsets":[{at},{}]}}"#, at + 1)
        };
        let entries: Vec<_> = tensors.iter().enumerate().map(entry).collect();
        let json = format!("{{{}}}", entries.join(","));
        let header = hf_meta_format::formats::FileHeader::from(
            hf_meta_format::SafetensorsFileHeader::from_json(json.as_bytes()).unwrap(),
        );
        let headers = [("a.safetensors".parse().unwrap(), header)];
        let mut found: Vec<_> = missing.iter().map(|tensor| missing_tensor(tensor)).collect();
        check_embeddings(config.as_bytes(), &headers, &mut found);
        found
    }

    fn missing_tensor(tensor: &str) -> Finding {
        Finding::MissingTensor { tensor: tensor.to_owned(), shard: "a.safetensors".to_owned() }
    }

    const IN: &str = "model.embed_tokens.weight";
    const OUT: &str = "lm_head.weight";
    const TIED: &str = r#"{"tie_word_embeddings":true,"architectures":["LlamaForCausalLM"]}"#;
    const UNTIED: &str = r#"{"tie_word_embeddings":false,"architectures":["LlamaForCausalLM"]}"#;

    #[test]
    fn a_tied_output_embedding_is_a_finding() {
        let (tensor, stored) = (OUT.to_owned(), IN.to_owned());
        let tied = [Finding::TiedEmbedding { stored: stored.clone() }];
        assert_eq!(findings(TIED, &[IN, "lm_head.dense.weight"], &[]), tied);
        // A base model has no output embedding.
        let class = |name: &str| TIED.replace("LlamaForCausalLM", name);
        assert_eq!(findings(&class("BertModel"), &[IN], &[]), []);
        assert_eq!(findings(&class("GPT2LMHeadModel"), &[IN], &[]), tied);
        let nested = r#"{"text_config":{"tie_word_embeddings":true}}"#;
        assert_eq!(findings(nested, &[IN], &[]), tied);
        for tensor in [OUT, "lm_head.qweight", "lm_head.trellis", "lm_head.W_q"] {
            assert_eq!(findings(TIED, &[IN, tensor], &[]), [], "{tensor}");
        }
        let shard = "a.safetensors".to_owned();
        let dropped = Finding::DroppedTiedEmbedding { tensor, shard, stored: stored.clone() };
        assert_eq!(findings(TIED, &[IN], &["x", OUT]), [missing_tensor("x"), dropped]);
        assert_eq!(findings(UNTIED, &[IN, "x.bias"], &[OUT]), [missing_tensor(OUT)]);
    }

    #[test]
    fn an_untied_output_embedding_must_be_stored() {
        for output in [OUT, "lm_head.qweight", "head.of.another.name"] {
            assert_eq!(findings(UNTIED, &[IN, output], &[]), [], "{output}");
        }
        for config in ["{}", r#"{"tie_word_embeddings":false}"#] {
            assert_eq!(findings(config, &[IN], &[]), [], "{config}");
        }
        let unclear = r#"{"tie_word_embeddings":true,"text_config":{"tie_word_embeddings":false}}"#;
        assert_eq!(findings(unclear, &[IN], &[]), []);
        assert_eq!(
            findings(UNTIED, &[IN], &[]),
            [Finding::MissingOutputEmbedding { stored: IN.to_owned() }]
        );
    }

    #[test]
    fn embeddings_inside_layers_are_not_the_input() {
        let tied = findings(TIED, &["model.layers.9.embed_tokens.weight", IN], &[]);
        assert_eq!(tied, [Finding::TiedEmbedding { stored: IN.to_owned() }]);
    }
}
