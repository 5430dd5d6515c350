//! The memory that a model needs: its weights, and the cache of a sequence.
//!
//! [`CacheSpec`] contains what each layer stores, derived from `config.json` or from the keys of a GGUF file.
//! [`Memory`] contains the bytes for a context length, a batch size, a cache dtype and an engine. A size without
//! an exact rule is `None`.
//!
//! ```
//! use hf_meta_count::memory::{CacheSpec, Memory, MemoryOptions};
//!
//! let config = br#"{"model_type":"gpt_oss","dtype":"bfloat16","num_hidden_layers":36}"#;
//! let spec = CacheSpec::from_config_json(config)?;
//! let options = MemoryOptions { context: Some(4_096), ..MemoryOptions::default() };
//! let memory = Memory::new(65_248_815_744, Ok(spec), options);
//! assert_eq!(memory.cache.map(|size| size.bytes), Some(155_676_672));
//! # Ok::<(), hf_meta_count::memory::CacheError>(())
//! ```

/// Defines an enum whose values have a name, and other names that are also accepted.
macro_rules! named_values {
    ($(#[$docs:meta])* $type:ident {
        $($(#[$variant_docs:meta])* $variant:ident $name:literal $($alias:literal)* $(as $shown:literal)?,)+
    }) => {
        named_enum! { $(#[$docs])* pub $type { $($(#[$variant_docs])* $variant $name,)+ } }

        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(name: &str) -> Result<Self, UnknownName> {
                match name {
                    $($name $(| $alias)* $(| $shown)? => Ok(Self::$variant),)+
                    // People know the last of the two names.
                    _ => Err(UnknownName { known: const { &[$($crate::memory::last(&[$name $(, $shown)?])),+] } }),
                }
            }
        }
    };
}

use hf_meta_format::base::text::named_enum;

/// Returns the last of the names of a value.
const fn last(names: &[&'static str]) -> &'static str {
    names[names.len() - 1]
}

mod context;
mod gpu;
mod options;
mod ranks;
mod spec;
#[cfg(test)]
mod tests;
mod usage;
mod vllm;

pub use self::gpu::{Gpu, GpuSet, GpuVendor, UnknownGpu};
pub use self::options::{Engine, MemoryOptions, parse_size, parse_tokens};
pub use self::ranks::{RankWeights, StageWeights};
pub use self::spec::{CacheKind, CacheSpec, LayerCache};
pub use self::usage::{CacheSize, ContextSource, Fit, Memory, MemoryComponent, QuantizationFit};
pub use self::vllm::{GpuShare, InvalidShare, VLLM_VERSION, VllmLayers, VllmOptions, VllmPlan};
pub use crate::architectures::architecture::FormulaError;
use std::str::FromStr;

/// The reason why the size of a cache is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "code", rename_all = "camelCase")]
#[non_exhaustive]
pub enum CacheError {
    /// The model has no `config.json`, or it could not be read.
    #[error("no config.json was read")]
    NoConfig,
    /// The configuration is not a JSON object.
    #[error("config.json is not a JSON object")]
    NotAnObject,
    /// The file of the configuration contains something else, such as a Git LFS pointer.
    #[error("config.json looks like {content}")]
    OtherContent {
        /// The content.
        content: String,
    },
    /// The architecture has no built-in rule.
    #[error("the cache of architecture `{architecture}` is unknown")]
    UnknownArchitecture {
        /// The name of the architecture.
        architecture: String,
    },
    /// A key changes the cache in a way that no rule covers.
    #[error("the cache depends on `{key}`, which has no rule")]
    UnsupportedKey {
        /// The name of the key.
        key: &'static str,
    },
    /// The engine stores other sizes, which depend on its settings or on unknown rules.
    #[error("no exact rule for `{engine}`")]
    NoEngineRule {
        /// The name of the engine.
        engine: &'static str,
    },
    /// The engine divides the weights of the architecture in a way that no rule covers, so that only bounds are known.
    #[error("how `{engine}` divides the weights is unknown")]
    NoDivision {
        /// The name of the engine.
        engine: &'static str,
    },
    /// The heads of the model cannot be divided among the GPUs.
    #[error("the heads of its layers cannot be divided among {gpus} GPUs")]
    Indivisible {
        /// The number of GPUs.
        gpus: u64,
    },
    /// The context is longer than the model supports.
    #[error("the model supports at most {maximum} tokens, not {context}")]
    ContextTooLong {
        /// The context length in tokens.
        context: u64,
        /// The maximum of the model.
        maximum: u64,
    },
    /// A pipeline has more components than any known one.
    #[error("the pipeline has {limit} components or more")]
    TooManyComponents {
        /// The limit.
        limit: usize,
    },
    /// The model has more layers than any known model.
    #[error("{layers} layers exceed the limit of {limit}")]
    TooManyLayers {
        /// The number of layers.
        layers: u64,
        /// The limit.
        limit: u64,
    },
    /// A formula has no value.
    #[error(transparent)]
    #[serde(untagged)]
    Formula(#[from] FormulaError),
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

    /// Returns whether elements are stored in blocks.
    fn is_block(self) -> bool {
        !self.block_bytes().is_multiple_of(32)
    }

    /// Returns the size of `elements` elements in bytes.
    fn bytes(self, elements: u64) -> Option<u64> {
        let bytes = (u128::from(elements) * u128::from(self.block_bytes())).div_ceil(32);
        u64::try_from(bytes).ok()
    }
}
