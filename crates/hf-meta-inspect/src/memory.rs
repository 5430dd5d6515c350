//! Adds up what a loader loads: the components of a pipeline, and the memory that they need.

use futures::stream::{self, StreamExt, TryStreamExt};
use hf_meta_count::memory::{CacheError, CacheSpec, MemoryComponent};
use hf_meta_count::results::CountReport;
use hf_meta_count::steps::cache_of_all;
use hf_meta_count::steps::pipeline_components;
use hf_meta_format::formats::RepoPath;
use hf_meta_format::formats::weight_sets::{ListedWeights, WeightSet};

use super::call::Call;
use super::count::Inspected;
use super::error::Error;
use super::locate::Located;
use super::pinned::Pinned;
use super::send::BoxFuture;
use super::set::SetReader;

/// The number of weight sets to read concurrently. Together they may use as much memory for headers as one call.
pub(crate) const CONCURRENT_SETS: usize = 4;

impl Call {
    /// Returns the sets that a loader of the main set loads, without the main set itself.
    ///
    /// # Errors
    ///
    /// Returns an error if the files cannot be listed or read.
    pub async fn loaded_with(&self, main: &RepoPath) -> Result<Vec<WeightSet>, Error> {
        let listing = match self.known_files(None) {
            Some(known) => known,
            None => self.files.list(None).await?.unwrap_or_default(),
        };
        let listed = self.listed(None, listing).await;
        let files = Pinned::new(&self.files, None);
        self.loaded_from(&files, &listed.weights, main).await
    }

    /// Returns the listed sets that a loader of the main set loads, without the main set itself.
    async fn loaded_from(
        &self,
        files: &Pinned,
        listed: &ListedWeights,
        main: &RepoPath,
    ) -> Result<Vec<WeightSet>, Error> {
        let Some(main) = listed.find(main) else { return Ok(Vec::new()) };
        let components = match listed.pipeline_of(main) {
            Some(path) => {
                let json = files.load(path, self.settings.limits.config).await?.bytes;
                pipeline_components(path, &json).unwrap_or_default()
            }
            None => Vec::new(),
        };
        let loaded = listed.loaded_with(Some(main), &components).into_iter();
        Ok(loaded.filter(|set| set.path != main.path).cloned().collect())
    }

    /// Adds the memory that the weights need, with all components that are loaded together, if it was requested.
    pub(crate) async fn add_memory(
        &self,
        inspected: &mut Inspected,
        files: &Pinned,
        mut cache: Result<CacheSpec, CacheError>,
        listed: Option<&ListedWeights>,
    ) -> Result<(), Error> {
        let Some(options) = self.settings.memory else { return Ok(()) };
        let Inspected { path, report, .. } = inspected;
        let mut others = Vec::new();
        // A caller who selects one set wants that set.
        if self.settings.target.is_folder()
            && let Some(listed) = listed
        {
            let loaded = self.loaded_from(files, listed, path).await?;
            cache = cache_of_all(cache, listed, path, loaded.len(), &options);
            if !loaded.is_empty() && loaded.len() < CountReport::MAX_COMPONENTS {
                others = self.component_sizes(files, &loaded).await?;
            }
        }
        report.add_memory(path, cache, options, others, listed);
        Ok(())
    }

    /// Reads the headers of components. Returns the bytes of their weights.
    async fn component_sizes(
        &self,
        files: &Pinned,
        sets: &[WeightSet],
    ) -> Result<Vec<MemoryComponent>, Error> {
        let reads = sets.iter().map(|set| -> BoxFuture<'_, Result<MemoryComponent, Error>> {
            Box::pin(self.component_size(files, set))
        });
        let reads: Vec<_> = reads.collect();
        stream::iter(reads).buffered(CONCURRENT_SETS).try_collect().await
    }

    async fn component_size(
        &self,
        files: &Pinned,
        set: &WeightSet,
    ) -> Result<MemoryComponent, Error> {
        let located = self.find_set(set, files.commit.clone()).await?;
        let Located { path, weights, files, .. } = located;
        let set = SetReader::new(self, files, path).sharing(CONCURRENT_SETS as u64);
        let weight_bytes = Box::pin(set.read(weights)).await?.builder.tensor_bytes();
        Ok(MemoryComponent { path: set.path, weight_bytes })
    }
}
