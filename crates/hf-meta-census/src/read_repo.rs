//! Reads repositories: their rows, and the headers from which the rows are computed.

use std::mem::take;
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
use super::pack::SortedRow;
use super::row::{CensusRow, ComponentCount, MAX_SETS, MODULES, integer};
use super::table::{TableRow, sorted_by};
use super::{CensusError, ListedRepo, MAX_HEADER_BYTES};
use hf_meta::count::Counter;
use hf_meta::formats::weight_sets::{PIPELINE, WeightSet};
use hf_meta::formats::{FileHeader, Formats, HeaderError, RepoPath, WeightsKind, read_header};
use hf_meta::report::{CountReport, Plan};
use hf_meta::{
    Client, CommitSha, Error, HeaderBytes, HeaderFile, LargeCallLimit, Model, RecordedCount,
    ResultOrder,
};

/// The maximum number of repositories that may use a lot of memory at the same time. Parsing the largest allowed
/// header takes 240 MB.
pub(super) const MAX_LARGE_READS: usize = 2;

/// The maximum number of components of a model. Each takes a few requests.
const MAX_COMPONENTS: usize = 100;

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
    /// The number of tensors in the file; absent if the stored bytes are not the header of the weight file.
    pub tensors: Option<i64>,
    /// The number of parameters in the file; absent if they depend on other files.
    pub parameters: Option<i64>,
    /// The SHA-256 hash of the stored bytes.
    pub header_sha256: Bytes,
    /// The start of the file, up to the end of its header. Long GGUF arrays that do not affect the counts are zeroed.
    pub header: Bytes,
}

impl TableRow for StoredHeader {
    const NAME: &str = "The table `files`";

    /// Each may be as large as the limit for a header.
    const BATCH_ROWS: usize = 1;

    fn memory(&self) -> usize {
        self.header.len()
    }

    /// Headers do not repeat, and their first bytes are just their length.
    fn published(properties: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
        sorted_by(&[0, 2], properties)
            .set_column_dictionary_enabled("header".into(), false)
            .set_column_statistics_enabled("header".into(), EnabledStatistics::None)
    }
}

impl StoredHeader {
    /// Decompresses the files of a commit one at a time.
    pub(super) fn all(repo: &str, headers: HeaderBytes) -> impl Iterator<Item = Self> + use<> {
        let (repo, commit) = (repo.to_owned(), headers.commit().to_string());
        headers.into_files().filter_map(move |file| {
            let header = Self {
                repo: repo.clone(),
                commit: commit.clone(),
                path: file.path.to_string(),
                size: i64::try_from(file.size).ok()?,
                sha256: file.sha256.as_deref().and_then(digest_from_hex),
                header_sha256: Bytes::copy_from_slice(&Sha256::digest(&file.start)),
                header: file.start,
                ..Self::default()
            };
            Some(header.with_counts())
        })
    }

