//! Reads repositories: their rows, and the headers from which the rows are computed.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::layout_digest::{LayoutHasher, digest_from_hex, hexadecimal};
use super::outage::CircuitBreaker;
use super::row::{CensusRow, integer};
use super::table::TableRow;
use super::{CensusError, ListedRepo};
use hf_meta::report::{CountReport, Plan};
use hf_meta::{Client, Error, HeaderBytes, HeaderFile, LargeCallLimit, Model, ResultOrder};

/// The maximum number of repositories that may use a lot of memory at the same time. Parsing the largest allowed
/// header takes 240 MB.
const MAX_LARGE_READS: usize = 2;

/// The stored bytes of a file in a repository: its header, or all of it if it is a small file.
///
/// The fields are the columns of the `headers` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoredHeader {
    /// The repository name in the list.
    pub repo: String,
    /// The commit.
    pub commit: String,
    /// The path of the file.
    pub file: String,
    /// The size of the whole file in bytes.
    pub file_size: i64,
    /// The SHA-256 hash of the whole file, if the Hub reported it.
    pub file_sha256: Option<Bytes>,
    /// The SHA-256 hash of the stored bytes.
    pub sha256: Bytes,
    /// The start of the file, up to the end of its header. Long GGUF arrays that do not affect the counts are zeroed.
    pub header: Bytes,
}

impl TableRow for StoredHeader {
    const NAME: &str = "The table `headers`";

    fn size(&self) -> usize {
        self.header.len()
    }
}

impl StoredHeader {
    /// Decompresses the files of a commit one at a time.
    pub(super) fn all(repo: &str, headers: HeaderBytes) -> impl Iterator<Item = Self> + use<> {
        let (repo, commit) = (repo.to_owned(), headers.commit().to_string());
        headers.into_files().filter_map(move |file| {
            Some(Self {
                repo: repo.clone(),
                commit: commit.clone(),
                file: file.path.to_string(),
                file_size: i64::try_from(file.size).ok()?,
                file_sha256: file.sha256.as_deref().and_then(digest_from_hex),
                sha256: Bytes::copy_from_slice(&Sha256::digest(&file.start)),
                header: file.start,
            })
        })
    }

    /// Returns the stored file; `None` if the row has been changed.
    fn to_file(&self) -> Option<HeaderFile> {
        let is_unchanged = Sha256::digest(&self.header)[..] == self.sha256;
        is_unchanged.then_some(HeaderFile {
            path: self.file.parse().ok()?,
            size: u64::try_from(self.file_size).ok()?,
            sha256: self.file_sha256.as_deref().map(hexadecimal),
            start: self.header.clone(),
        })
    }
}

/// Reads repositories with the limits of one run.
#[derive(Clone, Debug)]
pub(super) struct RepoReader {
    client: Client,
    concurrency: usize,
    /// One permit per concurrent repository of all calls.
    repos: Arc<Semaphore>,
    large: LargeCallLimit,
    breaker: Arc<CircuitBreaker>,
}

impl RepoReader {
    pub(super) fn new(client: &Client, concurrency: usize, breaker: Arc<CircuitBreaker>) -> Self {
        let concurrency = concurrency.max(1);
        let repos = Arc::new(Semaphore::new(concurrency));
        let large = LargeCallLimit::new(MAX_LARGE_READS);
        Self { client: client.clone(), concurrency, repos, large, breaker }
    }

