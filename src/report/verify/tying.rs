//! Whether a model stores its output embedding, beside what its config says of that.
//!
//! Where a language model uses one embedding at both ends (`tie_word_embeddings`), only the input is
//! saved, and a file holds less than its model has in memory: a frequent question, and no fault.

use serde::Deserialize;

use crate::report::Finding;

use crate::formats::{RepoPath, TensorInfo, clip};

use crate::formats::safetensors::SafetensorsFileHeader;

type Headers = [(RepoPath, SafetensorsFileHeader)];

/// What input embeddings are called, as a whole or behind a dot.
const INPUTS: [&str; 5] = [
    "embed_tokens.weight",
    "embed_in.weight",
    "word_embeddings.weight",
    "tok_embeddings.weight",
    "wte.weight",
];

/// What modules with an output embedding are called, as a whole or behind a dot.
const OUTPUTS: [&str; 6] = [
    "lm_head",
    "lm_head.decoder",
    "embed_out",
    "output_layer",
    "predictions.decoder",
    "vocab_projector",
];

/// The input embedding among the tensors of some files.
pub(crate) struct Input<'a> {
    name: &'a str,
    shape: Vec<u64>,
}

impl<'a> Input<'a> {
    /// The one that is nearest to the top, where there are several.
    pub(crate) fn find(headers: &'a Headers) -> Option<Self> {
        let is_input = |name: &str| INPUTS.iter().any(|input| is_at_end(input, name));
        let inputs = tensors(headers).filter(|(name, _)| is_input(name));
        let depth = |name: &str| name.bytes().filter(|&byte| byte == b'.').count();
        let (name, tensor) = inputs.min_by_key(|(name, _)| (depth(name), *name))?;
        Some(Self { name, shape: tensor.shape })
    }
}

/// What of `config.json` matters here.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Config {
    #[serde(default)]
    architectures: Option<Vec<String>>,
    #[serde(default)]
    tie_word_embeddings: Option<bool>,
    /// The part for text, in a model that is not for text alone.
    #[serde(default, rename = "text_config")]
    text: Option<Box<Config>>,
}

