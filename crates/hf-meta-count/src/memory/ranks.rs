//! The weights on each GPU, as vLLM divides them.
//!
//! Source: vLLM 0.33.0. A layer is divided along its outputs by `ColumnParallelLinear`, along heads by `QKVParallelLinear`,
//! and along its inputs by `RowParallelLinear` (`model_executor/layers/linear.py`); experts along their inner size by
//! `FusedMoE`. `VocabParallelEmbedding` (`vocab_parallel_embedding.py`) pads the vocabulary to a multiple of 64. Norms, routers
//! and other modules are on every GPU. `get_pp_indices` (`distributed/utils.py`) divides layers among the stages of a
//! pipeline. `tests/oracles/vllm_ranks.py` measures the classes; only architectures with a line `rank` in `vllm.txt` were
//! measured and have a rule.

use super::{CacheSpec, MemoryOptions};
use crate::architectures::architecture::{Definitions, ModelNames, nested_text};
use crate::base::model_config::{ModelConfig, quantization_sections};
use crate::count::names::pattern::NamePattern;
use crate::count::names::{Embedding, Position, is_leftover};
use hf_meta_format::base::json_object::{parse, standard_json};
use hf_meta_format::formats::{Dtype, Headers, TensorInfo, all_tensors};

/// The weights on each of several GPUs. GPUs that share layers have equal parts.
///
/// ```
/// use hf_meta_count::memory::{MemoryOptions, RankWeights};
///
/// let mut options = MemoryOptions::default();
/// options.set("engine", "vllm")?;
/// options.set("tp", "2")?;
/// // Without tensors, only bounds are known.
/// let stage = RankWeights::bounds(16_000, None, &options).stages[0];
/// assert_eq!((stage.least, stage.most), (8_000, 16_000));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankWeights {
    /// The stages of the pipeline; one without pipeline parallelism.
    pub stages: Vec<StageWeights>,
}

/// The weights on a GPU of one stage of a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageWeights {
    /// The number of layers of the stage.
    pub layers: u64,
    /// The minimum size in bytes.
    pub least: u64,
    /// The maximum size in bytes. It is equal to the minimum if the rule of the architecture is known.
    pub most: u64,
}

/// The part of a tensor that one GPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// A fraction of its elements.
    Of(u64, u64),
    /// Rows of a padded vocabulary, of the input or the output embedding.
    Vocabulary(Embedding),
    /// Nothing: it is not loaded.
    None,
}

/// The facts about a model that decide its division.
struct Division {
    gpus: u64,
    /// The number of attention heads, and of KV heads in total and on one GPU.
    heads: u64,
    kv_heads: [u64; 2],
    /// The end of the layers of each stage.
    ends: Vec<u64>,
    is_tied: bool,
    /// True if every stage has what is outside of the layers.
    is_everywhere: bool,
    /// True if routers have 32-bit floats.
    has_wide_routers: bool,
}

/// The multiple to which vLLM pads a vocabulary.
const VOCABULARY: u64 = 64;

/// The names of the tensors of a quantized module. Those of the first list contain its weight.
const WEIGHTS: [&str; 4] = ["weight", "bias", "qweight", "weight_packed"];
const SCALES: [&str; 9] = [
    "weight_scale_inv",
    "weight_scale",
    "input_scale",
    "weight_shape",
    "weight_zero_point",
    "weight_g_idx",
    "qzeros",
    "scales",
    "g_idx",
];
/// The correction of a router, without the end of its name.
const CORRECTION: &str = "e_score_correction";
/// The methods whose packed tensors are divided like the weight.
const METHODS: [&str; 4] = ["fp8", "awq", "gptq", "compressed-tensors"];

impl RankWeights {
    /// Returns what is certain about a model of this size: a GPU has at least an equal part, and at most everything.
    pub fn bounds(weight_bytes: u64, spec: Option<&CacheSpec>, options: &MemoryOptions) -> Self {
        let least = weight_bytes.div_ceil(options.gpus().max(1));
        let layers = spec.map_or(0, |spec| spec.layers);
        let counts = stage_layers(layers, options.stages());
        let stage = |layers| StageWeights { layers, least, most: weight_bytes };
        Self { stages: counts.into_iter().map(stage).collect() }
    }

    /// Returns the weights on each GPU in vLLM; `None` if the architecture, its quantization or a tensor has no rule.
    /// `json` is the content of `config.json`.
    pub fn new(headers: &Headers, json: &[u8], options: &MemoryOptions) -> Option<Self> {
        Self::of_tensors(all_tensors(headers), json, options)
    }

