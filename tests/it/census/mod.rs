//! The census, compared with the truth of generated models.
//!
//! Add a test here if it is about many repositories: rows, runs that continue, targets that fail, and tables of other
//! programs. The counts of one repository belong to `count`.

mod changes;
mod command;
mod faults;
#[cfg(target_os = "linux")]
mod hostile;
#[cfg(unix)]
mod storage;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hf_meta::internal::count_and_record;
use hf_meta::{Client, ErrorKind};
use hf_meta_census::{
    Census, CensusError, CensusRow, CensusRun, CensusSummary, ListedRepo, Listing, Manifest,
    StoredHeader,
};
use hf_meta_testing::{Fault, LazyRepos as _, MockHubBuilder};

use crate::generated::{GeneratedModels, ModelKind, ModelTruth};
use crate::hub::{LocalHub, Repo};
use crate::support;

/// A Hub of generated models, and a folder.
struct GeneratedHub {
    models: GeneratedModels,
    count: u64,
    hub: LocalHub,
    client: Client,
    folder: tempfile::TempDir,
}

impl GeneratedHub {
    fn new(count: u64) -> Self {
        Self::with(GeneratedModels::new(count, 17), |hub| hub)
    }

    /// Starts a Hub with these models and settings.
    fn with(
        models: GeneratedModels,
        settings: impl FnOnce(MockHubBuilder) -> MockHubBuilder,
    ) -> Self {
        let count = models.count();
        let hub = settings(LocalHub::builder().lazy_repos(models.clone())).start().unwrap();
        let client = support::client(&hub);
        Self { models, count, hub, client, folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Lists all models in a file.
    async fn list(&self, name: &str) -> Manifest {
        let file = self.folder.path().join(name);
        assert_eq!(Listing::new().write(&self.client, &file).await.unwrap(), self.count_usize());
        Manifest::open(&file, None).unwrap()
    }

    async fn read(&self, manifest: &Manifest, target: &str) -> CensusSummary {
        Census::create(self.client.clone(), &self.path(target))
            .unwrap()
            .read(manifest)
            .await
            .unwrap()
    }

    fn rows(&self, target: &str) -> BTreeMap<String, CensusRow> {
        rows(&self.folder.path().join(target))
    }

    fn truths(&self) -> impl Iterator<Item = ModelTruth> {
        (0..self.count).map(|index| self.models.truth(index))
    }

    fn count_usize(&self) -> usize {
        usize::try_from(self.count).unwrap()
    }
}

/// All rows of a census by repository. A repository has one row.
fn rows(target: &Path) -> BTreeMap<String, CensusRow> {
    let mut rows = BTreeMap::new();
    for file in fs::read_dir(target.join("repos")).unwrap() {
        for row in hf_meta_census::rows::<CensusRow>(&file.unwrap().path()).unwrap() {
            let row = row.unwrap();
            assert_eq!(rows.insert(row.repo.clone(), row), None);
        }
    }
    rows
}

/// Asserts that each model has one row, which says what is true.
fn assert_true(rows: &BTreeMap<String, CensusRow>, truths: impl Iterator<Item = ModelTruth>) {
    let mut checked = 0;
    for truth in truths {
        let row = &rows[&truth.repo];
        let found = match &row.error_kind {
            None => Ok(u64::try_from(row.parameter_total.unwrap()).unwrap()),
            Some(kind) => Err(&**kind),
        };
        assert_eq!(found, truth.parameters, "{row:?}");
        assert_eq!(row.status == "ok", truth.parameters.is_ok(), "{row:?}");
        assert_eq!(row.listed_commit.as_deref(), Some(&*truth.commit), "{row:?}");
        let is_read = truth.kind != ModelKind::Gated;
        assert_eq!(row.commit.as_deref(), is_read.then_some(&*truth.commit), "{row:?}");
        let is_counted = row.status == "ok";
        assert_eq!((row.dtypes.is_some(), row.findings.is_some()), (is_counted, is_counted));
        if row.status == "ok" {
            assert_eq!(u64::try_from(row.files.unwrap()).unwrap(), truth.files, "{row:?}");
            assert_eq!(
                (row.kind.as_deref(), row.is_complete),
                (Some("model"), Some(true)),
                "{row:?}"
            );
            assert!(row.layout_digest.is_some() && row.parameter_exact == Some(true), "{row:?}");
            assert_eq!(row.hub_total, row.parameter_total, "{row:?}");
        }
        checked += 1;
    }
    assert_eq!(rows.len(), checked);
}

/// The requests that a model needs if its files are known: one for each of them, and one for the answer of the CDN.
/// `config.json` is read for packed weights and experts, an index for shards. GGUF files are listed with their sizes.
fn needed_requests(truth: &ModelTruth) -> u64 {
    match truth.kind {
        ModelKind::Sharded => 2 + 2 * truth.files,
        ModelKind::Gptq | ModelKind::Mxfp4 => 4,
        ModelKind::GgufOnly => 3,
        ModelKind::KerasOnly | ModelKind::SeveralSets => 0,
        ModelKind::Gated => 1,
        ModelKind::Single | ModelKind::Malformed | ModelKind::UnusualName => 2,
        ModelKind::MissingShard => u64::MAX,
    }
}

/// Counts the requests for each repository from now on.
fn count_requests(hub: &LocalHub) -> Arc<Mutex<BTreeMap<String, u64>>> {
    let requests = Arc::new(Mutex::new(BTreeMap::<String, u64>::new()));
    let counted = Arc::clone(&requests);
    hub.inject(move |request, _| {
        *counted.lock().unwrap().entry(repo(&request.path)).or_default() += 1;
        None
    });
    requests
}

/// Returns the repository in the path of a request.
fn repo(path: &str) -> String {
    let path = ["/api/models/", "/models/", "/"].iter().find_map(|start| path.strip_prefix(start));
    path.unwrap_or_default().splitn(3, '/').take(2).collect::<Vec<_>>().join("/")
}

/// Models of several parts against a Hub that allows 750 requests in 2 s. `.ci/nightly` reads 100,000 models.
#[tokio::test(flavor = "multi_thread")]
async fn each_model_has_one_correct_row_and_one_request_per_file() {
    const MODELS: usize = 1_000;
    let models = GeneratedModels::new(MODELS as u64, 17);
    let quota = |hub: MockHubBuilder| hub.quota(750, Duration::from_secs(2)).without_log();
    let generated = GeneratedHub::with(models, quota);
    let manifest = generated.list("repos.parquet").await;
    let requests = count_requests(&generated.hub);
    let summary = generated.read(&manifest, "census").await;
    assert_eq!((summary.repos(), summary.failed(), summary.already_read), (MODELS, 0, 0));
    let rows = generated.rows("census");
    assert_true(&rows, generated.truths());
    let requests = requests.lock().unwrap().clone();
    for truth in generated.truths().filter(|truth| truth.parameters.is_ok()) {
        let requests = requests.get(&truth.repo).copied().unwrap_or_default();
        assert!(requests <= needed_requests(&truth), "{requests} requests: {truth:?}");
    }
    // A second run reads nothing.
    let counts = generated.hub.counts();
    assert_eq!(counts.refused, 0, "{counts:?}");
    let again = generated.read(&manifest, "census").await;
    assert_eq!((again.repos(), again.already_read), (MODELS, MODELS));
    assert_eq!(generated.hub.counts(), counts);
    assert_eq!(again.rows, summary.rows);
}

#[tokio::test]
async fn recounting_stored_headers_sends_no_requests() {
    let generated = GeneratedHub::new(150);
    let manifest = generated.list("repos.parquet").await;
    generated.read(&manifest, "census").await;
    let before = generated.rows("census");
    generated.hub.clear_log();
    let census = Census::open(generated.client.clone(), &generated.path("census")).unwrap();
    census.count().await.unwrap();
    assert!(generated.hub.log().is_empty());
    assert_eq!(generated.rows("census"), before);
}

/// Returns the files of a table, by name.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    files
        .map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()))
        .collect()
}

