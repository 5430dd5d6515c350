//! The answer for one model and one engine.

use super::fit::fit_reasons;
use super::table::{EngineLine, Entry, Mark, entry, is_listed, others, suffixes};
use crate::base::model_config::{ModelConfig, quantization_sections};
use crate::memory::{Engine, GpuVendor, Memory, MemoryOptions};
use crate::results::{EngineReason, EngineReasonCode, EngineReport};
use hf_meta_format::base::json_object::{JsonObject, parse, standard_json, strings};
use hf_meta_format::formats::clip;

/// The facts about a model whose files were read.
#[derive(Clone, Debug, Default)]
pub struct EngineModel<'a> {
    /// The content of `config.json`.
    pub config: Option<&'a [u8]>,
    /// The content of `hf_quant_config.json`, in which modelopt describes the quantization.
    pub recipe: Option<&'a [u8]>,
    /// The format of the weights: `safetensors`, `gguf` or `pytorch`.
    pub format: &'a str,
    /// The architecture that a GGUF file states.
    pub architecture: Option<&'a str>,
    /// `true` for an adapter, which needs a base model.
    pub is_adapter: bool,
    /// The reasons that other checks found.
    pub problems: Vec<EngineReason>,
    /// The memory of the model, for the same options.
    pub memory: Option<Memory>,
}

impl EngineModel<'_> {
    /// Returns whether the engine of the options loads the model, on their GPUs.
    pub fn answer(&self, options: &MemoryOptions) -> EngineReport {
        let engine = EngineLine::of(options.engine);
        let keys = Keys::read(self);
        let mut reasons = self.problems.clone();
        let check = Check { model: self, engine, options, keys };
        if let Some(reason) = check.format() {
            reasons.push(reason);
        } else {
            // Without its headers, the files of a model are not worth a request, so its configuration was not read.
            let is_read = self.config.is_some() || self.architecture.is_some();
            if is_read || self.problems.is_empty() {
                reasons.extend(check.architecture());
            }
            reasons.extend(check.method());
            let has_gpu = reasons.iter().any(|found| found.code == EngineReasonCode::Gpu);
            if !has_gpu {
                reasons.extend(check.maker());
            }
            reasons.extend(check.heads());
            reasons.extend(check.stages());
        }
        let has_heads = reasons.iter().any(|found| found.code == EngineReasonCode::Parallelism);
        let fit = self.memory.iter().flat_map(fit_reasons);
        reasons.extend(
            fit.filter(|found| !(has_heads && found.code == EngineReasonCode::Parallelism)),
        );
        // Each group keeps the order in which an engine would notice.
        let (mut reasons, unknown): (Vec<_>, Vec<_>) =
            reasons.into_iter().partition(|reason| reason.loads.is_some());
        let is_excluded = !reasons.is_empty();
        reasons.extend(unknown);
        let loads = if is_excluded { Some(false) } else { reasons.is_empty().then_some(true) };
        EngineReport {
            name: engine.name,
            version: engine.version,
            date: engine.date,
            gpus: options.gpus,
            loads,
            reasons,
            pairs: Vec::new(),
            memory: self.memory.clone().map(Box::new),
        }
    }
}

/// Returns the answer about a repository that cannot be read, for the reason in `message`.
pub fn refused(options: &MemoryOptions, message: String) -> EngineReport {
    let EngineLine { name, version, date, .. } = EngineLine::of(options.engine);
    let reasons = vec![EngineReason::excluded(EngineReasonCode::Access, message)];
    let (gpus, loads) = (options.gpus, Some(false));
    EngineReport { name, version, date, gpus, loads, reasons, pairs: Vec::new(), memory: None }
}

/// The keys of a configuration that engines look at.
#[derive(Default)]
struct Keys {
    classes: Vec<String>,
    model_type: Option<String>,
    method: Option<String>,
    has_code: bool,
    heads: Option<u64>,
}

impl Keys {
    /// The maximum number of classes. Configurations state one or two.
    const MAX_CLASSES: usize = 16;
    /// The names of the number of attention heads: GPT-2, Bloom, MPT.
    const HEADS: [&str; 3] = ["num_attention_heads", "n_head", "n_heads"];

