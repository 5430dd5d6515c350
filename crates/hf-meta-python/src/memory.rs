//! The arguments `memory`, `fit` and `gpu`, and their options.

use hf_meta_count::memory::{Engine, MemoryOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The names of arguments, with the names of the options in [`MemoryOptions::set`]. The last ones are options of vLLM.
const NAMES: [(&str, &str); 12] = [
    ("memory", "context"),
    ("fit", "budget"),
    ("batch", "batch"),
    ("cache_dtype", "cacheDtype"),
    ("engine", "engine"),
    ("gpu", "gpu"),
    ("reserve", "reserve"),
    ("pp", "pp"),
    ("tp", "tp"),
    ("max_num_batched_tokens", "maxNumBatchedTokens"),
    ("gpu_memory_utilization", "gpuMemoryUtilization"),
    ("num_speculative_tokens", "numSpeculativeTokens"),
];

/// Returns the options with these names and values, in the order of their arguments.
fn options(given: &[(String, String)]) -> PyResult<MemoryOptions> {
    let mut options = MemoryOptions::default();
    for (argument, option) in NAMES {
        let Some((_, value)) = given.iter().find(|(name, _)| name == option) else { continue };
        let invalid = |reason| PyValueError::new_err(format!("`{argument}`: {reason}"));
        options.set(option, value).map_err(invalid)?;
    }
    for (argument, option) in &NAMES[7..] {
        let has = given.iter().any(|(name, _)| name == option);
        if has && options.engine != Engine::Vllm {
            let message = format!("`{argument}` requires `engine=\"vllm\"`");
            return Err(PyValueError::new_err(message));
        }
    }
    options.finish().map_err(PyValueError::new_err)?;
    Ok(options)
}

/// Returns the options of `verify`; `None` if no engine is given.
pub(crate) fn engine_options(given: &[(String, String)]) -> PyResult<Option<MemoryOptions>> {
    if given.iter().any(|(name, _)| name == "engine") {
        return options(given).map(Some);
    }
    let found = NAMES.iter().find(|(_, option)| given.iter().any(|(name, _)| name == option));
    found.map_or(Ok(None), |(argument, option)| {
        let argument = if *option == "context" { option } else { argument };
        Err(PyValueError::new_err(format!("`{argument}`: requires `engine`")))
    })
}

/// Returns the options of `memory`, `fit` and `gpu` with these names and values; `None` if none is requested.
pub(crate) fn memory_options(
    has_memory: bool,
    given: &[(String, String)],
) -> PyResult<Option<MemoryOptions>> {
    let has = |option: &str| given.iter().any(|(name, _)| name == option);
    if has_memory || has("budget") || has("gpu") {
        return options(given).map(Some);
    }
    let found = NAMES.iter().find(|(_, option)| has(option));
    found.map_or(Ok(None), |(argument, _)| {
        Err(PyValueError::new_err(format!("`{argument}`: requires `memory` or `fit`")))
    })
}
