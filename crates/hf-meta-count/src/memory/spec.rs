//! The layers of a model that store a cache.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

use serde::Serialize;

use super::context::vllm_context;
use super::{
    CacheDtype, CacheError, Engine, Gpu, GpuVendor, MemoryOptions, UnknownName, VllmLayers,
};
use crate::architectures::architecture::{
    Definitions, FormulaError, FormulaResult, KeyedTexts, ModelNames, UsedKeys, nested_text,
};
use crate::base::model_config::{ModelConfig, NestedModel};
use hf_meta_format::base::json_object::{JsonObject, parse, standard_json};
use hf_meta_format::base::text::named_enum;
use hf_meta_format::formats::{DetectedFormat, clip};

named_values! {
    /// The kind of a [`LayerCache`].
    #[derive(Serialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "camelCase")]
    CacheKind {
        /// Full attention stores every token.
        Full "full",
        /// Sliding-window attention stores the last tokens.
        Window "window",
        /// Chunked attention stores the tokens of a chunk.
        Chunk "chunk",
        /// The indexer of sparse attention stores a key for every token.
        Index "index",
        /// Compressed attention stores one entry per group of tokens.
        Compressed "compressed",
        /// The tokens of an incomplete group of compressed attention.
        Remainder "remainder",
        /// Cross attention stores every token of the encoder.
        Cross "cross",
        /// A state of fixed size in the dtype of the cache, such as the last inputs of a convolution.
        Fixed "fixed",
        /// A recurrent state of fixed size, in 32-bit floats.
        State "state",
    }
}

/// The cache of identical layers for one sequence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LayerCache {
    /// The kind of cache.
    pub kind: CacheKind,
    /// The number of layers.
    pub layers: u64,
    /// The number of elements per stored token and layer; for a state, per layer.
    pub elements: u64,
    /// The window or the group size in tokens, or the number of encoder tokens, if it is fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The formula of the elements.
    pub formula: &'static str,
    /// The keys in the formula with their values.
    pub keys: BTreeMap<&'static str, u64>,
}

/// The cache of a model, independent of context length and engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheSpec {
    /// The architecture: `model_type` of a configuration, `general.architecture` of a GGUF file.
    pub architecture: String,
    /// The number of layers, including those that store nothing.
    pub layers: u64,
    /// The hidden size.
    pub hidden_size: Option<u64>,
    /// The maximum context length in tokens.
    pub max_context: Option<u64>,
    /// The dtype of the model, which is also the default dtype of the cache.
    pub dtype: Option<CacheDtype>,
    /// `true` if the cache follows from the keys of a GGUF file.
    pub is_gguf: bool,
    /// `true` if engines store other elements than transformers.
    pub is_specific: bool,
    /// `true` if the checkpoint has a `kv_cache_scheme`, or a `kv_cache_quant_algo` of `FP8`, which makes vLLM store the
    /// cache in `fp8`.
    pub has_fp8_scheme: bool,
    /// The layers that store a cache, grouped.
    pub caches: Vec<LayerCache>,
    /// The layers in vLLM, or the reason why they are unknown. They depend on the options, and are derived for vLLM only.
    /// `None` for architectures without a rule.
    pub vllm: Option<Result<VllmLayers, CacheError>>,
}

/// The maximum number of layers. The deepest known model has 128.
const MAX_LAYERS: u64 = 1_024;

impl CacheSpec {
    /// Creates the specification of a model that stores no cache, such as a component of a pipeline.
    pub(crate) fn without_cache(architecture: &str) -> Self {
        Self { architecture: clip(architecture), ..Self::default() }
    }

    /// Derives the cache from the contents of `config.json`.
    ///
    /// The rules and the defaults for missing keys come from the model classes of transformers 5.23.
    ///
    /// # Errors
    ///
    /// Returns an error if the contents are not a JSON object, if the architecture is unknown, or if a key that the
    /// cache depends on is missing or invalid.
    pub fn from_config_json(json: &[u8]) -> Result<Self, CacheError> {
        Self::for_options(json, &MemoryOptions::default())
    }

    /// Derives the cache from the contents of `config.json`, and also the layers in vLLM, if the options select it.
    ///
    /// # Errors
    ///
    /// Returns an error under the conditions of [`from_config_json`](Self::from_config_json).
    pub fn for_options(json: &[u8], options: &MemoryOptions) -> Result<Self, CacheError> {
        Self::with_recipe(json, None, options)
    }

