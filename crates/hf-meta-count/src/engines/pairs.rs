//! The files that are loaded together with a model: a draft model, an adapter, or a projector of images.

use std::cmp::Ordering;

use super::table::{Adapters, entry};
use crate::architectures::architecture::Definitions;
use crate::base::model_config::ModelConfig;
use crate::memory::{Engine, Memory, MemoryOptions};
use crate::results::text::thousands;
use crate::results::{EnginePair, EnginePairKind, EngineReason, EngineReasonCode, EngineReport};
use hf_meta_format::base::json_object::{JsonObject, parse, read, standard_json, strings};
use hf_meta_format::formats::clip;

/// The default of `--max-lora-rank` in vLLM: `LoRAConfig` in `config/lora.py` 0.33.0.
const MAX_LORA_RANK: u64 = 16;

/// A file that is loaded together with a model. Its rules need no I/O.
///
/// ```
/// use hf_meta_count::engines::{EngineModel, Paired};
/// use hf_meta_count::memory::MemoryOptions;
///
/// let config = br#"{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":128256}"#;
/// let draft = br#"{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":32000}"#;
/// let mut options = MemoryOptions::default();
/// options.set("engine", "vllm")?;
/// let model = EngineModel { config: Some(config), format: "safetensors", ..EngineModel::default() };
/// let mut answer = model.answer(&options);
/// let paired = Paired::Draft { config: Some(draft), problems: Vec::new(), memory: None };
/// paired.add_to(&mut answer, "org/draft", Some(config), &options);
/// let message = "the draft has a vocabulary of 32,000 tokens, and the model one of 128,256";
/// assert_eq!((answer.loads, &*answer.reasons[0].message), (Some(false), message));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Paired<'a> {
    /// A smaller model, which drafts tokens.
    Draft {
        /// The content of its `config.json`.
        config: Option<&'a [u8]>,
        /// The reasons why the engine does not load it.
        problems: Vec<EngineReason>,
        /// Its memory for the same options.
        memory: Option<Box<Memory>>,
    },
    /// A `LoRA`.
    Adapter {
        /// The content of `adapter_config.json`.
        config: Option<&'a [u8]>,
        /// The largest rank of its modules.
        rank: Option<u64>,
        /// The names and shapes of its tensors.
        tensors: Vec<(String, Vec<u64>)>,
        /// The bytes of its tensors.
        weight_bytes: Option<u64>,
    },
    /// A projector of images or sound in a GGUF file.
    Projector {
        /// The width of its output, which [`projector_width`](crate::check::projector_width) returns.
        width: Option<u64>,
        /// The bytes of its tensors.
        weight_bytes: Option<u64>,
    },
}

impl Paired<'_> {
    /// Adds the reasons and the memory of a file to the answer about a model. `source` is the name of the file, `config` the
    /// content of the `config.json` of the model, and the answer was computed for `options`.
    pub fn add_to(
        self,
        report: &mut EngineReport,
        source: &str,
        config: Option<&[u8]>,
        options: &MemoryOptions,
    ) {
        let engine = options.engine;
        let (kind, reasons, memory) = match self {
            Self::Draft { config: draft, problems, memory } => {
                let is_head = is_head(source, draft);
                let mut reasons = draft_reasons(engine, config, draft, problems, is_head);
                reasons.extend(tokens_reason(draft, options));
                let converted = converted_reason(engine, config, draft);
                let memory = if converted.is_none() { memory } else { None };
                reasons.extend(converted);
                (EnginePairKind::Draft, reasons, memory.map(|memory| *memory))
            }
            Self::Adapter { config: adapter, rank, tensors, weight_bytes } => {
                let mut reasons = adapter_reasons(engine, adapter, rank);
                if engine == Engine::Vllm && reasons.iter().all(|found| found.loads.is_none()) {
                    reasons.extend(tensor_reason(config, &tensors));
                }
                (EnginePairKind::Adapter, reasons, weights_only(weight_bytes, options))
            }
            Self::Projector { width, weight_bytes } => {
                let spec = report.memory.as_deref().and_then(|memory| memory.spec.as_ref().ok());
                let model = spec.filter(|spec| spec.is_gguf).and_then(|spec| spec.hidden_size);
                let reasons = projector_reasons(engine, width, model);
                (EnginePairKind::Projector, reasons, weights_only(weight_bytes, options))
            }
        };
        for reason in reasons {
            report.add(reason);
        }
        let memory = memory.map(|memory| match report.memory.as_deref() {
            // Tokens are drafted in the context of the model.
            Some(model) => memory.at(model.context),
            None => memory,
        });
        let sequence_bytes = memory.as_ref().and_then(Memory::sequence_bytes);
        let pair = EnginePair {
            kind,
            source: clip(source),
            weight_bytes: memory.as_ref().map(|memory| memory.weight_bytes),
            cache_bytes: sequence_bytes,
        };
        report.pairs.push(pair);
        report.add_memory(memory);
    }
}