    fn read(model: &EngineModel<'_>) -> Self {
        let json = standard_json(model.config.unwrap_or_default());
        let Ok(config) = parse::<ModelConfig<'_>>(&json) else { return Self::default() };
        let object = config.outermost();
        let text = config.text_model();
        let recipe = model.recipe.and_then(|recipe| parse::<JsonObject<'_>>(recipe).ok());
        let recipe = recipe.and_then(|recipe| recipe.get::<JsonObject<'_>>("quantization"));
        let method = config.text_models().find_map(|model| method_of(&model.object));
        let recipe = recipe.map(|recipe| with_algorithm("modelopt", &recipe));
        Self {
            classes: strings(object.raw("architectures"), Self::MAX_CLASSES).unwrap_or_default(),
            model_type: object.get("model_type"),
            method: method.or(recipe),
            has_code: object.raw("auto_map").is_some(),
            heads: Self::HEADS.iter().find_map(|key| text.number(key)),
        }
    }
}

/// Returns the quantization method of a model, in the spelling of the table.
fn method_of(model: &JsonObject<'_>) -> Option<String> {
    quantization_sections(model).find_map(|section| {
        let Some(name) = section.get::<String>("quant_method") else {
            // The format of MLX has no method.
            let is_mlx = section.number("bits").is_some() && section.number("group_size").is_some();
            return is_mlx.then(|| "mlx".to_owned());
        };
        let name = name.to_ascii_lowercase().replace("compressed_tensors", "compressed-tensors");
        Some(with_algorithm(&name, &section)).filter(|name| !name.is_empty())
    })
}

/// Returns the name of a method, with the algorithm of modelopt behind it.
fn with_algorithm(name: &str, section: &JsonObject<'_>) -> String {
    let nested = section.get::<JsonObject<'_>>("quantization");
    let algorithm = section.get("quant_algo").or_else(|| nested?.get::<String>("quant_algo"));
    match algorithm {
        Some(algorithm) if name == "modelopt" => {
            format!("{name}/{}", algorithm.to_ascii_lowercase())
        }
        _ => name.to_owned(),
    }
}

/// The checks of one model for one engine.
struct Check<'a> {
    model: &'a EngineModel<'a>,
    engine: EngineLine,
    options: &'a MemoryOptions,
    keys: Keys,
}

impl Check<'_> {
    /// Returns the engine with its version.
    fn engine(&self) -> String {
        format!("{} {}", self.engine.name, self.engine.version)
    }

    fn format(&self) -> Option<EngineReason> {
        let (format, code) = (self.model.format, EngineReasonCode::Format);
        if self.model.is_adapter {
            let text = "the weights are an adapter, which is loaded together with a base model";
            return Some(EngineReason::excluded(code, text.to_owned()));
        }
        if self.engine.reads(format) {
            return None;
        }
        let formats = self.engine.formats();
        Some(EngineReason::excluded(
            code,
            format!("{} reads {formats}, not {format}", self.engine()),
        ))
    }

    fn architecture(&self) -> Option<EngineReason> {
        match (self.options.engine, self.model.format) {
            (Engine::Sglang, "gguf") => {
                let text = format!("no rule for the architectures of GGUF in {}", self.engine());
                Some(EngineReason::unknown(EngineReasonCode::Architecture, text))
            }
            (_, "gguf") => self.named("gguf", self.model.architecture),
            (Engine::Vllm | Engine::Sglang, _) => self.class(),
            _ => self.named("model_type", self.keys.model_type.as_deref()),
        }
    }

    /// Checks a name that decides the class of the model.
    fn named(&self, kind: &str, name: Option<&str>) -> Option<EngineReason> {
        let Some(name) = name else {
            let key = if kind == "gguf" { "general.architecture" } else { "model_type" };
            return Some(self.without_key(key));
        };
        if entry(kind, name, self.engine.name).is_some() {
            return self.other_head();
        }
        Some(self.missing(name, &others(kind, name, self.engine.name)))
    }

    /// Returns the reason that mlx-lm, which ignores the class, expects the output layer of a model that generates text: it
    /// loads no other tensors, and none may be missing (`load_model` in `mlx_lm/utils.py` 0.32.2).
    fn other_head(&self) -> Option<EngineReason> {
        const HEADS: [&str; 3] = ["ForCausalLM", "LMHeadModel", "ForConditionalGeneration"];

        if self.options.engine != Engine::MlxLm {
            return None;
        }
        let class = self.keys.classes.first()?;
        let is_known = HEADS.iter().any(|head| class.ends_with(head));
        (!is_known).then(|| {
            let text = format!("mlx-lm loads models that generate text, not {}", clip(class));
            EngineReason::unknown(EngineReasonCode::Architecture, text)
        })
    }