    pub(super) fn of_tensors<'t>(
        tensors: impl Iterator<Item = (&'t str, TensorInfo)>,
        json: &[u8],
        options: &MemoryOptions,
    ) -> Option<Self> {
        let json = standard_json(json);
        let config: ModelConfig<'_> = parse(&json).ok()?;
        let mut division = Division::new(&config, options)?;
        let counts = stage_layers(*division.ends.last()?, options.stages());
        let mut found = Self::default();
        found.stages.extend(
            counts.into_iter().map(|layers| StageWeights { layers, ..StageWeights::default() }),
        );
        let tensors: Vec<_> = tensors.collect();
        let is_head = |name: &str| RankedName::new(name).embedding == Some(Embedding::Output);
        division.is_tied |= !tensors.iter().any(|(name, _)| is_head(name));
        for (name, tensor) in tensors {
            let (stages, least, most) = division.divide(name, &tensor)?;
            for at in stages {
                let stage = found.stages.get_mut(at)?;
                stage.least = stage.least.checked_add(least)?;
                stage.most = stage.most.checked_add(most)?;
            }
        }
        Some(found)
    }
}

/// Returns the number of layers of each stage: `get_pp_indices` in `distributed/utils.py`.
fn stage_layers(layers: u64, stages: u64) -> Vec<u64> {
    let stages = stages.max(1);
    let (each, rest) = (layers / stages, layers % stages);
    // Stages before the last one have the remaining layers.
    let count = |stage| each + u64::from(stage + 1 < stages && stage + 1 + rest >= stages);
    (0..stages).map(count).collect()
}

/// Returns the quotient of a division without a remainder.
fn exact_quotient(number: u64, divisor: u64) -> Option<u64> {
    (number.checked_rem(divisor)? == 0).then(|| number / divisor)
}

impl Division {
    fn new(config: &ModelConfig<'_>, options: &MemoryOptions) -> Option<Self> {
        let text = config.text_model();
        let architecture = text.get::<String>("model_type")?;
        // The other models of a configuration, such as a vision tower, have no rule.
        if !std::ptr::eq(text, config.outermost()) {
            return None;
        }
        let rule = Definitions::find("rank", &architecture)?;
        let method = quantization_sections(text).find_map(|found| found.get("quant_method"));
        if method.is_some_and(|method: String| !METHODS.contains(&&*method)) {
            return None;
        }
        let find = |kind| Definitions::find(kind, &architecture);
        let definitions = find("vllm").unwrap_or_default().or(find("cache")?);
        let gpus = options.vllm.gpus;
        let names = |gpus| {
            let keys = |key: &str| nested_text(text, key);
            let mut names = ModelNames::new(definitions.clone(), keys);
            names.given = vec![("gpus", gpus), ("fp8", 0)];
            names
        };
        let number = |gpus, name| names(gpus).defined(name)?.ok().filter(|number| *number > 0);
        let mut ends = stage_layers(number(1, "$layers")?, options.stages());
        for at in 1..ends.len() {
            ends[at] += ends[at - 1];
        }
        Some(Self {
            gpus,
            heads: number(1, "$heads")?,
            kv_heads: [number(1, "$local")?, number(gpus, "$local")?],
            ends,
            is_tied: config.is_tied().unwrap_or(rule.get("tied").is_some()),
            is_everywhere: rule.get("stages") == Some("all"),
            has_wide_routers: rule.get("router") == Some("f32"),
        })
    }

    /// Returns the stages that have a tensor, and the minimum and the maximum of its bytes on a GPU.
    fn divide(&self, name: &str, tensor: &TensorInfo) -> Option<(Vec<usize>, u64, u64)> {
        let name = RankedName::new(name);
        let Some(stages) = self.stages(&name) else { return Some((Vec::new(), 0, 0)) };
        let elements = tensor.elements()?;
        let is_wide = self.has_wide_routers && matches!(name.module, "gate" | "router");
        let dtype = if is_wide { Dtype::F32 } else { loaded_dtype(&name, &tensor.dtype) };
        let bytes = |elements| dtype.byte_length(elements);
        let part = if elements <= 1 { Share::Of(1, 1) } else { self.part(&name)? };
        match part {
            Share::None => Some((Vec::new(), 0, 0)),
            Share::Vocabulary(kind) => {
                if kind == Embedding::Output && self.is_tied {
                    return Some((Vec::new(), 0, 0));
                }
                let rows = *tensor.shape.first().filter(|rows| **rows > 0)?;
                let padded = rows.checked_next_multiple_of(VOCABULARY)?;
                let own = exact_quotient(padded, self.gpus)?;
                let bytes = bytes((elements / rows).checked_mul(own)?)?;
                Some((stages, bytes, bytes))
            }
            Share::Of(part, whole) if name.is_scale => {
                let least = bytes(elements.checked_mul(part)? / whole)?;
                Some((stages, least, bytes(elements)?))
            }
            Share::Of(part, whole) => {
                let share = elements.checked_mul(part)?;
                let bytes = bytes(exact_quotient(share, whole)?)?;
                Some((stages, bytes, bytes))
            }
        }
    }

