//! The memory for a context length, a batch size, a cache dtype and an engine.

use std::fmt;
use std::str::FromStr;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{CacheError, CacheKind, CacheLayout, LayerCache};

/// The number of tokens for models that state no maximum.
const DEFAULT_CONTEXT: u64 = 4_096;

macro_rules! named_values {
    ($(#[$docs:meta])* $type:ident { $($(#[$variant_docs:meta])* $variant:ident $($name:literal)+,)+ }) => {
        $(#[$docs])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum $type {
            $($(#[$variant_docs])* $variant,)+
        }

        impl $type {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name of the value.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => [$($name),+][0],)+
                }
            }
        }

        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(name: &str) -> Result<Self, UnknownName> {
                match name {
                    $($($name)|+ => Ok(Self::$variant),)+
                    _ => Err(UnknownName { known: &[$([$($name),+][0]),+] }),
                }
            }
        }
    };
}

/// The error for a name that is none of the known ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {}", known.join(", "))]
pub struct UnknownName {
    /// The known names.
    known: &'static [&'static str],
}

named_values! {
    /// The dtype of the keys and values in a cache.
    CacheDtype {
        /// 32-bit floats.
        F32 "f32" "float32",
        /// 16-bit floats.
        F16 "f16" "float16" "half",
        /// 16-bit floats with the range of 32-bit floats.
        Bf16 "bf16" "bfloat16",
        /// 8-bit floats.
        Fp8 "fp8" "f8" "fp8_e4m3" "fp8_e5m2" "float8_e4m3fn",
        /// Blocks of 32 8-bit integers with a scale of 2 bytes, in `llama.cpp`.
        Q8_0 "q8_0",
        /// Blocks of 32 5-bit integers with a scale and a minimum of 2 bytes each, in `llama.cpp`.
        Q5_1 "q5_1",
        /// Blocks of 32 5-bit integers with a scale of 2 bytes, in `llama.cpp`.
        Q5_0 "q5_0",
        /// Blocks of 32 4-bit integers with a scale and a minimum of 2 bytes each, in `llama.cpp`.
        Q4_1 "q4_1",
        /// Blocks of 32 4-bit integers with a scale of 2 bytes, in `llama.cpp`.
        Q4_0 "q4_0",
        /// Blocks of 32 4-bit codes with a scale of 2 bytes, in `llama.cpp`.
        Iq4Nl "iq4_nl",
    }
}

impl CacheDtype {
    /// Returns the size of 32 elements in bytes.
    fn block_bytes(self) -> u64 {
        match self {
            Self::F32 => 128,
            Self::F16 | Self::Bf16 => 64,
            Self::Fp8 => 32,
            Self::Q8_0 => 34,
            Self::Q5_1 => 24,
            Self::Q5_0 => 22,
            Self::Q4_1 => 20,
            Self::Q4_0 | Self::Iq4Nl => 18,
        }
    }

    /// Returns the size of `elements` elements in bytes.
    fn bytes(self, elements: u64) -> Option<u64> {
        let bytes = (u128::from(elements) * u128::from(self.block_bytes())).div_ceil(32);
        u64::try_from(bytes).ok()
    }
}

named_values! {
    /// The program that stores the cache.
    Engine {
        /// No program: the tokens of a sequence, without reserves. The cache of transformers has this size.
        Stored "stored" "transformers",
        /// vLLM, which allocates blocks of 16 tokens. With windows or states, the size is an upper bound.
        Vllm "vllm",
        /// `llama.cpp`, which allocates cells in steps of 256 tokens, and windows with a batch of 512 tokens.
        LlamaCpp "llama.cpp" "llama_cpp",
    }
}

