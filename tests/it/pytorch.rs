//! Repositories with `PyTorch` checkpoints: the choice of a file, its requests, and its results on every path.
//!
//! `tests/oracles/pytorch.py` writes the files. The parser is compared with torch in its own crate.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use hf_meta::report::diff::Diff;
use hf_meta::report::{Finding, Severity};
use hf_meta::{CountReport, Model, Weights};
use tempfile::NamedTempFile;

use crate::hub::{File, Host, LocalHub, Repo};
use crate::support;

fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pytorch");
    fs::read(folder.join(name)).unwrap()
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

const PICKLED: &str = "the weights are pickles, which can execute code when they are loaded; a bot of the Hub offers \
                       conversions to safetensors as pull requests (`refs/pr/N`)";

#[tokio::test]
async fn a_checkpoint_is_read_if_there_are_no_safetensors() {
    let (hub, model) =
        hub(&[("pytorch_model.bin", "tied.bin"), ("training_args.bin", "no-tensors.pt")]);
    let report = model.count().await.unwrap();
    assert_eq!((report.format, report.parameter_count.total()), ("pytorch", 28));
    assert_eq!((report.filepaths[0].as_str(), cdn_requests(&hub)), ("pytorch_model.bin", 1));
    // Two usual names, the listing, the file, and its redirect.
    assert_eq!(report.fetch.requests, 5);
    let shared = "1 tensors share stored elements, which are counted once: `lm_head.weight` is stored in `wte.weight`";
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
    assert!(verified.is_valid(), "{:?}", verified.findings);
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
            (verified.is_valid(), verified.files, verified.valid_files),
            (true, 2, 2),
            "{:?}",
            verified.findings
        );
    }
    let Weights::Other(files) = support::client(&hub).model("org/model").inspect().await.unwrap()
    else {
        panic!()
    };
    assert_eq!(files.headers.len(), 2);
}

#[tokio::test]
async fn unsafe_imports_are_errors_of_verify() {
    let (_hub, model) = hub(&[("pytorch_model.bin", "malicious-nested.bin")]);
    let report = model.verify().await.unwrap();
    let imports = report.findings.iter().filter_map(|finding| match finding {
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
    let (_hub, model) = hub(&[("pytorch_model.bin", "malicious-reduce-plain.bin")]);
    let error = model.count().await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "the file is a pickle, not a checkpoint; it imports `posix.system`");
}

/// Name, dtype and shape.
type Tensor<'a> = (&'a str, &'a str, &'a [u64]);

/// A conversion drops one of two tied tensors, and stores an expanded tensor as it is loaded.
#[tokio::test]
async fn a_conversion_does_not_differ() {
    let cases: [(&str, &[Tensor<'_>]); 5] = [
        ("tied.bin", &[("wte.weight", "F32", &[6, 4]), ("h.weight", "F32", &[2, 2])]),
        ("legacy-tied.bin", &[("lm_head.weight", "F32", &[6, 4]), ("h.weight", "F32", &[2, 2])]),
        ("slices.bin", &[("q", "F32", &[2, 4]), ("k", "F32", &[2, 4]), ("v", "F32", &[2, 4])]),
        ("expanded.bin", &[("e", "F32", &[5, 3]), ("s", "F32", &[2, 2]), ("w", "F32", &[4, 4])]),
        ("dtype-bfloat16.bin", &[("w", "BF16", &[2, 3]), ("scalar", "BF16", &[])]),
    ];
    for (name, tensors) in cases {
        let safetensors = File::safetensors(tensors.iter().copied());
        let repos = [
            Repo::new("org/pickle").file("pytorch_model.bin", File::from_bytes(fixture(name))),
            Repo::new("org/converted").file("model.safetensors", safetensors),
        ];
        let hub = LocalHub::start(repos).unwrap();
        let client = support::client(&hub);
        let before = client.model("org/pickle").inspect().await.unwrap();
        let after = client.model("org/converted").inspect().await.unwrap();
        for diff in [Diff::new(&before, &after), Diff::new(&after, &before)] {
            assert!(diff.is_empty(), "{name}: {:?}", diff.changes);
        }
    }
}

#[tokio::test]
async fn the_state_of_an_optimizer_is_not_counted() {
    let (_hub, model) = hub(&[("last.ckpt", "training.ckpt")]);
    let report = model.count().await.unwrap();
    let state = report.findings.iter().find_map(|finding| match finding {
        Finding::TrainingState { tensors, parameters } => Some((*tensors, *parameters)),
        _ => None,
    });
    // For each of four tensors with 12 elements in total: the step, and two averages.
    assert_eq!(state, Some((12, 24)), "{:?}", report.findings);
    assert_eq!(report.parameter_count.total(), 40);
}
