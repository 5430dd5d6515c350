//! Verification: continues after invalid files and reports every error.

use std::time::Duration;

use tokio::time::timeout;

use super::call::Call;
use super::config_file::ConfigFile;
use super::locate::FoundWeights;
use super::shards::ShardResults;
use crate::count::{CountBreakdown, ParameterCount};
use crate::error::{Error, HubCacheMiss};
use crate::formats::safetensors::{IndexError, SafetensorsIndexJson};
use crate::formats::weight_sets::{Layout, shard_number};
use crate::formats::{FileHeader, RepoPath, chain, clip};
use crate::http::transfer::RangeBytes;
use crate::hub::HubReportedCount;
use crate::report::rules;
use crate::report::verify::{self, ParameterSources, VerifyReport};
use crate::report::{Finding, ReportBuilder, Severity, bounded};

/// The maximum wait for the count that the Hub reports. The count is optional, and its quota may be exhausted for
/// minutes.
const HUB_TIMEOUT: Duration = Duration::from_secs(5);

/// The state of a verification in progress.
struct Verification {
    /// The expected number of files.
    files: usize,
    assembly: ReportBuilder,
    findings: Vec<Finding>,
    /// The paths of the shards named by an index or a listing.
    shards: Vec<RepoPath>,
}

impl Verification {
    /// Creates the state after the shards next to `path` were read.
    fn new(path: &RepoPath, reads: ShardResults, shards: &[RepoPath]) -> Self {
        let ShardResults { assembly, failures } = reads;
        let failures =
            failures.into_iter().map(|(shard, error)| file_finding(&path.sibling(&shard), error));
        let shards: Vec<_> = shards.iter().map(|shard| path.sibling(shard)).collect();
        Self { files: shards.len(), assembly, findings: bounded(failures), shards }
    }

    fn from_malformed_index(path: &RepoPath, reason: IndexError) -> Self {
        let findings = vec![malformed_index(path, reason)];
        Self {
            files: 0,
            assembly: ReportBuilder::new_sharded(None, true),
            findings,
            shards: Vec::new(),
        }
    }
}

impl Call {
    /// Reads every header and reports all findings.
    pub(super) async fn verify_weights(
        &mut self,
        weights: FoundWeights,
    ) -> Result<VerifyReport, Error> {
        self.state.weights = Some(weights.path().clone());
        let (path, verification) = match weights {
            FoundWeights::File { path, start } => {
                let verification = self.verify_file(&path, start).await;
                (path, verification)
            }
            FoundWeights::Index { path, stream } => {
                let reads = Box::pin(self.read_indexed_shards(&path, stream, true, false)).await;
                let verification = match reads {
                    Ok(reads) => self.verify_index(&path, reads).await,
                    Err(Error::InvalidIndex { source, .. }) => {
                        Verification::from_malformed_index(&path, source)
                    }
                    Err(error) => return Err(error),
                };
                (path, verification)
            }
            FoundWeights::Shards { path, shards } => {
                let verification = Box::pin(self.verify_listed(&path, &shards)).await?;
                (path, verification)
            }
        };
        Ok(self.conclude(&path, verification).await)
    }

    async fn verify_file(&self, path: &RepoPath, start: RangeBytes) -> Verification {
        let (mut assembly, mut findings) = (ReportBuilder::new_single(true), Vec::new());
        match self.parse_header(path, start).await {
            Ok(header) => assembly.add(path.clone(), header),
            Err(error) => findings.push(file_finding(path, error)),
        }
        Verification { files: 1, assembly, findings, shards: Vec::new() }
    }

    async fn verify_index(&self, path: &RepoPath, reads: ShardResults) -> Verification {
        let shards = reads.assembly.index().map_or(&[][..], SafetensorsIndexJson::shards).to_vec();
        let mut verification = Verification::new(path, reads, &shards);
        verification.findings.extend(verification.assembly.index_findings());
        verification.findings.extend(verify::check_shard_numbers(&verification.shards));
        self.find_leftover_shards(path, &verification.shards, &mut verification.findings).await;
        verification
    }