impl Engine {
    /// Returns the number of tokens that a layer stores for a context, and whether the rule is exact.
    fn tokens(self, cache: &LayerCache, context: u64, encoder: u64) -> Option<(u64, bool)> {
        /// The tokens of a block of vLLM, on CUDA.
        const BLOCK: u64 = 16;
        /// The unit in which `llama.cpp` allocates cells, and the default size of its physical batch.
        const CELLS: u64 = 256;
        const BATCH: u64 = 512;

        let window = cache.tokens.unwrap_or(u64::MAX);
        Some(match (cache.kind, self) {
            (CacheKind::Fixed | CacheKind::State, Self::Vllm) => (1, false),
            (CacheKind::Fixed | CacheKind::State, _) => (1, true),
            (CacheKind::Cross, _) => (cache.tokens.unwrap_or(encoder), self == Self::Stored),
            (CacheKind::Compressed, _) => (context.checked_div(window)?, self == Self::Stored),
            (CacheKind::Remainder, _) => (context.checked_rem(window)?, self == Self::Stored),
            (CacheKind::Full, Self::Stored) => (context, true),
            // The token after the last one of the window is added before the first one is dropped.
            (CacheKind::Window, Self::Stored) => (context.min(window - 1), true),
            (CacheKind::Full, Self::Vllm) => (context.checked_next_multiple_of(BLOCK)?, true),
            (CacheKind::Window, Self::Vllm) => (context.checked_next_multiple_of(BLOCK)?, false),
            (CacheKind::Full, Self::LlamaCpp) => (context.checked_next_multiple_of(CELLS)?, true),
            (CacheKind::Window, Self::LlamaCpp) => {
                let cells = context.min(window.saturating_add(BATCH));
                (cells.checked_next_multiple_of(CELLS)?, true)
            }
        })
    }
}

/// The conditions for which memory is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MemoryOptions {
    /// The context length in tokens; by default the maximum of the model.
    pub context: Option<u64>,
    /// The number of sequences; by default one.
    pub batch: Option<u64>,
    /// The dtype of the cache; by default that of the model, and 16-bit floats if it is unknown.
    pub cache_dtype: Option<CacheDtype>,
    /// The program; by default [`Engine::Stored`].
    pub engine: Option<Engine>,
    /// The input length of an encoder in tokens, if the model does not fix it; by default the context length.
    pub encoder_tokens: Option<u64>,
}

impl MemoryOptions {
    /// Sets the context length in tokens.
    #[must_use]
    pub fn context(self, context: Option<u64>) -> Self {
        Self { context, ..self }
    }

    /// Sets the number of sequences.
    #[must_use]
    pub fn batch(self, batch: Option<u64>) -> Self {
        Self { batch, ..self }
    }

    /// Sets the dtype of the cache.
    #[must_use]
    pub fn cache_dtype(self, cache_dtype: Option<CacheDtype>) -> Self {
        Self { cache_dtype, ..self }
    }

    /// Sets the program that stores the cache.
    #[must_use]
    pub fn engine(self, engine: Option<Engine>) -> Self {
        Self { engine, ..self }
    }
}

/// The memory that a model needs, in bytes. Excludes activations, the runtime of the accelerator and fragmentation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// The options, as given.
    pub options: MemoryOptions,
    /// The cache of each kind of layer, or the reason why it is unknown.
    pub layout: Result<CacheLayout, CacheError>,
    /// The context length in tokens.
    pub context: u64,
    /// The dtype of the cache.
    pub cache_dtype: CacheDtype,
    /// `true` if the sizes of the cache are exact for the engine.
    pub exact: bool,
    /// The bytes of the weights, as stored in the files.
    pub weight_bytes: u64,
    /// The elements of keys and values, over all sequences; `None` if they are unknown.
    pub cache_elements: Option<u64>,
    /// The bytes of keys and values.
    pub cache_bytes: Option<u64>,
    /// The elements of states of fixed size.
    pub state_elements: Option<u64>,
    /// The bytes of states of fixed size.
    pub state_bytes: Option<u64>,
    /// The bytes of weights, cache and states.
    pub total_bytes: Option<u64>,
}

/// The sums over the layers.
#[derive(Default)]
struct Sums {
    cache: (u64, u64),
    state: (u64, u64),
    inexact: bool,
}