    /// Derives the cache like [`for_options`](Self::for_options). `recipe` is the content of `hf_quant_config.json`, in which
    /// modelopt describes the quantization, also of the cache.
    ///
    /// # Errors
    ///
    /// Returns an error under the conditions of [`from_config_json`](Self::from_config_json).
    pub fn with_recipe(
        json: &[u8],
        recipe: Option<&[u8]>,
        options: &MemoryOptions,
    ) -> Result<Self, CacheError> {
        let json = standard_json(json);
        let config: ModelConfig<'_> = parse(&json).map_err(|_| {
            DetectedFormat::recognize(&json).map_or(CacheError::NotAnObject, |content| {
                CacheError::OtherContent { content: content.to_string() }
            })
        })?;
        let (mut dtype, mut architecture) = (None, None);
        let mut is_decoder = false;
        let recipe = recipe.and_then(|recipe| parse::<JsonObject<'_>>(recipe).ok());
        let recipe = recipe.and_then(|recipe| recipe.get::<JsonObject<'_>>("quantization"));
        let mut has_fp8_scheme = recipe.as_ref().is_some_and(has_fp8_cache);
        for NestedModel { key, object, .. } in config.text_models() {
            dtype = dtype_of(object).or(dtype);
            let quantization = object.get::<JsonObject<'_>>("quantization_config");
            has_fp8_scheme |= quantization.as_ref().is_some_and(has_fp8_cache);
            // The type of a decoder lacks the cross attention of the model.
            is_decoder |= key == "decoder";
            let own = if is_decoder { None } else { object.get::<String>("model_type") };
            architecture = own.or(architecture);
        }
        // Other components of a pipeline than its encoders have a class instead of a type.
        if let (None, Some(class)) =
            (&architecture, config.outermost().get::<String>("_class_name"))
        {
            return Ok(Self::without_cache(&class));
        }
        let architecture = architecture.ok_or(FormulaError::MissingKey { key: "model_type" })?;
        let names =
            |definitions| ModelNames::new(definitions, |key| nested_text(config.text_model(), key));
        let spec = Self::new(&architecture, &architecture, names)?;
        let mut spec = Self { dtype, has_fp8_scheme, ..spec };
        if options.engine == Engine::Vllm {
            let is_fp8 = options.dtype(&spec) == CacheDtype::Fp8;
            spec.vllm = layers_of(&config, &architecture, names, |names| {
                vllm_layers(names, options, is_fp8)
            });
            spec.max_context = vllm_context(config.text_model(), spec.max_context);
        }
        Ok(spec)
    }

    /// Derives the cache from the keys of a GGUF file, as `llama.cpp` allocates it.
    ///
    /// # Errors
    ///
    /// Returns an error if the architecture is unknown, or if a key that the cache depends on is missing or invalid.
    pub fn from_gguf(metadata: &BTreeMap<String, String>) -> Result<Self, CacheError> {
        let architecture = metadata.get("general.architecture");
        let architecture =
            architecture.ok_or(FormulaError::MissingKey { key: "general.architecture" })?;
        let keys = metadata.iter().filter_map(|(key, value)| {
            let key = key.strip_prefix(architecture.as_str())?.strip_prefix('.')?;
            // Numbers, Booleans and lists of them are stored as JSON.
            Some((key.replace('.', "_"), value.as_str()))
        });
        let keys: HashMap<_, _> = keys.collect();
        let name = format!("gguf:{architecture}");
        let names = |definitions| ModelNames::new(definitions, |key| keys.get(key).copied());
        let spec = Self::new(architecture, &name, names)?;
        if spec.caches.is_empty() {
            return Err(FormulaError::InvalidKey { key: "attention.head_count_kv" }.into());
        }
        Ok(Self { dtype: Some(CacheDtype::F16), is_gguf: true, ..spec })
    }

    fn new<'a>(
        architecture: &str,
        name: &str,
        names: impl FnOnce(Definitions) -> ModelNames<'a>,
    ) -> Result<Self, CacheError> {
        let unknown = || CacheError::UnknownArchitecture { architecture: clip(architecture) };
        let names = names(Definitions::find("cache", name).ok_or_else(unknown)?);
        if let Some(key) = names.unsupported() {
            return Err(CacheError::UnsupportedKey { key });
        }
        let layers = names.defined("$layers").ok_or_else(unknown)??;
        if layers > MAX_LAYERS {
            return Err(CacheError::TooManyLayers { layers, limit: MAX_LAYERS });
        }
        let caches = layer_caches(&names, layers)?;
        Ok(Self {
            layers,
            hidden_size: defined(&names, "$hidden"),
            max_context: defined(&names, "$context"),
            is_specific: names.definitions.get("specific").is_some(),
            caches,
            ..Self::without_cache(architecture)
        })
    }
}

