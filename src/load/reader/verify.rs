//! Reading on where a file is wrong, to say all that is wrong.

use std::ops::Range;

use futures::stream::StreamExt;

use super::Reader;
use crate::error::Error;
use crate::load::CONFIG;
use crate::load::count::{call_for_config, usable};
use crate::read::{Chunk, off_the_workers};
use crate::safetensors::{
    Finding, IndexError, RepoPath, SafetensorsFileHeader, SafetensorsIndexJson, Severity,
    agreement, bounded, chain, clip,
};
use crate::verdict::tying::{self, Input};
use crate::verdict::{Verdict, numbering};

type Headers = [(RepoPath, SafetensorsFileHeader)];

/// What the files of a set are found to be.
struct Survey {
    /// How many files there should be.
    files: usize,
    /// Those whose header can be read.
    headers: Vec<(RepoPath, SafetensorsFileHeader)>,
    /// The total that the set claims of itself.
    declared: Option<u64>,
    findings: Vec<Finding>,
}

impl Survey {
    fn of_bad_index(path: &RepoPath, reason: IndexError) -> Self {
        let findings = vec![Finding::BadIndex { file: clip(path.as_str()), reason }];
        Self { files: 0, headers: Vec::new(), declared: None, findings }
    }
}

impl Reader {
    pub(in crate::load) async fn verify_file(self, path: RepoPath, start: Chunk) -> Verdict {
        let mut survey =
            Survey { files: 1, headers: Vec::new(), declared: None, findings: Vec::new() };
        match self.rest(&path, start).await {
            Ok(header) => {
                survey.declared = header.declared_total();
                survey.headers.push((path.clone(), header));
            }
            Err(error) => survey.findings.push(finding(&path, error)),
        }
        self.conclude(&path, survey).await
    }

    pub(in crate::load) async fn verify_shards(self, path: RepoPath, json: Vec<u8>) -> Verdict {
        let index = off_the_workers(json.len(), move || SafetensorsIndexJson::from_json(&json));
        let survey = match index.await {
            Ok(index) => self.survey(&path, &index).await,
            Err(reason) => Survey::of_bad_index(&path, reason),
        };
        self.conclude(&path, survey).await
    }

    pub(in crate::load) async fn verify_without_index(
        self,
        path: RepoPath,
        shards: &[RepoPath],
    ) -> Verdict {
        let survey = match self.plan.shards_without_index(shards) {
            Ok(shards) => self.survey_without_index(&path, shards).await,
            Err(reason) => Survey::of_bad_index(&path, reason),
        };
        self.conclude(&path, survey).await
    }

    async fn survey(&self, path: &RepoPath, index: &SafetensorsIndexJson) -> Survey {
        let mut survey =
            self.read_all(path, self.plan.shards(index.shards(), &index.digests())).await;
        survey.findings.extend(agreement::survey(index, &survey.headers));
        survey.findings.extend(numbering::check(index.shards()));
        self.find_left_over(path, index.shards(), &mut survey.findings).await;
        survey.declared = index.declared_total();
        survey
    }

    async fn survey_without_index(
        &self,
        path: &RepoPath,
        shards: Vec<(RepoPath, Range<u64>)>,
    ) -> Survey {
        let names: Vec<_> = shards.iter().map(|(shard, _)| shard.clone()).collect();
        let mut survey = self.read_all(path, shards).await;
        if let Err(reason) = SafetensorsIndexJson::of_shards(&survey.headers) {
            survey.findings.push(Finding::BadIndex { file: clip(path.as_str()), reason });
        }
        survey.findings.extend(numbering::check(&names));
        survey
    }

    async fn read_all(&self, path: &RepoPath, shards: Vec<(RepoPath, Range<u64>)>) -> Survey {
        let names: Vec<_> = shards.iter().map(|(shard, _)| shard.clone()).collect();
        let mut reads: Vec<_> = self.reads(path, shards).collect().await;
        reads.sort_unstable_by_key(|(rank, _)| *rank);
        let (mut headers, mut errors) = (Vec::with_capacity(reads.len()), Vec::new());
        let files = names.len();
        for (shard, (_, read)) in names.into_iter().zip(reads) {
            match read {
                Ok(header) => headers.push((shard, header)),
                Err(error) => errors.push(finding(&shard, error)),
            }
        }
        Survey { files, headers, declared: None, findings: bounded(errors.into_iter()) }
    }

    async fn conclude(self, path: &RepoPath, survey: Survey) -> Verdict {
        let Survey { files, headers, declared, mut findings } = survey;
        // What a file that was not read would add to the model cannot be known.
        let input = Input::find(&headers).filter(|_| headers.len() == files && is_at_root(path));
        let declared = declared.filter(|_| headers.len() == files && is_countable(&findings));
        let counted: Vec<_> = headers.iter().map(|(path, header)| (path, header)).collect();
        let mut config = None;
        if input.is_some() || call_for_config(&counted) {
            let read = self.config(&mut findings).await;
            config = read.unwrap_or_else(|error| {
                findings.insert(0, finding(&RepoPath::trusted(CONFIG), error));
                None
            });
        }
        let rules = config.as_deref().and_then(|json| usable(json, &mut findings));
        match self.tally(&counted, rules.as_ref()) {
            Ok((count, _)) => findings.extend(agreement::check_count(&count, declared)),
            Err(_) if findings.contains(&Finding::Overflow) => {}
            Err(_) => findings.insert(0, Finding::Overflow),
        }
        let config = config.as_deref().and_then(tying::Config::read);
        if let (Some(input), Some(config)) = (input, config) {
            config.explain(&input, &headers, &mut findings);
        }
        self.verdict(files, &headers, findings)
    }

    fn verdict(self, files: usize, headers: &Headers, mut findings: Vec<Finding>) -> Verdict {
        findings.extend(self.not_pinned());
        let sizes = headers.iter().map(|(_, header)| header.file_size());
        let cost = self.cost(sizes.fold(0, u64::saturating_add));
        Verdict {
            source: self.source,
            commit: self.commit,
            files,
            valid_files: headers.len(),
            tensors: headers.iter().map(|(_, header)| header.tensors().len() as u64).sum(),
            findings,
            cost,
        }
    }
}

/// Whether the config of the model is beside its weights, and not that of another one.
fn is_at_root(path: &RepoPath) -> bool {
    path.segments().count() == 1
}

/// Whether the tensors that were found are those that a total is declared of.
fn is_countable(findings: &[Finding]) -> bool {
    !findings.iter().any(|finding| {
        finding.severity() == Severity::Error || matches!(finding, Finding::NotInIndex { .. })
    })
}

/// What keeps a file from being read, as a finding.
fn finding(path: &RepoPath, error: Error) -> Finding {
    let file = clip(path.as_str());
    match error {
        Error::Header { source, .. } => Finding::BadHeader { file, reason: source },
        Error::FileNotFound { .. } => Finding::NoFile { file },
        error => Finding::NotRead { file, reason: chain(&error) },
    }
}
