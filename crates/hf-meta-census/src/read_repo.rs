//! Reads repositories: their rows, and the headers from which the rows are computed.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use itertools::Itertools;
use parquet::file::properties::{EnabledStatistics, WriterPropertiesBuilder};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::layout_digest::{LayoutDigests, LayoutHasher, digest_from_hex, hexadecimal};
use super::outage::CircuitBreaker;
use super::row::CensusRow;
use super::table::TableRow;
use super::{CensusError, ListedRepo, MAX_HEADER_BYTES};
use hf_meta::formats::{FileHeader, Formats, HeaderError, read_header};
use hf_meta::report::{CountReport, Plan};
use hf_meta::{
    Client, Error, HeaderBytes, HeaderFile, LargeCallLimit, Model, RecordedCount, ResultOrder,
};

/// The maximum number of repositories that may use a lot of memory at the same time. Parsing the largest allowed
/// header takes 240 MB.
const MAX_LARGE_READS: usize = 2;

/// The stored bytes of a file in a repository: its header, or all of it if it is a small file.
///
/// The fields are the columns of the `files` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoredHeader {
    /// The repository name in the list.
    pub repo: String,
    /// The commit.
    pub commit: String,
    /// The path of the file.
    pub path: String,
    /// The size of the whole file in bytes.
    pub size: i64,
    /// The SHA-256 hash of the whole file, if the Hub reported it.
    pub sha256: Option<Bytes>,
    /// The SHA-256 hash of the stored bytes.
    pub header_sha256: Bytes,
    /// The start of the file, up to the end of its header. Long GGUF arrays that do not affect the counts are zeroed.
    pub header: Bytes,
}

impl TableRow for StoredHeader {
    const NAME: &str = "The table `files`";

    fn memory(&self) -> usize {
        self.header.len()
    }

    /// Headers do not repeat, and their first bytes are just their length.
    fn published(properties: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
        properties
            .set_column_dictionary_enabled("header".into(), false)
            .set_column_statistics_enabled("header".into(), EnabledStatistics::None)
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
                path: file.path.to_string(),
                size: i64::try_from(file.size).ok()?,
                sha256: file.sha256.as_deref().and_then(digest_from_hex),
                header_sha256: Bytes::copy_from_slice(&Sha256::digest(&file.start)),
                header: file.start,
            })
        })
    }

    /// Returns the header; `None` if the file has none.
    pub(super) fn parse(&self) -> Option<FileHeader> {
        let (_, format) = Formats::built_in().find(&self.path)?;
        let parser = format.parser(&self.path.parse().ok()?, MAX_HEADER_BYTES);
        let size = u64::try_from(self.size).ok();
        let read = |range: Range<u64>| {
            let position = |at| usize::try_from(at).unwrap_or(usize::MAX).min(self.header.len());
            Ok::<_, HeaderError>(self.header[position(range.start)..position(range.end)].to_vec())
        };
        read_header(parser, size, read).ok()
    }

    /// Returns the stored file; `None` if the row has been changed.
    fn to_file(&self) -> Option<HeaderFile> {
        let is_unchanged = Sha256::digest(&self.header)[..] == self.header_sha256;
        is_unchanged.then_some(HeaderFile {
            path: self.path.parse().ok()?,
            size: u64::try_from(self.size).ok()?,
            sha256: self.sha256.as_deref().map(hexadecimal),
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
    ) -> ((CensusRow, Option<HeaderBytes>), u64, Option<Error>) {
        let meter = self.client.start_call();
        let model = self.model(listed).meter(&meter).large_calls(&self.large);
        let (recorded, digests) = record(&self.client, model).await;
        let mut row = CensusRow::new(listed.clone());
        row.set_result(recorded.result.as_ref());
        row.set_digests(digests);
        row.set_source(recorded.bytes.as_ref());
        if let Ok(report) = &recorded.result {
            let files = listed.files.iter().flatten().filter_map(|path| path.parse().ok());
            let files: Vec<_> = files.chain(report.filepaths.iter().cloned()).unique().collect();
            row.set_role(recorded.path.as_ref(), &files);
            row.file_sha256 = recorded.bytes.as_ref().map(|headers| hashes(report, headers));
        }
        ((row, recorded.bytes), meter.requests(), recorded.result.err())
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

/// Counts a model, and returns the bytes and the layout hashes, too.
async fn record(client: &Client, model: Model) -> (RecordedCount, Option<LayoutDigests>) {
    let hasher = Arc::new(Mutex::new(LayoutHasher::default()));
    let hash = Arc::clone(&hasher);
    let model = model.on_header(move |header| {
        hash.lock().unwrap_or_else(PoisonError::into_inner).add(header);
    });
    // A timeout that the user sets includes waits for rate limits; the default one does not.
    let model = model.exclude_waits_from_timeout(client.call_timeout().is_none());
    let recorded = model.count_and_record().await;
    let digests = hasher.lock().unwrap_or_else(PoisonError::into_inner).finish();
    (recorded, digests)
}

/// Reads the weights of a row again, and returns the row with the new counts. Fails if another attempt may succeed.
pub(super) async fn read_again(client: &Client, row: &CensusRow) -> Result<CensusRow, Error> {
    let model = client.model(&row.repo).revision(row.commit.as_deref());
    let model = model.path(row.path.as_deref()).plan(Plan::Prefetch);
    let (recorded, digests) = record(client, model).await;
    let mut found = row.recounted(recorded.result.as_ref());
    found.set_digests(digests);
    match recorded.result {
        Ok(report) => {
            found.file_sha256 = recorded.bytes.as_ref().map(|headers| hashes(&report, headers));
        }
        Err(error) if found.has_failed() => return Err(error),
        Err(_) => {}
    }
    Ok(found)
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
