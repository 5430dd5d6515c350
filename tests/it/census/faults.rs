//! A Hub that refuses requests, or does not answer, in the middle of a census.

use std::collections::{BTreeMap, HashSet};
#[cfg(unix)]
use std::os::unix::process::ExitStatusExt as _;
#[cfg(unix)]
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::join_all;
use hf_meta_census::CensusRow;

use super::{GeneratedHub, ModelKind, assert_true, repo, rows};
use crate::command::{hf_meta, run};
use crate::hub::{Fault, Host, LocalHub, LoggedRequest, Repo};
use crate::support::weights;

const MODELS: u64 = 150;

/// The requests before a storm.
const BEFORE: u64 = 100;

/// A time in which all requests of some kind fail. It begins in the middle of a census.
#[derive(Clone)]
struct Storm {
    name: &'static str,
    duration: Duration,
    hosts: &'static [Host],
    fault: Fault,
    /// True if the Hub has named the time of its wait, so that few requests are sent in the meantime.
    is_announced: bool,
}

fn storms() -> [Storm; 6] {
    let status = |status, wait: Option<&str>| {
        let wait = wait.map(|seconds| ("retry-after", seconds.to_owned()));
        Fault::Status(status, wait.into_iter().collect())
    };
    // Requests for listings have a separate quota.
    let quotas = r#""resolvers";r=0;t=1, "api";r=0;t=1"#.to_owned();
    let quota = Fault::Status(429, vec![("ratelimit", quotas)]);
    let (hub, cdn, both) = (&[Host::Hub][..], &[Host::Cdn][..], &[Host::Hub, Host::Cdn][..]);
    // The five attempts of a request take 1.9 s at least, and waits that the Hub names are not part of that.
    let (short, windows) = (Duration::from_secs(1), Duration::from_millis(2_500));
    let storm = |name, duration, hosts, fault, is_announced| Storm {
        name,
        duration,
        hosts,
        fault,
        is_announced,
    };
    [
        storm("an exhausted quota", windows, hub, quota, true),
        storm("429 with Retry-After", windows, hub, status(429, Some("1")), true),
        storm("503 with Retry-After", windows, hub, status(503, Some("1")), true),
        storm("429 without Retry-After", short, hub, status(429, None), true),
        storm("503", short, both, status(503, None), false),
        storm("broken bodies", short, cdn, Fault::ResetInBody { after: 5 }, false),
    ]
}

impl Storm {
    /// Returns the fault of a request, if it is in the storm, which begins with the first request that it hits.
    fn fault(&self, begun: &Mutex<Option<Instant>>, request: &LoggedRequest) -> Option<Fault> {
        if !self.hosts.contains(&request.host) {
            return None;
        }
        let begun = *begun.lock().unwrap().get_or_insert(request.at);
        (request.at < begun + self.duration).then(|| self.fault.clone())
    }

    /// Reads a census in the storm. Without it, `needed` requests would be sent.
    async fn check(self, needed: u64) {
        let generated = GeneratedHub::new(MODELS);
        let manifest = generated.list("repos.parquet").await;
        let (requests, begun) = (AtomicU64::new(0), Mutex::new(None));
        let faults = Arc::new(AtomicU64::new(0));
        let (storm, counted) = (self.clone(), Arc::clone(&faults));
        generated.hub.inject(move |request, _| {
            let is_late = requests.fetch_add(1, Ordering::Relaxed) >= BEFORE;
            let fault = is_late.then(|| storm.fault(&begun, request)).flatten();
            counted.fetch_add(fault.is_some().into(), Ordering::Relaxed);
            fault
        });
        let summary = generated.read(&manifest, "storm").await;
        let rows = generated.rows("storm");
        let counted = with_all_shards(&generated);
        let sent = sent_requests(&generated, |repo| counted.contains(repo));
        let faults = faults.load(Ordering::Relaxed);
        let failed: Vec<_> = rows.values().filter(|row| row.status == "failed").collect();
        assert!(failed.is_empty() && summary.failed() == 0, "{}: {failed:?}", self.name);
        assert_true(&rows, generated.truths());
        // A failed attempt is at most a redirect of the Hub and a response of its CDN.
        assert!(
            faults > 0 && sent <= needed + 2 * faults,
            "{}: {faults} faults, {sent} requests, {needed} needed",
            self.name
        );
        // In each second, the requests of 32 repositories may be in flight, most with two files. Without the announced
        // waits, each request would be sent five times.
        let in_flight = 32 * 2 * (self.duration.as_secs() + 1);
        assert!(!self.is_announced || faults <= in_flight, "{}: {faults} requests", self.name);
    }
}

/// Returns the number of requests for some repositories.
fn sent_requests(generated: &GeneratedHub, is_counted: impl Fn(&str) -> bool) -> u64 {
    let log = generated.hub.log();
    log.iter().filter(|request| is_counted(&repo(&request.path))).count() as u64
}

