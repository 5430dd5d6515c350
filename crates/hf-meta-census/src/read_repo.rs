//! Reads repositories: their rows, and the headers from which the rows are computed.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, ready};
use futures::stream::{self, StreamExt};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::layout_digest::{LayoutHasher, hexadecimal};
use super::row::{CensusRow, integer};
use super::{CensusError, ListedRepo};
use hf_meta::formats::RepoPath;
use hf_meta::report::{CountReport, Plan};
use hf_meta::{
    CachedFile, CachedHeaders, CallHooks, CallMeter, Client, CommitSha, Deflated, Error,
    LargeCallPermit, Model, OnHeader, RecordedCall, RecordedReport, ResultOrder,
};

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
    pub file_sha256: Option<String>,
    /// The SHA-256 hash of the stored bytes.
    pub sha256: String,
    /// The start of the file, up to the end of its header. Long GGUF arrays that do not affect the counts are zeroed.
    pub header: Bytes,
}

impl StoredHeader {
    /// Returns the row of a file; `None` if its compressed bytes are corrupt.
    fn new(repo: &str, commit: &str, file: String, cached: CachedFile) -> Option<Self> {
        let header = cached.start.inflate()?;
        Some(Self {
            repo: repo.to_owned(),
            commit: commit.to_owned(),
            file,
            file_size: i64::try_from(cached.file_size).ok()?,
            file_sha256: cached.sha256,
            sha256: hexadecimal(&Sha256::digest(&header)),
            header: header.into(),
        })
    }

    /// Returns the stored file; `None` if the row has been changed.
    fn cached(&self) -> Option<(RepoPath, CachedFile)> {
        let file_size = u64::try_from(self.file_size).ok()?;
        let is_unchanged = hexadecimal(&Sha256::digest(&self.header)) == self.sha256;
        let start = is_unchanged.then(|| Deflated::from_bytes(&self.header))?;
        let sha256 = self.file_sha256.clone();
        Some((self.file.parse().ok()?, CachedFile { start, file_size, sha256 }))
    }
}

/// The result for a repository.
#[derive(Debug)]
pub(super) struct ReadRepo {
    pub(super) row: CensusRow,
    /// The commit and its headers; `None` if nothing was read or the headers are too large to store.
    headers: Option<(String, CachedHeaders)>,
}

impl ReadRepo {
    /// Returns the row and the stored headers, which are decompressed one at a time.
    pub(super) fn into_rows(self) -> (CensusRow, impl Iterator<Item = StoredHeader>) {
        let repo = self.row.repo.clone();
        let headers = self.headers.into_iter().flat_map(move |(commit, headers)| {
            let repo = repo.clone();
            let files = headers.into_files();
            files.filter_map(move |(path, file)| StoredHeader::new(&repo, &commit, path, file))
        });
        (self.row, headers)
    }
}

/// Reads repositories with the limits of one run.
#[derive(Clone, Debug)]
pub(super) struct RepoReader {
    client: Client,
    concurrency: usize,
    /// One permit per concurrent repository of all calls.
    repos: Arc<Semaphore>,
    large: Arc<Semaphore>,
    /// True if the other sets of weights are listed even if the files are unknown.
    list_sets: bool,
}

impl RepoReader {
    pub(super) fn new(client: &Client, concurrency: usize, list_sets: bool) -> Self {
        let concurrency = concurrency.max(1);
        let repos = Arc::new(Semaphore::new(concurrency));
        let large = Arc::new(Semaphore::new(MAX_LARGE_READS));
        Self { client: client.clone(), concurrency, repos, large, list_sets }
    }

    /// Reads repositories, each with its index, and calls `on_read` as they complete. Errors become rows, too.
    pub(super) async fn read_all(
        &self,
        repos: Vec<(usize, ListedRepo)>,
        mut on_read: impl FnMut(usize, ReadRepo) -> Result<(), CensusError>,
    ) -> Result<(), CensusError> {
        let reader = self.clone();
        let read = move |_, (at, repo)| {
            let reader = reader.clone();
            async move {
                // The semaphore is never closed. The permit is held until the headers are written, because they take
                // memory.
                let permit = Arc::clone(&reader.repos).acquire_owned().await;
                (at, reader.read(repo).await, permit)
            }
        };
        let (repos, order) = (stream::iter(repos), ResultOrder::Completion);
        let mut reads = self.client.run_many(repos, self.concurrency, order, read);
        while let Some((at, read, _permit)) = reads.next().await {
            on_read(at, read)?;
        }
        Ok(())
    }