impl Memory {
    /// Computes the memory of a model from the bytes of its weights and its cache layout.
    #[must_use]
    pub fn new(
        weight_bytes: u64,
        layout: Result<CacheLayout, CacheError>,
        options: MemoryOptions,
    ) -> Self {
        let known = layout.as_ref().ok();
        let max_context = known.and_then(|layout| layout.max_context);
        let context = options.context.or(max_context).unwrap_or(DEFAULT_CONTEXT);
        let dtype = known.and_then(|layout| layout.dtype);
        let cache_dtype = options.cache_dtype.or(dtype).unwrap_or(CacheDtype::F16);
        let sums = known.and_then(|layout| sums(layout, &options, context, cache_dtype));
        let [cache, state] = [|sums: &Sums| sums.cache, |sums: &Sums| sums.state]
            .map(|part| sums.as_ref().map(part));
        let bytes = cache.zip(state).and_then(|(cache, state)| cache.1.checked_add(state.1));
        Self {
            context,
            cache_dtype,
            exact: sums.as_ref().is_some_and(|sums| !sums.inexact),
            weight_bytes,
            cache_elements: cache.map(|cache| cache.0),
            cache_bytes: cache.map(|cache| cache.1),
            state_elements: state.map(|state| state.0),
            state_bytes: state.map(|state| state.1),
            total_bytes: bytes.and_then(|bytes| bytes.checked_add(weight_bytes)),
            options,
            layout,
        }
    }

    /// Computes the memory of the same model at a different context length.
    #[must_use]
    pub fn at(&self, context: u64) -> Self {
        let options = self.options.context(Some(context));
        Self::new(self.weight_bytes, self.layout.clone(), options)
    }

    /// Returns the bytes of cache and states.
    #[must_use]
    pub fn sequence_bytes(&self) -> Option<u64> {
        self.total_bytes.map(|bytes| bytes - self.weight_bytes)
    }

    /// Returns the longest context that fits into `budget` bytes, up to the maximum of the model. Returns `None` if
    /// no context fits, or if the cache is unknown.
    #[must_use]
    pub fn longest_context(&self, budget: u64) -> Option<u64> {
        /// The maximum if the model states none.
        const MAX_CONTEXT: u64 = 1 << 30;

        let limit = self.layout.as_ref().ok()?.max_context.unwrap_or(MAX_CONTEXT);
        let fits = |context| self.at(context).total_bytes.is_some_and(|bytes| bytes <= budget);
        let (mut low, mut high) = (fits(1).then_some(1)?, limit.clamp(1, MAX_CONTEXT));
        while low < high {
            let middle = high - (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle - 1 }
        }
        Some(low)
    }
}

/// Returns the sums over all layers; `None` if they overflow.
fn sums(
    layout: &CacheLayout,
    options: &MemoryOptions,
    context: u64,
    dtype: CacheDtype,
) -> Option<Sums> {
    let engine = options.engine.unwrap_or(Engine::Stored);
    let encoder = options.encoder_tokens.unwrap_or(context);
    let mut sums = Sums::default();
    for cache in &layout.caches {
        let (tokens, is_exact) = engine.tokens(cache, context, encoder)?;
        sums.inexact |= !is_exact;
        let elements = [tokens, cache.layers, options.batch.unwrap_or(1)]
            .into_iter()
            .try_fold(cache.elements, u64::checked_mul)?;
        let dtype = if cache.kind == CacheKind::State { CacheDtype::F32 } else { dtype };
        let is_state = matches!(cache.kind, CacheKind::State | CacheKind::Fixed);
        let sum = if is_state { &mut sums.state } else { &mut sums.cache };
        sum.0 = sum.0.checked_add(elements)?;
        sum.1 = sum.1.checked_add(dtype.bytes(elements)?)?;
    }
    Some(sums)
}

impl Serialize for Memory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("context", &self.context)?;
        map.serialize_entry("batch", &self.options.batch.unwrap_or(1))?;
        map.serialize_entry("engine", self.options.engine.unwrap_or(Engine::Stored).name())?;
        map.serialize_entry("cacheDtype", self.cache_dtype.name())?;
        map.serialize_entry("exact", &self.exact)?;
        map.serialize_entry("weightBytes", &self.weight_bytes)?;
        map.serialize_entry("cacheElements", &self.cache_elements)?;
        map.serialize_entry("cacheBytes", &self.cache_bytes)?;
        map.serialize_entry("stateElements", &self.state_elements)?;
        map.serialize_entry("stateBytes", &self.state_bytes)?;
        map.serialize_entry("totalBytes", &self.total_bytes)?;
        match &self.layout {
            Ok(layout) => {
                map.serialize_entry("architecture", &layout.architecture)?;
                map.serialize_entry("maxContext", &layout.max_context)?;
                map.serialize_entry("layers", &layout.layers)?;
                map.serialize_entry("caches", &layout.caches)?;
            }
            Err(error) => map.serialize_entry("unknown", error)?,
        }
        map.end()
    }
}

impl fmt::Display for CacheDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