/// Returns the repositories with all of their shards. The first missing shard ends the reading, and chance decides about
/// the requests for the others.
fn with_all_shards(generated: &GeneratedHub) -> HashSet<String> {
    let truths = generated.truths().filter(|truth| truth.kind != ModelKind::MissingShard);
    truths.map(|truth| truth.repo).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_rejections_fails_no_model() {
    let generated = GeneratedHub::new(MODELS);
    let manifest = generated.list("repos.parquet").await;
    generated.read(&manifest, "calm").await;
    let counted = with_all_shards(&generated);
    let needed = sent_requests(&generated, |repo| counted.contains(repo));
    join_all(storms().map(|storm| storm.check(needed))).await;
}

/// Returns the rows of a census, of which none has failed because of an outage that ended it.
fn rows_without_failures(generated: &GeneratedHub) -> BTreeMap<String, CensusRow> {
    let rows = generated.rows("census");
    assert!(rows.values().all(|row| row.status != "failed"), "{rows:?}");
    rows
}

/// Asserts that a run sends no request for a repository that had a row before.
fn assert_continues(generated: &GeneratedHub, before: &BTreeMap<String, CensusRow>) {
    for request in generated.hub.log() {
        let mut read = before.keys().filter(|repo| request.path.contains(&format!("/{repo}/")));
        assert_eq!(read.next(), None, "{}", request.path);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_stays_down_ends_the_census_and_the_next_run_continues() {
    for outage in [Fault::Status(503, vec![]), Fault::ConnectionReset] {
        let generated = GeneratedHub::new(600);
        let (list, target) = (generated.path("repos.parquet"), generated.path("census"));
        generated.list("repos.parquet").await;
        let (down, requests) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
        let (fault, failed) = (outage.clone(), Arc::clone(&down));
        generated.hub.inject(move |_, _| {
            let is_down = requests.fetch_add(1, Ordering::Relaxed) >= 1_100;
            failed.fetch_add(is_down.into(), Ordering::Relaxed);
            is_down.then(|| fault.clone())
        });
        let args = ["census", "read", &list, "-o", &target, "--retries", "0", "--max-outage", "2"];
        let read = run(&generated.hub, &args);
        assert_eq!((read.code, &*read.stdout), (3, ""), "{outage:?}: {}", read.stderr);
        assert!(read.stderr.contains("waiting for the end of the outage"), "{}", read.stderr);
        assert!(read.stderr.contains("error: an outage ended the census"), "{}", read.stderr);
        // 32 repositories in flight, each with at most six shards and a configuration, and then 15 rows and two probes, which
        // begin with at most two files. Without an end, 500 repositories would be tried.
        let sent = down.load(Ordering::Relaxed);
        assert!(sent <= 7 * 32 + 2 * (15 + 2), "{outage:?}: {sent} requests in the outage");
        let rows = rows_without_failures(&generated);
        assert!(rows.len() > 256, "{outage:?}: only {} rows", rows.len());
        let packed =
            run(&generated.hub, &["census", "pack", &target, "-o", &generated.path("all")]);
        assert!(packed.code == 1 && packed.stderr.contains("incomplete"), "{}", packed.stderr);
        generated.hub.inject(|_, _| None);
        generated.hub.clear_log();
        assert_eq!(run(&generated.hub, &[&["-q"], &args[..]].concat()).code, 0);
        assert_continues(&generated, &rows);
        assert_true(&generated.rows("census"), generated.truths());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_at_the_start_is_described_once() {
    let generated = GeneratedHub::new(40);
    let (list, target) = (generated.path("repos.parquet"), generated.path("census"));
    generated.list("repos.parquet").await;
    generated.hub.inject(|_, _| Some(Fault::ConnectionReset));
    let args = ["census", "read", &list, "-o", &target, "--retries", "0", "--max-outage", "1"];
    let read = run(&generated.hub, &args);
    assert_eq!(read.stderr.matches(" to read\n").count(), 1, "{}", read.stderr);
    assert!(read.stderr.contains("waiting for the end of the outage"), "{}", read.stderr);
}

/// Repositories that failed at the beginning of an outage are read again after it.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_that_ends_leaves_no_trace() {
    let generated = GeneratedHub::new(600);
    let (list, target) = (generated.path("repos.parquet"), generated.path("census"));
    generated.list("repos.parquet").await;
    let (requests, begun) = (AtomicU64::new(0), Mutex::new(None));
    generated.hub.inject(move |request, _| {
        let is_late = requests.fetch_add(1, Ordering::Relaxed) >= BEFORE;
        let begun = *begun.lock().unwrap().get_or_insert(request.at);
        let is_down = is_late && request.at < begun + Duration::from_secs(4);
        is_down.then_some(Fault::ConnectionReset)
    });
    let read = run(&generated.hub, &["--retries", "0", "census", "read", &list, "-o", &target]);
    assert_eq!(read.code, 0, "{}", read.stderr);
    assert!(read.stderr.contains("the outage has ended"), "{}", read.stderr);
    assert_true(&generated.rows("census"), generated.truths());
}

/// The Hub responds for another repository, so a series of defective ones is not an outage.
#[tokio::test(flavor = "multi_thread")]
async fn a_series_of_defective_repositories_is_no_outage() {
    let good = Repo::new("org/good").file("model.safetensors", weights(&["x"]));
    let hub = LocalHub::start([good]).unwrap();
    let is_defective = |request: &LoggedRequest| request.path.starts_with("/bad/");
    hub.inject(move |request, _| is_defective(request).then(|| Fault::Status(503, vec![])));
    let folder = tempfile::tempdir().unwrap();
    let (list, target) = (folder.path().join("names"), folder.path().join("census"));
    let names: Vec<_> = (0..40).map(|number| format!("bad/{number:02}")).collect();
    std::fs::write(&list, format!("org/good\n{}\n", names.join("\n"))).unwrap();
    let (list, path) = (list.display().to_string(), target.display().to_string());
    let args = ["census", "read", &list, "-o", &path, "--retries", "0", "--jobs", "2"];
    let read = run(&hub, &args);
    assert_eq!(read.code, 3, "{}", read.stderr);
    assert!(read.stderr.contains("the outage has ended"), "{}", read.stderr);
    let rows = rows(&target);
    let failed = rows.values().filter(|row| row.status == "failed").count();
    assert_eq!((rows.len(), failed, &*rows["org/good"].status), (41, 40, "ok"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_token_ends_the_census() {
    let generated = GeneratedHub::new(MODELS);
    let (list, target) = (generated.path("repos.parquet"), generated.path("census"));
    generated.list("repos.parquet").await;
    generated.hub.clear_log();
    let message = "Invalid credentials in Authorization header".to_owned();
    let rejected = Fault::Status(401, vec![("x-error-message", message)]);
    generated.hub.inject(move |_, _| Some(rejected.clone()));
    let args = ["-q", "--token", "hf_rejected", "census", "read", &list, "-o", &target];
    let read = run(&generated.hub, &args);
    assert_eq!((read.code, &*read.stdout), (3, ""), "{}", read.stderr);
    assert!(read.stderr.contains("token"), "{}", read.stderr);
    // Each of the 32 concurrent calls may have sent requests for several files.
    let requests = generated.hub.log().len();
    assert!(requests <= 3 * 32, "{requests} requests");
    // Repositories whose listed files include no weights take no request.
    assert_continues(&generated, &rows_without_failures(&generated));
}

/// The command is ended by SIGTERM at some requests; ten times with `HF_META_SOAK`.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_census_stores_complete_rows_and_continues() {
    let ends = if std::env::var_os("HF_META_SOAK").is_some() { 10 } else { 2 };
    let generated = GeneratedHub::new(600);
    let (list, target) = (generated.path("repos.parquet"), generated.path("census"));
    generated.list("repos.parquet").await;
    let mut before = BTreeMap::new();
    for end in 0..ends {
        let (sender, reached) = std::sync::mpsc::channel();
        let (number, requests) = (100 + end * 631 % 400, AtomicU64::new(0));
        generated.hub.inject(move |_, _| {
            if requests.fetch_add(1, Ordering::Relaxed) == number {
                let _ = sender.send(());
            }
            None
        });
        generated.hub.clear_log();
        let mut process = hf_meta(generated.hub.endpoint());
        process.args(["-q", "census", "read", &list, "-o", &target]);
        let mut process = process.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while process.try_wait().unwrap().is_none() {
            if reached.recv_timeout(Duration::from_millis(20)).is_ok() {
                let id = process.id().to_string();
                assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
            }
        }
        let status = process.wait().unwrap();
        assert_continues(&generated, &before);
        let sent = u64::try_from(generated.hub.log().len()).unwrap();
        let after = rows_without_failures(&generated);
        assert!(before.keys().all(|repo| after.contains_key(repo)), "rows were lost");
        if status.success() {
            break;
        }
        assert_eq!(status.signal(), Some(15));
        // At most 32 repositories were in flight, with eight requests each.
        let is_stored = |repo: &str| after.contains_key(repo) && !before.contains_key(repo);
        let repeated = sent.saturating_sub(sent_requests(&generated, is_stored));
        assert!(repeated <= 32 * 8, "{repeated} of {sent} requests are sent again");
        before = after;
    }
    generated.hub.inject(|_, _| None);
    generated.hub.clear_log();
    assert_eq!(run(&generated.hub, &["-q", "census", "read", &list, "-o", &target]).code, 0);
    assert_continues(&generated, &before);
    assert_true(&generated.rows("census"), generated.truths());
}
