//! A Hub that refuses requests, or does not answer, in the middle of a census.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::join_all;
use hf_meta_census::CensusRow;

use super::{GeneratedHub, ModelKind, assert_true};
use crate::cli::run;
use crate::hub::{Fault, Host, LoggedRequest};

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
    /// Returns the fault of a request, if it is in the storm.
    fn fault(&self, begun: &Mutex<Option<Instant>>, request: &LoggedRequest) -> Option<Fault> {
        let begun = *begun.lock().unwrap().get_or_insert(request.at);
        let is_hit = request.at < begun + self.duration && self.hosts.contains(&request.host);
        is_hit.then(|| self.fault.clone())
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
        let (sent, faults) = (sent_requests(&generated, &rows), faults.load(Ordering::Relaxed));
        let failed: Vec<_> = rows.values().filter(|row| row.status == "failed").collect();
        assert!(failed.is_empty() && summary.failed() == 0, "{}: {failed:?}", self.name);
        assert_true(&rows, generated.truths());
        // A failed attempt is at most a redirect of the Hub and a response of its CDN.
        assert!(faults > 0 && sent <= needed + 2 * faults, "{}: {faults}, {sent}", self.name);
        assert!(!self.is_announced || faults < 80, "{}: {faults} requests", self.name);
    }
}

/// Returns the requests of a census, but for sets without all of their shards: the first missing one ends their reading,
/// and chance decides about the requests for the others.
fn sent_requests(generated: &GeneratedHub, rows: &BTreeMap<String, CensusRow>) -> u64 {
    let truths = generated.truths().filter(|truth| truth.kind != ModelKind::MissingShard);
    truths.map(|truth| u64::try_from(rows[&truth.repo].requests).unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_rejections_fails_no_model() {
    let generated = GeneratedHub::new(MODELS);
    let manifest = generated.list("repos.parquet").await;
    generated.read(&manifest, "calm").await;
    let needed = sent_requests(&generated, &generated.rows("calm"));
    join_all(storms().map(|storm| storm.check(needed))).await;
}

/// Each failed request is repeated as often as the limit allows, and no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_stays_down_ends_the_census_and_retry_completes_it() {
    const RETRIES: u64 = 1;
    for outage in [Fault::Status(503, vec![]), Fault::ConnectionReset] {
        let generated = GeneratedHub::new(MODELS);
        let (list, target) = (generated.path("repos.parquet"), generated.path("census"));
        generated.list("repos.parquet").await;
        let (before, requests) = (generated.hub.counts().total(), AtomicU64::new(0));
        let fault = outage.clone();
        generated.hub.inject(move |_, _| {
            let is_down = requests.fetch_add(1, Ordering::Relaxed) >= BEFORE;
            is_down.then(|| fault.clone())
        });
        let retries = RETRIES.to_string();
        let args = ["-q", "--retries", &retries, "census", "read", &list, "-o", &target];
        let read = run(&generated.hub, &args);
        let sent = generated.hub.counts().total() - before;
        assert_eq!((read.code, &*read.stderr), (3, ""), "{outage:?}: {}", read.stdout);
        let rows = generated.rows("census");
        let failed: Vec<_> = rows.values().filter(|row| row.status == "failed").collect();
        assert!(failed.len() > 50 && rows.len() as u64 == MODELS, "{outage:?}: {}", read.stdout);
        assert!(failed.iter().all(|row| row.error_kind.is_some() && row.parameter_total.is_none()));
        // An index and `config.json`, or the files that were requested before the outage.
        let most = BEFORE + 2 * (RETRIES + 1) * failed.len() as u64;
        assert!(sent <= most, "{outage:?}: {sent} requests for {} models", failed.len());
        // A second run leaves these rows to `retry`.
        assert_eq!(run(&generated.hub, &args).code, 3);
        assert_eq!(generated.hub.counts().total() - before, sent);
        generated.hub.inject(|_, _| None);
        let completed = run(&generated.hub, &["-q", "census", "retry", &target]);
        assert_eq!((completed.code, &*completed.stderr), (0, ""), "{}", completed.stdout);
        assert_true(&generated.rows("census"), generated.truths());
    }
}
