//! Architectures of generated models: their tensors, and their parameters by arithmetic.

use hf_meta_testing::File;
use serde_json::json;

pub(super) const EXPERTS: u64 = 4;

/// The architecture of a model.
pub(super) struct Architecture {
    layers: u64,
    pub(super) hidden: u64,
    intermediate: u64,
    key_values: u64,
    pub(super) vocabulary: u64,
    is_tied: bool,
    dtype: &'static str,
    pub(super) shards: u64,
}

pub(super) type Tensor = (String, &'static str, Vec<u64>);

impl Architecture {
    pub(super) fn new(hash: u64, push: u64) -> Self {
        let bits = |at: u32, count: u32| (hash >> at) & ((1 << count) - 1);
        let hidden = 128 * (1 + bits(20, 3));
        Self {
            layers: 1 + bits(24, 1),
            hidden,
            intermediate: 2 * hidden,
            key_values: hidden / 2,
            // A push adds tokens.
            vocabulary: 1000 + bits(28, 8) + push,
            is_tied: bits(36, 1) == 1,
            dtype: ["BF16", "F16", "F32", "BF16"][usize::try_from(bits(40, 2)).unwrap_or(0)],
            shards: 2 + bits(44, 8) % 5,
        }
    }

    pub(super) fn parameters(&self) -> u64 {
        let Self { hidden, intermediate, key_values, .. } = self;
        let attention = 2 * hidden * hidden + 2 * hidden * key_values;
        let layer = attention + 3 * hidden * intermediate + 2 * hidden;
        self.embeddings() + self.layers * layer + hidden
    }

    pub(super) fn parameters_with_experts(&self) -> u64 {
        let Self { hidden, intermediate, key_values, .. } = self;
        let attention = 2 * hidden * hidden + 2 * hidden * key_values;
        let expert = 3 * hidden * intermediate + 2 * intermediate + hidden;
        let layer = attention + EXPERTS * (expert + hidden + 1) + 2 * hidden;
        self.embeddings() + self.layers * layer + hidden
    }

    fn embeddings(&self) -> u64 {
        self.vocabulary * self.hidden * if self.is_tied { 1 } else { 2 }
    }

    pub(super) fn tensors(&self) -> Vec<Tensor> {
        let mut tensors = self.outer();
        for layer in 0..self.layers {
            for (name, output, input) in self.linears() {
                let name = format!("model.layers.{layer}.{name}.weight");
                tensors.push((name, self.dtype, vec![output, input]));
            }
        }
        tensors
    }

    /// Returns the tensors that are not linear layers.
    fn outer(&self) -> Vec<Tensor> {
        let embedding = vec![self.vocabulary, self.hidden];
        let norm = |name: String| (name, self.dtype, vec![self.hidden]);
        let mut tensors = vec![
            ("model.embed_tokens.weight".to_owned(), self.dtype, embedding.clone()),
            norm("model.norm.weight".to_owned()),
        ];
        for layer in 0..self.layers {
            tensors.push(norm(format!("model.layers.{layer}.input_layernorm.weight")));
            tensors.push(norm(format!("model.layers.{layer}.post_attention_layernorm.weight")));
        }
        if !self.is_tied {
            tensors.push(("lm_head.weight".to_owned(), self.dtype, embedding));
        }
        tensors
    }

    /// Returns the linear layers of one block, each with its outputs and inputs.
    fn linears(&self) -> [(&'static str, u64, u64); 7] {
        [
            ("self_attn.q_proj", self.hidden, self.hidden),
            ("self_attn.k_proj", self.key_values, self.hidden),
            ("self_attn.v_proj", self.key_values, self.hidden),
            ("self_attn.o_proj", self.hidden, self.hidden),
            ("mlp.gate_proj", self.intermediate, self.hidden),
            ("mlp.up_proj", self.intermediate, self.hidden),
            ("mlp.down_proj", self.hidden, self.intermediate),
        ]
    }

    pub(super) fn gptq(&self) -> Vec<Tensor> {
        let mut tensors = self.outer();
        for layer in 0..self.layers {
            for (name, output, input) in self.linears() {
                let name = |part| format!("model.layers.{layer}.{name}.{part}");
                tensors.push((name("qweight"), "I32", vec![input / 8, output]));
                tensors.push((name("qzeros"), "I32", vec![input / 128, output / 8]));
                tensors.push((name("scales"), "F16", vec![input / 128, output]));
                tensors.push((name("g_idx"), "I32", vec![input]));
            }
        }
        tensors
    }

    pub(super) fn mxfp4(&self) -> Vec<Tensor> {
        let (hidden, intermediate) = (self.hidden, self.intermediate);
        let mut tensors = self.outer();
        for layer in 0..self.layers {
            for (name, output, input) in &self.linears()[..4] {
                let name = format!("model.layers.{layer}.{name}.weight");
                tensors.push((name, self.dtype, vec![*output, *input]));
            }
            let mlp = |name| format!("model.layers.{layer}.mlp.{name}");
            tensors.push((mlp("router.weight"), self.dtype, vec![EXPERTS, hidden]));
            tensors.push((mlp("router.bias"), self.dtype, vec![EXPERTS]));
            for (name, output, input) in
                [("gate_up_proj", 2 * intermediate, hidden), ("down_proj", hidden, intermediate)]
            {
                let part = |part| format!("model.layers.{layer}.mlp.experts.{name}_{part}");
                let groups = vec![EXPERTS, output, input / 32];
                tensors.push((part("blocks"), "U8", [&groups[..], &[16]].concat()));
                tensors.push((part("scales"), "U8", groups));
                tensors.push((part("bias"), self.dtype, vec![EXPERTS, output]));
            }
        }
        tensors
    }

    /// Returns shards of about the same number of tensors, and their index in front of the last one.
    pub(super) fn sharded(&self, shards: u64) -> Vec<(String, File)> {
        let tensors = self.tensors();
        let mut rest = &tensors[..];
        let mut files = Vec::new();
        let mut weight_map = serde_json::Map::new();
        for number in 1..=shards {
            let length = rest.len() / usize::try_from(shards - number + 1).unwrap_or(1);
            let chunk = rest.split_off(..length).unwrap_or_default();
            let name = format!("model-{number:05}-of-{shards:05}.safetensors");
            for (tensor, ..) in chunk {
                weight_map.insert(tensor.clone(), name.clone().into());
            }
            files.push((name, safetensors(chunk)));
        }
        let size: u64 = tensors.iter().map(|(_, dtype, shape)| size(dtype, shape)).sum();
        let index = json!({ "metadata": { "total_size": size }, "weight_map": weight_map });
        let index = File::from_bytes(index.to_string());
        files.insert(0, ("model.safetensors.index.json".to_owned(), index));
        files
    }

    /// Returns a GGUF file with the embedding as its only tensor.
    pub(super) fn gguf(&self) -> File {
        let mut head = b"GGUF".to_vec();
        head.extend(3_u32.to_le_bytes());
        head.extend([1_u64, 0].map(u64::to_le_bytes).concat());
        head.extend(17_u64.to_le_bytes());
        head.extend(b"token_embd.weight");
        head.extend(2_u32.to_le_bytes());
        head.extend([self.hidden, self.vocabulary].map(u64::to_le_bytes).concat());
        // Type 1 is F16.
        head.extend(1_u32.to_le_bytes());
        head.extend(0_u64.to_le_bytes());
        head.resize(head.len().next_multiple_of(32), 0);
        let size = head.len() as u64 + 2 * self.hidden * self.vocabulary;
        File::padded(head, size)
    }
}

fn size(dtype: &str, shape: &[u64]) -> u64 {
    let bytes = match dtype {
        "F32" | "I32" => 4,
        "U8" => 1,
        _ => 2,
    };
    bytes * shape.iter().product::<u64>()
}

/// Returns a file of zeros with a safetensors header. The header is formatted as text: the Hub makes it for each request,
/// and a JSON value takes longer.
pub(super) fn safetensors(tensors: &[Tensor]) -> File {
    let mut end = 0;
    let entry = |(name, dtype, shape): &Tensor| {
        let start = end;
        end += size(dtype, shape);
        format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#
        )
    };
    let entries: Vec<_> = tensors.iter().map(entry).collect();
    let head = framed(&format!("{{{}}}", entries.join(",")));
    let size = head.len() as u64 + end;
    File::padded(head, size)
}

/// Returns a header after its length.
pub(super) fn framed(header: &str) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()
}