    /// Counts the file with the current rules.
    pub(super) fn with_counts(self) -> Self {
        if Formats::built_in().find(&self.path).is_none() {
            return Self { tensors: Some(0), parameters: Some(0), ..self };
        }
        let header = self.parse();
        let tensors = header.as_ref().map(|header| integer(header.tensors().len() as u64));
        Self { tensors, parameters: header.as_ref().and_then(count_alone), ..self }
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

impl SortedRow for StoredHeader {
    fn key(&self) -> (&str, &str) {
        (&self.repo, &self.path)
    }
}

/// Returns the number of parameters in a file; `None` if other files could change it.
fn count_alone(header: &FileHeader) -> Option<i64> {
    let mut counter = Counter::new();
    counter.add_file(header).ok()?;
    let (parameters, breakdown) = counter.finish().ok()?;
    i64::try_from(parameters.total()).ok().filter(|_| breakdown.is_exact())
}

/// Reads repositories with the limits of one run.
#[derive(Clone, Debug)]
pub(super) struct RepoReader {
    client: Client,
    concurrency: usize,
    all_quantizations: bool,
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
        let (client, all_quantizations) = (client.clone(), false);
        Self { client, concurrency, all_quantizations, repos, large, breaker }
    }

    /// Sets whether the headers of all quantizations of GGUF repositories are read.
    pub(super) fn all_quantizations(self, enabled: bool) -> Self {
        Self { all_quantizations: enabled, ..self }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.breaker.stop().is_stopped()
    }

    /// Reads repositories, each with an index, and calls `on_read` with their rows and headers as they complete, until
    /// the run ends.
    pub(super) async fn read_all(
        &self,
        repos: impl Iterator<Item = (usize, ListedRepo)>,
        mut on_read: impl FnMut(usize, CensusRow, Option<HeaderBytes>) -> Result<(), CensusError>,
    ) -> Result<(), CensusError> {
        let reader = self.clone();
        let read = move |_, (at, repo): (usize, ListedRepo)| {
            let reader = reader.clone();
            async move {
                // The semaphore is never closed. The permit is held until the headers are written, because they take
                // memory.
                let permit = Arc::clone(&reader.repos).acquire_owned().await;
                let read = reader.breaker.call(&repo.repo, || reader.read(&repo)).await;
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
        let with_limits = |model: Model| model.meter(&meter).large_calls(&self.large);
        let mut read = RepoRead::new(&self.client, with_limits(self.model(listed))).await;
        if let (Ok(report), Some(main)) = (&read.result, &read.path) {
            let others = self.client.model(&listed.repo).plan(Plan::Prefetch);
            let others = others.revision(report.commit.as_ref().map(CommitSha::as_str));
            let others = with_limits(with_files(others, listed));
            let quantizations = if self.all_quantizations { quantizations(report) } else { vec![] };
            // Components are in folders, or below the folder of the file that lists them.
            let is_listed = |file: &String| file.ends_with(PIPELINE) || file.ends_with(MODULES);
            let has_components = match &listed.files {
                Some(files) => files.iter().any(is_listed),
                None => main.folder().is_some(),
            };
            if has_components {
                let loaded = others.loaded_with(main).await;
                read.add_loaded(&others, loaded).await;
            }
            read.add_quantizations(&others, quantizations).await;
        }
        let mut row = CensusRow::new(listed.clone());
        match &read.result {
            Ok(_) if read.has_too_many_components => {
                let error = format!("the model has more than {MAX_COMPONENTS} components");
                row.set_failure("too_large", "tooLarge", error);
            }
            result => row.set_result(result.as_ref()),
        }
        row.set_digests(read.digests());
        row.set_source(read.bytes.as_ref());
        if let (Ok(report), "ok" | "empty") = (&read.result, &*row.status) {
            row.components = read.components.take();
            let files = listed.files.iter().flatten().filter_map(|path| path.parse().ok());
            let files: Vec<_> = files.chain(report.filepaths.iter().cloned()).unique().collect();
            row.set_role(read.path.as_ref(), &files, report.adapter.is_some());
            row.file_sha256 = read.bytes.as_ref().map(|headers| hashes(report, headers));
        }
        ((row, read.bytes), meter.requests(), read.result.err())
    }

    fn model(&self, listed: &ListedRepo) -> Model {
        let model = self.client.model(&listed.repo).revision(listed.commit.as_deref());
        let model = model.plan(Plan::Prefetch).other_sets(listed.files.is_some());
        with_files(model, listed)
    }
}

/// Sets the files of a repository if the list contains them.
fn with_files(model: Model, listed: &ListedRepo) -> Model {
    match &listed.files {
        // A file with an invalid path cannot be requested, so it is ignored.
        Some(files) => model.known_files(files.iter().filter_map(|path| path.parse().ok())),
        None => model,
    }
}

/// Returns the paths of the quantizations that were not counted.
fn quantizations(report: &CountReport) -> Vec<RepoPath> {
    let is_quantization = |set: &&WeightSet| {
        let is_model = set.quantization.is_some() && set.kind == WeightsKind::Model;
        is_model && set.format == report.format
    };
    let sets = report.other_sets.iter().flatten().filter(is_quantization);
    sets.map(|set| set.path.clone()).collect()
}

/// A repository whose weights are read: a set of weights, or several that are loaded together.
struct RepoRead {
    result: Result<CountReport, Error>,
    path: Option<RepoPath>,
    bytes: Option<HeaderBytes>,
    /// The counts of each set, if there are several.
    components: Option<Vec<ComponentCount>>,
    has_too_many_components: bool,
    /// The size of the headers that were added to those of the main set.
    added_bytes: usize,
    hasher: Arc<Mutex<LayoutHasher>>,
    excludes_waits: bool,
}

impl RepoRead {
    /// Reads the main set.
    async fn new(client: &Client, model: Model) -> Self {
        // A timeout that the user sets includes waits for rate limits; the default one does not.
        let excludes_waits = client.call_timeout().is_none();
        let hasher = Arc::new(Mutex::new(LayoutHasher::default()));
        let recorded = record(model, &hasher, excludes_waits).await;
        let RecordedCount { result, path, bytes, .. } = recorded;
        let (components, has_too_many_components, added_bytes) = Default::default();
        Self {
            result,
            path,
            bytes,
            components,
            has_too_many_components,
            added_bytes,
            hasher,
            excludes_waits,
        }
    }

    async fn add_loaded(&mut self, model: &Model, loaded: Result<Vec<WeightSet>, Error>) {
        match loaded {
            Ok(sets) if sets.len() > MAX_COMPONENTS => {
                (self.has_too_many_components, self.bytes) = (true, None);
            }
            Ok(sets) => self.add_components(model, sets.into_iter().map(|set| set.path)).await,
            Err(error) => self.result = Err(error),
        }
    }

    /// Reads the other components of the main set, until one fails. Then no headers are kept, because a recount of them
    /// would take the main set for the whole model.
    async fn add_components(&mut self, model: &Model, paths: impl Iterator<Item = RepoPath>) {
        let mut counts = ComponentCounts::default();
        for path in paths {
            let more = record(model.clone().path(path.as_str()), &self.hasher, self.excludes_waits);
            let more = more.await;
            self.add_bytes(more.bytes);
            match more.result {
                Ok(report) => counts.add(&path, report),
                Err(error) => {
                    (self.result, self.bytes) = (Err(error), None);
                    return;
                }
            }
        }
        if let (Ok(report), Some(main)) = (&mut self.result, &self.path) {
            self.components = counts.add_to(main, report);
        }
    }

    /// Adds the headers of quantizations that are not counted. Those that cannot be read are left out.
    async fn add_quantizations(&mut self, model: &Model, paths: Vec<RepoPath>) {
        for path in paths.into_iter().take(MAX_SETS) {
            let model = model.clone().path(path.as_str());
            let more = model.exclude_waits_from_timeout(self.excludes_waits).count_and_record();
            match more.await {
                RecordedCount { result: Err(error), .. } if error.is_transient() => {
                    self.result = Err(error);
                    return;
                }
                RecordedCount { bytes: more @ Some(_), .. } => self.add_bytes(more),
                _ => {}
            }
        }
    }

    /// Adds the headers of a set. None are kept if those of one set are unknown, or if all are too large to store.
    fn add_bytes(&mut self, more: Option<HeaderBytes>) {
        let Some((mut bytes, more)) = self.bytes.take().zip(more) else { return };
        for file in more.into_files() {
            self.added_bytes += file.start.len();
            bytes.add(file);
        }
        self.bytes = Some(bytes).filter(|_| self.added_bytes as u64 <= MAX_HEADER_BYTES);
    }

    fn digests(&self) -> Option<LayoutDigests> {
        self.hasher.lock().unwrap_or_else(PoisonError::into_inner).finish()
    }
}

/// Counts a set of weights, and hashes its layout.
async fn record(
    model: Model,
    hasher: &Arc<Mutex<LayoutHasher>>,
    excludes_waits: bool,
) -> RecordedCount {
    let hash = Arc::clone(hasher);
    let model = model.on_header(move |header| {
        hash.lock().unwrap_or_else(PoisonError::into_inner).add(header);
    });
    model.exclude_waits_from_timeout(excludes_waits).count_and_record().await
}

/// The counts of the components of a model, without its main set.
#[derive(Default)]
struct ComponentCounts(Vec<(ComponentCount, CountReport)>);

impl ComponentCounts {
    fn add(&mut self, path: &RepoPath, report: CountReport) {
        self.0.push((ComponentCount::new(path, &report), report));
    }

    /// Adds the counts to the report of the main set. Returns the counts of all sets, the main one first; `None` if it
    /// is the only one.
    fn add_to(self, main: &RepoPath, sum: &mut CountReport) -> Option<Vec<ComponentCount>> {
        let mut counts = vec![ComponentCount::new(main, sum)];
        for (count, report) in self.0 {
            counts.push(count);
            let parameters = [take(&mut sum.parameter_count), report.parameter_count];
            sum.parameter_count = parameters.into_iter().sum();
            sum.filepaths.extend(report.filepaths);
            sum.findings.extend(report.findings);
            if sum.breakdown.is_exact() && !report.breakdown.is_exact() {
                sum.breakdown = report.breakdown;
            }
        }
        if counts.len() == 1 {
            return None;
        }
        sum.filepaths.sort_unstable();
        (sum.sharded, sum.declared_total, sum.layout) = (true, None, None);
        let others = sum.other_sets.take();
        sum.add_other_sets(others);
        Some(counts)
    }
}

/// Reads the weights of a row again, and returns the row with the new counts. Fails if another attempt may succeed.
pub(super) async fn read_again(
    client: &Client,
    row: &CensusRow,
    large: &LargeCallLimit,
) -> Result<CensusRow, Error> {
    let model = client.model(&row.repo).revision(row.commit.as_deref()).plan(Plan::Prefetch);
    let model = model.large_calls(large);
    let mut read = RepoRead::new(client, model.clone().path(row.path.as_deref())).await;
    if read.result.is_ok() {
        read.add_components(&model, row.other_components()).await;
    }
    let mut found = row.recounted(read.result.as_ref(), read.components.take());
    found.set_digests(read.digests());
    match read.result {
        Ok(report) => {
            found.file_sha256 = read.bytes.as_ref().map(|headers| hashes(&report, headers));
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
    let main = match row.path.as_deref() {
        Some(path) => model.clone().path(path),
        None => model.clone().known_files(files.iter().cloned()),
    };
    let (mut result, mut counts) = (main.recount(bytes.clone()).await, ComponentCounts::default());
    for path in row.other_components() {
        match model.clone().path(path.as_str()).recount(bytes.clone()).await {
            Ok(report) => counts.add(&path, report),
            Err(error) => result = result.and(Err(error)),
        }
    }
    let main = row.path.as_deref().and_then(|path| path.parse().ok());
    let components = match (&mut result, main) {
        (Ok(report), Some(main)) => counts.add_to(&main, report),
        _ => None,
    };
    let is_final = result.as_ref().err().is_none_or(Error::is_malformed);
    let mut counted = row.recounted(result.as_ref(), components);
    if let (Ok(report), None) = (&result, &row.kind) {
        let main = files.iter().find(|path| path.is_index()).or(report.filepaths.first());
        counted.set_role(main, &files, report.adapter.is_some());
    }
    is_final.then_some(counted)
}
