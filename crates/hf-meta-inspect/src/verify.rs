//! Verification: continues after invalid files and reports every error.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use hf_meta_count::check::SetCheck;
use hf_meta_count::check::Verification;
use hf_meta_count::engines::add_answer;
use hf_meta_count::results::VerifyReport;
use hf_meta_count::results::{Finding, bounded};
use hf_meta_count::steps::ConfigFile;
use hf_meta_count::steps::Target;
use hf_meta_format::formats::weight_sets::{ListedWeights, WeightSet};
use hf_meta_format::formats::{RepoPath, chain, clip};

use super::call::Call;
use super::config::CONFIG;
use super::error::Error;
use super::locate::{Listed, Located};
use super::memory::CONCURRENT_SETS;
use super::pinned::Pinned;
use super::send::BoxFuture;
use super::set::SetReader;
use super::shards::SetReads;
use super::shared_configs::SharedConfigs;

impl Call {
    /// Reads every header of the weights that a loader loads, or of all sets, and reports all findings. The caller adds
    /// the requests, bytes and time that the call took.
    ///
    /// # Errors
    ///
    /// Returns the errors that occur before the index, or the first bytes of a single file, have been read.
    pub async fn verify(&self) -> Result<VerifyReport, Error> {
        let configs = Arc::default();
        let (mut report, listed, mut files) = match self.list_all().await? {
            Some((listed, files)) => (VerifyReport::default(), Some(listed), files),
            None => match Box::pin(self.verify_main(&configs)).await {
                Err(error @ Error::SeveralSets { .. }) => {
                    let (listed, files) = self.list_pipeline(error).await?;
                    (VerifyReport::default(), Some(listed), files)
                }
                result => result?,
            },
        };
        if let Some(listed) = &listed {
            let mut verification = Verification::new(listed, &report, &self.settings.target);
            if let Some(path) = verification.components_file() {
                let read = files.files.load(path, self.settings.limits.config).await;
                let json = read.map(|read| read.bytes.to_vec());
                verification.add_components(path, json.map_err(|error| file_finding(path, error)));
                for path in verification.config_files() {
                    let read = files.files.load(&path, self.settings.limits.config).await;
                    let json = read.map(|read| read.bytes.to_vec());
                    let json = json.map_err(|error| file_finding(&path, error));
                    verification.add_config(path, json);
                }
            }
            let sets = verification.missing_sets(&report, self.settings.all_sets);
            Box::pin(self.verify_sets(&sets, listed, &configs, &mut report, &mut files)).await?;
            for path in verification.lone_indexes() {
                // The index is not loaded, so its errors are not reported.
                if let Ok(read) = files.files.load(&path, self.settings.limits.index).await {
                    verification.add_index(&path, &read.bytes);
                }
            }
            verification.finish(&mut report);
        }
        for finding in self.source_findings(&files) {
            report.push(finding);
        }
        if let Some(options) = &self.settings.memory {
            add_answer(&mut report, listed.as_ref(), options);
        }
        report.source.clone_from(&self.settings.source);
        report.commit = files.commit;
        Ok(report)
    }

    /// Lists the files if all sets are verified. Returns `None` if one set was selected, or if there are none.
    async fn list_all(&self) -> Result<Option<(ListedWeights, Pinned)>, Error> {
        if !self.settings.all_sets || !self.settings.target.is_folder() {
            return Ok(None);
        }
        let listed = self.list_target().await?.filter(|listed| !listed.weights.sets.is_empty());
        let Some(Listed { weights: listed, listing }) = listed else { return Ok(None) };
        Ok(Some((listed, Pinned::new(&self.files, listing.commit))))
    }

    /// Lists the files of a pipeline that lacks its main component.
    ///
    /// # Errors
    ///
    /// Returns the error of the location for another repository.
    async fn list_pipeline(&self, error: Error) -> Result<(ListedWeights, Pinned), Error> {
        let listed = self.list_target().await?.filter(|listed| {
            self.settings.target.is_folder() && listed.weights.own_pipeline().is_some()
        });
        let Some(Listed { weights: listed, listing }) = listed else { return Err(error) };
        Ok((listed, Pinned::new(&self.files, listing.commit)))
    }

    /// Verifies the main set, or the selected one, and lists the files.
    async fn verify_main(
        &self,
        configs: &Arc<SharedConfigs>,
    ) -> Result<(VerifyReport, Option<ListedWeights>, Pinned), Error> {
        let (mut located, mut failed) = (Box::pin(self.locate_files()).await?, None);
        let target = &self.settings.target;
        let is_index = matches!(target, Target::File(path) if path.is_index());
        if (target.is_folder() || is_index) && located.listed.is_none() {
            let files = located.files.clone();
            let (found, listed) = located.poll_alongside(self.list_target_of(&files)).await;
            let listed = listed.unwrap_or_else(|error| {
                failed = Some(error);
                None
            });
            located = Located { listed: listed.map(|listed| listed.weights), ..found };
        }
        let (listed, is_complete) = (located.listed.take(), located.is_complete);
        let files = located.files.clone();
        let verified = self.verify_weights(located, listed.as_ref(), configs, true, 1);
        let mut report = Box::pin(verified).await?;
        if let Some(error) = failed {
            let file = clip(&self.settings.source);
            report.push(Finding::Unreadable { file, reason: chain(&error) });
        }
        if !is_complete {
            report.push(Finding::PartialListing);
        }
        Ok((report, listed, files))
    }

