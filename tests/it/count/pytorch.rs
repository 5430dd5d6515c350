//! Repositories with `PyTorch` checkpoints: the choice of a file, its requests, and its results on every path.
//!
//! `tests/oracles/pytorch.py` writes the files. The parser is compared with torch in its own crate.

mod conversions;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use hf_meta::{CountReport, Model, Weights};
use hf_meta_count::results::{Finding, Severity};
use serde::de::DeserializeOwned;
use tempfile::NamedTempFile;

use crate::hub::{File, Host, LocalHub, Repo};
use crate::support;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pytorch").join(name)
}

fn fixture(name: &str) -> Vec<u8> {
    fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn json<T: DeserializeOwned>(name: &str) -> T {
    serde_json::from_slice(&fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the names of the files in a folder with an extension, without it.
fn stems(folder: &str, extension: &str) -> BTreeSet<String> {
    let names = fs::read_dir(path(folder)).unwrap().map(|file| file.unwrap().file_name());
    let stem = |name: OsString| Some(name.to_str()?.strip_suffix(extension)?.to_owned());
    names.filter_map(stem).collect()
}

/// Starts a hub with one repository, whose files are named after fixtures.
fn hub(files: &[(&str, &str)]) -> (LocalHub, Model) {
    let files = files.iter().map(|(path, name)| (*path, File::from_bytes(fixture(name)).on_cdn()));
    let repo = files.fold(Repo::new("org/model"), |repo, (path, file)| repo.file(path, file));
    let hub = LocalHub::start([repo]).unwrap();
    let model = support::client(&hub).model("org/model");
    (hub, model)
}

fn cdn_requests(hub: &LocalHub) -> usize {
    hub.log().iter().filter(|entry| entry.host == Host::Cdn).count()
}

fn messages(report: &CountReport) -> Vec<String> {
    report.findings.iter().map(ToString::to_string).collect()
}

const PICKLED: &str =
    "the weights are pickles, which can execute code when they are loaded; safetensors cannot";

#[tokio::test]
async fn a_checkpoint_is_read_if_there_are_no_safetensors() {
    let (hub, model) =
        hub(&[("pytorch_model.bin", "tied.bin"), ("training_args.bin", "no-tensors.pt")]);
    let report = model.count().await.unwrap();
    assert_eq!((report.format, report.parameter_count.total()), ("pytorch", 28));
    assert_eq!((report.filepaths[0].as_str(), cdn_requests(&hub)), ("pytorch_model.bin", 1));
    // Two usual names, the listing, the file, and its redirect.
    assert_eq!(report.fetch.requests, 5);
    let shared = "1 tensor with shared elements, which are counted once: `lm_head.weight` is stored in `wte.weight`";
    assert_eq!(messages(&report), [shared, PICKLED]);
    assert!(report.findings.iter().all(|finding| finding.severity() == Severity::Note));
}

#[tokio::test]
async fn safetensors_are_preferred_unless_another_format_is_chosen() {
    let repo = Repo::new("org/model")
        .file("model.safetensors", support::weights(&["x"]))
        .file("pytorch_model.bin", File::from_bytes(fixture("tied.bin")));
    let hub = LocalHub::start([repo]).unwrap();
    let model = support::client(&hub).model("org/model");
    assert_eq!(model.count().await.unwrap().format, "safetensors");
    let chosen = model.clone().format("pytorch").count().await.unwrap();
    assert_eq!((chosen.format, chosen.fetch.requests), ("pytorch", 3));
    assert_eq!(model.path("pytorch_model.bin").count().await.unwrap().format, "pytorch");
}

/// Moves the central directory of an archive to the end of a sparse file of at least `gap` bytes.
fn write_sparse(name: &str, gap: u64) -> NamedTempFile {
    let file = fixture(name);
    let number = |at: usize, length: usize| {
        file[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    let end = file.len() - 22;
    let directory = usize::try_from(number(end + 16, 4)).unwrap();
    let mut tail = file[directory..].to_vec();
    let mut moved = |at: usize, length: usize| {
        let offset = number(at, length) + gap;
        tail[at - directory..][..length].copy_from_slice(&offset.to_le_bytes()[..length]);
    };
    moved(end + 16, 4);
    if file[end - 20..].starts_with(b"PK\x06\x07") {
        let record = usize::try_from(number(end - 12, 8)).unwrap();
        moved(end - 12, 8);
        moved(record + 48, 8);
    }
    let mut sparse = NamedTempFile::new().unwrap();
    sparse.write_all(&file[..directory]).unwrap();
    sparse.seek(SeekFrom::Start(directory as u64 + gap)).unwrap();
    sparse.write_all(&tail).unwrap();
    sparse
}

#[tokio::test]
async fn a_large_file_takes_two_ranges() {
    let sparse = write_sparse("many.bin", 500_000_000);
    let file = File::on_disk(sparse.path(), None).unwrap().on_cdn();
    let hub = LocalHub::start([Repo::new("org/model").file("pytorch_model.bin", file)]).unwrap();
    let report = support::client(&hub).model("org/model").count().await.unwrap();
    assert_eq!(report.parameter_count.total(), 100);
    assert_eq!(cdn_requests(&hub), 2);
    assert!(report.fetch.bytes_read < 300_000, "{}", report.fetch.bytes_read);
    assert!(report.fetch.weight_bytes > 500_000_000);
    let verified = support::client(&hub).model("org/model").verify().await.unwrap();
    assert!(verified.is_valid(), "{:?}", verified.findings());
}

#[tokio::test]
async fn shards_are_read_from_their_index() {
    let names = [
        ("q", "a"),
        ("k", "a"),
        ("v", "a"),
        ("wte.weight", "b"),
        ("h.weight", "b"),
        ("lm_head.weight", "b"),
    ];
    let file = |shard| {
        if shard == "a" {
            "pytorch_model-00001-of-00002.bin"
        } else {
            "pytorch_model-00002-of-00002.bin"
        }
    };
    let map: Vec<_> = names.iter().map(|(name, shard)| (*name, file(*shard))).collect();
    let repo = Repo::new("org/model")
        .file("pytorch_model.bin.index.json", support::index(&map))
        .file(file("a"), File::from_bytes(fixture("slices.bin")))
        .file(file("b"), File::from_bytes(fixture("legacy-tied.bin")));
    let hub = LocalHub::start([repo]).unwrap();
    for prefetch in [false, true] {
        let model = support::client(&hub).model("org/model").plan(support::plan(prefetch));
        let report = model.count().await.unwrap();
        assert_eq!(
            (report.format, report.parameter_count.total(), report.sharded),
            ("pytorch", 52, true)
        );
        assert_eq!(report.filepaths.len(), 3);
        assert!(
            report.findings.iter().all(|finding| finding.severity() == Severity::Note),
            "{:?}",
            report.findings
        );
        let verified = model.verify().await.unwrap();
        assert_eq!(
            (verified.is_valid(), verified.sets[0].files, verified.sets[0].valid_files),
            (true, 2, 2),
            "{:?}",
            verified.findings()
        );
    }
    let Weights::Other(files) = support::client(&hub).model("org/model").inspect().await.unwrap()
    else {
        panic!()
    };
    assert_eq!(files.headers.len(), 2);
}

/// Shards in different folders may have the same file name.
#[tokio::test]
async fn shards_in_folders_keep_their_headers() {
    let first = ["q", "k", "v"].map(|name| (name, "x/model.bin"));
    let second = ["wte.weight", "h.weight", "lm_head.weight"].map(|name| (name, "y/model.bin"));
    let repo = Repo::new("org/model")
        .file("pytorch_model.bin.index.json", support::index(&[first, second].concat()))
        .file("x/model.bin", File::from_bytes(fixture("slices.bin")))
        .file("y/model.bin", File::from_bytes(fixture("legacy-tied.bin")));
    let hub = LocalHub::start([repo]).unwrap();
    let weights = support::client(&hub).model("org/model").inspect().await.unwrap();
    let paths: Vec<_> = weights.files().map(|(path, _)| path.to_string()).collect();
    assert_eq!(paths, ["x/model.bin", "y/model.bin"]);
}

/// A text that begins with `error:` is never the end of a command that succeeds.
#[tokio::test]
async fn unsafe_imports_are_errors_of_verify() {
    let (server, model) = hub(&[("pytorch_model.bin", "malicious-nested.bin")]);
    let report = model.verify().await.unwrap();
    let findings = report.findings();
    let imports = findings.iter().filter_map(|finding| match finding {
        Finding::UnsafeImport { file, import } => Some((file.as_str(), import.as_str())),
        _ => None,
    });
    let file = "pytorch_model.bin";
    assert_eq!(
        imports.collect::<Vec<_>>(),
        [(file, "__builtin__.__import__"), (file, "__builtin__.getattr")]
    );
    assert!(!report.is_valid());
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["findings"][0]["kind"], "unsafeImport", "{json}");
    assert_eq!(json["findings"][0]["severity"], "error");
    for (args, code) in [(&["verify", "org/model"][..], 1), (&["org/model"], 0)] {
        let ran = crate::command::run(&server, args);
        let printed = ran.stdout + &ran.stderr;
        let is_error = printed.lines().any(|line| line.starts_with("error: "));
        assert_eq!((ran.code, is_error), (code, code == 1), "{printed}");
    }
    let (_hub, model) = hub(&[("pytorch_model.bin", "malicious-reduce-plain.bin")]);
    let error = model.count().await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "the file is a pickle, not a checkpoint; it imports `posix.system`");
}

/// Returns the elements of EMA copies and of optimizer states that a report mentions.
fn training_state(report: &CountReport) -> Option<(u64, u64, u64)> {
    report.findings.iter().find_map(|finding| match finding {
        Finding::TrainingState { tensors, copies, states } => Some((*tensors, *copies, *states)),
        _ => None,
    })
}

/// A model of four tensors with 12 elements, its running statistics with 4, and the state of `AdamW`: for each of the
/// four tensors, the step and two averages.
#[tokio::test]
async fn training_state_is_told_apart() {
    let cases = [
        ("lightning.ckpt", 16, None),
        ("training.ckpt", 16, Some((12, 0, 24))),
        ("torch-1.13.1-training.ckpt", 16, Some((12, 0, 24))),
        ("ema.pt", 16, Some((19, 16, 24))),
        ("adam.pt", 0, Some((8, 0, 24))),
    ];
    for (name, parameters, expected) in cases {
        let (_hub, model) = hub(&[("last.ckpt", name)]);
        let report = model.count().await.unwrap();
        assert_eq!(training_state(&report), expected, "{name}: {:?}", report.findings);
        assert_eq!(report.parameter_count.total(), parameters, "{name}");
        let elements: u64 = expected.map_or(0, |(_, copies, states)| copies + states) + parameters;
        assert_eq!(report.parameter_count.totals().elements, elements, "{name}");
        let verified = model.verify().await.unwrap();
        assert!(verified.is_valid(), "{name}: {:?}", verified.findings());
    }
}

/// The files that training programs and other formats put next to a checkpoint, or into a repository without one.
#[tokio::test]
async fn unrelated_files_are_not_chosen() {
    let others = [
        "training_args.bin",
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "rng_state_1.pth",
        "tokenizer.bin",
        "ggml-model-q4.bin",
        "openvino_model.bin",
        "openvino_model.xml",
        "model.onnx",
        "tf_model.h5",
        "checkpoint-500/optimizer.pt",
    ];
    let unrelated = |repo| {
        others.iter().fold(repo, |repo: Repo, name| repo.file(name, File::from_bytes("unrelated")))
    };
    let with = |name: &str, file| {
        let repo = unrelated(Repo::new("org/model")).file(name, file);
        LocalHub::start([repo]).unwrap()
    };
    for name in ["pytorch_model.bin", "custom.pth", "checkpoint-500/pytorch_model.bin"] {
        let hub = with(name, File::from_bytes(fixture("tied.bin")));
        let model = support::client(&hub).model("org/model");
        let report = model.count().await.unwrap();
        assert_eq!((report.filepaths[0].as_str(), report.parameter_count.total()), (name, 28));
        assert!(model.verify().await.unwrap().is_valid());
        assert_eq!(model.weight_sets().await.unwrap().unwrap().len(), 1);
    }
    let hub = LocalHub::start([unrelated(Repo::new("org/model"))]).unwrap();
    let error = support::client(&hub).model("org/model").count().await.unwrap_err();
    let formats = "only ONNX (.onnx), 1 file; TensorFlow (.h5), 1 file; GGML (.bin), 1 file; OpenVINO (.bin), 1 file";
    assert_eq!((error.code(), error.chain().contains(formats)), ("noWeights", true), "{error}");
    // Another program's file with a name of ours is read, and rejected with a reason.
    let hub = with("model.bin", File::from_bytes(&b"\x06\0\0\0\x0c\0WhisperSpec\0\x03\0\0\0"[..]));
    let error = support::client(&hub).model("org/model").count().await.unwrap_err();
    assert_eq!(error.code(), "noWeights");
    assert!(error.chain().ends_with("a CTranslate2 model, not a checkpoint"), "{}", error.chain());
    // A path selects any file.
    let (_hub, model) = self::hub(&[("optimizer.pt", "adam.pt")]);
    assert_eq!(model.path("optimizer.pt").count().await.unwrap().format, "pytorch");
}
