//! The memory of a model and of the components that are loaded with it.

use hf_meta_format::count::Configs;
use hf_meta_format::formats::weight_sets::{Layout, PIPELINE, WeightSet};
use hf_meta_format::memory::{CacheError, CacheLayout, Engine, Memory, MemoryComponent};
use hf_meta_format::report::Finding;
use hf_meta_format::report::verify::pipeline_components;
use hf_meta_format::{CountReport, RepoPath};

use super::read::Call;
use super::reader::Failure;

/// The maximum number of components. A pipeline has a dozen.
const MAX_COMPONENTS: usize = 100;

impl Call {
    /// Adds the memory that the weights need, with all components that are loaded together, if it was requested.
    pub(crate) async fn add_memory(
        &self,
        path: &RepoPath,
        report: &mut CountReport,
        mut cache: Result<CacheLayout, CacheError>,
        layout: Option<&Layout>,
    ) -> Result<(), Failure> {
        let Some(options) = self.memory else { return Ok(()) };
        let weight_bytes = report.parameter_count.totals().bytes;
        let mut sizes = vec![MemoryComponent { path: path.clone(), weight_bytes }];
        let is_folder = self.options.path.as_ref().is_none_or(|path| self.is_folder(path));
        if let Some((layout, main)) =
            layout.filter(|_| is_folder).and_then(|layout| Some((layout, layout.find(path)?)))
        {
            let loaded = self.loaded_with(layout, main).await?;
            if loaded.len() < MAX_COMPONENTS {
                for set in loaded {
                    let reads = self.read_set(&self.located(set)?, false).await?;
                    let (path, weight_bytes) = (set.path.clone(), reads.builder.tensor_bytes());
                    sizes.push(MemoryComponent { path, weight_bytes });
                }
            } else {
                cache = Err(CacheError::TooManyComponents { limit: MAX_COMPONENTS });
            }
            let is_stored = options.engine.is_none_or(|engine| engine == Engine::Stored);
            let is_without_cache =
                layout.pipeline_of(main).is_some_and(|index| is_pipeline(index) || is_stored);
            if cache.is_err() && sizes.len() > 1 || is_without_cache {
                cache = Ok(CacheLayout::without_cache("pipeline"));
            }
        }
        let weight_bytes = sizes.iter().map(|set| set.weight_bytes).fold(0, u64::saturating_add);
        let mut memory = Memory::new(weight_bytes, cache, options);
        let reason = memory.unknown.clone();
        report.findings.extend(reason.map(|reason| Finding::UnknownCacheSize { reason }));
        if sizes.len() > 1 {
            memory.components = sizes;
        }
        memory.add_quantizations(
            layout.map_or_else(Vec::new, |layout| report.quantizations(layout, path)),
        );
        report.memory = Some(Box::new(memory));
        Ok(())
    }

    /// Returns whether a path selects a folder.
    fn is_folder(&self, path: &RepoPath) -> bool {
        let is_file = self.formats.find(path.as_str()).is_some() || path.is_index();
        !is_file && !self.formats.is_quantization(path.as_str())
    }

    /// Returns the sets of a layout that a loader of the main set loads, without the main set itself.
    async fn loaded_with<'a>(
        &self,
        layout: &'a Layout,
        main: &'a WeightSet,
    ) -> Result<Vec<&'a WeightSet>, Failure> {
        let components = match layout.pipeline_of(main).filter(|path| is_pipeline(path)) {
            Some(path) => {
                let json = self.reader.load(path, Configs::DEFAULT_LIMIT).await?;
                pipeline_components(path, &json).unwrap_or_default()
            }
            None => Vec::new(),
        };
        let mut loaded = layout.loaded_with(main, &components);
        loaded.retain(|set| set.path != main.path);
        Ok(loaded)
    }
}

fn is_pipeline(index: &RepoPath) -> bool {
    index.file_name().as_str() == PIPELINE
}
