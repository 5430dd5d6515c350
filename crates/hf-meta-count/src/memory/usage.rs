//! The memory for a context length, a batch size, a cache dtype and an engine.

use std::cmp::Reverse;
use std::str::FromStr;

use serde::Serialize;

use super::{
    CacheDtype, CacheError, CacheKind, CacheSpec, FormulaError, LayerCache, UnknownName,
    VllmLayers, VllmOptions, VllmPlan,
};
use hf_meta_format::base::sort::sort_by_key;
use hf_meta_format::base::text::named_enum;
use hf_meta_format::formats::RepoPath;

/// The number of tokens for models that state no maximum.
const DEFAULT_CONTEXT: u64 = 4_096;

named_values! {
    /// The program that stores the cache.
    #[derive(Default)]
    Engine {
        /// No program: the tokens of a sequence, without reserves. The cache of transformers has this size.
        #[default]
        Stored "stored" "transformers",
        /// vLLM, which allocates blocks of tokens from a pool that all layers share.
        Vllm "vllm",
        /// `llama.cpp`, which allocates cells in steps of 256 tokens, and windows with a batch of 512 tokens. The size of
        /// windows and states is known from GGUF keys only.
        LlamaCpp "llama.cpp" "llama_cpp",
    }
}

impl Engine {
    /// Returns the number of tokens that a layer stores for a context; `None` if no rule is definite.
    fn tokens(self, cache: &LayerCache, is_gguf: bool, context: u64) -> Option<u64> {
        /// The unit in which `llama.cpp` allocates cells, and the default size of its physical batch.
        const CELLS: u64 = 256;
        const BATCH: u64 = 512;

        let window = cache.tokens.unwrap_or(u64::MAX);
        match (cache.kind, self) {
            (CacheKind::Fixed | CacheKind::State, Self::Stored) => Some(1),
            (CacheKind::Cross, Self::Stored) => Some(cache.tokens.unwrap_or(context)),
            (CacheKind::Compressed, Self::Stored) => context.checked_div(window),
            (CacheKind::Remainder, Self::Stored) => context.checked_rem(window),
            (CacheKind::Full | CacheKind::Index, Self::Stored) => Some(context),
            // The token after the last one of the window is added before the first one is dropped.
            (CacheKind::Window | CacheKind::Chunk, Self::Stored) => {
                Some(context.min(window.saturating_sub(1)))
            }
            (CacheKind::Full, Self::LlamaCpp) => context.checked_next_multiple_of(CELLS),
            (CacheKind::Window, Self::LlamaCpp) if is_gguf => {
                context.min(window.saturating_add(BATCH)).checked_next_multiple_of(CELLS)
            }
            (CacheKind::State, Self::LlamaCpp) if is_gguf => Some(1),
            _ => None,
        }
    }

    /// Returns whether the program can store elements of a dtype in rows of `row` elements.
    fn supports(self, dtype: CacheDtype, row: u64) -> bool {
        let is_block = dtype.is_block();
        match self {
            Self::Stored => true,
            Self::Vllm => !is_block && dtype != CacheDtype::F32,
            Self::LlamaCpp => dtype != CacheDtype::Fp8 && (!is_block || row.is_multiple_of(32)),
        }
    }

    /// Returns the dtype of the cache if the user selects none.
    fn default_dtype(self, spec: &CacheSpec) -> CacheDtype {
        match (self, spec.dtype) {
            (Self::Vllm, _) if spec.has_fp8_scheme => CacheDtype::Fp8,
            (Self::LlamaCpp, _) | (_, None) | (Self::Vllm, Some(CacheDtype::F32)) => {
                CacheDtype::F16
            }
            (_, Some(dtype)) => dtype,
        }
    }
}

/// Parses a number of tokens. As in the names of models, `32k` are 32,768, and `1m` are 1,048,576.
///
/// ```
/// assert_eq!(hf_meta_count::memory::parse_tokens("32k"), Some(32_768));
/// assert_eq!(hf_meta_count::memory::parse_tokens("0"), None);
/// ```
pub fn parse_tokens(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let (number, factor) = match (text.strip_suffix('k'), text.strip_suffix('m')) {
        (Some(number), _) => (number, 1 << 10),
        (_, Some(number)) => (number, 1 << 20),
        _ => (&*text, 1),
    };
    let number: u64 = number.trim_end().parse().ok()?;
    number.checked_mul(factor).filter(|tokens| *tokens > 0)
}

/// Parses a size in bytes, as in `24GB`, `24G`, `1.5 GB` or `23.6GiB`. Fractions of a byte are dropped.
///
/// ```
/// use hf_meta_count::memory::parse_size;
///
/// assert_eq!(parse_size("24G"), Some(24_000_000_000));
/// assert_eq!(parse_size("1.5 GiB"), Some(1_610_612_736));
/// assert_eq!(parse_size("24"), None);
/// ```
pub fn parse_size(text: &str) -> Option<u64> {
    const UNITS: [&str; 5] = ["", "k", "m", "g", "t"];
    /// The digits after the point. More would not change a size in bytes.
    const MAX_DIGITS: usize = 15;

    let text = text.trim().to_ascii_lowercase();
    let end = text.find(|char: char| !char.is_ascii_digit() && char != '.')?;
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start();
    let unit = unit.strip_suffix('b').unwrap_or(unit);
    let binary = unit.strip_suffix('i').filter(|unit| !unit.is_empty());
    let (unit, base) = binary.map_or((unit, 1_000_u128), |unit| (unit, 1_024));
    let power = (0..).zip(UNITS).find(|(_, known)| *known == unit)?.0;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = u32::try_from(fraction.len()).ok().filter(|_| fraction.len() <= MAX_DIGITS)?;
    let scale = 10_u128.pow(digits);
    let units = u128::from(whole.parse::<u64>().ok()?) * scale + fraction.parse::<u128>().ok()?;
    let bytes = units.checked_mul(base.pow(power))? / scale;
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)
}

