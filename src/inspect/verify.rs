//! Verification: continues after invalid files and reports every error.

use std::time::Duration;

use futures::future::FutureExt;
use futures::stream::{self, StreamExt};
use tokio::time::timeout;

use super::call::{Call, CallState, OnFailure, ReadMode};
use super::config_file::CONFIG;
use super::locate::{FoundWeights, Listed, Located};
use super::shards::SetReads;
use crate::check::SetCheck;
use crate::check::Verification;
use crate::error::Error;
use crate::formats::weight_sets::{Layout, WeightSet};
use crate::formats::{RepoPath, chain, clip};
use crate::hub::HubReportedCount;
use crate::results::VerifyReport;
use crate::results::{Finding, bounded};
use crate::steps::ConfigFile;
use crate::steps::{ReportBuilder, Target};

/// The maximum wait for the count that the Hub reports. The count is optional, and its quota may be exhausted for
/// minutes.
const HUB_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of weight sets to verify concurrently. Together they may use as much memory for headers as one call.
pub(super) const CONCURRENT_SETS: usize = 4;

impl Call {
    /// Reads every header of the weights that a loader loads, or of all sets, and reports all findings.
    pub(crate) async fn verify(mut self) -> Result<VerifyReport, Error> {
        self.mode = ReadMode { keep_headers: true, on_failure: OnFailure::Continue };
        let (mut report, layout) = match self.list_all().await? {
            Some(layout) => (VerifyReport::default(), Some(layout)),
            None => match Box::pin(self.verify_main()).await {
                Err(error @ Error::SeveralSets { .. }) => {
                    (<_>::default(), self.list_pipeline(error).await?)
                }
                result => result?,
            },
        };
        if let Some(layout) = &layout {
            let context = self.context.clone();
            let mut verification = Verification::new(layout, &report, &context.target);
            if let Some(path) = verification.components_file() {
                let read = self.files.read_whole(path, self.context.limits.config).await;
                let json = read.map(|read| read.value);
                verification.add_components(path, json.map_err(|error| file_finding(path, error)));
                for path in verification.config_files() {
                    let read = self.files.read_whole(&path, self.context.limits.config).await;
                    let json =
                        read.map(|read| read.value).map_err(|error| file_finding(&path, error));
                    verification.add_config(path, json);
                }
            }
            let sets = verification.missing_sets(&report, context.options.all_sets);
            self.verify_sets(&sets, layout, &mut report).await?;
            for path in verification.lone_indexes() {
                // The index is not loaded, so its errors are not reported.
                if let Ok(read) = self.files.read_whole(&path, self.context.limits.index).await {
                    verification.add_index(&path, &read.value);
                }
            }
            verification.finish(&mut report);
        }
        for finding in self.source_findings() {
            report.push(finding);
        }
        report.fetch = self.fetch_stats(report.fetch.weight_bytes);
        report.source.clone_from(&self.context.source);
        report.commit = self.state.commit.take();
        Ok(report)
    }

    /// Lists the files if all sets are verified. Returns `None` if one set was selected, or if there are none.
    async fn list_all(&mut self) -> Result<Option<Layout>, Error> {
        if !self.context.options.all_sets || !self.context.target.is_folder() {
            return Ok(None);
        }
        let listed = self.list_target().await?.filter(|listed| !listed.layout.sets.is_empty());
        let Some(Listed { layout, listing }) = listed else { return Ok(None) };
        self.pin(listing.commit);
        Ok(Some(layout))
    }

    /// Lists the files of a pipeline that lacks its main component.
    ///
    /// # Errors
    ///
    /// Returns the error of the location for another repository.
    async fn list_pipeline(&mut self, error: Error) -> Result<Option<Layout>, Error> {
        let listed = self.list_target().await?.filter(|listed| {
            self.context.target.is_folder() && listed.layout.own_pipeline().is_some()
        });
        let Some(Listed { layout, listing }) = listed else { return Err(error) };
        self.pin(listing.commit);
        Ok(Some(layout))
    }

    /// Verifies the main set, or the selected one, and lists the files.
    async fn verify_main(&mut self) -> Result<(VerifyReport, Option<Layout>), Error> {
        let (mut located, mut failed) = (self.locate().await?, None);
        let target = &self.context.target;
        let is_index = matches!(target, Target::File(path) if path.is_index());
        if (target.is_folder() || is_index) && located.layout.is_none() {
            let (found, listed) = located.poll_alongside(self.list_target()).await;
            let listed = listed.unwrap_or_else(|error| {
                failed = Some(error);
                None
            });
            located = Located { layout: listed.map(|listed| listed.layout), ..found };
        }
        let mut call = self.for_set(1);
        let weights = call.verify_weights(located.weights, located.layout.as_ref(), true);
        let mut report = Box::pin(weights).await?;
        if let Some(error) = failed {
            let file = clip(&self.context.source);
            report.push(Finding::Unreadable { file, reason: chain(&error) });
        }
        if !located.is_complete {
            report.push(Finding::PartialListing);
        }
        Ok((report, located.layout))
    }

    /// Creates the call for one of `shares` sets that are read concurrently.
    pub(super) fn for_set(&self, shares: u64) -> Self {
        let commit = self.state.commit.clone();
        let state = CallState { commit, shares, ..CallState::default() };
        Self { state, ..self.clone() }
    }

