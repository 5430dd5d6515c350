//! Reads repositories: their rows, and the headers from which the rows are computed.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use itertools::Itertools;

use super::manifest::ListedRepo;
use super::row::{CensusRow, ComponentCount, MODULES};
use super::stored_header::{LayoutHasher, MAX_HEADER_BYTES, StoredHeader, digest_from_hex};
use super::table::lock;
use hf_meta::internal::{HeaderBytes, count_and_record, loaded_with};
use hf_meta::{Client, CommitSha, Error, LargeCallLimit, Model, Source, internal};
use hf_meta_count::results::{CountReport, Plan};
use hf_meta_format::formats::RepoPath;
use hf_meta_format::formats::weight_sets::PIPELINE;

/// The maximum number of repositories that may use a lot of memory at the same time. Parsing the largest allowed
/// header takes 240 MB.
pub(super) const MAX_LARGE_READS: usize = 2;

/// The maximum number of components of a model. Each takes a few requests.
const MAX_COMPONENTS: usize = 100;

/// A repository that was read. Errors become rows, too.
#[derive(Debug)]
pub(super) struct RepoRead {
    pub(super) row: CensusRow,
    /// `None` if nothing was read or the headers are too large to store.
    pub(super) headers: Option<HeaderBytes>,
    pub(super) requests: u64,
    pub(super) error: Option<Error>,
    pub(super) began: Instant,
    pub(super) ended: Instant,
}

/// Reads a repository, or a local file or folder if `accepts_local` is true.
pub(super) async fn read_repo(
    client: &Client,
    large: &LargeCallLimit,
    listed: &ListedRepo,
    accepts_local: bool,
) -> RepoRead {
    let (began, meter) = (Instant::now(), client.meter());
    let local = listed.repo.parse().ok().filter(|source| matches!(source, Source::Local(_)));
    let local = if accepts_local { local } else { None };
    let model = |commit: Option<&str>| {
        let model =
            local.clone().map_or_else(|| client.model(&listed.repo), |at| client.source(at));
        let model = model.set_some(commit, Model::revision).plan(Plan::Prefetch);
        let model = model.meter(&meter).large_calls(large);
        match &listed.files {
            Some(files) => model.known_files(files.iter().filter_map(|path| path.parse().ok())),
            None => model,
        }
    };
    let main = model(listed.commit.as_deref()).other_sets(listed.files.is_some());
    let mut sets = SetReader::default();
    let mut result = sets.count_loaded(main, model, listed.files.as_deref()).await;
    let mut row = CensusRow::new(listed.clone());
    match &result {
        Ok(counted) if counted.has_too_many_components => {
            let error = format!("the model has more than {MAX_COMPONENTS} components");
            row.set_failure("too_large", "tooLarge", error);
        }
        result => row.set_result(result.as_ref().map(|counted| &counted.report)),
    }
    row.set_digests(lock(&sets.hasher).finish());
    row.set_source(sets.headers.as_ref());
    if let (Ok(counted), "ok" | "empty") = (&mut result, &*row.status) {
        row.components = counted.components.take();
        let files = listed.files.iter().flatten().filter_map(|path| path.parse().ok());
        let counted_files = counted.report.filepaths.iter().cloned();
        let files: Vec<_> = files.chain(counted_files).unique().collect();
        row.set_role(counted.path.as_ref(), &files, counted.report.adapter.is_some());
        row.file_sha256 = sets.hashes(&counted.report);
    }
    let (requests, ended) = (meter.stats().requests, Instant::now());
    RepoRead { row, headers: sets.headers, requests, error: result.err(), began, ended }
}

/// The counts of a set of weights, or of several that are loaded together.
struct Counted {
    report: CountReport,
    /// The path of the main set.
    path: Option<RepoPath>,
    /// The counts of each set, if there are several.
    components: Option<Vec<ComponentCount>>,
    has_too_many_components: bool,
}

/// Counts sets of weights that are loaded together, and keeps their headers and the hashes of their layout.
#[derive(Default)]
struct SetReader {
    /// The stored bytes to count; `None` to read from the Hub.
    stored: Option<HeaderBytes>,
    /// `None` if those of one set are unknown, if a component could not be read, because a recount would then take the
    /// main set for the whole model, or if all are too large to store.
    headers: Option<HeaderBytes>,
    /// The size of the headers that were added to those of the main set.
    added_bytes: usize,
    hasher: Arc<Mutex<LayoutHasher>>,
}

impl SetReader {
    /// Counts the main set.
    async fn count_main(&mut self, model: Model) -> Result<Counted, Error> {
        let (result, path, headers) = self.count(model).await;
        self.headers = headers;
        let report = result?;
        Ok(Counted { report, path, components: None, has_too_many_components: false })
    }

    /// Counts the main set and the other components of a model, which are read at the same commit.
    async fn count_loaded(
        &mut self,
        main: Model,
        at_commit: impl Fn(Option<&str>) -> Model,
        listed_files: Option<&[String]>,
    ) -> Result<Counted, Error> {
        let mut counted = self.count_main(main).await?;
        let Some(main) = &counted.path else { return Ok(counted) };
        // Components are in folders, or below the folder of the file that lists them.
        let is_list = |file: &String| file.ends_with(PIPELINE) || file.ends_with(MODULES);
        let has_components =
            listed_files.map_or_else(|| main.folder().is_some(), |files| files.iter().any(is_list));
        if has_components {
            let model = at_commit(counted.report.commit.as_ref().map(CommitSha::as_str));
            let components = loaded_with(&model, main).await?;
            counted.has_too_many_components = components.len() > MAX_COMPONENTS;
            if counted.has_too_many_components {
                self.headers = None;
                return Ok(counted);
            }
            let components = components.into_iter().map(|set| set.path);
            self.add_components(&mut counted, &model, components).await?;
        }
        Ok(counted)
    }