    /// Verifies listed sets and adds them to the report. The first one pins the commit if the listing did not.
    async fn verify_sets(
        &self,
        sets: &[&WeightSet],
        listed: &ListedWeights,
        configs: &Arc<SharedConfigs>,
        report: &mut VerifyReport,
        files: &mut Pinned,
    ) -> Result<(), Error> {
        let mut rest = sets.iter();
        if report.sets.is_empty()
            && let Some(first) = rest.next()
        {
            let located = self.find_set(first, files.commit.clone()).await;
            let result = match located {
                Ok(located) => {
                    let commit = files.commit.take().or_else(|| located.files.commit.clone());
                    *files = Pinned::new(&self.files, commit);
                    Box::pin(self.verify_weights(located, Some(listed), configs, true, 1)).await
                }
                Err(error) => Err(error),
            };
            match result {
                Err(error) if error.is_denied() => return Err(error),
                result => report.add(result.unwrap_or_else(|error| failed_set(first, &error))),
            }
        }
        let files = &*files;
        let reads = rest.map(|set| -> BoxFuture<'_, VerifyReport> {
            Box::pin(self.verify_listed_set(set, listed, configs, files))
        });
        let reads: Vec<_> = reads.collect();
        let mut reads = stream::iter(reads).buffered(CONCURRENT_SETS);
        while let Some(other) = reads.next().await {
            report.add(other);
        }
        Ok(())
    }

    async fn verify_listed_set(
        &self,
        set: &WeightSet,
        listed: &ListedWeights,
        configs: &Arc<SharedConfigs>,
        files: &Pinned,
    ) -> VerifyReport {
        const CONCURRENT: u64 = CONCURRENT_SETS as u64;

        let result = match self.find_set(set, files.commit.clone()).await {
            Ok(located) => {
                self.verify_weights(located, Some(listed), configs, false, CONCURRENT).await
            }
            Err(error) => Err(error),
        };
        result.unwrap_or_else(|error| failed_set(set, &error))
    }

    /// Reads every header of a set and reports all findings. `is_first` adds the findings about the repository, and
    /// `concurrent` is the number of sets that are read concurrently.
    async fn verify_weights(
        &self,
        located: Located,
        listed: Option<&ListedWeights>,
        configs: &Arc<SharedConfigs>,
        is_first: bool,
        concurrent: u64,
    ) -> Result<VerifyReport, Error> {
        let Located { path, weights, files, .. } = located;
        let set = SetReader::new(self, files, path.clone()).sharing(concurrent).continuing();
        let set = set.with_configs(configs);
        let (number, reads) = match Box::pin(set.read(weights)).await {
            Ok(reads) => (reads.shards.len().max(1), reads),
            Err(error @ Error::InvalidIndex { .. }) => {
                let failures = vec![(path.clone(), error)];
                let (builder, shards) = (set.builder(None), Vec::new());
                (0, SetReads { builder, shards, failures, config: None, is_partial: false })
            }
            Err(error) => return Err(error),
        };
        let unindexed = if reads.builder.index().is_some() { listed } else { None };
        let unindexed =
            unindexed.map_or_else(Vec::new, |listed| listed.unindexed_shards(&reads.shards));
        let builds_base = listed.is_some_and(|listed| listed.builds_base(&path));
        let is_whole = self.settings.target.single_shard().is_none();
        let (keeps_headers, memory) = (self.settings.keep_headers, self.settings.memory);
        let SetReads { builder, shards, failures, config, .. } = reads;
        let check = move || {
            let failures = failures.into_iter().map(|(file, error)| file_finding(&file, error));
            let failures = bounded(failures);
            let mut check =
                SetCheck::new(path, number, builder, &shards, &unindexed, failures, is_whole);
            check.builds_base = builds_base;
            check.keeps_headers = keeps_headers;
            check.memory = memory;
            check
        };
        let check = self.files.run(0, check).await;
        Ok(Box::pin(set.conclude(check, config, is_first)).await)
    }
}

impl SetReader {
    /// Reads what the headers refer to, and returns the result of the set.
    async fn conclude(
        &self,
        mut check: SetCheck,
        config: Option<Result<ConfigFile, Error>>,
        is_first: bool,
    ) -> VerifyReport {
        let files = &self.files.files;
        let config = match config {
            Some(config) => config,
            None if check.needs_config => self.read_config().await,
            None => Ok(ConfigFile::default()),
        };
        let config = config.unwrap_or_else(|error| {
            let finding = file_finding(&self.next_to_weights(CONFIG), error);
            check.set.findings.insert(0, finding);
            ConfigFile::default()
        });
        let find_other = move || {
            let other = check.other_config_file(&config.configs);
            (check, config, other)
        };
        let (mut check, mut config, other) = files.run(0, find_other).await;
        if let Some(name) = other
            && let path = self.next_to_weights(name)
            && let Err(error) = self.read_other_config(name, &mut config).await
        {
            check.set.findings.push(file_finding(&path, error));
        }
        let is_counted = is_first && check.is_counted_by_hub();
        let hub = if is_counted { files.reported_count().await } else { Ok(None) };
        files.run(0, move || check.finish(&config, hub)).await
    }
}

/// Returns the result of a set that could not be found or read.
fn failed_set(set: &WeightSet, error: &Error) -> VerifyReport {
    let (file, reason) = (clip(set.path.as_str()), chain(error));
    VerifyReport::unreadable(set, Finding::Unreadable { file, reason })
}

/// Converts the error of a file to a finding.
fn file_finding(path: &RepoPath, error: Error) -> Finding {
    let file = clip(path.as_str());
    match error.of_shard() {
        Error::InvalidHeader { format, source, .. } => {
            Finding::MalformedHeader { file, format, reason: source }
        }
        Error::InvalidIndex { source, .. } => Finding::MalformedIndex { file, reason: source },
        Error::ShardNotFound { .. } => Finding::MissingShard { file },
        error => Finding::Unreadable { file, reason: chain(&error) },
    }
}
