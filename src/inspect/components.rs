//! Adds up what a loader loads: the components of a pipeline, and the memory that they need.

use futures::future::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};

use super::Target;
use super::call::Call;
use super::count::Inspected;
use super::locate::Located;
use super::verify::CONCURRENT_SETS;
use crate::error::Error;
use crate::formats::RepoPath;
use crate::formats::weight_sets::{Layout, PIPELINE, WeightSet};
use crate::memory::{CacheError, CacheLayout, Engine, Memory, MemoryComponent, MemoryOptions};
use crate::report::verify::pipeline_components;
use crate::report::{CountReport, Finding};

/// The maximum number of components. A pipeline has a dozen.
const MAX_COMPONENTS: usize = 100;

impl Call {
    /// Returns the sets that a loader of the main set loads, without the main set itself.
    pub(crate) async fn loaded_with(&self, main: &RepoPath) -> Result<Vec<WeightSet>, Error> {
        let listed = match &self.context.known_files {
            Some(known) => Some(known.clone()),
            None => self.files.list(None).await?,
        };
        let layout = Layout::new(&self.context.formats, None, &listed.unwrap_or_default().files);
        self.loaded_from(&layout, main).await
    }

    /// Returns the sets of a layout that a loader of the main set loads, without the main set itself.
    async fn loaded_from(&self, layout: &Layout, main: &RepoPath) -> Result<Vec<WeightSet>, Error> {
        let Some(main) = layout.find(main) else { return Ok(Vec::new()) };
        let index = layout.pipeline_of(main).filter(|path| is_pipeline(path));
        let components = match index {
            Some(path) => {
                let json = self.files.read_whole(path, self.context.limits.config).await?.value;
                pipeline_components(path, &json).unwrap_or_default()
            }
            None => Vec::new(),
        };
        let loaded = layout.loaded_with(main, &components).into_iter();
        Ok(loaded.filter(|set| set.path != main.path).cloned().collect())
    }

    /// Adds the memory that the weights need, with all components that are loaded together, if it was requested.
    pub(super) async fn add_memory(
        &self,
        inspected: &mut Inspected,
        layout: Option<&Layout>,
    ) -> Result<(), Error> {
        let Some(options) = self.context.options.memory else { return Ok(()) };
        let Inspected { path, report, cache, .. } = inspected;
        let weight_bytes = report.parameter_count.totals().bytes;
        let mut sizes = vec![MemoryComponent { path: path.clone(), weight_bytes }];
        // A caller who selects one set wants that set.
        if let Some(layout) = layout.filter(|_| matches!(self.context.target, Target::Folder(_))) {
            let loaded = self.loaded_from(layout, path).await?;
            if loaded.len() < MAX_COMPONENTS {
                sizes.extend(self.component_sizes(report, loaded).await?);
            } else {
                *cache = Err(CacheError::TooManyComponents { limit: MAX_COMPONENTS });
            }
            let index = layout.find(path).and_then(|main| layout.pipeline_of(main));
            if cache.is_err() && sizes.len() > 1 || is_without_cache(index, &options) {
                *cache = Ok(CacheLayout::without_cache("pipeline"));
            }
        }
        let weight_bytes = sizes.iter().map(|set| set.weight_bytes).fold(0, u64::saturating_add);
        let mut memory = Memory::new(weight_bytes, cache.clone(), options);
        let reason = memory.unknown.clone();
        report.findings.extend(reason.map(|reason| Finding::UnknownCacheSize { reason }));
        if sizes.len() > 1 {
            memory.components = sizes;
            report.fetch = self.fetch_stats(report.fetch.weight_bytes);
        }
        let sets = layout.map(|sets| report.quantizations(sets, path));
        memory.add_quantizations(sets.unwrap_or_default());
        report.memory = Some(Box::new(memory));
        Ok(())
    }

    /// Reads the headers of components. Returns the bytes of their weights.
    async fn component_sizes(
        &self,
        report: &CountReport,
        sets: Vec<WeightSet>,
    ) -> Result<Vec<MemoryComponent>, Error> {
        let reads = sets.into_iter().map(|set| {
            let (mut call, commit) = (self.for_set(CONCURRENT_SETS as u64), report.commit.clone());
            call.state.commit.clone_from(&commit);
            async move {
                let Located { weights, .. } = call.find_set(&set, commit).await?;
                let weight_bytes = call.read_set(weights).await?.assembly.tensor_bytes();
                Ok(MemoryComponent { path: set.path, weight_bytes })
            }
            .boxed()
        });
        let reads: Vec<_> = reads.collect();
        stream::iter(reads).buffered(CONCURRENT_SETS).try_collect().await
    }
}

fn is_pipeline(index: &RepoPath) -> bool {
    index.file_name().as_str() == PIPELINE
}

/// Returns whether a list of components shows that none of them stores a cache. Engines serve some embedding models as
/// language models.
fn is_without_cache(index: Option<&RepoPath>, options: &MemoryOptions) -> bool {
    let is_stored = options.engine.is_none_or(|engine| engine == Engine::Stored);
    index.is_some_and(|index| is_pipeline(index) || is_stored)
}
