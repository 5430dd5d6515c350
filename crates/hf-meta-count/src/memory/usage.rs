//! The memory for a context length, a batch size, a cache dtype and an engine.

use std::cmp::Reverse;

use serde::Serialize;

use super::{
    CacheDtype, CacheError, CacheKind, CacheSpec, Engine, FormulaError, LayerCache, MemoryOptions,
    RankWeights, StageWeights, VllmLayers, VllmPlan,
};
use hf_meta_format::base::sort::sort_by_key;
use hf_meta_format::formats::RepoPath;

/// The number of tokens for models that state no maximum.
const DEFAULT_CONTEXT: u64 = 4_096;

/// The memory that a model needs, in bytes. Excludes activations, the runtime of the accelerator and fragmentation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// The options, as given.
    pub options: MemoryOptions,
    /// The cache of each kind of layer, or the reason why it is unknown.
    pub spec: Result<CacheSpec, CacheError>,
    /// The context length in tokens.
    pub context: u64,
    /// The origin of the context length.
    pub context_source: ContextSource,
    /// The dtype of the cache.
    pub cache_dtype: CacheDtype,
    /// The reason why the size of the cache is unknown. A size that is known is exact.
    pub unknown: Option<CacheError>,
    /// The bytes of the weights: as stored in the files, or on the GPU that has most. If it is unknown how they are divided,
    /// an equal part, which is the minimum.
    pub weight_bytes: u64,
    /// The maximum of `weight_bytes`. It is equal to `weight_bytes` if that is exact.
    pub max_weight_bytes: u64,
    /// The sets of weights, if several are loaded together.
    pub components: Vec<MemoryComponent>,
    /// The size of keys and values, over all sequences; `None` if it is unknown.
    pub cache: Option<CacheSize>,
    /// The size of states of fixed size.
    pub state: Option<CacheSize>,
    /// The blocks for one sequence in vLLM.
    pub plan: Option<VllmPlan>,
    /// The bytes of weights, cache and states.
    pub total_bytes: Option<u64>,
    /// The answer whether the model fits, if the options have a budget.
    pub fit: Option<Fit>,
    /// The weights on each GPU.
    ranks: RankWeights,
    /// The memory of other models that are loaded together with this one, which the sizes contain.
    others: Vec<Memory>,
}

/// A set of weights that is loaded together with others.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryComponent {
    /// The path of the file or the index.
    pub path: RepoPath,
    /// The bytes of its tensors.
    pub weight_bytes: u64,
}

/// The size of a part of the cache, over all layers and sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheSize {
    /// The number of elements. In vLLM, the number that its blocks have room for.
    pub elements: u64,
    /// The size in bytes.
    pub bytes: u64,
}

impl CacheSize {
    /// Adds a number of elements, as a product; `None` if a sum overflows.
    fn add(&mut self, factors: [u64; 4], dtype: CacheDtype) -> Option<()> {
        let elements =
            factors.iter().try_fold(1_u64, |product, &factor| product.checked_mul(factor))?;
        self.elements = self.elements.checked_add(elements)?;
        self.bytes = self.bytes.checked_add(dtype.bytes(elements)?)?;
        Some(())
    }
}

/// The sizes of the cache and of the states, and the blocks of vLLM.
type Sizes = (CacheSize, CacheSize, Option<VllmPlan>);

impl Memory {
    /// Computes the memory of a model from the bytes of its weights and its cache. With several GPUs, only bounds of the
    /// weights on each of them are known; see [`of_ranks`](Self::of_ranks).
    pub fn new(
        weight_bytes: u64,
        spec: Result<CacheSpec, CacheError>,
        options: MemoryOptions,
    ) -> Self {
        let ranks = RankWeights::bounds(weight_bytes, spec.as_ref().ok(), &options);
        Self::of_ranks(ranks, spec, options)
    }

