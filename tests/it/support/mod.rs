//! Helpers that several tests share.

pub(crate) mod checkpoint;

use std::collections::BTreeMap;
use std::error::Error as _;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::Range;
use std::process::Command;
use std::time::{Duration, Instant};

use hf_meta::{Client, Dtype, Error, Plan, SafetensorsFileHeader, SafetensorsParseFromRepo};
use serde_json::json;

use crate::folder::load_folder;
use crate::hub::{File, LocalHub, Repo};
use crate::models::Model;

/// Starts a Hub with all fixtures.
pub(crate) fn fixtures_hub() -> LocalHub {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
    LocalHub::start(load_folder(folder.as_ref()).unwrap()).unwrap()
}

/// Starts a Hub with all fixtures and another repository.
pub(crate) fn fixtures_hub_with(repo: Repo) -> LocalHub {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
    let fixtures = load_folder(folder.as_ref()).unwrap();
    LocalHub::start(fixtures.into_iter().chain([repo])).unwrap()
}

/// Creates a repository from a model in memory.
pub(crate) fn repo_from_model(model: &Model) -> Repo {
    let repo = Repo::new(model.repo).commit(&model.commit());
    let files = model.lay_out().unwrap().into_iter();
    files.fold(repo, |repo, file| repo.file(&file.path, File::padded(file.head, file.size)))
}

/// Creates a client of a Hub with default settings.
pub(crate) fn client(hub: &LocalHub) -> Client {
    Client::builder().endpoint(hub.endpoint()).build().unwrap()
}

/// Returns the plan `Prefetch`, or else the default.
pub(crate) fn plan(prefetch: bool) -> Plan {
    if prefetch { Plan::Prefetch } else { Plan::Exact }
}

pub(crate) async fn parse(hub: &LocalHub, repo: &str) -> Result<SafetensorsParseFromRepo, Error> {
    client(hub).model(repo).parse_safetensors_metadata().await
}

/// Returns the start of a file: the length of the header, then the header.
pub(crate) fn file_start(header: &str) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()
}

/// Creates a file with a header and `data_length` bytes of data.
pub(crate) fn file_with_header(header: &str, data_length: u64) -> File {
    let head = file_start(header);
    let size = head.len() as u64 + data_length;
    File::padded(head, size)
}