/// The table of runs contains everything that differs.
#[tokio::test]
async fn two_reads_of_one_state_are_equal_byte_for_byte() {
    let generated = GeneratedHub::new(300);
    let manifest = generated.list("repos.parquet").await;
    let folder = |name: &str| generated.folder.path().join(name);
    for target in ["one", "two"] {
        generated.hub.clear_log();
        generated.read(&manifest, target).await;
        let sent = generated.hub.log().len();
        let runs: Vec<_> = fs::read_dir(folder(target).join("runs")).unwrap().collect();
        assert_eq!(runs.len(), 1);
        let mut runs =
            hf_meta_census::rows::<CensusRun>(&runs[0].as_ref().unwrap().path()).unwrap();
        let run = runs.next().unwrap().unwrap();
        assert_eq!((&*run.action, run.repos, run.error.as_deref()), ("read", 300, None));
        // Chance decides whether requests of calls that end early are sent.
        let requests = usize::try_from(run.requests).unwrap();
        assert!((sent..sent + 50).contains(&requests), "{sent} requests: {run:?}");
        assert!(run.endpoint.starts_with(generated.hub.endpoint()) && run.bytes_read > 0);
        assert!(run.ended_at >= run.started_at && run.started_at > 0, "{run:?}");
    }
    for table in ["repos", "files"] {
        let of_first = files(&folder("one").join(table));
        assert!(of_first.len() == 2 && of_first == files(&folder("two").join(table)), "{table}");
    }
    for name in files(&folder("one").join("files")).keys() {
        let file = folder("one").join("files").join(name);
        let headers = hf_meta_census::rows::<StoredHeader>(&file).unwrap().map(Result::unwrap);
        assert!(headers.is_sorted_by_key(|header| (header.repo, header.path)));
    }
}

