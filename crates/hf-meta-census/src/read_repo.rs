//! Reads one repository: its row and the bytes from which the row is computed.

use std::sync::{Arc, Mutex, PoisonError};

use super::layout_digest::LayoutHasher;
use super::read_limits::ReadLimits;
use super::row::CensusRow;
use super::{ListedRepo, StoredHeader};
use hf_meta::CachedHeaders;
use hf_meta::Error;
use hf_meta::OnHeader;
use hf_meta::formats::RepoPath;
use hf_meta::report::{CountReport, Plan};
use hf_meta::{Client, Model};
use hf_meta::{RecordedCall, RecordedReport};

/// The result for a repository.
#[derive(Debug)]
pub(super) struct ReadRepo {
    pub(super) row: CensusRow,
    /// The commit and its headers; `None` if nothing was read or the headers are too large to store.
    pub(super) headers: Option<(String, CachedHeaders)>,
}

/// Reads a repository. Errors become rows, too. With `lists_sets`, also lists the other sets of weights if the files
/// are unknown.
pub(super) async fn read_repo(
    client: Client,
    listed: ListedRepo,
    lists_sets: bool,
    limits: ReadLimits,
) -> ReadRepo {
    let model = model(&client, &listed, lists_sets);
    let hasher = Arc::new(Mutex::new(LayoutHasher::default()));
    let hash = Arc::clone(&hasher);
    let on_header = OnHeader(Arc::new(move |header| {
        hash.lock().unwrap_or_else(PoisonError::into_inner).add(header);
    }));
    let RecordedCall { result, bytes, requests, bytes_read } =
        model.record(on_header, |meter| limits.gate(meter)).await;
    let mut row = CensusRow::new(listed);
    row.set_result(result.as_ref().map(|read| &read.report));
    row.requests = i64::try_from(requests).unwrap_or(i64::MAX);
    row.bytes_read = i64::try_from(bytes_read).unwrap_or(i64::MAX);
    let digests = hasher.lock().unwrap_or_else(PoisonError::into_inner).finish();
    row.set_digests(digests);
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

/// Recounts a row from stored bytes. Returns `None` if the bytes are incomplete.
pub(super) async fn count_again(
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
    is_final.then(|| row.counted_again(result.as_ref()))
}

fn model(client: &Client, listed: &ListedRepo, lists_sets: bool) -> Model {
    let lists_sets = lists_sets || listed.files.is_some();
    let mut model = client.model(&listed.repo).plan(Plan::Prefetch).other_sets(lists_sets);
    if let Some(commit) = &listed.commit {
        model = model.revision(commit);
    }
    match &listed.files {
        // A file with an invalid path cannot be requested, so it is ignored.
        Some(files) => model.files(files.iter().filter_map(|path| path.parse().ok()).collect()),
        None => model,
    }
}

/// Returns the known hashes of the weight files.
fn hashes(report: &CountReport, headers: Option<&CachedHeaders>) -> Vec<String> {
    let Some(headers) = headers else { return Vec::new() };
    let files = report.filepaths.iter().filter(|path| !path.is_index());
    files.filter_map(|path| headers.file(path)?.sha256).collect()
}
