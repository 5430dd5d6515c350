//! One repository: its row, and the bytes that the row is computed from.

use std::sync::{Arc, Mutex, PoisonError};

use super::layout_digest::LayoutHasher;
use super::row::{CensusRow, TOOL};
use super::{ListedRepo, StoredHeader};
use crate::backends::OnHeader;
use crate::cache::CachedHeaders;
use crate::client::{Client, Model};
use crate::formats::RepoPath;
use crate::inspect::RecordedReport;
use crate::report::{CountReport, Plan};

/// The result for a repository.
#[derive(Debug)]
pub(super) struct ReadRepo {
    pub(super) row: CensusRow,
    /// The commit and its headers; `None` if nothing was read, or more than is kept.
    pub(super) headers: Option<(String, CachedHeaders)>,
}

/// Reads a repository. An error becomes a row, too.
pub(super) async fn read_repo(client: Client, listed: ListedRepo) -> ReadRepo {
    let model = model(&client, &listed);
    let hasher = Arc::new(Mutex::new(LayoutHasher::default()));
    let hash = Arc::clone(&hasher);
    let on_header = OnHeader(Arc::new(move |header| {
        hash.lock().unwrap_or_else(PoisonError::into_inner).add(header);
    }));
    let (result, recorded) = model.record(on_header).await;
    let mut row = CensusRow::new(listed);
    row.set_result(result.as_ref().map(|read| &read.report));
    let digests = hasher.lock().unwrap_or_else(PoisonError::into_inner).finish();
    row.set_digests(digests);
    let headers = recorded.map(|(commit, headers)| (commit.to_string(), headers));
    if let Some((commit, headers)) = &headers {
        row.commit = Some(commit.clone());
        row.canonical_repo.clone_from(&headers.canonical_name);
    }
    if let Ok(RecordedReport { path, report }) = &result {
        (row.requests, row.bytes_read) = cost(report);
        row.path = Some(path.to_string());
        row.file_sha256 = hashes(report, headers.as_ref().map(|(_, headers)| headers));
    }
    ReadRepo { row, headers }
}

/// Computes the figures of a row anew, from stored bytes. Returns `None` if they do not suffice.
pub(super) async fn count_again(
    client: &Client,
    row: &CensusRow,
    headers: &[StoredHeader],
) -> Option<CensusRow> {
    let path: RepoPath = row.path.as_ref()?.parse().ok()?;
    let commit = row.commit.as_ref()?.parse().ok()?;
    let files: Option<Vec<_>> = headers.iter().map(StoredHeader::cached).collect();
    let headers = CachedHeaders::from_files(files?, path.folder().as_ref());
    let model = client.model(&row.repo).revision(row.commit.as_ref()?).path(path);
    let report = model.replay(commit, headers).await.ok()?;
    let mut counted =
        CensusRow { rules: crate::count::RuleSet::CURRENT.to_string(), ..row.clone() };
    counted.set_result(Ok(&report));
    TOOL.clone_into(&mut counted.tool);
    Some(counted)
}

fn model(client: &Client, listed: &ListedRepo) -> Model {
    let mut model =
        client.model(&listed.repo).plan(Plan::Prefetch).other_sets(listed.files.is_some());
    if let Some(commit) = &listed.commit {
        model = model.revision(commit);
    }
    match &listed.files {
        // A path that is not valid can not be requested, so it is none of the weights.
        Some(files) => model.files(files.iter().filter_map(|path| path.parse().ok()).collect()),
        None => model,
    }
}

fn cost(report: &CountReport) -> (i64, i64) {
    let number = |number| i64::try_from(number).unwrap_or(i64::MAX);
    (number(report.fetch.requests), number(report.fetch.bytes_read))
}

/// Returns the hashes of the files of weights that are known.
fn hashes(report: &CountReport, headers: Option<&CachedHeaders>) -> Vec<String> {
    let Some(headers) = headers else { return Vec::new() };
    let files = report.filepaths.iter().filter(|path| !path.is_index());
    files.filter_map(|path| headers.file(path)?.sha256).collect()
}