/// Returns the value of a definition, if it has one.
fn defined(names: &ModelNames<'_>, name: &str) -> Option<u64> {
    names.defined(name).and_then(Result::ok)
}

/// Returns the layers that store a cache, grouped.
fn layer_caches(names: &ModelNames<'_>, layers: u64) -> FormulaResult<Vec<LayerCache>> {
    let types = names.texts(names.definitions.get("list").unwrap_or_default())?;
    let mut groups = BTreeMap::new();
    for layer in 0..layers {
        names.layer.set(layer);
        if defined(names, "skip") == Some(1) {
            continue;
        }
        let kind = layer_kind(names, types.as_ref(), layers)?;
        let parts = names.definitions.get(kind).unwrap_or_default();
        for part in parts.split('&').filter(|part| !part.is_empty()) {
            if let Some(cache) = layer_cache(names, part)? {
                *groups.entry(cache).or_insert(0) += 1;
            }
        }
    }
    let caches = groups.into_iter().map(|(cache, layers)| LayerCache { layers, ..cache });
    Ok(caches.collect())
}

/// Returns the layers in vLLM that `divide` derives; `None` for architectures without a rule.
fn layers_of<'a>(
    config: &ModelConfig<'_>,
    architecture: &str,
    names: impl FnOnce(Definitions) -> ModelNames<'a>,
    divide: impl FnOnce(ModelNames<'a>) -> Result<VllmLayers, CacheError>,
) -> Option<Result<VllmLayers, CacheError>> {
    let rule = Definitions::find("vllm", architecture)?;
    // `is_hybrid` in `config/model.py` of vLLM 0.33.0 takes the types from here only. Without them, blocks have room for a state
    // that no layer may have.
    let types = config.outermost().raw("layer_types");
    let is_padded = has_states(&rule) && types.is_none_or(|types| types.get() == "null");
    let layers = divide(names(rule.or(Definitions::find("cache", architecture)?)));
    let is_state = |cache: &LayerCache| cache.kind == CacheKind::State;
    Some(layers.and_then(|layers| {
        if is_padded && !layers.caches.iter().any(is_state) {
            return Err(CacheError::NoEngineRule { engine: Engine::Vllm.name() });
        }
        Ok(layers)
    }))
}

/// Returns the layers in vLLM, divided among GPUs. The number of layers was checked before.
fn vllm_layers(
    mut names: ModelNames<'_>,
    options: &MemoryOptions,
    is_fp8: bool,
) -> Result<VllmLayers, CacheError> {
    // The default of the other options is an H100, too.
    const H100: u64 = 90;

    let gpus = options.vllm.gpus;
    let gpu = options.gpus.map(|gpus| gpus.gpu);
    let capability = gpu.and_then(|gpu| gpu.capability).unwrap_or(H100);
    names.given = vec![("gpus", gpus), ("fp8", u64::from(is_fp8)), ("sm", capability)];
    if gpus > 1 && defined(&names, "split") != Some(1) {
        return Err(CacheError::Indivisible { gpus });
    }
    let layers = defined(&names, "$layers").unwrap_or(0);
    let caches = layer_caches(&names, layers)?;
    let number = |name, default| defined(&names, name).unwrap_or(default);
    let layers = VllmLayers {
        block_size: number("block", 16),
        unit: number("unit", 16),
        step: number("step", 1),
        checkpoints: number("checkpoint", 0),
        batched_tokens: gpu.map_or(8_192, Gpu::batched_tokens).max(number("batch", 0)),
        is_hybrid: number("pure", 0) == 0,
        caches,
    };
    // ROCm has other kernels for states and latent attention, and these decide the tokens of a block.
    let is_amd = gpu.is_some_and(|gpu| gpu.vendor == GpuVendor::Amd);
    if is_amd && !layers.has_attention_only() {
        return Err(CacheError::NoEngineRule { engine: Engine::Vllm.name() });
    }
    Ok(layers)
}

/// Returns whether layers of a class have states.
fn has_states(definitions: &Definitions) -> bool {
    ["L", "H"].iter().any(|kind| definitions.get(kind).is_some_and(|kind| kind.contains("state:")))
}