    async fn read(&self, listed: ListedRepo) -> ReadRepo {
        let hasher = Arc::new(Mutex::new(LayoutHasher::default()));
        let hash = Arc::clone(&hasher);
        let on_header = OnHeader(Arc::new(move |header| {
            hash.lock().unwrap_or_else(PoisonError::into_inner).add(header);
        }));
        let gate = |meter| self.gate(meter);
        let RecordedCall { result, bytes, requests, bytes_read } =
            self.model(&listed).record(on_header, gate).await;
        let mut row = CensusRow::new(listed);
        row.set_result(result.as_ref().map(|read| &read.report));
        (row.requests, row.bytes_read) = (integer(requests), integer(bytes_read));
        row.set_digests(hasher.lock().unwrap_or_else(PoisonError::into_inner).finish());
        let headers = bytes.map(|(commit, headers)| (commit.to_string(), headers));
        if let Some((commit, headers)) = &headers {
            row.commit = Some(commit.clone());
            row.canonical_repo.clone_from(&headers.canonical_name);
        }
        if let Ok(RecordedReport { path, report }) = &result {
            row.path = Some(path.to_string());
            row.file_sha256 = hashes(report, headers.as_ref().map(|(_, headers)| headers));
        }
        ReadRepo { row, headers }
    }

    fn model(&self, listed: &ListedRepo) -> Model {
        let list_sets = self.list_sets || listed.files.is_some();
        let mut model = self.client.model(&listed.repo).plan(Plan::Prefetch).other_sets(list_sets);
        if let Some(commit) = &listed.commit {
            model = model.revision(commit);
        }
        match &listed.files {
            // A file with an invalid path cannot be requested, so it is ignored.
            Some(files) => model.files(files.iter().filter_map(|path| path.parse().ok()).collect()),
            None => model,
        }
    }

    /// Returns the gate of one repository. The wait for other large repositories is counted by the meter, and does
    /// not count towards the call's timeout.
    fn gate(&self, meter: CallMeter) -> Arc<dyn CallHooks> {
        Arc::new(MemoryHook { size: LargeCallPermit::new(Arc::clone(&self.large)), meter })
    }
}

/// Returns the known hashes of the weight files.
fn hashes(report: &CountReport, headers: Option<&CachedHeaders>) -> Vec<String> {
    let Some(headers) = headers else { return Vec::new() };
    let files = report.filepaths.iter().filter(|path| !path.is_index());
    files.filter_map(|path| headers.file(path)?.sha256).collect()
}

/// Recounts a row from stored bytes. Returns `None` if the bytes are incomplete.
pub(super) async fn recount(
    client: &Client,
    row: &CensusRow,
    headers: &[StoredHeader],
) -> Option<CensusRow> {
    let commit = row.commit.as_ref()?;
    if headers.iter().any(|header| header.commit != *commit) {
        return None;
    }
    let files: Vec<_> = headers.iter().map(StoredHeader::cached).collect::<Option<_>>()?;
    let model = client.model(&row.repo).revision(commit);
    let (model, folder) = match &row.path {
        Some(path) => (model.path(path), path.parse::<RepoPath>().ok()?.folder()),
        None => (model.files(files.iter().map(|(path, _)| path.clone()).collect()), None),
    };
    let headers = CachedHeaders::from_files(files, folder.as_ref());
    let result = model.replay(commit.parse().ok()?, headers).await;
    let is_final = result.as_ref().err().is_none_or(Error::is_malformed);
    is_final.then(|| row.recounted(result.as_ref()))
}

/// Limits the memory of one repository.
#[derive(Debug)]
struct MemoryHook {
    size: LargeCallPermit,
    meter: CallMeter,
}

impl CallHooks for MemoryHook {
    fn commit_resolved<'a>(&'a self, _: &'a CommitSha, _: Option<String>) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }

    fn must_revalidate(&self) -> bool {
        false
    }

    fn before_requests(&self, _: usize) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }

    fn before_allocation(&self, bytes: u64) -> BoxFuture<'_, ()> {
        let Some(permit) = self.size.add(bytes) else { return ready(()).boxed() };
        async move {
            let _waiting = self.meter.start_wait();
            permit.await;
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hf_meta::MAX_SMALL_CALL;

    #[test]
    fn large_reads_are_limited() {
        let reader = RepoReader::new(&Client::builder().build().unwrap(), 32, false);
        let gate = || reader.gate(CallMeter::default());
        let pass = |gate: &Arc<dyn CallHooks>, bytes| {
            gate.before_allocation(bytes).now_or_never().is_some()
        };
        let mut gates: Vec<_> = (0..=MAX_LARGE_READS).map(|_| gate()).collect();
        assert!(gates.iter().all(|gate| pass(gate, MAX_SMALL_CALL)));
        let last = gates.pop().unwrap();
        assert!(gates.iter().all(|gate| pass(gate, 1)));
        assert!(!pass(&last, 1));
        assert!(gates.iter().all(|gate| pass(gate, u64::MAX)), "a permit is enough for all");
        gates.pop();
        assert!(pass(&last, 1));
    }
}
