//! Counts the weights of a call.

use hf_meta_count::check::last_checkpoint;
use hf_meta_count::memory::{CacheError, CacheSpec};
use hf_meta_count::results::{CountReport, Finding, Plan, SafetensorsParseFromRepo, Weights};
use hf_meta_count::steps::{BuiltReport, ConfigFile};
use hf_meta_format::formats::RepoPath;
use hf_meta_format::formats::safetensors::IndexError;

use super::call::Call;
use super::error::Error;
use super::locate::{FoundWeights, Located};
use super::pinned::Pinned;
use super::set::SetReader;
use super::shards::SetReads;

/// A weight set whose headers have been read and counted.
#[derive(Debug)]
pub struct Inspected {
    /// The path of the file or the index, or the pattern of shards without an index.
    pub path: RepoPath,
    /// The report. The caller adds the requests, bytes and time that the call took.
    pub report: CountReport,
    /// `true` if only the shards of the selected tensors were read, so the report is not that of the set.
    pub is_partial: bool,
    built: BuiltReport,
}

impl Inspected {
    /// Returns the headers and the report. The headers must have been kept.
    ///
    /// # Errors
    ///
    /// Returns an error if shards have no index and their names are too long to build one.
    pub fn into_weights(self) -> Result<Weights, IndexError> {
        self.built.into_weights(self.path, self.report)
    }

    /// Returns the headers and the report of safetensors files. The headers must have been kept.
    ///
    /// # Errors
    ///
    /// Returns an error if shards have no index and their names are too long to build one.
    pub fn into_parsed(self) -> Result<SafetensorsParseFromRepo, IndexError> {
        self.built.into_parsed(self.path, self.report)
    }
}

impl Call {
    /// Locates the weights, reads all headers and counts them. Stops at the first error.
    ///
    /// # Errors
    ///
    /// Returns the first error that occurs.
    pub async fn inspect(&self) -> Result<Inspected, Error> {
        // Boxed, so that the future of a call does not contain the state of every step.
        let located = Box::pin(self.locate()).await?;
        Box::pin(self.read(located)).await
    }

    /// Reads all headers of located weights and counts them. Stops at the first error.
    ///
    /// # Errors
    ///
    /// Returns the first error that occurs.
    pub async fn read(&self, located: Located) -> Result<Inspected, Error> {
        let Located { path, weights, files, listed, is_complete } = located;
        let plan = match weights {
            FoundWeights::Headers { .. } => Plan::Hub,
            // Without the Hub's response, the files are read with the next best plan.
            _ if self.settings.plan == Plan::Hub => Plan::Prefetch,
            _ => self.settings.plan,
        };
        let set = SetReader::new(self, files, path);
        let reads = Box::pin(set.read(weights)).await?;
        let (mut inspected, cache) = Box::pin(set.count(reads)).await?;
        inspected.report.plan = plan;
        let add = self.add_memory(&mut inspected, &set.files, cache, listed.as_ref());
        Box::pin(add).await?;
        let checkpoint = if self.settings.target.is_folder() { listed.as_ref() } else { None };
        let checkpoint = checkpoint.and_then(|listed| last_checkpoint(listed, &inspected.path));
        inspected.report.findings.extend(checkpoint);
        inspected.report.add_other_sets(listed.map(|listed| listed.sets));
        let partial = (!is_complete).then_some(Finding::PartialListing);
        inspected.report.findings.extend(partial);
        Ok(inspected)
    }
}

/// The counts of a set, and the cache of its model, if it is known.
type CountedSet = (Inspected, Result<CacheSpec, CacheError>);

impl SetReader {
    /// Counts the headers of the set.
    async fn count(&self, reads: SetReads) -> Result<CountedSet, Error> {
        let SetReads { builder, config, is_partial, .. } = reads;
        let (call, path, Pinned { files, commit }) = (&self.call, &self.path, &self.files);
        let memory = call.settings.memory;
        let config = match config {
            Some(config) => config?,
            None if memory.is_some() && !builder.describes_cache() => self.read_config().await?,
            None => ConfigFile::default(),
        };
        let find_other = move || {
            let other = if is_partial { None } else { builder.other_config_file(&config.configs) };
            (builder, config, other)
        };
        let (builder, mut config, other) = files.run(0, find_other).await;
        if let Some(name) = other {
            self.read_other_config(name, &mut config).await?;
        }
        let weights = path.clone();
        let counted = files.run(0, move || builder.count(config, &weights, memory)).await;
        let (built, mut report, cache) =
            counted.map_err(|source| call.index_error(path, source))?;
        report.findings.extend(call.source_findings(&self.files));
        report.set_format(call.settings.format(path).name());
        report.source.clone_from(&call.settings.source);
        report.commit.clone_from(commit);
        Ok((Inspected { path: path.clone(), report, is_partial, built }, cache))
    }
}
