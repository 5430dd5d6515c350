//! The memory that a model needs: its weights, and the cache of a sequence.
//!
//! [`CacheLayout`] contains what each layer stores, derived from `config.json` or from the keys of a GGUF file.
//! [`Memory`] contains the bytes for a context length, a batch size, a cache dtype and an engine. A size without
//! an exact rule is `None`.
//!
//! ```
//! use hf_meta_format::memory::{CacheLayout, Memory, MemoryOptions};
//!
//! let config = br#"{"model_type":"gpt_oss","dtype":"bfloat16","num_hidden_layers":36}"#;
//! let layout = CacheLayout::from_config_json(config)?;
//! let options = MemoryOptions { context: Some(4_096), ..MemoryOptions::default() };
//! let memory = Memory::new(65_248_815_744, Ok(layout), options);
//! assert_eq!(memory.cache_bytes, Some(155_676_672));
//! # Ok::<(), hf_meta_format::memory::CacheError>(())
//! ```

mod layout;
#[cfg(test)]
mod tests;
mod usage;

pub use self::layout::{CacheKind, CacheLayout, LayerCache};
pub use self::usage::{CacheDtype, Engine, Memory, MemoryOptions, UnknownName, parse_tokens};
use crate::tables::formula::FormulaError;

/// The reason why the size of a cache is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize)]
#[serde(tag = "code", rename_all = "camelCase")]
#[non_exhaustive]
pub enum CacheError {
    /// The model has no `config.json`, or it could not be read.
    #[error("no config.json was read")]
    NoConfig,
    /// The configuration is not a JSON object.
    #[error("config.json is not a JSON object")]
    NotAnObject,
    /// The architecture has no built-in rule.
    #[error("the cache of architecture `{architecture}` is unknown")]
    UnknownArchitecture {
        /// The name of the architecture.
        architecture: String,
    },
    /// A key is missing, and the model class has no default for it.
    #[error("`{key}` is missing")]
    MissingKey {
        /// The name of the key.
        key: &'static str,
    },
    /// The value of a key is negative, too small, unknown, or of an unexpected type.
    #[error("the value of `{key}` is invalid")]
    InvalidKey {
        /// The name of the key.
        key: &'static str,
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
    /// A list is shorter than the number of layers.
    #[error("the list `{key}` has fewer entries than the model has layers")]
    WrongLength {
        /// The name of the key.
        key: &'static str,
    },
    /// A formula overflows, divides by zero, or has a negative result.
    #[error("the result of `{formula}` is out of range")]
    InvalidResult {
        /// The formula.
        formula: &'static str,
    },
    /// The model has more layers than any known model.
    #[error("{layers} layers exceed the limit of {limit}")]
    TooManyLayers {
        /// The number of layers.
        layers: u64,
        /// The limit.
        limit: u64,
    },
}

impl From<FormulaError> for CacheError {
    fn from(error: FormulaError) -> Self {
        match error {
            FormulaError::MissingKey { key } => Self::MissingKey { key },
            FormulaError::InvalidKey { key } => Self::InvalidKey { key },
            FormulaError::WrongLength { key } => Self::WrongLength { key },
            FormulaError::InvalidResult { formula } => Self::InvalidResult { formula },
        }
    }
}
