//! The RAM of a call, with a Hub that sends as much as the limits allow: less than twice the limit of each
//! response.
//!
//! Limits and responses are a tenth of the real ones, or full-size with `HF_META_SOAK=1`. Each call has its own
//! process, whose peak memory the system records.

use std::ffi::OsStr;
use std::time::Duration;

use hf_meta::{Client, Error, LargeCallLimit, MemoryCache, RetryPolicy, SafetensorsParseFromRepo};

use crate::hub::{Fault, File, LocalHub, Repo};
use crate::support::{self, file_start};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

const TEST: &str = "call::ram::no_response_uses_twice_its_limit";
const ENDPOINT: &str = "HF_META_TEST_ENDPOINT";
const FILE: &str = "HF_META_TEST_FILE";
const LIMIT: &str = "HF_META_TEST_LIMIT";
const REPORT: &str = "HF_META_TEST_REPORT";

/// Returns as many JSON entries as fit into `bytes` bytes, and their number.
fn entries(bytes: usize, entry: impl Fn(usize) -> String) -> (String, usize) {
    let (mut text, mut count) = (String::with_capacity(bytes), 0);
    loop {
        let next = entry(count);
        if text.len() + next.len() + 1 > bytes {
            return (text, count);
        }
        if count > 0 {
            text.push(',');
        }
        text += &next;
        count += 1;
    }
}