/// The conditions for which memory is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryOptions {
    /// The context length in tokens; by default the maximum of the model, or 4,096 if the model states none.
    pub context: Option<u64>,
    /// The number of sequences; by default one.
    pub batch: Option<u64>,
    /// The dtype of the cache. The default is the dtype of the model, and 16-bit floats if it is unknown. It is `f16` for
    /// `llama.cpp`, and `fp8` for vLLM if the checkpoint has a `kv_cache_scheme`.
    pub cache_dtype: Option<CacheDtype>,
    /// The program; by default [`Engine::Stored`].
    pub engine: Engine,
    /// The options of vLLM. Other programs ignore them.
    pub vllm: VllmOptions,
    /// The memory in bytes into which the model should fit, per GPU.
    pub budget: Option<u64>,
}

impl MemoryOptions {
    /// Returns the dtype of the cache.
    pub(super) fn dtype(&self, spec: &CacheSpec) -> CacheDtype {
        self.cache_dtype.unwrap_or_else(|| self.engine.default_dtype(spec))
    }

    /// Returns the number of GPUs that share the weights. With several, sizes are per GPU.
    pub fn gpus(&self) -> u64 {
        if self.engine == Engine::Vllm { self.vllm.gpus } else { 1 }
    }

    /// Returns the part of a memory that the engine uses, in bytes.
    pub fn usable(&self, budget: u64) -> u64 {
        if self.engine == Engine::Vllm {
            self.vllm.gpu_memory_utilization.of(budget)
        } else {
            budget
        }
    }

    /// Sets an option by its name in camelCase, such as `cacheDtype`, from a text as in the command.
    ///
    /// ```
    /// use hf_meta_count::memory::MemoryOptions;
    ///
    /// let mut options = MemoryOptions::default();
    /// options.set("context", "32k")?;
    /// assert_eq!(options.context, Some(32_768));
    /// assert_eq!(options.set("tp", "0").unwrap_err(), "expected a number from 1 to 1024");
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the expected values if the text is not one of them.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        fn parsed<T: FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
            text.to_ascii_lowercase().parse().map_err(|error: T::Err| error.to_string())
        }
        let expected = |what: &str| format!("expected {what}");
        let tokens = || {
            parse_tokens(text).ok_or_else(|| expected("a number of tokens, such as 32768 or 32k"))
        };
        match name {
            "context" => self.context = Some(tokens()?),
            "batch" => {
                let batch = text.parse().ok().filter(|batch| *batch > 0);
                self.batch = Some(batch.ok_or_else(|| expected("a number of sequences"))?);
            }
            "cacheDtype" => self.cache_dtype = Some(parsed(text)?),
            "engine" => self.engine = parsed(text)?,
            "maxNumBatchedTokens" => self.vllm.max_batched_tokens = tokens()?,
            "tp" => {
                let gpus = text.parse().ok().filter(|gpus| (1..=MAX_GPUS).contains(gpus));
                self.vllm.gpus =
                    gpus.ok_or_else(|| expected(&format!("a number from 1 to {MAX_GPUS}")))?;
            }
            "gpuMemoryUtilization" => self.vllm.gpu_memory_utilization = parsed(text)?,
            "budget" => {
                let size =
                    parse_size(text).ok_or_else(|| expected("a size, such as 24GB or 24GiB"));
                self.budget = Some(size?);
            }
            _ => return Err(expected("a known option")),
        }
        Ok(())
    }
}

/// The maximum number of GPUs.
const MAX_GPUS: u64 = 1_024;

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
    /// The bytes of the weights, as stored in the files. Several GPUs have equal parts.
    pub weight_bytes: u64,
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
    /// Computes the memory of a model from the bytes of its weights and its cache.
    pub fn new(
        weight_bytes: u64,
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
            weight_bytes: weight_bytes.div_ceil(options.gpus().max(1)),
            components: Vec::new(),
            cache: None,
            state: None,
            plan: None,
            total_bytes: None,
            fit: None,
            spec,
        };
        match memory.sizes() {
            Ok((cache, state, plan)) => {
                (memory.cache, memory.state, memory.plan) = (Some(cache), Some(state), plan);
                let sum = memory.weight_bytes.checked_add(cache.bytes);
                memory.total_bytes = sum.and_then(|sum| sum.checked_add(state.bytes));
            }
            Err(error) => memory.unknown = Some(error),
        }
        memory.fit = options.budget.map(|budget| Fit::new(&memory, budget));
        memory
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
        // The weights are already those of one GPU.
        let weight_bytes = self.weight_bytes.saturating_mul(options.gpus());
        Self::new(weight_bytes, self.spec.clone(), options)
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
        let spec = self.spec.as_ref().ok().filter(|_| self.total_bytes.is_some())?;
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
        let is_supported = Engine::Vllm.supports(self.cache_dtype, 1);
        let plan = layers.plan(self.context, self.cache_dtype, &self.options.vllm);
        let plan = plan.filter(|_| is_supported)?;
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
        let fits = if too_long.is_some() {
            Some(false)
        } else {
            fits(memory.weight_bytes, memory.total_bytes, usable)
        };
        let unknown = if fits.is_none() { memory.unknown.clone() } else { None };
        let batch = memory.options.batch.unwrap_or(1);
        let sequences = memory.sequence_bytes().and_then(|bytes| {
            let free = u128::from(usable.saturating_sub(memory.weight_bytes));
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
