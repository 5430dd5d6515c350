//! Reading on where a file is wrong, to say all that is wrong.

use futures::future::FutureExt;

use super::Reader;
use super::shards::Ask;
use crate::backends::ByteStream;
use crate::error::Error;
use crate::formats::safetensors::{IndexError, SafetensorsFileHeader, SafetensorsIndexJson};
use crate::formats::{RepoPath, chain, clip};
use crate::http::transfer::RangeBytes;
use crate::inspect::CONFIG;
use crate::inspect::count::{call_for_config, usable};
use crate::report::verify::tying::{InputEmbedding, TyingConfig};
use crate::report::verify::{VerifyReport, numbering};
use crate::report::{Finding, Severity, agreement, bounded};

type Headers = [(RepoPath, SafetensorsFileHeader)];

/// A shard, and what reading its header gave.
type Read = (RepoPath, Result<SafetensorsFileHeader, Error>);

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
    fn of(reads: Vec<Read>) -> Self {
        let files = reads.len();
        let (mut headers, mut errors) = (Vec::with_capacity(files), Vec::new());
        for (shard, read) in reads {
            match read {
                Ok(header) => headers.push((shard, header)),
                Err(error) => errors.push(finding(&shard, error)),
            }
        }
        Self { files, headers, declared: None, findings: bounded(errors.into_iter()) }
    }

    fn of_bad_index(path: &RepoPath, reason: IndexError) -> Self {
        let findings = vec![Finding::MalformedIndex { file: clip(path.as_str()), reason }];
        Self { files: 0, headers: Vec::new(), declared: None, findings }
    }
}

impl Reader {
    pub(in crate::inspect) async fn verify_file(
        self,
        path: RepoPath,
        start: RangeBytes,
    ) -> VerifyReport {
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

    pub(in crate::inspect) async fn verify_shards(
        self,
        path: RepoPath,
        pieces: ByteStream,
    ) -> Result<VerifyReport, Error> {
        let read = |shard, first| self.header(shard, first).map(Ok);
        let survey = match self.follow(&path, pieces, read).await {
            Ok((index, reads)) => self.survey(&path, &index, reads).await,
            Err(Error::Index { source, .. }) => Survey::of_bad_index(&path, source),
            Err(error) => return Err(error),
        };
        Ok(self.conclude(&path, survey).await)
    }

    pub(in crate::inspect) async fn verify_without_index(
        self,
        path: RepoPath,
        shards: &[RepoPath],
    ) -> Result<VerifyReport, Error> {
        let survey = match self.plan.shards_without_index(shards) {
            Ok(asks) => self.survey_without_index(&path, asks).await?,
            Err(reason) => Survey::of_bad_index(&path, reason),
        };
        Ok(self.conclude(&path, survey).await)
    }

    async fn survey(
        &self,
        path: &RepoPath,
        index: &SafetensorsIndexJson,
        reads: Vec<Read>,
    ) -> Survey {
        let mut survey = Survey::of(reads);
        survey.findings.extend(agreement::survey(index, &survey.headers));
        survey.findings.extend(numbering::check(index.shards()));
        self.find_left_over(path, index.shards(), &mut survey.findings).await;
        survey.declared = index.declared_total();
        survey
    }

    async fn survey_without_index(&self, path: &RepoPath, asks: Vec<Ask>) -> Result<Survey, Error> {
        let names: Vec<_> = asks.iter().map(|(shard, _)| shard.clone()).collect();
        let read = |shard, first| self.header(shard, first).map(Ok);
        let mut survey = Survey::of(self.read_all(path, asks, read).await?);
        if let Err(reason) = SafetensorsIndexJson::from_headers(&survey.headers) {
            survey.findings.push(Finding::MalformedIndex { file: clip(path.as_str()), reason });
        }
        survey.findings.extend(numbering::check(&names));
        Ok(survey)
    }

    async fn conclude(self, path: &RepoPath, survey: Survey) -> VerifyReport {
        let Survey { files, headers, declared, mut findings } = survey;
        // What a file that was not read would add to the model cannot be known.
        let input =
            InputEmbedding::find(&headers).filter(|_| headers.len() == files && is_at_root(path));
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
            Err(_) if findings.contains(&Finding::CountOverflow) => {}
            Err(_) => findings.insert(0, Finding::CountOverflow),
        }
        let config = config.as_deref().and_then(TyingConfig::parse);
        if let (Some(input), Some(config)) = (input, config) {
            config.add_findings(&input, &headers, &mut findings);
        }
        self.verdict(files, &headers, findings)
    }

    fn verdict(self, files: usize, headers: &Headers, mut findings: Vec<Finding>) -> VerifyReport {
        findings.extend(self.not_pinned());
        let sizes = headers.iter().map(|(_, header)| header.file_size());
        let cost = self.fetch_stats(sizes.fold(0, u64::saturating_add));
        VerifyReport {
            source: self.source,
            commit: self.commit,
            files,
            valid_files: headers.len(),
            tensors: headers.iter().map(|(_, header)| header.tensors().len() as u64).sum(),
            findings,
            fetch: cost,
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
        finding.severity() == Severity::Error || matches!(finding, Finding::UnindexedTensor { .. })
    })
}

/// What keeps a file from being read, as a finding.
fn finding(path: &RepoPath, error: Error) -> Finding {
    let file = clip(path.as_str());
    match error {
        Error::Header { source, .. } => Finding::MalformedHeader { file, reason: source },
        Error::FileNotFound { .. } => Finding::MissingShard { file },
        error => Finding::Unreadable { file, reason: chain(&error) },
    }
}