    fn without_key(&self, key: &str) -> EngineReason {
        let engine = self.engine.name;
        let text = match self.model.config {
            Some(_) => format!("the configuration states no `{key}`, which {engine} needs"),
            None => format!("no rule for models without config.json in {engine}"),
        };
        EngineReason::unknown(EngineReasonCode::Architecture, text)
    }

    /// Checks the classes that the configuration states: an engine takes the first one that it has.
    fn class(&self) -> Option<EngineReason> {
        let (engine, classes) = (self.engine.name, &self.keys.classes);
        let Some(first) = classes.first() else { return Some(self.without_key("architectures")) };
        let found = |class: &String| entry("architecture", class, engine);
        if classes.iter().filter_map(found).any(|entry| entry.former.is_none())
            || engine == "vllm" && classes.iter().any(|class| is_converted(class))
        {
            return self.configuration_code();
        }
        let model_type = self.keys.model_type.as_deref().unwrap_or_default();
        let transformers = entry("model_type", model_type, "transformers");
        if transformers.is_some_and(|entry| entry.has(Mark::Backend)) && !self.keys.has_code {
            let text = "its Transformers backend may load it";
            let text = format!("{} has no {}; {text}", self.engine(), clip(first));
            return Some(EngineReason::unknown(EngineReasonCode::Architecture, text));
        }
        let former = found(first).and_then(|entry| entry.former);
        if !self.keys.has_code
            && let Some(former) = former
        {
            let (engine, class) = (self.engine.name, clip(first));
            let text = match former.strip_prefix("until-") {
                Some(version) => format!("{engine} had {class} until version {version}"),
                None => format!("{engine} has {class} only in a plugin"),
            };
            return Some(EngineReason::excluded(EngineReasonCode::Architecture, text));
        }
        let types = others("model_type", model_type, engine);
        // A class that others have may be another one if no engine knows its type.
        let is_known = model_type.is_empty() || is_listed("model_type", model_type);
        let known = others("architecture", first, engine);
        let mut known = if is_known { known } else { Vec::new() };
        known.extend(types.into_iter().filter(|other| !known.contains(other)).collect::<Vec<_>>());
        Some(self.missing(first, &known))
    }

    /// Returns the reason that the engine has the class, but cannot read its configuration without code in the repository.
    fn configuration_code(&self) -> Option<EngineReason> {
        let model_type = self.keys.model_type.as_deref()?;
        let is_known = |engine| entry("model_type", model_type, engine).is_some();
        if is_known(self.engine.name) || is_known("transformers") {
            return None;
        }
        if !self.keys.has_code {
            let text = format!("{} has no model type {}", self.engine(), clip(model_type));
            return Some(EngineReason::unknown(EngineReasonCode::Architecture, text));
        }
        let text = "the configuration is code: `--trust-remote-code` allows it";
        Some(EngineReason::unknown(EngineReasonCode::RemoteCode, text.to_owned()))
    }

    /// Returns the reason that the engine does not have a model, which others have.
    fn missing(&self, name: &str, others: &[&str]) -> EngineReason {
        let (name, engine) = (clip(name), self.engine());
        if self.keys.has_code && self.options.engine != Engine::MlxLm {
            let text = format!("`{name}` is code in the repository, which was not read");
            return EngineReason::unknown(EngineReasonCode::RemoteCode, text);
        }
        let code = EngineReasonCode::Architecture;
        if let Some(others) = listed(others) {
            return EngineReason::excluded(code, format!("{engine} has no {name}; {others}"));
        }
        EngineReason::unknown(code, format!("neither {engine} nor another engine has {name}"))
    }

    fn method(&self) -> Option<EngineReason> {
        let (name, engine) = (self.keys.method.as_deref()?, self.engine.name);
        if self.model.format == "gguf" {
            return None;
        }
        let (found, shown) = (entry("method", name, engine), clip(name));
        let alias = |found: &Entry| entry("method", found.alias?, engine);
        let Some(found) = found.map(|found| alias(&found).unwrap_or(found)) else {
            let others = others("method", name, engine);
            let is_variant = name.split_once('/').is_some_and(|(method, _)| {
                engine != "mlx-lm" && entry("method", method, engine).is_some()
            });
            let text = format!("{} has no quantization method {shown}", self.engine());
            // transformers warns, and loads the weights as if they were not quantized: `AutoHfQuantizer` in
            // `quantizers/auto.py` 5.24.0.
            if self.options.engine == Engine::Stored {
                let text = format!("{text}, and ignores it");
                return Some(EngineReason::unknown(EngineReasonCode::Method, text));
            }
            return Some(match listed(&others) {
                Some(others) if !is_variant => {
                    EngineReason::excluded(EngineReasonCode::Method, format!("{text}; {others}"))
                }
                _ => EngineReason::unknown(EngineReasonCode::Method, text),
            });
        };
        if found.has(Mark::Deprecated) {
            let text = format!("{shown} requires `--allow-deprecated-quantization`");
            return Some(EngineReason::unknown(EngineReasonCode::Method, text));
        }
        if found.has(Mark::SomeModels) {
            let text = format!("{} loads {shown} for some models only", self.engine());
            return Some(EngineReason::unknown(EngineReasonCode::Method, text));
        }
        self.capability(&found, &shown)
    }

