//! The components of a pipeline, and the cache of all of them.

use super::parts::Parts;
use crate::memory::{CacheError, CacheSpec, Engine, MemoryOptions};
use crate::results::CountReport;
use hf_meta_format::formats::RepoPath;
use hf_meta_format::formats::weight_sets::{ListedWeights, PIPELINE};

/// Returns the folders of the components that a diffusers pipeline lists in `model_index.json`, or of the modules that
/// `modules.json` lists. `index` is the path of that file and `json` its content.
pub fn pipeline_components(index: &RepoPath, json: &[u8]) -> Option<Vec<RepoPath>> {
    Some(Parts::read(index, json).ok()?.folders().cloned().collect())
}

/// Returns the cache of a model, given its own one and the number of `others` that are loaded with it. Nothing is
/// cached if a list of components shows it. Engines serve some embedding models as language models.
///
/// # Errors
///
/// Returns an error if the size of the cache is unknown.
pub fn cache_of_all(
    own: Result<CacheSpec, CacheError>,
    listed: &ListedWeights,
    path: &RepoPath,
    others: usize,
    options: &MemoryOptions,
) -> Result<CacheSpec, CacheError> {
    let main = listed.find(path);
    let is_stored = options.engine == Engine::Stored;
    let is_without_cache = main.is_some_and(|main| {
        let pipeline = listed.pipeline_of(main);
        let is_diffusers = pipeline.is_some_and(|path| path.file_name().as_str() == PIPELINE);
        is_diffusers || is_stored && pipeline.is_some()
    });
    match own {
        _ if is_without_cache => Ok(CacheSpec::without_cache("pipeline")),
        _ if others >= CountReport::MAX_COMPONENTS => {
            Err(CacheError::TooManyComponents { limit: CountReport::MAX_COMPONENTS })
        }
        Err(_) if others > 0 => Ok(CacheSpec::without_cache("pipeline")),
        own => own,
    }
}