    /// Computes the memory of the GPU that needs most, from the weights on each GPU.
    pub fn of_ranks(
        ranks: RankWeights,
        spec: Result<CacheSpec, CacheError>,
        options: MemoryOptions,
    ) -> Self {
        let known = spec.as_ref().ok();
        let max_context = known.and_then(|spec| spec.max_context);
        let (context, context_source) = match (options.context, max_context) {
            (Some(context), _) => (context, ContextSource::Option),
            (None, Some(context)) => (context, ContextSource::Config),
            (None, None) => (DEFAULT_CONTEXT, ContextSource::Default),
        };
        let assumed = options.cache_dtype.unwrap_or(CacheDtype::F16);
        let mut memory = Self {
            options,
            context,
            context_source,
            cache_dtype: known.map_or(assumed, |spec| options.dtype(spec)),
            unknown: None,
            weight_bytes: 0,
            max_weight_bytes: 0,
            components: Vec::new(),
            cache: None,
            state: None,
            plan: None,
            total_bytes: None,
            fit: None,
            ranks,
            others: Vec::new(),
            spec,
        };
        match memory.sizes() {
            Ok((cache, state, plan)) => memory.choose_stage(cache, state, plan),
            Err(error) => memory.fail(error),
        }
        memory.fit = options.budget.map(|budget| Fit::new(&memory, budget));
        memory
    }

    /// Sets the sizes of the stage that needs most. Each stage has the cache of its layers.
    fn choose_stage(&mut self, cache: CacheSize, fixed: CacheSize, plan: Option<VllmPlan>) {
        if self.options.stages() == 1 {
            (self.cache, self.state, self.plan) = (Some(cache), Some(fixed), plan);
            return self.set_weights(self.ranks.stages.first().copied().unwrap_or_default());
        }
        let Some(layers) = self.equal_layers() else {
            return self.fail(CacheError::NoEngineRule { engine: self.options.engine.name() });
        };
        let size = |bytes: u64, stage: &StageWeights| bytes / layers * stage.layers;
        let total = |stage: &&StageWeights| stage.least.saturating_add(size(cache.bytes, stage));
        let stage = self.ranks.stages.iter().max_by_key(total).copied().unwrap_or_default();
        let (elements, bytes) = (size(cache.elements, &stage), size(cache.bytes, &stage));
        (self.cache, self.state) = (Some(CacheSize { elements, bytes }), Some(fixed));
        self.plan = plan.map(|plan| {
            let bytes_per_block = size(plan.bytes_per_block, &stage);
            VllmPlan { bytes_per_block, ..plan }
        });
        self.set_weights(stage);
    }

    /// Returns the number of layers if vLLM stores the same in each of them. Others have no rule for the part of a stage.
    fn equal_layers(&self) -> Option<u64> {
        let spec = self.spec.as_ref().ok()?;
        let layers = spec.vllm.as_ref().and_then(|layers| layers.as_ref().ok());
        let is_equal = spec.caches.is_empty()
            || layers.is_some_and(
                |layers| matches!(&layers.caches[..], [only] if only.layers == spec.layers),
            );
        is_equal.then_some(spec.layers.max(1))
    }

    /// Sets the reason why the cache is unknown, and the weights of the stage that has most.
    fn fail(&mut self, error: CacheError) {
        self.unknown = Some(error);
        let largest = self.ranks.stages.iter().max_by_key(|stage| stage.least);
        self.set_weights(largest.copied().unwrap_or_default());
    }

    fn set_weights(&mut self, stage: StageWeights) {
        (self.weight_bytes, self.max_weight_bytes) = (stage.least, stage.most);
        let sizes = if self.unknown.is_none() { self.cache.zip(self.state) } else { None };
        self.total_bytes = sizes.and_then(|(cache, state)| {
            stage.least.checked_add(cache.bytes)?.checked_add(state.bytes)
        });
    }

    /// Returns whether the weights on each GPU are exact.
    pub fn has_exact_weights(&self) -> bool {
        self.weight_bytes == self.max_weight_bytes
    }

    /// Returns the maximum context length of the model; `None` if it states none.
    pub fn max_context(&self) -> Option<u64> {
        self.spec.as_ref().ok()?.max_context
    }