    /// Reads repositories, each with an index, and calls `on_read` with their rows and headers as they complete, until
    /// the run ends.
    pub(super) async fn read_all(
        &self,
        repos: impl Iterator<Item = (usize, ListedRepo)>,
        mut on_read: impl FnMut(usize, CensusRow, Option<HeaderBytes>) -> Result<(), CensusError>,
    ) -> Result<(), CensusError> {
        let reader = self.clone();
        let read = move |_, (at, repo)| {
            let reader = reader.clone();
            async move {
                // The semaphore is never closed. The permit is held until the headers are written, because they take
                // memory.
                let permit = Arc::clone(&reader.repos).acquire_owned().await;
                let read = reader.breaker.call(|| reader.read(&repo)).await;
                (at, read, permit)
            }
        };
        let (repos, order) = (stream::iter(repos), ResultOrder::Completion);
        let reads = self.client.run_many(repos, self.concurrency, order, read);
        let mut reads = reads.take_until(Box::pin(self.breaker.stop().clone().stopped()));
        while let Some((at, (row, headers), _permit)) = reads.next().await {
            on_read(at, row, headers)?;
        }
        Ok(())
    }

    /// Reads a repository. Errors become rows, too. There are no headers if nothing was read or they are too large to
    /// store.
    async fn read(
        &self,
        listed: &ListedRepo,
    ) -> ((CensusRow, Option<HeaderBytes>), i64, Option<Error>) {
        let hasher = Arc::new(Mutex::new(LayoutHasher::default()));
        let hash = Arc::clone(&hasher);
        let meter = self.client.start_call();
        let model = self.model(listed).meter(&meter).large_calls(&self.large);
        let model = model.exclude_waits_from_timeout(true);
        let model = model.on_header(move |header| {
            hash.lock().unwrap_or_else(PoisonError::into_inner).add(header);
        });
        let recorded = model.count_and_record().await;
        let mut row = CensusRow::new(listed.clone());
        row.set_result(recorded.result.as_ref());
        (row.requests, row.bytes_read) = (integer(meter.requests()), integer(meter.bytes()));
        row.set_digests(hasher.lock().unwrap_or_else(PoisonError::into_inner).finish());
        row.set_source(recorded.bytes.as_ref());
        if let Ok(report) = &recorded.result {
            let files = listed.files.iter().flatten().filter_map(|path| path.parse().ok());
            let files: Vec<_> = files.chain(report.filepaths.iter().cloned()).unique().collect();
            row.set_role(recorded.path.as_ref(), &files);
            row.file_sha256 = recorded.bytes.as_ref().map(|headers| hashes(report, headers));
        }
        let requests = row.requests;
        ((row, recorded.bytes), requests, recorded.result.err())
    }

    fn model(&self, listed: &ListedRepo) -> Model {
        let model = self.client.model(&listed.repo).revision(listed.commit.as_deref());
        let model = model.plan(Plan::Prefetch).other_sets(listed.files.is_some());
        match &listed.files {
            // A file with an invalid path cannot be requested, so it is ignored.
            Some(files) => model.known_files(files.iter().filter_map(|path| path.parse().ok())),
            None => model,
        }
    }
}

/// Returns the known hashes of the weight files.
fn hashes(report: &CountReport, headers: &HeaderBytes) -> Vec<Bytes> {
    let files = report.filepaths.iter().filter(|path| !path.is_index());
    files.filter_map(|path| digest_from_hex(headers.sha256(path)?)).collect()
}

/// Recounts a row from stored bytes. Returns `None` if the bytes are incomplete.
pub(super) async fn recount(
    client: &Client,
    row: &CensusRow,
    headers: &[StoredHeader],
) -> Option<CensusRow> {
    let commit = row.commit.as_ref()?;
    let (mut bytes, mut files) = (HeaderBytes::new(commit.parse().ok()?), Vec::new());
    for header in headers {
        let file = header.to_file().filter(|_| header.commit == *commit)?;
        files.push(file.path.clone());
        bytes.add(file);
    }
    let model = client.model(&row.repo).revision(commit.as_str());
    let model = match row.path.as_deref() {
        Some(path) => model.path(path),
        None => model.known_files(files),
    };
    let result = model.recount(bytes).await;
    let is_final = result.as_ref().err().is_none_or(Error::is_malformed);
    is_final.then(|| row.recounted(result.as_ref()))
}