impl Config {
    /// What a config says; nothing where it is none, or says it in another form.
    pub(crate) fn read(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// Holds the config against the tensors of complete files, and adds what there is to say of their
    /// output embedding; where that was found missing and is tied, in place of the error.
    pub(crate) fn explain(
        &self,
        input: &Input<'_>,
        headers: &Headers,
        findings: &mut Vec<Finding>,
    ) {
        let Some(is_tied) = self.ties() else { return };
        let missing = findings.iter().position(
            |finding| matches!(finding, Finding::MissingTensor { tensor, .. } if is_output(tensor)),
        );
        let remark = match missing {
            Some(at) if is_tied => match findings.remove(at) {
                Finding::MissingTensor { tensor, shard } => {
                    Some(Finding::DroppedTiedEmbedding { tensor, shard, stored: clip(input.name) })
                }
                other => Some(other),
            },
            Some(_) => None,
            None if is_tied => Some(tied(input, headers)),
            None => self.untied(input, headers),
        };
        findings.extend(remark);
    }

    /// Whether the embeddings are tied; `None` where that is not said, or not clearly.
    fn ties(&self) -> Option<bool> {
        let text = self.text.as_ref().and_then(|text| text.tie_word_embeddings);
        match (self.tie_word_embeddings, text) {
            (Some(whole), Some(text)) if whole != text => None,
            (whole, text) => whole.or(text),
        }
    }

    /// What is odd about embeddings that are two. Whatever has the shape of the one may be the other.
    fn untied(&self, input: &Input<'_>, headers: &Headers) -> Option<Finding> {
        let is_one = |name: &String| name.ends_with("ForCausalLM") || name.ends_with("LMHeadModel");
        let is_language_model = self.architectures.iter().flatten().any(is_one);
        let has_output = tensors(headers).any(|(name, tensor)| {
            is_output(name) || name != input.name && tensor.shape == input.shape
        });
        (is_language_model && !has_output)
            .then(|| Finding::MissingOutputEmbedding { stored: clip(input.name) })
    }
}

/// What there is to say of embeddings that are one.
fn tied(input: &Input<'_>, headers: &Headers) -> Finding {
    let stored = clip(input.name);
    match tensors(headers).find(|(name, _)| is_output(name)) {
        Some((output, _)) => Finding::TiedEmbeddingStored { tensor: clip(output), stored },
        None => Finding::TiedEmbedding { stored },
    }
}

/// Whether a name is that of an output embedding, whatever a quantizer has made of its weight.
fn is_output(name: &str) -> bool {
    let Some((module, part)) = name.rsplit_once('.') else { return false };
    let is_weight = part.starts_with("weight") || part == "qweight";
    is_weight && OUTPUTS.iter().any(|output| is_at_end(output, module))
}

/// Whether a name is this one, or ends with it behind a dot.
fn is_at_end(end: &str, name: &str) -> bool {
    name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn tensors(headers: &Headers) -> impl Iterator<Item = (&str, TensorInfo)> {
    headers.iter().flat_map(|(_, header)| header.tensors())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(config: &str, tensors: &[&str], missing: &[&str]) -> Vec<Finding> {
        let entry = |(at, name): (usize, &&str)| {
            format!(r#""{name}":{{"dtype":"U8","shape":[1],"data_offsets":[{at},{}]}}"#, at + 1)
        };
        let entries: Vec<_> = tensors.iter().enumerate().map(entry).collect();
        let json = format!("{{{}}}", entries.join(","));
        let header = SafetensorsFileHeader::from_json(json.as_bytes()).unwrap();
        let headers = [("a.safetensors".parse().unwrap(), header)];
        let mut findings: Vec<_> = missing.iter().map(|tensor| lost(tensor)).collect();
        let config: Config = serde_json::from_str(config).unwrap();
        config.explain(&Input::find(&headers).unwrap(), &headers, &mut findings);
        findings
    }

    fn lost(tensor: &str) -> Finding {
        Finding::MissingTensor { tensor: tensor.to_owned(), shard: "a.safetensors".to_owned() }
    }

    const IN: &str = "model.embed_tokens.weight";
    const OUT: &str = "lm_head.weight";
    const TIED: &str = r#"{"tie_word_embeddings":true,"architectures":["LlamaForCausalLM"]}"#;
    const UNTIED: &str = r#"{"tie_word_embeddings":false,"architectures":["LlamaForCausalLM"]}"#;

    #[test]
    fn output_embeddings() {
        let (tensor, stored) = (OUT.to_owned(), IN.to_owned());
        let tied = [Finding::TiedEmbedding { stored: stored.clone() }];
        assert_eq!(explained(TIED, &[IN, "lm_head.dense.weight"], &[]), tied);
        let nested = r#"{"text_config":{"tie_word_embeddings":true}}"#;
        assert_eq!(explained(nested, &[IN], &[]), tied);
        let twice = Finding::TiedEmbeddingStored { tensor: tensor.clone(), stored: stored.clone() };
        assert_eq!(explained(TIED, &[IN, OUT], &[]), [twice]);
        let shard = "a.safetensors".to_owned();
        let dropped = Finding::DroppedTiedEmbedding { tensor, shard, stored: stored.clone() };
        assert_eq!(explained(TIED, &[IN], &["x", OUT]), [lost("x"), dropped]);
        assert_eq!(explained(UNTIED, &[IN, "x.bias"], &[OUT]), [lost(OUT)]);
    }

    #[test]
    fn embeddings_that_are_not_tied() {
        for output in [OUT, "lm_head.qweight", "head.of.another.name"] {
            assert_eq!(explained(UNTIED, &[IN, output], &[]), [], "{output}");
        }
        for config in ["{}", r#"{"tie_word_embeddings":false}"#] {
            assert_eq!(explained(config, &[IN], &[]), [], "{config}");
        }
        let unclear = r#"{"tie_word_embeddings":true,"text_config":{"tie_word_embeddings":false}}"#;
        assert_eq!(explained(unclear, &[IN], &[]), []);
        assert_eq!(
            explained(UNTIED, &[IN], &[]),
            [Finding::MissingOutputEmbedding { stored: IN.to_owned() }]
        );
    }

    #[test]
    fn the_embedding_at_the_top_is_the_input() {
        let tied = explained(TIED, &["model.layers.9.embed_tokens.weight", IN], &[]);
        assert_eq!(tied, [Finding::TiedEmbedding { stored: IN.to_owned() }]);
    }
}
