//! How much memory a call takes, against a Hub that sends as much as it may: less than twice what the
//! limit of each answer allows.
//!
//! Limits and answers are a tenth of the real ones, and as large as these when `HF_META_SOAK=1` asks for
//! the long run. A call has a process of its own, whose peak the system knows.

use std::ffi::OsStr;

use hf_meta::{Client, Error, RetryPolicy, SafetensorsParseFromRepo};

use crate::hub::{Fault, File, LocalHub, Repo};
use crate::support::{self, file_start};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

const TEST: &str = "memory::no_answer_takes_twice_its_limit";
const ENDPOINT: &str = "HF_META_TEST_ENDPOINT";
const FILE: &str = "HF_META_TEST_FILE";
const LIMIT: &str = "HF_META_TEST_LIMIT";
const REPORT: &str = "HF_META_TEST_REPORT";

/// Entries of one JSON object, together of nearly so many bytes, and how many there are.
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

/// A file with a header as long as it may be, of tensors of one byte.
fn header(limit: usize) -> File {
    let (entries, count) = entries(limit - 2, |at| {
        let end = at + 1;
        format!(r#""{at:x}":{{"dtype":"U8","shape":[1],"data_offsets":[{at},{end}]}}"#)
    });
    let head = file_start(&format!("{{{entries}}}"));
    let size = (head.len() + count) as u64;
    File::padded(head, size)
}

/// An index as long as it may be.
fn index(limit: usize) -> File {
    let (entries, _) = entries(limit - 17, |at| format!(r#""{at:x}":"a.safetensors""#));
    File::from_bytes(format!(r#"{{"weight_map":{{{entries}}}}}"#))
}

/// A call for a file, the limit in millions of bytes, and what it comes to.
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
            fault: Some(Fault::EndlessBody),
        },
        Case {
            name: "an endless header",
            file: "a.safetensors",
            limit: 100,
            repo: any,
            outcome: "failed",
            fault: Some(Fault::EndlessBody),
        },
    ]
}

/// What a call takes beside its files, and what an allocator keeps of short ones.
const OVERHEAD: usize = 4_000_000;

#[test]
#[expect(clippy::print_stderr, reason = "the figures are what the long run is for")]
fn no_answer_takes_twice_its_limit() {
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
    /// By how many bytes the process grew that made the call.
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

/// Makes a call, and reports what it came to and by how much the memory of this process grew.
async fn measure() {
    let var = |name| std::env::var(name).unwrap();
    let limit = var(LIMIT).parse().unwrap();
    let builder = Client::builder().endpoint(var(ENDPOINT)).retry(RetryPolicy::never());
    let builder = builder.header_limit(limit).headers_limit(limit).index_limit(limit);
    let client = builder.build().unwrap();
    // The first request of a client sets it up, which has nothing to do with what is read.
    let none = client.model("org/none").path("none.safetensors");
    none.parse_safetensors_metadata().await.unwrap_err();
    let model = client.model("org/model").path(var(FILE));
    let before = status("VmRSS");
    let result = model.parse_safetensors_metadata().await;
    let grown = status("VmHWM").saturating_sub(before);
    std::fs::write(var(REPORT), format!("{}: {grown}", outcome(&result))).unwrap();
}

fn outcome(result: &Result<SafetensorsParseFromRepo, Error>) -> &'static str {
    match result {
        Ok(_) => "fine",
        Err(Error::Index { .. }) => "bad index",
        Err(Error::TooLarge { .. }) => "too large",
        Err(Error::Fetch { .. }) => "failed",
        Err(other) => panic!("{other:?}"),
    }
}

/// A figure that the system has of this process, in KiB.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