/// Returns the dtype in a configuration. Blocks are dtypes of a cache, but not of a model.
fn dtype_of(model: &JsonObject<'_>) -> Option<CacheDtype> {
    let dtype: String = model.get("dtype").or_else(|| model.get("torch_dtype"))?;
    let dtype: CacheDtype = dtype.trim_start_matches("torch.").parse().ok()?;
    Some(dtype).filter(|dtype| !dtype.is_block())
}

/// Returns whether the recipe of a checkpoint quantizes the cache: `kv_cache_scheme` in compressed-tensors, and
/// `kv_cache_quant_algo` in modelopt. Source: `vllm/utils/torch_utils.py`, `get_kv_cache_quant_algo_string`.
fn has_fp8_cache(recipe: &JsonObject<'_>) -> bool {
    let algorithm = recipe.get::<String>("kv_cache_quant_algo");
    let scheme = recipe.raw("kv_cache_scheme");
    algorithm.is_some_and(|algorithm| algorithm.eq_ignore_ascii_case("fp8"))
        || scheme.is_some_and(|scheme| scheme.get() != "null")
}

/// Returns the letter of the layer's kind: from the list in the configuration, or from a rule.
fn layer_kind(
    names: &ModelNames<'_>,
    types: Option<&KeyedTexts>,
    layers: u64,
) -> FormulaResult<&'static str> {
    let (definitions, layer) = (&names.definitions, names.layer.get());
    if layer + 1 == layers
        && let Some(last) = definitions.get("last")
    {
        return Ok(last);
    }
    if let Some((key, types)) = types {
        let length = types.len() as u64;
        let is_cycle = definitions.get("cycle").is_some();
        // Lists may include the layers that draft tokens, which follow.
        if length < layers && !is_cycle {
            return Err(FormulaError::WrongLength { key });
        }
        let kind = usize::try_from(layer % length.max(1)).ok().and_then(|layer| types.get(layer));
        let kind = kind.and_then(|kind| definitions.get(&format!(":{kind}")));
        return kind.ok_or(FormulaError::InvalidKey { key });
    }
    let letters = definitions.get("letters").unwrap_or("F");
    let at = names.defined("pick").transpose()?.unwrap_or(0);
    let at = usize::try_from(at).unwrap_or(usize::MAX).min(letters.len() - 1);
    letters.get(at..=at).ok_or(FormulaError::InvalidResult { formula: "pick" })
}

/// Returns one part of what a layer stores: `kind:formula`, or `kind(tokens):formula`. The number of layers is 0.
fn layer_cache(names: &ModelNames<'_>, part: &'static str) -> FormulaResult<Option<LayerCache>> {
    let invalid = || FormulaError::InvalidResult { formula: part };
    let (kind, formula) = part.split_once(':').ok_or_else(invalid)?;
    let (kind, tokens) = kind.split_once('(').unwrap_or((kind, ""));
    let kind = kind.parse().map_err(|_| invalid())?;
    let tokens = match tokens.strip_suffix(')').map(|tokens| names.trace(tokens)) {
        // A window contains the current token and the ones before it.
        Some(Ok((tokens, keys))) if tokens < 1 + u64::from(kind == CacheKind::Window) => {
            return Err(invalid_key(keys, part, tokens));
        }
        Some(Ok((tokens, _))) => Some(tokens),
        Some(Err(FormulaError::MissingKey { .. })) | None => None,
        Some(Err(error)) => return Err(error),
    };
    let kind = match (kind, tokens) {
        (CacheKind::Window | CacheKind::Chunk, None) => CacheKind::Full,
        (CacheKind::Compressed | CacheKind::Remainder, None) => return Err(invalid()),
        (kind, _) => kind,
    };
    // The elements of a definition are those of its formula, which is more useful in a result than its name.
    let formula = match names.definitions.get(formula) {
        Some(definition) if formula.starts_with('$') => definition,
        _ => formula,
    };
    let (elements, keys) = names.trace(formula)?;
    // A layer without heads stores nothing, but a model has none.
    if elements == 0 && !formula.contains('?') {
        return Err(invalid_key(keys, formula, 0));
    }
    let cache = LayerCache { kind, layers: 0, elements, tokens, formula, keys };
    Ok((elements > 0).then_some(cache))
}

/// Returns the error for a key with an invalid value, or for a formula that has it.
fn invalid_key(keys: UsedKeys, formula: &'static str, value: u64) -> FormulaError {
    let key = keys.into_iter().find(|(_, found)| *found == value);
    FormulaError::InvalidKey { key: key.map_or(formula, |(key, _)| key) }
}