    /// Returns the bytes that each further token of a sequence adds once all windows are full, and the bytes of windows and
    /// states. Returns `None` if the size is unknown, or is not a multiple of the tokens.
    pub fn growth(spec: &CacheSpec) -> Option<(u64, u64)> {
        /// Longer than every window.
        const TOKENS: u64 = 1 << 32;

        let is_regular = |cache: &LayerCache| match cache.kind {
            CacheKind::Compressed | CacheKind::Remainder => false,
            CacheKind::Cross => cache.tokens.is_some(),
            _ => cache.tokens.is_none_or(|tokens| tokens < TOKENS),
        };
        spec.caches.iter().all(is_regular).then_some(())?;
        let bytes = |context| {
            let options = MemoryOptions { context: Some(context), ..MemoryOptions::default() };
            Self::new(0, Ok(spec.clone()), options).total_bytes
        };
        let (total, next) = (bytes(TOKENS)?, bytes(TOKENS + 1)?);
        let token = next.checked_sub(total)?;
        Some((token, total.checked_sub(token.checked_mul(TOKENS)?)?))
    }

    /// Computes the memory of the same model at a different context length.
    #[must_use]
    pub fn at(&self, context: u64) -> Self {
        let options = MemoryOptions { context: Some(context), budget: None, ..self.options };
        let mut memory = Self::of_ranks(self.ranks.clone(), self.spec.clone(), options);
        for other in &self.others {
            memory.add(other.at(context));
        }
        memory
    }

    /// Computes the memory of the same model under other conditions. With another number of GPUs, only bounds of the weights
    /// on each of them are known.
    #[must_use]
    pub fn under(&self, options: MemoryOptions) -> Self {
        let gpus = |options: &MemoryOptions| (options.vllm.gpus, options.stages());
        if gpus(&options) == gpus(&self.options) {
            return Self::of_ranks(self.ranks.clone(), self.spec.clone(), options);
        }
        let weight_bytes = self.weight_bytes.saturating_mul(self.options.gpus());
        Self::new(weight_bytes, self.spec.clone(), options)
    }

    /// Adds the memory of a model that is loaded together with this one, for the same conditions.
    pub fn add(&mut self, other: Self) {
        let is_sum = self.shares_blocks(&other);
        self.weight_bytes = self.weight_bytes.saturating_add(other.weight_bytes);
        self.max_weight_bytes = self.max_weight_bytes.saturating_add(other.max_weight_bytes);
        let sum = |one: Option<CacheSize>, other: Option<CacheSize>| {
            let (one, other) = (one?, other?);
            let elements = one.elements.checked_add(other.elements)?;
            Some(CacheSize { elements, bytes: one.bytes.checked_add(other.bytes)? })
        };
        self.cache = sum(self.cache, other.cache);
        self.state = sum(self.state, other.state);
        let total = self.total_bytes.zip(other.total_bytes);
        self.total_bytes = total.and_then(|(one, other)| one.checked_add(other));
        self.unknown = self.unknown.take().or_else(|| other.unknown.clone());
        if !is_sum {
            let error = CacheError::NoEngineRule { engine: self.options.engine.name() };
            self.unknown.get_or_insert(error);
            self.total_bytes = None;
        }
        self.others.push(other);
        self.fit = self.options.budget.map(|budget| Fit::new(self, budget));
    }

    /// Returns whether the cache of both models is the sum of each. vLLM divides the layers of both models into groups
    /// together, and puts a draft onto one stage: `get_kv_cache_groups` and `create_draft_parallel_config` of 0.33.0.
    fn shares_blocks(&self, other: &Self) -> bool {
        let layers = |memory: &Self| {
            let layers = memory.spec.as_ref().ok()?.vllm.as_ref()?.as_ref().ok()?;
            Some((layers.has_one_group(), memory.plan?.block_size))
        };
        match (layers(self), layers(other)) {
            (Some((true, block)), Some((true, other))) => {
                block == other && self.options.stages() == 1
            }
            (Some(_), Some(_)) => false,
            _ => true,
        }
    }

    /// Returns the bytes of cache and states.
    pub fn sequence_bytes(&self) -> Option<u64> {
        self.total_bytes.map(|bytes| bytes - self.weight_bytes)
    }

