//! Adds up what a loader loads: the components of a pipeline, and the memory that they need.

use futures::future::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};

use super::call::Call;
use super::count::Inspected;
use super::locate::Located;
use super::verify::CONCURRENT_SETS;
use crate::error::Error;
use crate::formats::RepoPath;
use crate::formats::weight_sets::{Layout, WeightSet};
use crate::memory::MemoryComponent;
use crate::results::CountReport;
use crate::steps::cache_of_all;
use crate::steps::pipeline_components;

impl Call {
    /// Returns the sets that a loader of the main set loads, without the main set itself.
    pub(crate) async fn loaded_with(&self, main: &RepoPath) -> Result<Vec<WeightSet>, Error> {
        let listing = match self.known_files() {
            Some(known) => known,
            None => self.files.list(None).await?.unwrap_or_default(),
        };
        self.loaded_from(&self.listed(None, listing).await.layout, main).await
    }

    /// Returns the sets of a layout that a loader of the main set loads, without the main set itself.
    async fn loaded_from(&self, layout: &Layout, main: &RepoPath) -> Result<Vec<WeightSet>, Error> {
        let Some(main) = layout.find(main) else { return Ok(Vec::new()) };
        let components = match layout.pipeline_of(main) {
            Some(path) => {
                let json = self.files.read_whole(path, self.context.limits.config).await?.value;
                pipeline_components(path, &json).unwrap_or_default()
            }
            None => Vec::new(),
        };
        let loaded = layout.loaded_with(Some(main), &components).into_iter();
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
        let (mut others, mut cache) = (Vec::new(), cache.clone());
        // A caller who selects one set wants that set.
        if let Some(layout) = layout.filter(|_| self.context.target.is_folder()) {
            let loaded = self.loaded_from(layout, path).await?;
            cache = cache_of_all(cache, layout, path, loaded.len(), &options);
            if !loaded.is_empty() && loaded.len() < CountReport::MAX_COMPONENTS {
                others = self.component_sizes(loaded).await?;
                report.fetch = self.fetch_stats(report.fetch.weight_bytes);
            }
        }
        report.add_memory(path, cache, options, others, layout);
        Ok(())
    }

    /// Reads the headers of components. Returns the bytes of their weights.
    async fn component_sizes(&self, sets: Vec<WeightSet>) -> Result<Vec<MemoryComponent>, Error> {
        let reads = sets.into_iter().map(|set| {
            let mut call = self.for_set(CONCURRENT_SETS as u64);
            async move {
                let commit = call.state.commit.clone();
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