    async fn verify_listed(
        &self,
        path: &RepoPath,
        shards: &[RepoPath],
    ) -> Result<Verification, Error> {
        let requests = match self.plan.shards_without_index(&self.formats, shards) {
            Ok(requests) => requests,
            Err(reason) => return Ok(Verification::from_malformed_index(path, reason)),
        };
        let shards: Vec<_> = requests.iter().map(|(shard, _)| shard.clone()).collect();
        let reads = self.read_listed_shards(path, requests, true, false).await?;
        let mut verification = Verification::new(path, reads, &shards);
        verification.findings.extend(verification.assembly.index_findings());
        verification.findings.extend(verify::check_shard_numbers(&verification.shards));
        Ok(verification)
    }

    async fn conclude(&mut self, path: &RepoPath, verification: Verification) -> VerifyReport {
        let Verification { files, assembly, mut findings, .. } = verification;
        let is_complete = assembly.headers().len() == files;
        // A file that was not read could contain the output embedding.
        let checks_embeddings = is_complete && path.segments().count() == 1;
        if checks_embeddings && verify::has_input_embedding(assembly.headers()) {
            let _ = self.config().await;
        }
        let mut config = self.config_or_finding(&mut findings);
        if let Err(error) = self.read_other_config(&assembly, &mut config).await {
            let name = assembly.other_config_file(&config.configs).unwrap_or_default();
            findings.push(file_finding(&self.next_to_weights(name), error));
        }
        // The index may list a tied embedding that is not stored. The count is right in that case.
        if checks_embeddings && let Some(json) = &config.json {
            verify::check_embeddings(json, assembly.headers(), &mut findings);
        }
        let filepaths = assembly.filepaths(path);
        let assembled = assembly.finish(&config.configs);
        let declared = assembled.declared_total.filter(|_| is_complete && is_countable(&findings));
        findings.extend(assembled.split_findings().filter(|_| is_complete));
        let mut parameters = ParameterSources::default();
        parameters.declared = declared;
        match &assembled.counted {
            Ok((count, breakdown)) => {
                findings.extend(verify::check_count(count, breakdown, declared));
                if is_complete && is_countable(&findings) {
                    parameters.counted = Some(count.total());
                    parameters.exact = Some(breakdown.is_exact());
                    parameters.config = breakdown.config_total;
                    findings.extend(verify::check_config(count, breakdown));
                    // The Hub counts only the safetensors files at the root.
                    if path.segments().count() == 1 && assembled.model.is_none() {
                        parameters.hub = self.check_hub((count, breakdown), &mut findings).await;
                    }
                }
            }
            Err(_) => findings.insert(0, Finding::CountOverflow),
        }
        if is_complete && let Some(json) = &config.json {
            findings.extend(rules::check_model(json, &assembled.headers));
            findings.extend(rules::check_recipe(json, &assembled.headers));
        }
        findings.extend(bounded(leading_spaces(path, &assembled.headers)));
        findings.extend(self.source_findings());
        let mut report = VerifyReport::default();
        report.fetch = self.fetch_stats(assembled.totals.file_bytes);
        report.source.clone_from(&self.source);
        report.commit = self.state.commit.take();
        report.filepaths = filepaths;
        report.files = files;
        report.valid_files = assembled.totals.files;
        report.tensors = assembled.totals.tensors;
        report.parameters = parameters;
        report.findings = findings;
        report
    }

