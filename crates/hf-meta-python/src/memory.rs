//! The arguments `memory` and `fit`, and their options.

use hf_meta_count::memory::{Engine, MemoryOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Returns the options of `memory` and `fit` with these names and values; `None` if neither is requested.
pub(crate) fn memory_options(
    has_memory: bool,
    given: &[(String, String)],
) -> PyResult<Option<MemoryOptions>> {
    /// The names of arguments, and those of the options of [`MemoryOptions::set`].
    const NAMES: [(&str, &str); 8] = [
        ("memory", "context"),
        ("fit", "budget"),
        ("batch", "batch"),
        ("cache_dtype", "cacheDtype"),
        ("engine", "engine"),
        ("tp", "tp"),
        ("max_num_batched_tokens", "maxNumBatchedTokens"),
        ("gpu_memory_utilization", "gpuMemoryUtilization"),
    ];

    let has = |option: &str| given.iter().any(|(name, _)| name == option);
    let mut options = MemoryOptions::default();
    for (argument, option) in NAMES {
        let Some((_, value)) = given.iter().find(|(name, _)| name == option) else { continue };
        let invalid = |reason| PyValueError::new_err(format!("`{argument}`: {reason}"));
        if !has_memory && !has("budget") {
            return Err(invalid("requires `memory` or `fit`".to_owned()));
        }
        options.set(option, value).map_err(invalid)?;
    }
    for (argument, option) in &NAMES[5..] {
        if has(option) && options.engine != Engine::Vllm {
            let message = format!("`{argument}` requires `engine=\"vllm\"`");
            return Err(PyValueError::new_err(message));
        }
    }
    Ok((has_memory || has("budget")).then_some(options))
}
