//! The question whether an engine loads a model, on certain GPUs.
//!
//! The table `engines.txt` lists what the engines register, and is generated from their sources. What no engine in it knows
//! is unknown. What another engine knows and the engine in question does not is a `no`.
//!
//! ```
//! use hf_meta_count::engines::EngineModel;
//! use hf_meta_count::memory::MemoryOptions;
//!
//! let config = br#"{"architectures":["CanineModel"],"model_type":"canine"}"#;
//! let model = EngineModel { config: Some(config), format: "safetensors", ..EngineModel::default() };
//! let mut options = MemoryOptions::default();
//! options.set("engine", "vllm")?;
//! let answer = model.answer(&options);
//! assert_eq!((answer.name, answer.loads), ("vllm", Some(false)));
//! assert_eq!(answer.reasons[0].message, "vllm 0.33.0 has no CanineModel; transformers has it");
//! # Ok::<(), String>(())
//! ```

mod answer;
mod fit;
mod pairs;
mod report;
mod table;
#[cfg(test)]
mod tests;

pub use self::answer::{EngineModel, refused};
pub use self::pairs::Paired;
pub use self::report::{add_answer, add_count_answer, add_pair};