/// Creates a file with the longest allowed header, of one-byte tensors.
fn header(limit: usize) -> File {
    let (entries, count) = entries(limit - 2, |at| {
        let end = at + 1;
        format!(r#""{at:x}":{{"dtype":"U8","shape":[1],"data_offsets":[{at},{end}]}}"#)
    });
    let head = file_start(&format!("{{{entries}}}"));
    let size = (head.len() + count) as u64;
    File::padded(head, size)
}

/// Creates the longest allowed index.
fn index(limit: usize) -> File {
    let (entries, _) = entries(limit - 17, |at| format!(r#""{at:x}":"a.safetensors""#));
    File::from_bytes(format!(r#"{{"weight_map":{{{entries}}}}}"#))
}

/// A call: the file, the limit in MB, and the expected result.
struct Case {
    name: &'static str,
    file: &'static str,
    limit: usize,
    repo: fn(usize) -> Repo,
    outcome: &'static str,
    fault: Option<Fault>,
}

fn cases() -> [Case; 4] {
    let any: fn(usize) -> Repo = |_| support::sharded("org/model");
    [
        Case {
            name: "a header",
            file: SINGLE,
            limit: 100,
            repo: |limit| Repo::new("org/model").file(SINGLE, header(limit)),
            outcome: "fine",
            fault: None,
        },
        Case {
            name: "an index",
            file: INDEX,
            limit: 250,
            repo: |limit| {
                let repo = Repo::new("org/model").file(INDEX, index(limit));
                repo.file("a.safetensors", support::weights(&["0"]))
            },
            outcome: "bad index",
            fault: None,
        },
        Case {
            name: "an endless index",
            file: INDEX,
            limit: 250,
            repo: any,
            outcome: "too large",
            fault: Some(Fault::ENDLESS_BODY),
        },
        Case {
            name: "an endless header",
            file: "a.safetensors",
            limit: 100,
            repo: any,
            outcome: "failed",
            fault: Some(Fault::ENDLESS_BODY),
        },
    ]
}

/// The memory of a call without its files in bytes, and the overhead of the allocator for small ones.
const OVERHEAD: usize = 4_000_000;

#[test]
#[expect(clippy::print_stderr, reason = "the long run reports its measurements")]
fn no_response_uses_twice_its_limit() {
    if support::is_own_process() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        return runtime.block_on(measure());
    }
    let is_soak = std::env::var_os("HF_META_SOAK").is_some();
    let (unit, overhead) = if is_soak { (1_000_000, 0) } else { (100_000, OVERHEAD) };
    for case in cases() {
        let limit = case.limit * unit;
        let bytes = case.run(limit);
        eprintln!("{}: {bytes} bytes, with a limit of {limit}", case.name);
        assert!(bytes < 2 * limit + overhead, "{}: {bytes} bytes", case.name);
    }
}

impl Case {
    /// Makes the call in its own process. Returns the growth of its memory in bytes.
    fn run(&self, limit: usize) -> usize {
        let hub = LocalHub::start([(self.repo)(limit)]).unwrap();
        if let Some(fault) = self.fault.clone() {
            hub.inject(move |_, _| Some(fault.clone()));
        }
        let (report, limit) = (tempfile::NamedTempFile::new().unwrap(), limit.to_string());
        let env = [
            (ENDPOINT, OsStr::new(hub.endpoint())),
            (FILE, OsStr::new(self.file)),
            (LIMIT, OsStr::new(&limit)),
            (REPORT, report.path().as_os_str()),
        ];
        support::run_in_own_process(TEST, &env);
        let report = std::fs::read_to_string(report.path()).unwrap();
        let (outcome, kilobytes) = report.split_once(": ").unwrap();
        assert_eq!(outcome, self.outcome, "{}", self.name);
        kilobytes.parse::<usize>().unwrap() * 1024
    }
}

/// Makes a call, and reports its result and the growth of the memory of this process.
async fn measure() {
    let var = |name| std::env::var(name).unwrap();
    let limit = var(LIMIT).parse().unwrap();
    let builder = Client::builder()
        .endpoint(var(ENDPOINT))
        .retry_policy(RetryPolicy::default().max_attempts(1));
    let builder =
        builder.max_header_bytes(limit).max_total_header_bytes(limit).max_index_bytes(limit);
    let client = builder.build().unwrap();
    // The first request creates the HTTP client, which is not measured.
    let none = client.model("org/none").path("none.safetensors");
    none.parse_safetensors_metadata().await.unwrap_err();
    let model = client.model("org/model").path(var(FILE).as_str());
    let before = status("VmRSS");
    let result = model.parse_safetensors_metadata().await;
    let grown = status("VmHWM").saturating_sub(before);
    std::fs::write(var(REPORT), format!("{}: {grown}", outcome(&result))).unwrap();
}

fn outcome(result: &Result<SafetensorsParseFromRepo, Error>) -> &'static str {
    match result {
        Ok(_) => "fine",
        Err(Error::InvalidIndex { .. }) => "bad index",
        Err(Error::TooLarge { .. }) => "too large",
        Err(Error::RequestFailed { .. }) => "failed",
        Err(other) => panic!("{other:?}"),
    }
}

/// Returns a value from the status of this process, in KiB.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A cached index is decompressed as a whole, so its call waits for the permit before that.
#[tokio::test]
async fn a_large_cached_index_waits_for_the_permit_of_large_calls() {
    let limit = 8 << 20;
    let index = r#"{"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}"#.to_owned();
    let index = index + &" ".repeat(limit);
    let large = |name: &str| support::sharded(name).file(INDEX, File::from_bytes(index.clone()));
    let hub = LocalHub::start([large("org/cached"), large("org/stalled")]).unwrap();
    let client =
        Client::builder().endpoint(hub.endpoint()).header_cache(MemoryCache::new(99_999_999));
    let client = client.build().unwrap();
    let model = client.model("org/cached");
    model.count().await.unwrap();
    hub.clear_log();
    let permits = LargeCallLimit::new(1);
    hub.inject(|request, _| request.path.ends_with("a.safetensors").then_some(Fault::Stall));
    let stalled = client.model("org/stalled").large_calls(&permits);
    let stalled = tokio::spawn(async move { stalled.count().await });
    let is_requested =
        async || hub.log().iter().any(|request| request.path.ends_with("a.safetensors"));
    support::wait_until("the first shard is requested", is_requested).await;
    let cached = model.large_calls(&permits);
    let waiting = cached.clone().timeout(Duration::from_secs(2)).count().await.unwrap_err();
    assert!(matches!(waiting, Error::DeadlineExceeded { .. }), "{waiting:?}");
    stalled.abort();
    assert!(stalled.await.is_err());
    assert_eq!(cached.count().await.unwrap().fetch.bytes_read, 0);
}