    /// Returns the stages that have a tensor; `None` if vLLM loads it with another model.
    fn stages(&self, name: &RankedName<'_>) -> Option<Vec<usize>> {
        let last = self.ends.len() - 1;
        if let Some(layer) = name.layer {
            // Layers that draft tokens follow the others.
            return Some(vec![self.ends.iter().position(|end| layer < *end)?]);
        }
        Some(match name.embedding {
            _ if self.is_everywhere => (0..=last).collect(),
            Some(Embedding::Input) if self.is_tied && last > 0 => vec![0, last],
            Some(Embedding::Input) => vec![0],
            _ if name.is_position => vec![0],
            _ => vec![last],
        })
    }

    /// Returns the part of a tensor that one GPU has; `None` if its name has no rule.
    fn part(&self, name: &RankedName<'_>) -> Option<Share> {
        let (whole, divided) = (Share::Of(1, 1), Share::Of(1, self.gpus));
        let [kv_heads, local] = self.kv_heads;
        if name.is_draft || is_leftover(name.text) {
            return Some(Share::None);
        }
        if let Some(embedding @ (Embedding::Input | Embedding::Output)) = name.embedding {
            return Some(Share::Vocabulary(embedding));
        }
        Some(match name.module {
            "q_proj" | "q_b_proj" | "kv_b_proj" | "gate_proj" | "up_proj" | "gate_up_proj"
            | "fc1" | "c_fc" | "fc_in" | "dense_h_to_4h" | "w1" | "w3" | "sinks" => divided,
            "k_proj" | "v_proj" => Share::Of(local, kv_heads),
            "qkv_proj" | "query_key_value" | "c_attn" => Share::Of(
                (self.heads / self.gpus).checked_add(local.checked_mul(2)?)?,
                self.heads.checked_add(kv_heads.checked_mul(2)?)?,
            ),
            "o_proj" | "out_proj" | "down_proj" | "fc2" | "c_proj" | "fc_out" | "dense"
            | "dense_4h_to_h" | "w2" => {
                if name.is_bias {
                    whole
                } else {
                    divided
                }
            }
            "gate" | "router" | "shared_expert_gate" | "q_a_proj" | "kv_a_proj_with_mqa"
            | CORRECTION => whole,
            module if name.is_position || module.contains("norm") || module.starts_with("ln_") => {
                whole
            }
            _ => return None,
        })
    }
}

/// The meaning of a tensor's name.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
struct RankedName<'a> {
    text: &'a str,
    /// The last part of the name of the module.
    module: &'a str,
    layer: Option<u64>,
    embedding: Option<Embedding>,
    is_bias: bool,
    is_scale: bool,
    is_draft: bool,
    /// True for a table of positions.
    is_position: bool,
}

impl<'a> RankedName<'a> {
    fn new(text: &'a str) -> Self {
        let (module, tensor) = text.rsplit_once('.').unwrap_or(("", text));
        let is_scale = SCALES.contains(&tensor);
        let is_module = is_scale || WEIGHTS.contains(&tensor);
        let last = if is_module { module.rsplit('.').next().unwrap_or_default() } else { tensor };
        let position = Position::new(&NamePattern::new(text).text);
        let layer = text.split('.').find_map(|part| part.parse().ok());
        Self {
            text,
            module: last.strip_suffix("_bias").unwrap_or(last),
            layer,
            embedding: position.embedding,
            is_bias: tensor == "bias" || tensor.ends_with("_bias"),
            is_scale,
            is_draft: position.is_draft,
            is_position: matches!(last, "wpe" | "embed_positions" | "position_embeddings"),
        }
    }
}

/// Returns the dtype of a loaded tensor. vLLM does not load 32-bit floats by default, except for a correction of routers.
fn loaded_dtype(name: &RankedName<'_>, dtype: &Dtype) -> Dtype {
    let is_float = [Dtype::F32, Dtype::F16, Dtype::BF16].contains(dtype);
    match dtype {
        _ if name.module == CORRECTION => Dtype::F32,
        _ if is_float && !name.is_scale => Dtype::BF16,
        dtype => dtype.clone(),
    }
}
