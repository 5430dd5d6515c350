//! The memory of a model and of the components that are loaded with it.

use hf_meta_count::CountReport;
use hf_meta_count::count::Configs;
use hf_meta_count::memory::{CacheError, CacheLayout, MemoryComponent};
use hf_meta_count::steps::cache_of_all;
use hf_meta_count::steps::pipeline_components;
use hf_meta_format::RepoPath;
use hf_meta_format::formats::weight_sets::Layout;

use super::read::Call;
use super::reader::Failure;

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
        let mut others = Vec::new();
        // A caller who selects one set wants that set.
        if let Some(layout) = layout.filter(|_| self.target.is_folder())
            && let Some(main) = layout.find(path)
        {
            let mut components = Vec::new();
            if let Some(path) = layout.pipeline_of(main) {
                let json = self.reader.load(path.as_str(), Configs::DEFAULT_LIMIT).await?.bytes();
                components = pipeline_components(path, &json).unwrap_or_default();
            }
            let mut loaded = layout.loaded_with(Some(main), &components);
            loaded.retain(|set| set.path != main.path);
            cache = cache_of_all(cache, layout, path, loaded.len(), &options);
            let is_bounded = loaded.len() < CountReport::MAX_COMPONENTS;
            for set in loaded.into_iter().filter(|_| is_bounded) {
                let reads = self.read_set(&self.located(set)?).await?;
                let (path, weight_bytes) = (set.path.clone(), reads.builder.tensor_bytes());
                others.push(MemoryComponent { path, weight_bytes });
            }
        }
        report.add_memory(path, cache, options, others, layout);
        Ok(())
    }
}