    /// Verifies listed sets and adds them to the report. The first one pins the commit if the listing did not.
    async fn verify_sets(
        &mut self,
        sets: &[&WeightSet],
        layout: &Layout,
        report: &mut VerifyReport,
    ) -> Result<(), Error> {
        let mut rest = sets.iter();
        if report.sets.is_empty()
            && let Some(first) = rest.next()
        {
            let mut call = self.for_set(1);
            match Box::pin(call.verify_listed_set(first, layout, true)).await {
                Err(error) if error.is_denied() => return Err(error),
                result => report.add(result.unwrap_or_else(|error| failed_set(first, &error))),
            }
            let commit = self.state.commit.take().or(call.state.commit);
            self.pin(commit);
        }
        let reads = rest.map(|set| {
            let mut call = self.for_set(CONCURRENT_SETS as u64);
            async move {
                let result = call.verify_listed_set(set, layout, false).await;
                result.unwrap_or_else(|error| failed_set(set, &error))
            }
        });
        let reads: Vec<_> = reads.map(FutureExt::boxed).collect();
        let mut reads = stream::iter(reads).buffered(CONCURRENT_SETS);
        while let Some(other) = reads.next().await {
            report.add(other);
        }
        Ok(())
    }

    async fn verify_listed_set(
        &mut self,
        set: &WeightSet,
        layout: &Layout,
        is_first: bool,
    ) -> Result<VerifyReport, Error> {
        let Located { weights, commit, .. } = self.find_set(set, self.state.commit.clone()).await?;
        self.pin(commit);
        self.verify_weights(weights, Some(layout), is_first).await
    }

    /// Reads every header of a set and reports all findings. `is_first` adds the findings about the repository.
    async fn verify_weights(
        &mut self,
        weights: FoundWeights,
        layout: Option<&Layout>,
        is_first: bool,
    ) -> Result<VerifyReport, Error> {
        let path = weights.path().clone();
        let (files, reads) = match self.read_set(weights).await {
            Ok(reads) => (reads.shards.len().max(1), reads),
            Err(error @ Error::InvalidIndex { .. }) => {
                let assembly = ReportBuilder::new_sharded(&path, None, true);
                let failures = vec![(path.clone(), error)];
                (0, SetReads { path, assembly, shards: Vec::new(), failures })
            }
            Err(error) => return Err(error),
        };
        let unindexed = layout.filter(|_| reads.assembly.index().is_some());
        let unindexed =
            unindexed.map_or_else(Vec::new, |layout| layout.unindexed_shards(&reads.shards));
        let builds_base = layout.is_some_and(|layout| layout.builds_base(&reads.path));
        let is_whole = self.context.target.single_shard().is_none();
        let check = move || {
            let SetReads { path, assembly, shards, failures } = reads;
            let failures = failures.into_iter().map(|(file, error)| file_finding(&file, error));
            let failures = bounded(failures);
            let mut check =
                SetCheck::new(path, files, assembly, &shards, &unindexed, failures, is_whole);
            check.builds_base = builds_base;
            check
        };
        let check = self.state.work.run(0, check).await;
        Ok(Box::pin(self.conclude(check, is_first)).await)
    }

    /// Reads what the headers refer to, and returns the result of a set.
    async fn conclude(&mut self, mut check: SetCheck, is_first: bool) -> VerifyReport {
        if check.needs_config {
            let _ = self.config().await;
        }
        let config = self.config_or_finding(&mut check.set.findings);
        let work = self.state.work.clone();
        let find_other = move || {
            let other = check.other_config_file(&config.configs);
            (check, config, other)
        };
        let (mut check, mut config, other) = work.run(0, find_other).await;
        if let Some(name) = other
            && let Err(error) = self.read_other_config(name, &mut config).await
        {
            check.set.findings.push(file_finding(&self.next_to_weights(name), error));
        }
        let hub = if is_first && check.is_counted_by_hub() {
            wait_for_hub(self.files.reported_count()).await
        } else {
            Ok(None)
        };
        work.run(0, move || check.finish(&config, hub)).await
    }

    /// Returns the configuration, or an empty one if reading failed. The error becomes the first finding.
    fn config_or_finding(&mut self, findings: &mut Vec<Finding>) -> ConfigFile {
        let config = self.state.config.take().unwrap_or_else(|| Ok(ConfigFile::default()));
        config.unwrap_or_else(|error| {
            findings.insert(0, file_finding(&self.next_to_weights(CONFIG), error));
            ConfigFile::default()
        })
    }
}

/// Waits at most [`HUB_TIMEOUT`] for the count that the Hub reports. Returns a message if it cannot be read.
async fn wait_for_hub(
    request: impl Future<Output = Result<Option<HubReportedCount>, Error>>,
) -> Result<Option<u64>, String> {
    match timeout(HUB_TIMEOUT, request).await {
        Ok(Ok(reported)) => Ok(reported.map(|reported| reported.total)),
        // Mirrors serve the files, but often little of the API.
        Ok(Err(error)) if error.is_not_found() || error.status() == Some(404) => Ok(None),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_elapsed) => Err(format!("no response within {} s", HUB_TIMEOUT.as_secs())),
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

#[cfg(test)]
mod tests {
    use futures::future::pending;
    use tokio::time::Instant;

    use super::*;

    /// The quota of the Hub's API can be exhausted for 300 s.
    #[tokio::test(start_paused = true)]
    async fn the_wait_for_the_hub_count_is_bounded() {
        let started = Instant::now();
        let reason = wait_for_hub(pending()).await.unwrap_err();
        assert_eq!((&*reason, started.elapsed()), ("no response within 5 s", HUB_TIMEOUT));
    }
}