/// Returns the memory of files without a cache.
fn weights_only(weight_bytes: Option<u64>, options: &MemoryOptions) -> Option<Memory> {
    let spec = crate::memory::CacheSpec::without_cache("part");
    weight_bytes.map(|bytes| Memory::new(bytes, Ok(spec), *options))
}

/// Returns the reason that an engine has no rule for a kind of file.
fn no_rule(code: EngineReasonCode, engine: Engine, files: &str) -> Vec<EngineReason> {
    vec![EngineReason::unknown(code, format!("no rule for {files} in {}", engine.loader()))]
}

/// Compares a draft with its model. Source: `verify_equal_vocab_size_if_draft_model` in `config/speculative.py` of vLLM
/// 0.33.0. Heads that were trained for a model, such as EAGLE, may have another vocabulary, and lack what they share with it.
fn draft_reasons(
    engine: Engine,
    model: Option<&[u8]>,
    draft: Option<&[u8]>,
    problems: Vec<EngineReason>,
    is_head: bool,
) -> Vec<EngineReason> {
    let code = EngineReasonCode::Draft;
    if engine != Engine::Vllm {
        return no_rule(code, engine, "draft models");
    }
    let mut reasons: Vec<_> =
        problems.into_iter().map(|found| EngineReason { code, ..found }).collect();
    if is_head {
        for reason in &mut reasons {
            reason.loads = None;
        }
    }
    if let (Some(model), Some(draft)) = (vocabulary(model), vocabulary(draft)) {
        if draft != model && !is_head {
            let [of_draft, of_model] = [draft, model].map(thousands);
            let text = format!(
                "the draft has a vocabulary of {of_draft} tokens, and the model one of {of_model}"
            );
            reasons.insert(0, EngineReason::excluded(code, text));
        }
    } else {
        let text = "the vocabulary of the draft or of the model is unknown".to_owned();
        reasons.push(EngineReason::unknown(code, text));
    }
    reasons
}

/// Compares the tokens of a step with the number that a draft predicts. Source: `__post_init__` in `config/speculative.py` of
/// vLLM 0.33.0.
fn tokens_reason(draft: Option<&[u8]>, options: &MemoryOptions) -> Option<EngineReason> {
    let tokens = options.vllm.speculative_tokens?;
    let json = standard_json(draft?);
    let predicted = parse::<JsonObject<'_>>(&json).ok()?.number("n_predict")?;
    // A draft that predicts nothing states no multiple.
    if tokens <= predicted || predicted == 0 || tokens.is_multiple_of(predicted) {
        return None;
    }
    let [tokens, predicted] = [tokens, predicted].map(thousands);
    let text = format!(
        "{tokens} tokens per step are not a multiple of {predicted}, which the draft predicts (`n_predict`)"
    );
    Some(EngineReason::excluded(EngineReasonCode::Draft, text))
}

/// Returns the reason for a draft whose weights and cache have another size in memory than on disk: vLLM 0.33.0 loads it in
/// the dtype of its model (`__post_init__` in `config/speculative.py`).
fn converted_reason(
    engine: Engine,
    model: Option<&[u8]>,
    draft: Option<&[u8]>,
) -> Option<EngineReason> {
    let [model, draft] = [dtype(model?)?, dtype(draft?)?];
    let is_wide = |dtype: &str| dtype == "float32";
    // A model of this dtype is converted itself.
    if engine != Engine::Vllm || is_wide(&model) || !is_wide(&draft) {
        return None;
    }
    let text = format!(
        "vllm converts the draft from {} to {}, so its size is unknown",
        clip(&draft),
        clip(&model)
    );
    Some(EngineReason::unknown(EngineReasonCode::Draft, text))
}

/// Returns the dtype of the weights of a model.
fn dtype(json: &[u8]) -> Option<String> {
    let json = standard_json(json);
    let config = parse::<ModelConfig<'_>>(&json).ok()?;
    let of = |key| config.text_model().get(key).or_else(|| config.outermost().get(key));
    of("dtype").or_else(|| of("torch_dtype"))
}

/// Returns the number of tokens in the vocabulary of a model.
fn vocabulary(json: Option<&[u8]>) -> Option<u64> {
    let json = standard_json(json?);
    parse::<ModelConfig<'_>>(&json).ok()?.text_model().number("vocab_size")
}