    /// Compares the GPU with the one that a method needs.
    fn capability(&self, method: &Entry, name: &str) -> Option<EngineReason> {
        let gpu = self.options.gpus?.gpu;
        let (needed, has) = (method.capability?, gpu.capability?);
        let code = EngineReasonCode::Gpu;
        if gpu.vendor == GpuVendor::Amd && !method.has(Mark::Rocm) {
            let text = format!("{} does not load {name} on GPUs of AMD", self.engine());
            return Some(EngineReason::excluded(code, text));
        }
        (has < needed).then(|| {
            let (needed, has) = (capability_text(needed), capability_text(has));
            let text =
                format!("{name} needs compute capability {needed}, and {} has {has}", gpu.name);
            EngineReason::excluded(code, text)
        })
    }

    /// Returns the reason that the wheels of an engine have no code for a GPU.
    fn maker(&self) -> Option<EngineReason> {
        /// The lowest capability of the kernels in `vllm/_C_stable_libtorch.abi3.so` 0.33.0.
        const LOWEST: u64 = 75;

        let gpu = self.options.gpus?.gpu;
        let is_vllm = self.options.engine == Engine::Vllm;
        let text = match (gpu.vendor, gpu.capability) {
            (GpuVendor::Apple, _) if is_vllm || self.options.engine == Engine::Sglang => {
                format!("no rule for {} on GPUs of Apple", self.engine())
            }
            (GpuVendor::Nvidia, Some(has)) if is_vllm && has < LOWEST => {
                let (engine, has) = (self.engine(), capability_text(has));
                format!("the wheel of {engine} has no code for compute capability {has}")
            }
            _ => return None,
        };
        Some(EngineReason::unknown(EngineReasonCode::Gpu, text))
    }

    /// Checks that the layers can be divided: `verify_with_parallel_config` in `vllm/config/model.py` 0.33.0.
    fn stages(&self) -> Option<EngineReason> {
        if self.options.stages() < 2 {
            return None;
        }
        let class = self.keys.classes.first()?;
        entry("architecture", class, self.engine.name).filter(|found| found.has(Mark::NoStages))?;
        let text = format!("{} does not divide the layers of {}", self.engine(), clip(class));
        Some(EngineReason::excluded(EngineReasonCode::Parallelism, text))
    }

    /// Checks that the heads can be divided: `verify_with_parallel_config` in `vllm/config/model.py` 0.33.0.
    fn heads(&self) -> Option<EngineReason> {
        let (heads, gpus) = (self.keys.heads?, self.options.vllm.gpus);
        (!heads.is_multiple_of(gpus)).then(|| {
            let text = format!("its {heads} attention heads cannot be divided among {gpus} GPUs");
            EngineReason::excluded(EngineReasonCode::Parallelism, text)
        })
    }
}

fn capability_text(capability: u64) -> String {
    format!("{}.{}", capability / 10, capability % 10)
}

/// Returns whether vLLM converts a class into another one: `_normalize_arch` in `models/registry.py` 0.33.0.
fn is_converted(class: &str) -> bool {
    suffixes().filter_map(|suffix| class.strip_suffix(suffix)).any(|stem| {
        suffixes().any(|suffix| {
            let found = entry("architecture", &format!("{stem}{suffix}"), "vllm");
            found.is_some_and(|found| found.former.is_none())
        })
    })
}

/// Returns a sentence about the engines that have something.
fn listed(engines: &[&str]) -> Option<String> {
    match engines {
        [] => None,
        [only] => Some(format!("{only} has it")),
        [first @ .., last] => Some(format!("{} and {last} have it", first.join(", "))),
    }
}