/// Creates a file of `BOOL` tensors with these names, one byte each. No quantization packs into `BOOL`.
pub(crate) fn weights(tensors: &[&str]) -> File {
    let entry = |(at, name): (usize, &&str)| {
        format!(r#""{name}":{{"dtype":"BOOL","shape":[1],"data_offsets":[{at},{}]}}"#, at + 1)
    };
    let entries: Vec<_> = tensors.iter().enumerate().map(entry).collect();
    let head = file_start(&format!("{{{}}}", entries.join(",")));
    let size = (head.len() + tensors.len()) as u64;
    File::padded(head, size)
}

/// Returns the entry of a tensor in a header, after a comma. `name` is JSON.
fn tensor_entry(name: &str, dtype: &str, shape: &[u64], span: Range<u64>) -> String {
    let Range { start, end } = span;
    format!(r#",{name}:{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#)
}

/// Parses a header of these tensors, whose data follow each other without gaps.
pub(crate) fn header<'a, N: AsRef<str> + 'a>(
    tensors: impl IntoIterator<Item = (N, &'a str, &'a [u64])>,
    metadata: Option<&BTreeMap<String, String>>,
) -> SafetensorsFileHeader {
    let mut begin = 0;
    let mut json = format!(r#"{{"__metadata__":{}"#, serde_json::to_string(&metadata).unwrap());
    for (name, dtype, shape) in tensors {
        let name = serde_json::to_string(name.as_ref()).unwrap();
        let bits = shape.iter().product::<u64>() * Dtype::from(dtype).bits().unwrap();
        let end = begin + bits.div_ceil(8);
        json += &tensor_entry(&name, dtype, shape, begin..end);
        begin = end;
    }
    SafetensorsFileHeader::from_json((json + "}").as_bytes()).unwrap()
}

/// Creates an index from pairs of tensor and shard.
pub(crate) fn index(weight_map: &[(&str, &str)]) -> File {
    let entry = |(tensor, shard): &(&str, &str)| format!(r#""{tensor}":"{shard}""#);
    let entries: Vec<_> = weight_map.iter().map(entry).collect();
    File::from_bytes(format!(r#"{{"weight_map":{{{}}}}}"#, entries.join(",")))
}

/// The `modules.json` of sentence-transformers, from the folder and the class of each module.
pub(crate) fn modules_json(modules: &[(&str, &str)]) -> File {
    let module = |(number, (folder, class)): (usize, &(&str, &str))| {
        let class = format!("sentence_transformers.models.{class}");
        json!({ "idx": number, "name": number.to_string(), "path": folder, "type": class })
    };
    let modules: Vec<_> = modules.iter().enumerate().map(module).collect();
    File::from_bytes(json!(modules).to_string())
}

/// Creates a repository of two shards: `a` with tensor `x`, and `b` with tensor `y`.
pub(crate) fn sharded(repo: &str) -> Repo {
    Repo::new(repo)
        .file(
            "model.safetensors.index.json",
            index(&[("x", "a.safetensors"), ("y", "b.safetensors")]),
        )
        .file("a.safetensors", weights(&["x"]))
        .file("b.safetensors", weights(&["y"]))
}

/// Creates a repository with two commits. `main` is at `old`, with one tensor; `new` has two tensors.
pub(crate) fn two_commits(repo: &str, old: &str, new: &str) -> Repo {
    Repo::new(repo)
        .commit(new)
        .file("model.safetensors", weights(&["x", "y"]))
        .commit(old)
        .file("model.safetensors", weights(&["x"]))
}

/// The longest wait for another task or process. The slowest one, a server on a busy machine, takes seconds.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// Waits until a condition holds, and panics with the expected state if it does not in time: a test that hangs shows
/// nothing.
pub(crate) async fn wait_until(expected: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(MAX_WAIT, wait).await;
    assert!(in_time.is_ok(), "after {} s, this is not so: {expected}", MAX_WAIT.as_secs());
}

/// Like [`wait_until`], for a test without an async runtime.
pub(crate) fn wait_until_blocking(expected: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + MAX_WAIT;
    while !holds() {
        assert!(Instant::now() < end, "after {} s, this is not so: {expected}", MAX_WAIT.as_secs());
        std::thread::yield_now();
    }
}

/// The variable that is set in a process started by [`run_in_own_process`].
const OWN_PROCESS: &str = "HF_META_TEST_OWN_PROCESS";

/// Runs a test of this binary in its own process, with these environment variables.
pub(crate) fn run_in_own_process(test: &str, env: &[(&str, &OsStr)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(OWN_PROCESS, "1").envs(env.iter().copied());
    let output = command.output().unwrap();
    let output_text = [output.stdout, output.stderr].concat();
    let output_text = String::from_utf8_lossy(&output_text);
    assert!(output.status.success() && output_text.contains("1 passed"), "{output_text}");
}

/// Returns true in a process started by [`run_in_own_process`].
pub(crate) fn is_own_process() -> bool {
    std::env::var_os(OWN_PROCESS).is_some()
}

/// Says that a program is missing, so that something is not tested. Panics if `CI` is set.
pub(crate) fn program_is_missing(program: &str, untested: &str) {
    let message = format!("NOT TESTED: install {program} to test {untested}");
    assert!(std::env::var_os("CI").is_none(), "{message}");
    // Not by a macro, because the test harness hides its output if the test passes.
    let _ = writeln!(std::io::stderr(), "{message}");
}

/// Formats bytes in hexadecimal.
pub(crate) fn hex(bytes: impl AsRef<[u8]>) -> String {
    let mut text = String::new();
    for byte in bytes.as_ref() {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

/// Formats an error and its causes as one line.
pub(crate) fn error_chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