    /// Returns the longest context that fits into `budget` bytes, up to the maximum of the model, or 0 if none fits.
    /// Returns `None` if the cache is unknown, or if the model has neither a cache nor a maximum.
    pub(crate) fn longest_context(&self, budget: u64) -> Option<u64> {
        /// The maximum if the model states none.
        const MAX_CONTEXT: u64 = 1 << 30;

        if self.weight_bytes > budget {
            return Some(0);
        }
        let (Ok(spec), Some(_)) = (&self.spec, self.total_bytes) else { return None };
        let unknown = self.max_weight_bytes - self.weight_bytes;
        let budget = budget.checked_sub(unknown).filter(|rest| self.weight_bytes <= *rest)?;
        let is_limited = spec.max_context.is_some() || !spec.caches.is_empty();
        let limit = is_limited.then_some(spec.max_context.unwrap_or(MAX_CONTEXT))?;
        let fits = |context| self.at(context).total_bytes.is_some_and(|bytes| bytes <= budget);
        let (mut low, mut high) = (0, limit.clamp(1, MAX_CONTEXT));
        while low < high {
            let middle = high - (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle - 1 }
        }
        Some(low)
    }

    /// Adds the quantizations in a repository to the answer: their names, paths and sizes in bytes.
    pub fn add_quantizations(&mut self, found: Vec<(String, RepoPath, u64)>) {
        let (cache, context) = (self.sequence_bytes(), self.context);
        let is_too_long = self.max_context().is_some_and(|maximum| context > maximum);
        let cache = if is_too_long { None } else { cache };
        let Some(fit) = &mut self.fit else { return };
        let quantizations = found.into_iter().map(|(quantization, path, weight_bytes)| {
            let total_bytes = cache.and_then(|cache| cache.checked_add(weight_bytes));
            let fits =
                if is_too_long { Some(false) } else { fits(weight_bytes, total_bytes, fit.usable) };
            QuantizationFit { quantization, path, weight_bytes, total_bytes, fits }
        });
        fit.quantizations = quantizations.collect();
        sort_by_key(&mut fit.quantizations, |found| Reverse(found.weight_bytes));
    }

    /// Returns the sizes over all layers.
    fn sizes(&self) -> Result<Sizes, CacheError> {
        let spec = self.spec.as_ref().map_err(CacheError::clone)?;
        let engine = self.options.engine;
        let no_rule = CacheError::NoEngineRule { engine: engine.name() };
        if engine == Engine::Vllm && !spec.caches.is_empty() {
            let Some(layers) = &spec.vllm else { return Err(no_rule) };
            return self.vllm_sizes(layers.as_ref().map_err(CacheError::clone)?).ok_or(no_rule);
        }
        if engine != Engine::Stored && spec.is_specific {
            return Err(no_rule);
        }
        let batch = self.options.batch.unwrap_or(1);
        let (mut stored, mut state) = (CacheSize::default(), CacheSize::default());
        for cache in &spec.caches {
            let tokens = engine.tokens(cache, spec.is_gguf, self.context);
            let tokens =
                if engine.supports(self.cache_dtype, cache.elements) { tokens } else { None };
            let tokens = tokens.ok_or_else(|| no_rule.clone())?;
            let (size, dtype) = match cache.kind {
                CacheKind::State => (&mut state, CacheDtype::F32),
                CacheKind::Fixed => (&mut state, spec.dtype.unwrap_or(CacheDtype::F16)),
                _ => (&mut stored, self.cache_dtype),
            };
            size.add([tokens, cache.layers, cache.elements, batch], dtype)
                .ok_or(FormulaError::InvalidResult { formula: cache.formula })?;
        }
        Ok((stored, state, None))
    }

    /// Returns the sizes in vLLM, whose blocks hold states as well.
    fn vllm_sizes(&self, layers: &VllmLayers) -> Option<Sizes> {
        if !Engine::Vllm.supports(self.cache_dtype, 1) {
            return None;
        }
        let plan = layers.plan(self.context, self.cache_dtype, &self.options.vllm)?;
        let blocks = plan.blocks.checked_mul(self.options.batch.unwrap_or(1))?;
        let bytes = blocks.checked_mul(plan.bytes_per_block)?;
        let elements = u128::from(bytes) * 32 / u128::from(self.cache_dtype.block_bytes());
        let elements = u64::try_from(elements).ok()?;
        Some((CacheSize { elements, bytes }, CacheSize::default(), Some(plan)))
    }
}