    /// Counts the weights of a row again.
    async fn count_again(
        &mut self,
        main: Model,
        others: &Model,
        row: &CensusRow,
    ) -> Result<Counted, Error> {
        let mut counted = self.count_main(main).await?;
        let path = row.path.as_deref().and_then(|path| path.parse().ok());
        counted.path = counted.path.or(path);
        self.add_components(&mut counted, others, row.other_components()).await?;
        Ok(counted)
    }

    /// Counts the other components, until one fails, and adds them to the counts of the main set.
    async fn add_components(
        &mut self,
        counted: &mut Counted,
        model: &Model,
        paths: impl Iterator<Item = RepoPath>,
    ) -> Result<(), Error> {
        let Some(main) = &counted.path else { return Ok(()) };
        let sum = &mut counted.report;
        let mut components = vec![ComponentCount::new(main, sum)];
        for path in paths {
            let (result, _, headers) = self.count(model.clone().path(path.as_str())).await;
            self.add_headers(headers);
            let report = result.inspect_err(|_| self.headers = None)?;
            components.push(ComponentCount::new(&path, &report));
            sum.parameter_count = [&sum.parameter_count, &report.parameter_count].into_iter().sum();
            sum.filepaths.extend(report.filepaths);
            sum.findings.extend(report.findings);
            if sum.breakdown.is_exact() && !report.breakdown.is_exact() {
                sum.breakdown = report.breakdown;
            }
        }
        if components.len() > 1 {
            sum.filepaths.sort_unstable();
            (sum.sharded, sum.declared_total, sum.cache_spec) = (true, None, None);
            let others = sum.other_sets.take();
            sum.add_other_sets(others);
            counted.components = Some(components);
        }
        Ok(())
    }

    /// Counts a set. Returns its path and its headers, too, if it is read from the Hub.
    async fn count(
        &self,
        model: Model,
    ) -> (Result<CountReport, Error>, Option<RepoPath>, Option<HeaderBytes>) {
        if let Some(stored) = &self.stored {
            return (internal::recount(&model, stored.clone()).await, None, None);
        }
        let hasher = Arc::clone(&self.hasher);
        let model = model.on_header(move |header| lock(&hasher).add(header));
        count_and_record(&model).await
    }

    fn add_headers(&mut self, more: Option<HeaderBytes>) {
        let Some((mut headers, more)) = self.headers.take().zip(more) else { return };
        for file in more.into_files() {
            self.added_bytes += file.start.len();
            headers.add(file);
        }
        self.headers = (self.added_bytes as u64 <= MAX_HEADER_BYTES).then_some(headers);
    }

    /// Returns the known hashes of the weight files.
    fn hashes(&self, report: &CountReport) -> Option<Vec<Bytes>> {
        let headers = self.headers.as_ref()?;
        let files = report.filepaths.iter().filter(|path| !path.is_index());
        Some(files.filter_map(|path| digest_from_hex(headers.sha256(path)?)).collect())
    }
}

/// Reads the weights of a row again, and returns the row with the new counts. Fails if another attempt may succeed.
pub(super) async fn read_again(
    client: &Client,
    row: &CensusRow,
    large: &LargeCallLimit,
) -> Result<CensusRow, Error> {
    let model = client.model(&row.repo).set_some(row.commit.as_ref(), Model::revision);
    let model = model.plan(Plan::Prefetch);
    let model = model.large_calls(large);
    let mut sets = SetReader::default();
    let result =
        sets.count_again(model.clone().set_some(row.path.as_ref(), Model::path), &model, row).await;
    let mut found = recounted(row, &result);
    found.set_digests(lock(&sets.hasher).finish());
    match result {
        Ok(counted) => found.file_sha256 = sets.hashes(&counted.report),
        Err(error) if found.has_failed() => return Err(error),
        Err(_) => {}
    }
    Ok(found)
}

/// Recounts a row from stored bytes. Returns `None` if the bytes are incomplete.
pub(super) async fn recount(
    client: &Client,
    row: &CensusRow,
    headers: &[StoredHeader],
) -> Option<CensusRow> {
    let commit = row.commit.as_ref()?;
    let (mut stored, mut files) = (HeaderBytes::new(commit.parse().ok()?), Vec::new());
    for header in headers {
        if header.commit != *commit {
            return None;
        }
        let file = header.to_file()?;
        files.push(file.path.clone());
        stored.add(file);
    }
    let model = client.model(&row.repo).revision(commit.as_str());
    let main = match row.path.as_deref() {
        Some(path) => model.clone().path(path),
        None => model.clone().known_files(files.iter().cloned()).other_sets(true),
    };
    let mut sets = SetReader { stored: Some(stored), ..SetReader::default() };
    let result = sets.count_again(main, &model, row).await;
    let mut found = recounted(row, &result);
    if let (Ok(Counted { report, .. }), None) = (&result, &row.kind) {
        let main = files.iter().find(|path| path.is_index()).or(report.filepaths.first());
        found.set_role(main, &files, report.adapter.is_some());
    }
    let is_final = result.err().is_none_or(|error| error.is_malformed());
    is_final.then_some(found)
}

/// Returns a row with new counts.
fn recounted(row: &CensusRow, result: &Result<Counted, Error>) -> CensusRow {
    let mut found = row.recounted(result.as_ref().map(|counted| &counted.report));
    found.components = result.as_ref().ok().and_then(|counted| counted.components.clone());
    found
}