/// Returns whether a draft is a head that was trained for another model, judging by its class, its type or its name:
/// `__post_init__` in `config/speculative.py` of vLLM 0.33.0.
fn is_head(source: &str, json: Option<&[u8]>) -> bool {
    const HEADS: [&str; 6] = ["eagle", "medusa", "mlp_speculator", "mtp", "dflash", "dspark"];
    const NAMES: [&str; 4] = ["eagle-", "eagle3", "dflash", "dspark"];

    let json = json.map(standard_json).unwrap_or_default();
    let config = parse::<JsonObject<'_>>(&json).ok();
    let classes = config.as_ref().and_then(|config| strings(config.raw("architectures"), 16));
    let kind = config.as_ref().and_then(|config| config.get::<String>("model_type"));
    let has = |text: &str, parts: &[&str]| {
        let text = text.to_ascii_lowercase();
        parts.iter().any(|part| text.contains(part))
    };
    has(source, &NAMES) || classes.iter().flatten().chain(&kind).any(|name| has(name, &HEADS))
}

/// Checks an adapter. Source: `PEFTHelper` in `lora/peft_helper.py` of vLLM 0.33.0.
fn adapter_reasons(engine: Engine, config: Option<&[u8]>, rank: Option<u64>) -> Vec<EngineReason> {
    let code = EngineReasonCode::Adapter;
    if engine != Engine::Vllm {
        return no_rule(code, engine, "adapters");
    }
    let json = config.map(standard_json);
    let Some(config) = json.as_deref().and_then(|json| parse::<JsonObject<'_>>(json).ok()) else {
        let text = "vllm needs adapter_config.json, which was not read".to_owned();
        return vec![EngineReason::unknown(code, text)];
    };
    let excluded = |text: String| EngineReason::excluded(code, text);
    let mut reasons = Vec::new();
    let kind = config.get::<String>("peft_type").unwrap_or_default();
    if kind.is_empty() || config.number("r").is_none() {
        let text = format!("vllm loads adapters of LoRA, not {}", clip(&kind));
        reasons.push(excluded(if kind.is_empty() {
            "it states no `peft_type`".to_owned()
        } else {
            text
        }));
    }
    let missing =
        ["lora_alpha", "target_modules"].into_iter().find(|key| config.raw(key).is_none());
    reasons.extend(missing.map(|key| excluded(format!("adapter_config.json states no `{key}`"))));
    let pattern = config.get::<JsonObject<'_>>("rank_pattern");
    let pattern = pattern
        .and_then(|pattern| pattern.entries().filter_map(|(_, rank)| read::<u64>(rank)).max());
    if let Some(rank) = config.number("r").max(rank).max(pattern)
        && rank > MAX_LORA_RANK
    {
        let option = format!("{MAX_LORA_RANK}, the default of `--max-lora-rank`");
        reasons.push(excluded(format!("its rank {rank} exceeds {option}")));
    }
    let saved = strings(config.raw("modules_to_save"), 1_000).unwrap_or_default();
    let saved = saved.iter().find(|name| !matches!(&***name, "classifier" | "score"));
    reasons.extend(saved.map(|name| {
        excluded(format!("vllm does not load saved modules, such as `{}`", clip(name)))
    }));
    reasons.extend(rejected(&config).map(excluded));
    reasons
}

/// Compares the tensors of an adapter with its model.
fn tensor_reason(model: Option<&[u8]>, tensors: &[(String, Vec<u64>)]) -> Option<EngineReason> {
    let json = standard_json(model?);
    let config = parse::<ModelConfig<'_>>(&json).ok()?;
    module_reason(&config, tensors).or_else(|| width_reason(&config, tensors))
}

/// Compares the modules of an adapter with the class of its model. Sources: `get_supported_lora_modules` and
/// `parse_fine_tuned_lora_name` in `lora/utils.py`, `create_lora_manager` in `lora/model_manager.py` of vLLM 0.33.0.
fn module_reason(config: &ModelConfig<'_>, tensors: &[(String, Vec<u64>)]) -> Option<EngineReason> {
    let excluded = |text: String| Some(EngineReason::excluded(EngineReasonCode::Adapter, text));
    let classes = strings(config.outermost().raw("architectures"), 16).unwrap_or_default();
    let class = classes.first()?;
    let known = entry("architecture", class, "vllm").filter(|found| found.former.is_none())?;
    if known.adapters == Adapters::None {
        return excluded(format!("vllm loads no adapters for {}", clip(class)));
    }
    // Draft layers may be skipped, as some classes do.
    let names = tensors.iter().map(|(name, _)| name);
    let read = names.filter(|name| !name.contains("base_layer") && !name.contains("mtp."));
    for name in read {
        let Some(module) = adapted_module(name) else {
            return excluded(format!("vllm does not load its tensor `{}`", clip(name)));
        };
        if known.adapters == Adapters::Linear && matches!(module, "embed_tokens" | "lm_head") {
            let class = clip(class);
            return excluded(format!("vllm does not load the adapter of `{module}` for {class}"));
        }
    }
    None
}