/// Otherwise, chance would decide which shards are stored.
#[tokio::test]
async fn all_shards_are_stored_although_one_is_missing() {
    let index =
        support::index(&[("w", "a.safetensors"), ("x", "b.safetensors"), ("y", "c.safetensors")]);
    let repo = Repo::new("a/b").file("model.safetensors.index.json", index);
    let repo = repo.file("b.safetensors", support::weights(&["x"]));
    let repo = repo.file("c.safetensors", support::weights(&["y"]));
    let hub = LocalHub::builder().repos([repo]).start().unwrap();
    // The shards arrive after the error.
    let seen = Mutex::new(BTreeSet::new());
    hub.inject(move |request, _| {
        let is_shard =
            request.path.ends_with("/b.safetensors") || request.path.ends_with("/c.safetensors");
        let is_late = is_shard && seen.lock().unwrap().insert(request.path.clone());
        is_late.then(|| Fault::Status(503, vec![]))
    });
    let (result, _, bytes) = count_and_record(&support::client(&hub).model("a/b")).await;
    assert_eq!(result.unwrap_err().kind(), ErrorKind::MissingShards);
    let files = bytes.unwrap().into_files().map(|file| file.path.to_string());
    let expected = ["b.safetensors", "c.safetensors", "model.safetensors.index.json"];
    assert_eq!(files.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn missing_headers_are_reported_and_repaired() {
    let generated = GeneratedHub::new(150);
    let manifest = generated.list("repos.parquet").await;
    generated.read(&manifest, "census").await;
    let before = generated.rows("census");
    let census = || Census::open(generated.client.clone(), &generated.path("census")).unwrap();
    let changes: [fn(&Path) -> std::io::Result<()>; 2] =
        [|file| fs::remove_file(file), |file| fs::write(file, "PAR1")];
    for change in changes {
        let headers = generated.folder.path().join("census/files");
        let file = fs::read_dir(&headers).unwrap().next().unwrap().unwrap().path();
        change(&file).unwrap();
        let error = census().count().await.unwrap_err();
        assert!(matches!(error, CensusError::Headers { .. }), "{error}");
        assert!(error.to_string().contains(file.file_name().unwrap().to_str().unwrap()), "{error}");
        generated.read(&manifest, "census").await;
        census().count().await.unwrap();
    }
    assert_eq!(generated.rows("census"), before);
}

#[tokio::test]
async fn slices_add_up_to_the_whole() {
    let generated = GeneratedHub::new(300);
    let manifest = generated.list("repos.parquet").await;
    generated.read(&manifest, "whole").await;
    for slice in 0..2 {
        let census = Census::create(generated.client.clone(), &generated.path("slices")).unwrap();
        census.slice(slice, 2).read(&manifest).await.unwrap();
    }
    assert_eq!(generated.rows("slices"), generated.rows("whole"));
}

#[tokio::test]
async fn a_refresh_reads_changed_models_only() {
    let generated = GeneratedHub::new(400);
    let manifest = generated.list("repos.parquet").await;
    generated.read(&manifest, "old").await;
    generated.models.push();
    let changed: Vec<_> =
        (0..400).filter(|index| generated.models.last_push(*index) == 1).collect();
    assert!((1..20).contains(&changed.len()), "{}", changed.len());
    let manifest = generated.list("new.parquet").await;
    generated.hub.clear_log();
    let census = Census::create(generated.client.clone(), &generated.path("new")).unwrap();
    let summary = census.previous(&*generated.path("old")).read(&manifest).await.unwrap();
    let gated = generated.truths().filter(|truth| truth.kind == ModelKind::Gated).count();
    assert!(summary.carried_over >= 400 - changed.len() - gated, "{summary:?}");
    assert_true(&generated.rows("new"), generated.truths());
    let names: Vec<_> = changed.iter().map(|index| generated.models.truth(*index)).collect();
    for request in generated.hub.log() {
        let is_of = |truth: &ModelTruth| request.path.contains(&format!("/{}/", truth.repo));
        let is_known = names.iter().any(is_of)
            || generated.truths().any(|truth| truth.kind == ModelKind::Gated && is_of(&truth));
        assert!(is_known, "{}", request.path);
    }
    // Copied headers can be counted, too.
    let before = generated.rows("new");
    let census = Census::open(generated.client.clone(), &generated.path("new")).unwrap();
    census.count().await.unwrap();
    assert_eq!(generated.rows("new"), before);
}

#[tokio::test]
async fn failed_models_are_read_again() {
    let generated = GeneratedHub::new(300);
    let manifest = generated.list("repos.parquet").await;
    generated
        .hub
        .inject(|request, _| request.path.contains("/org7/").then(|| Fault::Status(503, vec![])));
    let summary = generated.read(&manifest, "census").await;
    assert!(summary.failed() > 0);
    generated.hub.inject(|_, _| None);
    let census = Census::open(generated.client.clone(), &generated.path("census")).unwrap();
    let (sender, progress) = std::sync::mpsc::channel();
    let census = census.on_progress(move |progress| sender.send(progress).unwrap());
    generated.hub.clear_log();
    let summary = census.retry().await.unwrap();
    assert_eq!((summary.failed(), summary.repos()), (0, 300));
    // The file names of the list are known, so only GGUF files are listed.
    let listings =
        generated.hub.log().iter().filter(|request| request.path.contains("/api/")).count();
    let gguf = generated.truths().filter(|truth| truth.kind == ModelKind::GgufOnly).count();
    assert!(listings <= gguf, "{listings} listings");
    census.count().await.unwrap();
    let done: Vec<_> = progress.try_iter().map(|progress| progress.done).collect();
    // The calls report the start and each repository or part.
    let failed = done.iter().rposition(|done| *done == 0).unwrap() - 1;
    assert_eq!(done[..=failed], *(0..=failed).collect::<Vec<_>>());
    assert_eq!(done[failed + 1..], [0, 256, 300]);
    assert_true(&generated.rows("census"), generated.truths());
}

#[tokio::test]
async fn a_listing_continues_and_names_what_was_changed() {
    let generated = GeneratedHub::new(5_000);
    let file = generated.folder.path().join("repos.parquet");
    // The Hub fails after some pages.
    let pages = AtomicUsize::new(0);
    generated.hub.inject(move |_, _| {
        let is_late = pages.fetch_add(1, Ordering::Relaxed) >= 3;
        is_late.then(|| Fault::Status(500, vec![]))
    });
    assert!(Listing::new().write(&generated.client, &file).await.is_err() && !file.exists());
    generated.hub.inject(|_, _| None);
    generated.hub.clear_log();
    let (sender, progress) = std::sync::mpsc::channel();
    let listing = Listing::new().on_progress(move |models| sender.send(models).unwrap());
    assert_eq!(listing.write(&generated.client, &file).await.unwrap(), 5_000);
    assert_eq!(progress.try_iter().collect::<Vec<_>>(), [4_000, 5_000]);
    assert!(generated.hub.log().len() < 6, "{}", generated.hub.log().len());
    let listed: Vec<_> =
        hf_meta_census::rows::<ListedRepo>(&file).unwrap().map(Result::unwrap).collect();
    let mut names: Vec<_> = listed.iter().map(|repo| repo.repo.clone()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 5_000);
    let last = listed.iter().filter_map(|repo| repo.last_modified).max().unwrap();
    generated.models.push();
    let changed = generated.folder.path().join("changed.parquet");
    let listing = Listing::new().since(last + 3_600_000);
    listing.write(&generated.client, &changed).await.unwrap();
    let listed: Vec<_> =
        hf_meta_census::rows::<ListedRepo>(&changed).unwrap().map(Result::unwrap).collect();
    assert!((20..100).contains(&listed.len()), "{}", listed.len());
}