    /// Finds shards that the index does not name, such as leftovers of an earlier split of the same model.
    ///
    /// This takes one listing. It is done for repositories only, because a local folder may be the root of a whole
    /// disk.
    async fn find_leftover_shards(
        &self,
        index: &RepoPath,
        named: &[RepoPath],
        findings: &mut Vec<Finding>,
    ) {
        if !self.files.has_commits() || !named.iter().any(|shard| shard_number(shard).is_some()) {
            return;
        }
        let folder = index.folder();
        match self.files.list(folder.as_ref()).await {
            Ok(listed) => {
                let files = listed.map_or_else(Vec::new, |listing| listing.files);
                let layout = Layout::new(&self.formats, folder.as_ref(), &files);
                let shards = layout.unindexed_shards(named).into_iter();
                findings.extend(bounded(
                    shards.map(|shard| Finding::UnindexedShard { shard: clip(shard.as_str()) }),
                ));
            }
            Err(error) => {
                let file = clip(&self.source);
                findings.insert(0, Finding::Unreadable { file, reason: chain(&error) });
            }
        }
    }

    /// Compares a count with the count that the Hub reports, and returns the Hub's count.
    async fn check_hub(
        &self,
        (count, breakdown): (&ParameterCount, &CountBreakdown),
        findings: &mut Vec<Finding>,
    ) -> Option<u64> {
        let reported = match wait_for_hub(self.files.reported_count()).await {
            Ok(reported) => reported?.total,
            Err(reason) => {
                findings.push(Finding::HubCountUnavailable { reason });
                return None;
            }
        };
        let found = count.total();
        if reported != found {
            let is_predicted = breakdown.huggingface_js_total(found) == Some(reported);
            findings.push(Finding::HubCountMismatch { reported, found, is_predicted });
        }
        Some(reported)
    }

    /// Returns the configuration, or an empty one if reading failed. The error becomes the first finding.
    fn config_or_finding(&mut self, findings: &mut Vec<Finding>) -> ConfigFile {
        match self.state.config.take() {
            Some(Ok(mut config)) => {
                findings.extend(config.finding.take());
                config
            }
            Some(Err(error)) => {
                findings.insert(0, file_finding(&self.config_path(), error));
                ConfigFile::default()
            }
            None => ConfigFile::default(),
        }
    }
}

/// Waits at most [`HUB_TIMEOUT`] for the count that the Hub reports. Returns a message if it cannot be read.
async fn wait_for_hub(
    request: impl Future<Output = Result<Option<HubReportedCount>, Error>>,
) -> Result<Option<HubReportedCount>, String> {
    match timeout(HUB_TIMEOUT, request).await {
        Ok(Ok(reported)) => Ok(reported),
        // Mirrors serve the files, but often little of the API.
        Ok(Err(error)) if error.is_not_found() => Ok(None),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_elapsed) => Err(format!("no response within {} s", HUB_TIMEOUT.as_secs())),
    }
}

/// Returns a finding for each header that starts with whitespace.
fn leading_spaces(
    path: &RepoPath,
    headers: &[(RepoPath, FileHeader)],
) -> impl Iterator<Item = Finding> {
    let headers = headers.iter().filter(|(_, header)| header.has_leading_space());
    let headers =
        headers.map(move |(file, _)| if file == path { file.clone() } else { path.sibling(file) });
    headers.map(|file| Finding::LeadingSpace { file: clip(file.as_str()) })
}

/// Returns whether the found tensors can be compared with the declared total.
fn is_countable(findings: &[Finding]) -> bool {
    !findings.iter().any(|finding| {
        finding.severity() == Severity::Error || matches!(finding, Finding::UnindexedTensor { .. })
    })
}

fn malformed_index(path: &RepoPath, reason: IndexError) -> Finding {
    Finding::MalformedIndex { file: clip(path.as_str()), reason }
}

/// Converts the error of a file to a finding.
fn file_finding(path: &RepoPath, error: Error) -> Finding {
    let file = clip(path.as_str());
    match error {
        Error::InvalidHeader { format, source, .. } => {
            Finding::MalformedHeader { file, format, reason: source }
        }
        // A file that was not downloaded may exist in the repository.
        Error::FileNotFound { source, .. } if !source.is::<HubCacheMiss>() => {
            Finding::MissingShard { file }
        }
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