/// Compares the width of adapted queries with the one of the model. vLLM copies a narrower adapter into a part of its memory,
/// and fails for a wider one: `set_lora` in `lora/layers/base_linear.py` 0.33.0.
fn width_reason(config: &ModelConfig<'_>, tensors: &[(String, Vec<u64>)]) -> Option<EngineReason> {
    const QUERIES: &str = ".self_attn.q_proj.lora_A.weight";

    let text = config.text_model();
    // The queries of these architectures have the width of the model. Others were not measured.
    Definitions::find("rank", &text.get::<String>("model_type")?)?;
    let width = text.number("hidden_size")?;
    let is_query = |(name, _): &&(String, Vec<u64>)| {
        name.starts_with("base_model.model.model.layers.") && name.ends_with(QUERIES)
    };
    let (_, shape) = tensors.iter().find(is_query)?;
    let [_, found] = shape[..] else { return None };
    let shown = [found, width].map(thousands);
    let text =
        format!("the adapter has a width of {}, and the model one of {}", shown[0], shown[1]);
    match found.cmp(&width) {
        Ordering::Equal => None,
        Ordering::Less => Some(EngineReason::unknown(EngineReasonCode::Adapter, text)),
        Ordering::Greater => Some(EngineReason::excluded(EngineReasonCode::Adapter, text)),
    }
}

/// Returns the last part of the name of the module that a tensor adapts, or of a saved module.
fn adapted_module(tensor: &str) -> Option<&str> {
    let last = |module: &str| module.rfind('.').map_or(0, |dot| dot + 1);
    let suffixes = [".lora_A.weight", ".lora_B.weight", ".lora_embedding_A", ".lora_embedding_B"];
    let adapted = suffixes.into_iter().find_map(|suffix| tensor.strip_suffix(suffix));
    let module = adapted.or_else(|| {
        let module = tensor.strip_suffix(".weight").or_else(|| tensor.strip_suffix(".bias"))?;
        matches!(&module[last(module)..], "score" | "classifier").then_some(module)
    })?;
    Some(&module[last(module)..])
}

/// Returns the features of an adapter that vLLM rejects: `_validate_features`.
fn rejected(config: &JsonObject<'_>) -> impl Iterator<Item = String> {
    const KEYS: [(&str, &str); 6] = [
        ("use_dora", "DoRA"),
        ("lora_bias", "biases of LoRA"),
        ("alora_invocation_tokens", "activated LoRA"),
        ("layer_replication", "replicated layers"),
        ("use_bdlora", "block-diagonal LoRA"),
        ("use_qalora", "QALoRA"),
    ];
    /// The initial values that leave the base model as it is.
    const STARTS: [&str; 5] = ["gaussian", "eva", "orthogonal", "mica", "lora_ga"];

    let is_set = |key: &str| {
        let value = config.raw(key).map_or("null", |value| value.get());
        !matches!(value, "null" | "false" | "[]" | "{}")
    };
    let keys = KEYS.iter().filter(|(key, _)| is_set(key)).map(|(_, name)| (*name).to_owned());
    let bias = config.get::<String>("bias").filter(|bias| bias != "none");
    let bias = bias.map(|_| "adapters with biases".to_owned());
    let start = config.raw("init_lora_weights").and_then(read::<String>);
    let start = start.filter(|start| !STARTS.contains(&&*start.to_ascii_lowercase()));
    let start = start.map(|start| format!("adapters that change the base model: {}", clip(&start)));
    let found: Vec<_> = keys.chain(start).chain(bias).collect();
    found.into_iter().map(|name| format!("vllm does not load {name}"))
}

/// Compares the width of a projector with the one of its model. Source: `mtmd.cpp` of llama.cpp 0.6.0.
fn projector_reasons(engine: Engine, width: Option<u64>, model: Option<u64>) -> Vec<EngineReason> {
    let code = EngineReasonCode::Projector;
    if engine != Engine::LlamaCpp {
        return no_rule(code, engine, "projectors in GGUF files");
    }
    match (width, model) {
        (Some(width), Some(model)) if width == model => Vec::new(),
        (Some(width), Some(model)) => {
            let text =
                format!("the projector has a width of {width}, and the model one of {model}");
            vec![EngineReason::excluded(code, text)]
        }
        _ => no_rule(code, engine, "the width of this projector"),
    }
}
