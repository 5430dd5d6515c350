//! Reads one repository: its row and the bytes from which the row is computed.

use std::sync::{Arc, Mutex, PoisonError};

use super::layout_digest::LayoutHasher;
use super::read_limits::ReadLimits;
use super::row::CensusRow;
use super::{ListedRepo, StoredHeader};
use hf_meta::report::{CountReport, Plan};
use hf_meta::{Client, Error, HeaderBytes, Model};

/// The result for a repository.
#[derive(Debug)]
pub(super) struct ReadRepo {
    pub(super) row: CensusRow,
    /// The headers; `None` if nothing was read or they are too large to store.
    pub(super) headers: Option<HeaderBytes>,
}

/// Reads a repository. Errors become rows, too. With `lists_sets`, also lists the other sets of weights if the files
/// are unknown.
pub(super) async fn read_repo(
    client: Client,
    listed: ListedRepo,
    lists_sets: bool,
    limits: ReadLimits,
) -> ReadRepo {
    let meter = client.start_call();
    let hasher = Arc::new(Mutex::new(LayoutHasher::default()));
    let hash = Arc::clone(&hasher);
    let model = model(&client, &listed, lists_sets).meter(&meter).large_calls(&limits.large);
    let model = model.on_header(move |header| {
        hash.lock().unwrap_or_else(PoisonError::into_inner).add(header);
    });
    let recorded = model.count_and_record().await;
    let mut row = CensusRow::new(listed);
    row.set_result(recorded.result.as_ref());
    row.requests = i64::try_from(meter.requests()).unwrap_or(i64::MAX);
    row.bytes_read = i64::try_from(meter.bytes()).unwrap_or(i64::MAX);
    let digests = hasher.lock().unwrap_or_else(PoisonError::into_inner).finish();
    row.set_digests(digests);
    if let Some(headers) = &recorded.bytes {
        row.commit = Some(headers.commit().to_string());
        row.canonical_repo = headers.canonical_name().map(str::to_owned);
    }
    if let Ok(report) = &recorded.result {
        row.path = recorded.path.map(|path| path.to_string());
        row.file_sha256 = hashes(report, recorded.bytes.as_ref());
    }
    ReadRepo { row, headers: recorded.bytes }
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
    let (mut bytes, mut files) = (HeaderBytes::new(commit.parse().ok()?), Vec::new());
    for header in headers {
        let file = header.to_file()?;
        files.push(file.path.clone());
        bytes.add(file);
    }
    let model = client.model(&row.repo).revision(commit);
    let model = match &row.path {
        Some(path) => model.path(path),
        None => model.known_files(files),
    };
    let result = model.recount(bytes).await;
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
        Some(files) => model.known_files(files.iter().filter_map(|path| path.parse().ok())),
        None => model,
    }
}

/// Returns the known hashes of the weight files.
fn hashes(report: &CountReport, headers: Option<&HeaderBytes>) -> Vec<String> {
    let Some(headers) = headers else { return Vec::new() };
    let files = report.filepaths.iter().filter(|path| !path.is_index());
    files.filter_map(|path| headers.sha256(path).map(str::to_owned)).collect()
}
