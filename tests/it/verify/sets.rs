//! `verify` checks the weight sets that a loader loads, and names the others; `--all` checks every set.

mod adapters;
mod configurations;
mod files;
mod modules;
mod pipelines;

use std::collections::HashSet;

use hf_meta::VerifyReport;
use hf_meta_count::results::Finding;
use serde_json::{Value, json};

use crate::call::layouts::{pipeline, repo};
use crate::command::run;
use crate::hub::{Fault, File, Host, LocalHub, Repo};
use crate::support;

/// The pipeline of the layout tests, with a `model_index.json` that lists its components.
fn listed_pipeline(id: &str) -> Repo {
    let index = json!({
        "_class_name": "FluxPipeline",
        "_diffusers_version": ["0.35", "dev"],
        "safety_checker": [null, null],
        "requires_safety_checker": false,
        "text_encoder": ["transformers", "CLIPTextModel"],
        "transformer": ["diffusers", "FluxTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    });
    let repo = pipeline(id).file("model_index.json", File::from_bytes(index.to_string()));
    let folders = ["text_encoder", "transformer", "vae"];
    folders.iter().fold(repo, |repo, folder| {
        repo.file(&format!("{folder}/config.json"), File::from_bytes("{}"))
    })
}

async fn verify(hub: &LocalHub, id: &str, all: bool) -> VerifyReport {
    support::client(hub).model(id).verify().all_sets(all).await.unwrap()
}

/// Returns the paths of the checked sets, with the kinds of their findings, and of the unchecked sets.
fn checked(report: &VerifyReport) -> (Vec<String>, Vec<String>) {
    let sets = report.sets.iter().map(|set| {
        let findings = set.findings.iter();
        let kinds = findings.map(|found| serde_json::to_value(found).unwrap()["kind"].to_string());
        [set.path.to_string()].into_iter().chain(kinds).collect::<Vec<_>>().join(" ")
    });
    let unchecked = report.unchecked.iter().flatten().map(|set| set.path.to_string());
    (sets.collect(), unchecked.collect())
}

const TRANSFORMER: &str = "transformer/diffusion_pytorch_model.safetensors.index.json";

const VAE: &str = "vae/diffusion_pytorch_model.safetensors";

const VARIANT: &str = "text_encoder/model.fp16.safetensors";

/// The `Trainer` keeps its last checkpoints. The last one is read, and the result says so.
#[tokio::test]
async fn the_last_checkpoint_of_a_run_is_read() {
    let files = ["checkpoint-500/model.safetensors", "checkpoint-1000/model.safetensors"];
    let hub = LocalHub::start([repo("org/run", &files)]).unwrap();
    let finding =
        Finding::LastCheckpoint { checkpoint: "checkpoint-1000".to_owned(), checkpoints: 2 };
    let report = verify(&hub, "org/run", false).await;
    assert_eq!((report.sets[0].path.as_str(), report.findings()), (files[1], vec![finding]));
    let cache = tempfile::tempdir().unwrap();
    let counted = || {
        let mut command = crate::command::hf_meta(hub.endpoint());
        command.env("HF_META_CACHE", cache.path()).args(["org/run", "--json", "--summary"]);
        crate::command::CommandOutput::new(&mut command)
    };
    for _ in 0..2 {
        let ran = counted();
        let text = "note: org/run: `checkpoint-1000` is the last of 2 checkpoints, and the only one that is read\n";
        assert_eq!((ran.code, &*ran.stderr), (0, text), "{}", ran.stdout);
        assert!(
            ran.stdout.contains(r#""filepaths":["checkpoint-1000/model.safetensors"]"#),
            "{}",
            ran.stdout
        );
    }
    let all = verify(&hub, "org/run", true).await;
    assert_eq!((all.sets.len(), all.findings()), (2, vec![]));
    let chosen = run(&hub, &["org/run", "--path", "checkpoint-500"]);
    assert_eq!((chosen.code, &*chosen.stderr), (0, ""));
}

/// A hook gets the changed files, and looks at their folders.
#[test]
fn the_folders_of_changed_files_are_checked() {
    let (folder, hub) = (tempfile::tempdir().unwrap(), LocalHub::start([]).unwrap());
    let write = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    let header = r#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let sound = [support::file_start(header), vec![0]].concat();
    write("good/model.safetensors", &sound);
    write("good/config.json", b"{}");
    write("bad/model.safetensors", b"<html>");
    write("pipe/model_index.json", br#"{"vae":["diffusers","X"],"unet":["diffusers","X"]}"#);
    write("pipe/vae/diffusion_pytorch_model.safetensors", &sound);
    write("web/config.json", b"{}");
    // A `.bin` file of another program.
    write("firmware/a.bin", &[0xe9; 100]);
    write("mixed/model.safetensors", &sound);
    write("mixed/spm.bin", &[0xe9; 100]);
    let check = |files: &[&str]| {
        let mut command = crate::command::hf_meta(hub.endpoint());
        command.current_dir(folder.path()).args(["verify", "--all", "--changed"]).args(files);
        crate::command::CommandOutput::new(&mut command)
    };
    for (files, code, text) in [
        (&["good/config.json", "good/model.safetensors"][..], 0, "valid: "),
        (&["web/config.json"], 0, ""),
        (&["firmware/a.bin"], 0, ""),
        (&["mixed/spm.bin"], 0, "\nnot checked: spm.bin\n"),
        (&["web/config.json", "bad/model.safetensors"], 1, "bad/"),
        // The folder of a component belongs to its pipeline, which lacks another component.
        (&["pipe/vae/diffusion_pytorch_model.safetensors"], 1, "`unet`"),
    ] {
        let ran = check(files);
        assert_eq!(ran.code, code, "{files:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains(text), "{files:?}: {}", ran.stdout);
        assert!(!ran.stderr.contains("error"), "{files:?}: {}", ran.stderr);
    }
    let other = check(&["org/model"]);
    assert_eq!(other.code, 2);
    assert!(
        other.stderr.contains("`--changed` requires local files, not `org/model`"),
        "{}",
        other.stderr
    );
    assert!(hub.log().is_empty());
}

#[tokio::test]
async fn every_set_has_a_result() {
    let files = ["a.safetensors", "b.safetensors", "c/m-00002-of-00002.safetensors"];
    let repo = repo("org/several", &files).file("d.gguf", File::from_bytes("GGUF"));
    let hub = LocalHub::start([repo]).unwrap();
    let ran = run(&hub, &["verify", "org/several"]);
    assert_eq!(ran.code, 1, "no main set: {}", ran.stderr);
    let report = verify(&hub, "org/several", true).await;
    let sets = [
        "a.safetensors",
        "b.safetensors",
        "c/m-*-of-00002.safetensors \"incompleteShards\"",
        "d.gguf \"malformedHeader\"",
    ];
    assert_eq!(checked(&report), (sets.map(str::to_owned).to_vec(), vec![]));
    let ran = run(&hub, &["verify", "org/several", "--all"]);
    assert_eq!(ran.code, 1);
    insta::assert_snapshot!(ran.stdout);
    let json: Value =
        serde_json::from_str(&run(&hub, &["verify", "org/several", "--all", "--json"]).stdout)
            .unwrap();
    let valid: Vec<_> = json["sets"].as_array().unwrap().iter().map(|set| &set["valid"]).collect();
    assert_eq!(
        (valid, &json["valid"]),
        (vec![&json!(true), &json!(true), &json!(false), &json!(false)], &json!(false))
    );
    hub.inject(|request, _| {
        request.path.ends_with("b.safetensors").then(|| Fault::Status(500, vec![]))
    });
    assert_eq!(run(&hub, &["verify", "org/several", "--all", "--retries", "0"]).code, 3);
}

/// Checks that no request was sent twice.
fn assert_no_request_twice(hub: &LocalHub) {
    let log = hub.log();
    let sent =
        log.iter().map(|request| (request.host, &request.path, &request.query, &request.range));
    let distinct: HashSet<_> = sent.collect();
    assert_eq!(distinct.len(), log.len(), "{log:?}");
}

/// Returns the numbers of requests to the Hub and to the CDN of a verification, and of bytes read.
async fn cost(hub: &LocalHub, id: &str, all: bool) -> (usize, usize, u64) {
    hub.clear_log();
    let report = verify(hub, id, all).await;
    // With `all`, two sets of a folder read its configuration.
    if !all {
        assert_no_request_twice(hub);
    }
    let log = hub.log();
    let to_hub = log.iter().filter(|entry| entry.host == Host::Hub).count();
    assert_eq!(report.fetch.requests, log.len() as u64);
    (to_hub, log.len() - to_hub, report.fetch.bytes_read)
}

#[tokio::test]
async fn the_requests_of_a_verification_are_exact() {
    let folders = (1..=20).map(|step| format!("checkpoint-{step}00/model.safetensors"));
    let folders: Vec<_> = folders.chain(["model.safetensors".to_owned()]).collect();
    let folders: Vec<_> = folders.iter().map(String::as_str).collect();
    let header =
        crate::count::gguf::reading::fixture("example/Llama-3.2-1B-GGUF/Llama-3.2-1B-Q8_0.gguf");
    let names = ["Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M"];
    let names = names.into_iter().chain(["Q6_K", "Q8_0", "BF16"]);
    let size = 1_321_082_688;
    let gguf = names.fold(Repo::new("org/GGUF"), |repo, name| {
        repo.file(&format!("x-{name}.gguf"), File::padded(header.clone(), size))
    });
    let hub = LocalHub::start([listed_pipeline("org/pipeline"), repo("org/runs", &folders), gguf])
        .unwrap();
    let mut costs = Vec::new();
    for id in ["org/pipeline", "org/GGUF", "org/runs"] {
        for all in [false, true] {
            costs.push(cost(&hub, id, all).await);
        }
    }
    let expected = [
        // Two names, the listing, three components, `model_index.json`, the configurations of the components, and
        // redirects of small files.
        (21, 8, 3_014),
        // Two sets in one folder have one configuration.
        (24, 12, 3_159),
        // Each header fits the first range.
        (4, 1, 1_051_022),
        (12, 11, 11_536_782),
        (6, 2, 8_220),
        // All folders look for the configuration at the root, which one request finds out.
        (65, 42, 10_111),
    ];
    assert_eq!(costs, expected);
}
