//! The conditions for which memory is computed: the engine, the GPUs, and the options of the engine.

use std::str::FromStr;

use super::gpu::MAX_GPUS;
use super::{CacheDtype, CacheKind, CacheSpec, GpuSet, LayerCache, UnknownName, VllmOptions};
use hf_meta_format::base::text::named_enum;

named_values! {
    /// The program that stores the cache.
    #[derive(Default)]
    Engine {
        /// No program: the tokens of a sequence, without reserves. The cache of transformers has this size.
        #[default]
        Stored "stored" as "transformers",
        /// vLLM, which allocates blocks of tokens from a pool that all layers share.
        Vllm "vllm",
        /// `llama.cpp`, which allocates cells in steps of 256 tokens, and windows with a batch of 512 tokens. The size of
        /// windows and states is known from GGUF keys only.
        LlamaCpp "llama.cpp" "llama_cpp" "llama-cpp" "llamacpp",
        /// SGLang. The size of its cache has no rule.
        Sglang "sglang",
        /// mlx-lm, which allocates the cache in steps of 256 tokens. The size of windows and states has no rule.
        MlxLm "mlx-lm" "mlx_lm" "mlx" "mlxlm",
    }
}

impl Engine {
    /// Returns the name of the program that loads the model. The cache as it is stored is the one of transformers.
    pub fn loader(self) -> &'static str {
        if self == Self::Stored { "transformers" } else { self.name() }
    }

    /// Returns the number of tokens that a layer stores for a context; `None` if no rule is definite.
    pub(super) fn tokens(self, cache: &LayerCache, is_gguf: bool, context: u64) -> Option<u64> {
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
            // `KVCache.step` in mlx_lm/models/cache.py 0.32.2 has the same length.
            (CacheKind::Full, Self::LlamaCpp | Self::MlxLm) => {
                context.checked_next_multiple_of(CELLS)
            }
            (CacheKind::Window, Self::LlamaCpp) if is_gguf => {
                context.min(window.saturating_add(BATCH)).checked_next_multiple_of(CELLS)
            }
            (CacheKind::State, Self::LlamaCpp) if is_gguf => Some(1),
            _ => None,
        }
    }

    /// Returns whether the program can store elements of a dtype in rows of `row` elements.
    pub(super) fn supports(self, dtype: CacheDtype, row: u64) -> bool {
        let is_block = dtype.is_block();
        match self {
            Self::Stored => true,
            Self::Sglang | Self::MlxLm => !is_block && dtype != CacheDtype::Fp8,
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
    if fraction.len() > MAX_DIGITS {
        return None;
    }
    let digits = u32::try_from(fraction.len()).ok()?;
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
    /// The bytes of the budget that other programs need. vLLM has [`VllmOptions::gpu_memory_utilization`] instead.
    pub reserve: u64,
    /// The GPUs, whose memory is the budget.
    pub gpus: Option<GpuSet>,
}

impl MemoryOptions {
    /// Returns the dtype of the cache.
    pub(super) fn dtype(&self, spec: &CacheSpec) -> CacheDtype {
        self.cache_dtype.unwrap_or_else(|| self.engine.default_dtype(spec))
    }

    /// Returns the number of GPUs that share the weights. With several, sizes are per GPU.
    pub fn gpus(&self) -> u64 {
        if self.engine == Engine::Vllm { self.vllm.gpus.saturating_mul(self.stages()) } else { 1 }
    }

    /// Returns the number of stages among which the layers are divided.
    pub fn stages(&self) -> u64 {
        if self.engine == Engine::Vllm { self.vllm.stages } else { 1 }
    }

    /// Returns the part of a memory that the engine uses, in bytes.
    pub fn usable(&self, budget: u64) -> u64 {
        if self.engine == Engine::Vllm {
            self.vllm.gpu_memory_utilization.of(budget)
        } else {
            budget.saturating_sub(self.reserve)
        }
    }

    /// Takes the budget and the defaults of vLLM from the GPUs, and checks that the options agree.
    ///
    /// # Errors
    ///
    /// Returns a sentence if two options contradict each other.
    pub fn finish(&mut self) -> Result<(), String> {
        let is_vllm = self.engine == Engine::Vllm;
        if self.gpus.is_some() && !is_vllm {
            (self.vllm.gpus, self.vllm.stages) = (1, 1);
        }
        if self.vllm != VllmOptions::default() && !is_vllm {
            let names = "`maxNumBatchedTokens`, `numSpeculativeTokens`, `tp`, `pp` and `gpuMemoryUtilization`";
            return Err(format!("{names} require the engine `vllm`"));
        }
        if is_vllm && self.reserve > 0 {
            return Err("vLLM uses a share of the memory, so it has no reserve".to_owned());
        }
        let Some(gpus) = self.gpus else { return Ok(()) };
        if self.budget.is_some() {
            return Err("a GPU has a memory, so no other one can be given".to_owned());
        }
        if self.gpus() > gpus.count {
            return Err(format!("the model cannot be divided among {} of {gpus}", self.gpus()));
        }
        self.budget = Some(gpus.gpu.memory);
        Ok(())
    }

    /// Sets the number of stages. Each has an equal part of the GPUs.
    fn set_stages(&mut self, stages: u64) {
        self.vllm.stages = stages;
        if let Some(gpus) = self.gpus.filter(|gpus| self.vllm.gpus == gpus.count) {
            self.vllm.gpus = (gpus.count / stages).max(1);
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
            "maxNumBatchedTokens" => self.vllm.max_batched_tokens = Some(tokens()?),
            "numSpeculativeTokens" => {
                let tokens = text.parse().ok().filter(|tokens| *tokens > 0);
                let tokens = tokens.ok_or_else(|| expected("a number of tokens"))?;
                self.vllm.speculative_tokens = Some(tokens);
            }
            "tp" | "pp" => {
                let gpus = text.parse().ok().filter(|gpus| (1..=MAX_GPUS).contains(gpus));
                let gpus =
                    gpus.ok_or_else(|| expected(&format!("a number from 1 to {MAX_GPUS}")))?;
                if name == "tp" { self.vllm.gpus = gpus } else { self.set_stages(gpus) }
            }
            "gpuMemoryUtilization" => self.vllm.gpu_memory_utilization = parsed(text)?,
            "budget" | "reserve" => {
                let size =
                    parse_size(text).ok_or_else(|| expected("a size, such as 24GB or 24GiB"))?;
                if name == "reserve" { self.reserve = size } else { self.budget = Some(size) }
            }
            "gpu" => {
                let gpus: GpuSet = parsed(text)?;
                (self.gpus, self.vllm.gpus) = (Some(gpus), gpus.count);
            }
            _ => return Err(expected("a known option")),
        }
        Ok(())
    }
}
