//! Reading on where a file is wrong, to say all that is wrong.

use futures::stream::StreamExt;

use super::Reader;
use crate::error::Error;
use crate::read::Chunk;
use crate::safetensors::{
    Finding, RepoPath, SafetensorsFileHeader, SafetensorsIndexJson, agreement, bounded, chain, clip,
};
use crate::store::Fetched;
use crate::verdict::tying::{Config, Input};
use crate::verdict::{Verdict, numbering};

/// The config of a model, beside its weights.
const CONFIG: &str = "config.json";

/// The most bytes of a config that are read. The longest known list thousands of labels.
const CONFIG_LIMIT: u64 = 10_000_000;

type Headers = Vec<(RepoPath, SafetensorsFileHeader)>;

impl Reader {
    pub(in super::super) async fn verify_file(self, path: RepoPath, start: &Chunk) -> Verdict {
        let (headers, mut findings) = match self.rest(&path, start).await {
            Ok(header) => (vec![(path.clone(), header)], Vec::new()),
            Err(error) => (Vec::new(), vec![finding(&path, error)]),
        };
        for (_, header) in &headers {
            let (count, declared) = (header.parameter_count(), header.declared_total());
            findings.extend(agreement::check_count(count, declared));
        }
        self.conclude(&path, 1, &headers, findings).await
    }

    pub(in super::super) async fn verify_shards(self, path: RepoPath, json: Vec<u8>) -> Verdict {
        let index = match SafetensorsIndexJson::from_json(&json) {
            Ok(index) => index,
            Err(reason) => {
                let finding = Finding::BadIndex { file: clip(path.as_str()), reason };
                return self.conclude(&path, 0, &[], vec![finding]).await;
            }
        };
        drop(json);
        let (headers, mut findings) = self.readable(&path, index.shards()).await;
        findings.extend(agreement::survey(&index, &headers).1);
        findings.extend(numbering::check(index.shards()));
        self.conclude(&path, index.shards().len(), &headers, findings).await
    }

    /// The headers that can be read, and why the others cannot.
    async fn readable(&self, index: &RepoPath, shards: &[RepoPath]) -> (Headers, Vec<Finding>) {
        let mut reads: Vec<_> = self.reads(index, shards).collect().await;
        reads.sort_unstable_by_key(|(rank, _)| *rank);
        let (mut headers, mut errors) = (Vec::with_capacity(reads.len()), Vec::new());
        for (rank, read) in reads {
            match read {
                Ok(header) => headers.push((shards[rank].clone(), header)),
                Err(error) => errors.push(finding(&shards[rank], error)),
            }
        }
        (headers, bounded(errors.into_iter()))
    }

    async fn conclude(
        self,
        path: &RepoPath,
        files: usize,
        headers: &[(RepoPath, SafetensorsFileHeader)],
        mut findings: Vec<Finding>,
    ) -> Verdict {
        // Of an output embedding that may be in a file that was not read nothing can be said.
        if headers.len() == files
            && let Some(input) = Input::find(headers)
        {
            match self.config(path).await {
                Ok(Some(config)) => config.explain(&input, headers, &mut findings),
                Ok(None) => {}
                Err(finding) => findings.push(finding),
            }
        }
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

    /// The config beside the weights, where there is one.
    async fn config(&self, weights: &RepoPath) -> Result<Option<Config>, Finding> {
        let path = weights.sibling(&RepoPath::within(None, CONFIG));
        let bad = |reason: String| Finding::BadConfig { file: clip(path.as_str()), reason };
        let json = match self.store.whole(&path, CONFIG_LIMIT, &self.meter).await {
            Ok(Fetched { value, .. }) => value,
            Err(Error::FileNotFound { .. }) => return Ok(None),
            Err(error) => return Err(bad(chain(&error))),
        };
        serde_json::from_slice(&json).map(Some).map_err(|error| bad(clip(&error.to_string())))
    }
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