/// The origin of a context length.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ContextSource {
    /// The options.
    Option,
    /// The maximum of the model, from its configuration.
    Config,
    /// An assumption, because the model states no maximum.
    Default,
}

/// The answer to the question whether a model fits into a memory.
///
/// ```
/// use hf_meta_count::memory::{CacheSpec, Memory, MemoryOptions};
///
/// let config = br#"{"model_type":"llama","dtype":"bfloat16","max_position_embeddings":8192}"#;
/// let options = MemoryOptions { budget: Some(16_000_000_000), ..MemoryOptions::default() };
/// let memory = Memory::new(13_500_000_000, CacheSpec::from_config_json(config), options);
/// let fit = memory.fit.unwrap();
/// assert_eq!((fit.fits, fit.longest_context), (Some(false), Some(4_768)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fit {
    /// The size of the memory in bytes.
    pub budget: u64,
    /// The part of it that the engine uses, in bytes: [`GpuShare`](super::GpuShare) in vLLM, and otherwise all of it.
    pub usable: u64,
    /// `true` if weights and cache fit; `None` if it is unknown.
    pub fits: Option<bool>,
    /// The reason why it is unknown, or [`ContextTooLong`](CacheError::ContextTooLong).
    pub reason: Option<CacheError>,
    /// The longest context that fits, up to the maximum of the model; 0 if none does. `None` if it is unknown, or if the
    /// model has neither a cache nor a maximum.
    pub longest_context: Option<u64>,
    /// The number of sequences of this context that fit; `None` if it is unknown or unlimited.
    pub sequences: Option<u64>,
    /// The quantizations in the repository, largest first. Empty for weights that have no quantization in their name.
    pub quantizations: Vec<QuantizationFit>,
}

/// A quantization in a repository, with the cache of the quantization that was read.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct QuantizationFit {
    /// The name, such as `Q4_K_M`.
    pub quantization: String,
    /// The path of the weights.
    pub path: RepoPath,
    /// The bytes of the weights: of the files, unless it is the quantization that was read.
    pub weight_bytes: u64,
    /// The bytes of weights and cache; `None` if the cache is unknown.
    pub total_bytes: Option<u64>,
    /// `true` if weights and cache fit; `None` if it is unknown.
    pub fits: Option<bool>,
}

impl Fit {
    /// Answers for the conditions of a memory.
    pub(super) fn new(memory: &Memory, budget: u64) -> Self {
        let context = memory.context;
        let maximum = memory.max_context().filter(|maximum| context > *maximum);
        let too_long = maximum.map(|maximum| CacheError::ContextTooLong { context, maximum });
        let usable = memory.options.usable(budget);
        let unknown = memory.max_weight_bytes - memory.weight_bytes;
        let fits = if too_long.is_some() {
            Some(false)
        } else {
            // A size that is a minimum may not fit.
            fits(memory.weight_bytes, memory.total_bytes, usable).filter(|fits| {
                let most = memory.total_bytes.and_then(|total| total.checked_add(unknown));
                !fits || most.is_some_and(|most| most <= usable)
            })
        };
        let no_division = CacheError::NoDivision { engine: memory.options.engine.name() };
        let unknown = fits.is_none().then(|| memory.unknown.clone().unwrap_or(no_division));
        let batch = memory.options.batch.unwrap_or(1);
        let sequences = memory.sequence_bytes().and_then(|bytes| {
            let free = u128::from(usable.saturating_sub(memory.max_weight_bytes));
            let sequences = (free * u128::from(batch)).checked_div(u128::from(bytes))?;
            u64::try_from(sequences).ok()
        });
        Self {
            budget,
            usable,
            fits,
            reason: too_long.or(unknown),
            longest_context: memory.longest_context(usable),
            sequences,
            quantizations: Vec::new(),
        }
    }

    /// Returns the largest quantization that fits.
    pub fn largest_quantization(&self) -> Option<&QuantizationFit> {
        self.quantizations.iter().find(|quantization| quantization.fits == Some(true))
    }
}

/// Returns whether a total fits. Weights alone can be too large.
fn fits(weights: u64, total: Option<u64>, budget: u64) -> Option<bool> {
    match total {
        Some(total) => Some(total <= budget),
        None => (weights > budget).then_some(false),
    }
}
