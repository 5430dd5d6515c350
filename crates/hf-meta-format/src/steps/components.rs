//! The components of a pipeline, and the cache of all of them.

use std::collections::BTreeSet;

use serde_json::value::RawValue;

use crate::base::json_object::{JsonObject, parse, read};
use crate::base::sort::Ordered;
use crate::formats::RepoPath;
use crate::formats::weight_sets::Layout;
use crate::memory::{CacheError, CacheLayout, Engine, MemoryOptions};
use crate::results::CountReport;

/// Returns the folders of the components that a diffusers pipeline lists in `model_index.json`. `index` is the path of
/// that file and `json` its content. diffusers loads each component from the folder of its name; one that is not used
/// is listed as `[null, null]` (`DiffusionPipeline.from_pretrained`).
pub fn pipeline_components(index: &RepoPath, json: &[u8]) -> Option<Vec<RepoPath>> {
    let object = parse::<JsonObject<'_>>(json).ok()?;
    let is_listed = |(name, value): &(&str, &RawValue)| {
        !name.starts_with('_') && read::<[String; 2]>(value).is_some()
    };
    let names: BTreeSet<_> = object.entries().filter(is_listed).map(|(name, _)| name).ordered();
    let folder = |name| RepoPath::join(index.folder().as_ref(), name);
    Some(names.into_iter().map(folder).collect())
}

/// Returns the cache of a model, given its own one and the number of `others` that are loaded with it. Nothing is
/// cached if a list of components shows it. Engines serve some embedding models as language models.
///
/// # Errors
///
/// Returns an error if the size of the cache is unknown.
pub fn cache_of_all(
    own: Result<CacheLayout, CacheError>,
    layout: &Layout,
    path: &RepoPath,
    others: usize,
    options: &MemoryOptions,
) -> Result<CacheLayout, CacheError> {
    let main = layout.find(path);
    let is_stored = options.engine == Engine::Stored;
    let is_without_cache = main.is_some_and(|main| {
        layout.components_file(main).is_some() || is_stored && layout.pipeline_of(main).is_some()
    });
    match own {
        _ if is_without_cache => Ok(CacheLayout::without_cache("pipeline")),
        _ if others >= CountReport::MAX_COMPONENTS => {
            Err(CacheError::TooManyComponents { limit: CountReport::MAX_COMPONENTS })
        }
        Err(_) if others > 0 => Ok(CacheLayout::without_cache("pipeline")),
        own => own,
    }
}
