//! `verify` checks the weight sets that a loader loads, and names the others; `--all` checks every set.

use std::collections::HashSet;

use hf_meta::{Client, Source, VerifyReport};
use hf_meta_count::results::{Finding, Severity};
use serde_json::{Value, json};

use crate::call::layouts::{pipeline, repo};
use crate::command::run;
use crate::hub::{Fault, File, Host, LocalHub, Repo};
use crate::support::{self, weights};

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

#[tokio::test]
async fn all_components_of_a_pipeline_are_checked() {
    let hub = LocalHub::start([listed_pipeline("org/pipeline")]).unwrap();
    let report = verify(&hub, "org/pipeline", false).await;
    let sets = [TRANSFORMER, "text_encoder/model.safetensors", VAE].map(str::to_owned);
    let others = [String::from("flux-dev.safetensors"), VARIANT.to_owned()];
    assert_eq!(checked(&report), (sets.to_vec(), others.to_vec()));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!([&json["files"], &json["validFiles"], &json["tensors"]], [4, 4, 5]);
    assert_eq!((report.findings().len(), report.parameters().counted), (0, None));
    assert_eq!(report.sets[1].parameters.counted, Some(2));
    let report = verify(&hub, "org/pipeline", true).await;
    assert_eq!((report.sets.len(), report.unchecked.map(|sets| sets.len())), (5, Some(0)));
}

#[tokio::test]
async fn a_defect_of_any_component_is_found() {
    let broken = || File::from_bytes("version https://git-lfs.github.com/spec/v1");
    for path in [VAE, "text_encoder/model.safetensors"] {
        let repo = listed_pipeline("org/pipeline").file(path, broken());
        let hub = LocalHub::start([repo]).unwrap();
        let report = verify(&hub, "org/pipeline", false).await;
        let [Finding::MalformedHeader { file, .. }] = &report.findings()[..] else {
            panic!("{:?}", report.findings())
        };
        assert_eq!((&**file, report.is_valid()), (path, false));
        let ran = run(&hub, &["verify", "org/pipeline", "--sarif"]);
        let log: Value = serde_json::from_str(&ran.stdout).unwrap();
        let location = &log["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
        let uri = format!("{}/org/pipeline/blob/main/{path}", hub.endpoint());
        assert_eq!((ran.code, &location["artifactLocation"]["uri"]), (1, &json!(uri)));
    }
    // A variant is not loaded by default.
    let repo = listed_pipeline("org/pipeline").file(VARIANT, broken());
    let hub = LocalHub::start([repo]).unwrap();
    assert_eq!(run(&hub, &["verify", "org/pipeline"]).code, 0);
    assert_eq!(run(&hub, &["verify", "org/pipeline", "--all"]).code, 1);
}

#[tokio::test]
async fn a_component_without_files_is_found() {
    let index = json!({ "vae": ["diffusers", "A"], "text_encoder_2": ["transformers", "B"] });
    let repo =
        pipeline("org/pipeline").file("model_index.json", File::from_bytes(index.to_string()));
    // One that has only a configuration, next to weights of a format that is not read.
    let config = || File::from_bytes("{}");
    let configured = pipeline("org/configured")
        .file("model_index.json", File::from_bytes(index.to_string()))
        .file("text_encoder_2/config.json", config());
    let onnx = pipeline("org/onnx")
        .file("model_index.json", File::from_bytes(index.to_string()))
        .file("text_encoder_2/config.json", config())
        .file("text_encoder_2/model.onnx", config());
    let hub = LocalHub::start([repo, configured, onnx]).unwrap();
    let missing = Finding::MissingComponent {
        component: "text_encoder_2".to_owned(),
        file: "model_index.json".to_owned(),
    };
    for id in ["org/pipeline", "org/configured"] {
        assert_eq!(
            verify(&hub, id, false).await.findings(),
            std::slice::from_ref(&missing),
            "{id}"
        );
    }
    assert_eq!(verify(&hub, "org/onnx", false).await.findings(), []);
}

/// A variant next to the weights has the same configuration, and folders without one look for it at the root.
#[tokio::test]
async fn sets_with_one_configuration_request_it_once() {
    let hub = LocalHub::start([listed_pipeline("org/pipeline")
        .file("lora/model.safetensors", weights(&["x"]))
        .file("control/model.safetensors", weights(&["y"]))])
    .unwrap();
    let report = verify(&hub, "org/pipeline", true).await;
    assert_eq!(report.sets.len(), 7);
    assert_no_request_twice(&hub);
}

/// The components of diffusers have no `model_type`.
#[tokio::test]
async fn a_component_that_was_not_compared_says_so() {
    let vae = |pipeline: Repo| pipeline.file("vae/config.json", File::from_bytes("{}"));
    let hub = LocalHub::start([vae(listed_pipeline("org/pipeline"))]).unwrap();
    let printed = run(&hub, &["verify", "org/pipeline"]).stdout;
    let line = printed.lines().find(|line| line.contains(VAE)).unwrap();
    assert!(line.ends_with("config.json was not compared: it has no `model_type`"), "{printed}");
}

/// Mistral's and llama.cpp's shards are found without an index.
#[tokio::test]
async fn shards_without_an_index_are_found() {
    let hub = |name: &str| {
        let files = [1, 2].map(|number| format!("{name}-{number:05}-of-00002.safetensors"));
        let repo = files
            .iter()
            .fold(Repo::new("org/shards"), |repo, file| repo.file(file, weights(&[file.as_str()])));
        LocalHub::start([repo]).unwrap()
    };
    let shards = "model-*-of-00002.safetensors".to_owned();
    let missing = Finding::MissingIndex { shards };
    assert_eq!(verify(&hub("model"), "org/shards", false).await.findings(), [missing]);
    assert_eq!(verify(&hub("consolidated"), "org/shards", false).await.findings(), []);
}

const TRANSFORMERS: &str = r#"{"model_type":"brand_new","architectures":["BrandNewModel"]}"#;

/// A loader looks for its names, and nothing else.
#[tokio::test]
async fn a_name_that_the_stated_loader_does_not_find_is_a_warning() {
    let diffusers = r#"{"_class_name":"AutoencoderKL","_diffusers_version":"0.30.0"}"#;
    let peft = r#"{"peft_type":"LORA","r":8}"#;
    let warned = |file: &str, loader, expected: &str| {
        let (file, expected) = (file.to_owned(), expected.to_owned());
        Some(Finding::UnexpectedName { file, loader, expected })
    };
    let standard = "model.safetensors";
    // The configuration, its content, the files, and the expected warning.
    let cases = [
        (
            "config.json",
            TRANSFORMERS,
            &["model.fp16.safetensors"][..],
            warned("model.fp16.safetensors", "transformers", standard),
        ),
        (
            "config.json",
            TRANSFORMERS,
            &["Model.safetensors"],
            warned("Model.safetensors", "transformers", standard),
        ),
        (
            "config.json",
            TRANSFORMERS,
            &["my-model.safetensors"],
            warned("my-model.safetensors", "transformers", standard),
        ),
        ("config.json", diffusers, &[standard], warned(standard, "diffusers", VAE_FILE)),
        ("config.json", TRANSFORMERS, &[VAE_FILE], warned(VAE_FILE, "transformers", standard)),
        ("config.json", TRANSFORMERS, &[standard, "model.fp16.safetensors"], None),
        ("config.json", TRANSFORMERS, &[standard, "other.safetensors"], None),
        ("config.json", diffusers, &[VAE_FILE], None),
        // Nothing states a loader.
        ("config.json", "{}", &["my-model.safetensors"], None),
        ("config.json", r#"{"model_type":"x"}"#, &["my-model.safetensors"], None),
        (
            "config.json",
            r#"{"model_type":"x","architectures":["X"],"quantization":{"bits":4}}"#,
            &["weights.safetensors"],
            None,
        ),
        (
            "config.json",
            r#"{"model_type":"x","architectures":["X"],"transformers_weights":"a.safetensors"}"#,
            &["a.safetensors"],
            None,
        ),
        ("readme.json", TRANSFORMERS, &["my-model.safetensors"], None),
        ("adapter_config.json", peft, &["adapter_model.safetensors"], None),
    ];
    for (config, json, files, expected) in cases {
        let repo = repo("org/model", files).file(config, File::from_bytes(json));
        let hub = LocalHub::start([repo]).unwrap();
        for all in [false, true] {
            let found = verify(&hub, "org/model", all).await.findings();
            let found: Vec<_> = found
                .iter()
                .filter(|found| matches!(found, Finding::UnexpectedName { .. }))
                .collect();
            assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{json} {files:?} {all}");
        }
    }
    let text = warned("unet/model.fp16.safetensors", "transformers", standard).unwrap().to_string();
    assert!(
        text.ends_with("it loads `model.safetensors`, or this file with variant=\"fp16\""),
        "{text}"
    );
    let text = warned("Model.safetensors", "transformers", standard).unwrap().to_string();
    assert!(
        text.ends_with("which the configuration states: it loads `model.safetensors`"),
        "{text}"
    );
}

const VAE_FILE: &str = "diffusion_pytorch_model.safetensors";

/// transformers loads the single file; vLLM looks for the shards of the index.
#[tokio::test]
async fn an_index_that_was_left_over_is_found() {
    let shard = "model-00001-of-00001.safetensors";
    let with_index = |id: &str, listed: &str| {
        repo(id, &["model.safetensors"])
            .file("model.safetensors.index.json", support::index(&[("x", listed)]))
    };
    // MLX writes an index that lists the single file.
    let sound = with_index("org/mlx", "model.safetensors");
    let hub = LocalHub::start([with_index("org/stale", shard), sound]).unwrap();
    let stale = Finding::StaleIndex {
        index: "model.safetensors.index.json".to_owned(),
        file: "model.safetensors".to_owned(),
        shard: shard.to_owned(),
    };
    assert_eq!(verify(&hub, "org/stale", false).await.findings(), [stale]);
    assert_eq!(verify(&hub, "org/mlx", false).await.findings(), []);
}

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
async fn all_modules_of_a_sentence_transformers_model_are_checked() {
    let files = ["modules.json", "model.safetensors", "2_Dense/model.safetensors"];
    let checkpoint = ["checkpoint-5/modules.json", "checkpoint-5/model.safetensors"];
    let modules = json!([
        { "type": "sentence_transformers.models.Transformer", "path": "" },
        { "type": "sentence_transformers.models.Dense", "path": "2_Dense" },
    ]);
    let repo = repo("org/st", &[&files[..], &checkpoint].concat())
        .file("modules.json", File::from_bytes(modules.to_string()))
        .file("config.json", File::from_bytes("{}"));
    let hub = LocalHub::start([repo]).unwrap();
    let (mut sets, others) = checked(&verify(&hub, "org/st", false).await);
    // The Dense module has no configuration.
    assert_eq!(sets.remove(0), "model.safetensors \"missingConfig\"");
    assert_eq!(sets, ["2_Dense/model.safetensors"]);
    assert_eq!(others, ["checkpoint-5/model.safetensors"]);
}

/// A copy of the weights and their configuration alone is for other loaders, which need no configuration of pooling.
#[tokio::test]
async fn a_module_without_weights_is_missing_only_in_a_whole_repository() {
    let modules = json!([
        { "type": "sentence_transformers.models.Transformer", "path": "" },
        { "type": "sentence_transformers.models.Pooling", "path": "1_Pooling" },
    ]);
    for (other, expected) in [
        ("README.md", "model.safetensors"),
        ("tokenizer_config.json", "model.safetensors \"missingConfig\""),
    ] {
        let repo = repo("org/st", &["modules.json", "model.safetensors"])
            .file("modules.json", File::from_bytes(modules.to_string()))
            .file("config.json", File::from_bytes("{}"))
            .file(other, File::from_bytes("{}"));
        let hub = LocalHub::start([repo]).unwrap();
        assert_eq!(checked(&verify(&hub, "org/st", false).await).0, [expected], "{other}");
    }
}

/// The widths of an encoder's modules, and of a pipeline's components, are compared before anything is loaded.
#[tokio::test]
async fn parts_that_do_not_fit_each_other_are_found() {
    let text = |json: Value| File::from_bytes(json.to_string());
    let modules = json!([
        { "type": "sentence_transformers.models.Transformer", "path": "" },
        { "type": "sentence_transformers.models.Pooling", "path": "1_Pooling" },
        { "type": "sentence_transformers.models.Dense", "path": "2_Dense" },
    ]);
    let encoder = |inputs: u64| {
        let dense = json!({ "in_features": inputs, "out_features": 8, "bias": false });
        Repo::new("org/st")
            .file("modules.json", text(modules.clone()))
            .file("config.json", text(json!({ "hidden_size": 16 })))
            .file("model.safetensors", File::safetensors([("x", "F32", &[16][..])]))
            .file(
                "1_Pooling/config.json",
                text(json!({ "word_embedding_dimension": 16, "pooling_mode_mean_tokens": true })),
            )
            .file("2_Dense/config.json", text(dense))
            .file(
                "2_Dense/model.safetensors",
                File::safetensors([("linear.weight", "F32", &[8, inputs][..])]),
            )
    };
    for (inputs, kinds) in [(16, vec![]), (24, vec!["widthMismatch"])] {
        let hub = LocalHub::start([encoder(inputs)]).unwrap();
        let report = verify(&hub, "org/st", false).await;
        let found: Vec<_> = report
            .findings()
            .iter()
            .map(|found| serde_json::to_value(found).unwrap()["kind"].clone())
            .collect();
        assert_eq!(
            (found, report.loader),
            (kinds.iter().map(|kind| json!(kind)).collect(), Some("sentence-transformers")),
            "{inputs}"
        );
        assert_no_request_twice(&hub);
    }
    let broken = encoder(16).file("modules.json", text(json!([{ "path": "" }])));
    let hub = LocalHub::start([broken]).unwrap();
    let report = verify(&hub, "org/st", false).await;
    let [Finding::InvalidConfig { reason, .. }] = &report.findings()[..] else {
        panic!("{:?}", report.findings())
    };
    assert_eq!(reason, "module 0 has no `type`");
}

/// A folder is checked like a repository.
#[tokio::test]
async fn duplicate_weights_and_leftover_shards_are_found_everywhere() {
    let index = support::index(&[("x", "model-00001-of-00001.safetensors")]);
    let index = || index.clone();
    let repo = Repo::new("org/twice")
        .file("model.safetensors", weights(&["x"]))
        .file("model.safetensors.index.json", index())
        .file("model-00001-of-00001.safetensors", weights(&["x"]));
    let leftover = Repo::new("org/leftover")
        .file("model.safetensors.index.json", index())
        .file("model-00001-of-00001.safetensors", weights(&["x"]))
        .file("model-00002-of-00002.safetensors", weights(&["x"]));
    let twice = Finding::StoredTwice {
        file: "model.safetensors".to_owned(),
        index: "model.safetensors.index.json".to_owned(),
    };
    let shard = "model-00002-of-00002.safetensors".to_owned();
    let unindexed = Finding::UnindexedShard { shard };
    let hub = LocalHub::start([repo, leftover]).unwrap();
    for (id, finding) in [("org/twice", twice), ("org/leftover", unindexed)] {
        let report = verify(&hub, id, false).await;
        assert_eq!(report.findings(), std::slice::from_ref(&finding), "{id}");
        assert_eq!(finding.severity(), Severity::Warning);
        let folder = tempfile::tempdir().unwrap();
        let files = ["model-00001-of-00001.safetensors", "model-00002-of-00002.safetensors"];
        let files = files.iter().chain(&["model.safetensors", "model.safetensors.index.json"]);
        for file in files {
            let read = support::client(&hub).model(id).read_file(&file.parse().unwrap(), 1_000);
            if let Ok(bytes) = read.await {
                std::fs::write(folder.path().join(file), bytes).unwrap();
            }
        }
        let source = Source::Local(folder.path().to_owned());
        let local = Client::new().unwrap().source(source).verify().await.unwrap();
        assert_eq!(local.findings(), [finding], "{id}");
        assert_eq!(checked(&local).1, checked(&report).1, "{id}");
    }
}

/// MLX writes an index of a single file, too.
#[tokio::test]
async fn an_index_of_the_single_file_is_not_a_second_copy() {
    let index = support::index(&[("x", "model.safetensors")]);
    let repo = Repo::new("org/mlx").file("model.safetensors", weights(&["x"]));
    let hub = LocalHub::start([repo.file("model.safetensors.index.json", index)]).unwrap();
    for all in [false, true] {
        assert_eq!(verify(&hub, "org/mlx", all).await.findings(), [], "{all}");
    }
    assert_eq!(run(&hub, &["verify", "org/mlx", "--strict"]).code, 0);
}

#[tokio::test]
async fn one_shard_is_not_a_complete_model() {
    let path = "model-00001-of-00004.safetensors";
    let hub = LocalHub::start([repo("org/one", &[path])]).unwrap();
    let report = support::client(&hub).model("org/one").path(path).verify().await.unwrap();
    assert!(report.is_valid() && !report.is_complete(), "{:?}", report.findings());
    let url = format!("{}/org/one/resolve/main/{path}", hub.endpoint());
    let ran = run(&hub, &["verify", &url]);
    assert!(ran.stdout.contains("\nshard 1 of 4: 1 file and 1 tensor of "), "{}", ran.stdout);
    assert_eq!((ran.code, run(&hub, &["verify", &url, "--strict"]).code), (0, 1));
    let json: Value = serde_json::from_str(&run(&hub, &["verify", &url, "--json"]).stdout).unwrap();
    assert_eq!((&json["valid"], &json["complete"]), (&json!(true), &json!(false)));
    assert_eq!(json["unchecked"], Value::Null);
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

/// The list of components shows that the main one is missing.
#[tokio::test]
async fn a_pipeline_without_its_main_component_is_refused() {
    let index = json!({
        "_class_name": "FluxPipeline", "transformer": ["diffusers", "FluxTransformer2DModel"],
        "text_encoder": ["transformers", "CLIPTextModel"], "vae": ["diffusers", "AutoencoderKL"],
    });
    let files = ["text_encoder/model.safetensors", "vae/diffusion_pytorch_model.safetensors"];
    let config = || File::from_bytes("{}");
    let repo = repo("org/p", &files).file("model_index.json", File::from_bytes(index.to_string()));
    let repo = repo.file("vae/config.json", config()).file("text_encoder/config.json", config());
    let hub = LocalHub::start([repo]).unwrap();
    let report = verify(&hub, "org/p", false).await;
    let missing = Finding::MissingComponent {
        component: "transformer".to_owned(),
        file: "model_index.json".to_owned(),
    };
    assert_eq!((report.findings(), report.sets.len()), (vec![missing], 2));
}

/// Only `model_index.json` distinguishes a component from the checkpoint of a training run.
#[tokio::test]
async fn checkpoints_of_a_pipeline_are_not_components() {
    let checkpoint = "checkpoint-5/model.safetensors";
    let repo = listed_pipeline("org/pipeline").file(checkpoint, weights(&["x"]));
    let broken = repo.renamed("org/broken").file("model_index.json", File::from_bytes("[1]"));
    let hub = LocalHub::start([repo, broken]).unwrap();
    let (sets, others) = checked(&verify(&hub, "org/pipeline", false).await);
    assert_eq!((sets.len(), &*others[0]), (3, checkpoint));
    let (sets, others) = checked(&verify(&hub, "org/broken", false).await);
    assert_eq!(sets, [format!("{TRANSFORMER} \"invalidConfig\"")]);
    assert_eq!(others.len(), 5);
}

/// A `LoRA` of one module, for a base model with `inputs` inputs.
fn adapter(id: &str, rank: u64, inputs: u64) -> Repo {
    let config = json!({
        "peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"],
        "base_model_name_or_path": "org/base",
    });
    let module = "base_model.model.model.layers.0.self_attn.q_proj";
    let [a, b] = ["A", "B"].map(|part| format!("{module}.lora_{part}.weight"));
    let tensors = [(&*a, "F32", &[rank, inputs][..]), (&*b, "F32", &[16, rank])];
    let repo = Repo::new(id).file("adapter_model.safetensors", File::safetensors(tensors));
    repo.file("adapter_config.json", File::from_bytes(config.to_string()))
}

#[test]
fn adapters_are_compared_with_their_configuration_and_base_model() {
    let query = [("model.layers.0.self_attn.q_proj.weight", "BF16", &[16, 32][..])];
    let base = Repo::new("org/base").file("model.safetensors", File::safetensors(query));
    let adapters = [
        ("org/sound", 4, 32, vec![]),
        ("org/rank", 6, 32, vec!["rankMismatch"]),
        ("org/other", 4, 48, vec!["baseShapeMismatch"]),
    ];
    let repos = adapters.iter().map(|(id, rank, inputs, _)| adapter(id, *rank, *inputs));
    let hub = LocalHub::start(repos.chain([base])).unwrap();
    for (id, _, _, expected) in adapters {
        let done = run(&hub, &["verify", id, "--base", "org/base", "--json"]);
        let report: Value = serde_json::from_str(&done.stdout).unwrap();
        let kinds = report["findings"].as_array().unwrap().iter().map(|found| &found["kind"]);
        assert_eq!(kinds.collect::<Vec<_>>(), expected, "{id}: {report}");
        assert_eq!(done.code, i32::from(!expected.is_empty()), "{id}");
    }
    let done = run(&hub, &["verify", "org/base", "--base", "org/base"]);
    assert!(done.stderr.contains("is not an adapter"), "{}", done.stderr);
    assert_eq!(run(&hub, &["verify", "org/sound", "--base", "org/none"]).code, 3);
}

/// Adapters of PEFT and diffusers in the format that both wrote before safetensors.
#[test]
fn pickled_adapters_are_checked_and_described() {
    let lora = || File::from_bytes(include_bytes!("../../../fixtures/pytorch/lora.bin").to_vec());
    let config = |rank: u64| {
        let config = json!({
            "peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": ["q_proj"],
            "base_model_name_or_path": "org/base",
        });
        File::from_bytes(config.to_string())
    };
    let peft = |id: &str, rank: u64| {
        let repo = Repo::new(id).file("adapter_model.bin", lora());
        repo.file("adapter_config.json", config(rank))
    };
    let invalid = peft("org/invalid", 2).file("adapter_config.json", File::from_bytes("[]"));
    let diffusers = Repo::new("org/diffusers").file("pytorch_lora_weights.bin", lora());
    let diffusers = diffusers.file("old/pytorch_lora_weights.bin", lora());
    let repos = [peft("org/sound", 2), peft("org/rank", 4), invalid, diffusers];
    let hub = LocalHub::start(repos).unwrap();
    for (id, expected) in [
        ("org/sound", &["pickledWeights"][..]),
        ("org/rank", &["pickledWeights", "rankMismatch"]),
        ("org/invalid", &["invalidConfig", "pickledWeights"]),
        ("org/diffusers", &["pickledWeights"]),
    ] {
        let done = run(&hub, &["verify", id, "--json"]);
        let report: Value = serde_json::from_str(&done.stdout).unwrap();
        let kinds = report["findings"].as_array().unwrap().iter().map(|found| &found["kind"]);
        assert_eq!(kinds.collect::<Vec<_>>(), expected, "{id}: {report}");
        assert_eq!(report["adapter"]["ranks"], json!({"2": 2}), "{id}");
        let shown = run(&hub, &[id, "--json", "--summary"]);
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
        assert_eq!(shown["adapter"], report["adapter"], "{id}");
    }
}

/// A recipe in the file of AutoGPTQ, which `config.json` replaced.
#[tokio::test]
async fn a_recipe_in_a_separate_file_is_compared() {
    let model = |id: &str, config: Value, recipe: &str| {
        let tensors = [
            ("model.layers.0.mlp.down_proj.g_idx", "I32", &[64][..]),
            ("model.layers.0.mlp.down_proj.qweight", "I32", &[8, 32]),
            ("model.layers.0.mlp.down_proj.qzeros", "I32", &[2, 4]),
            ("model.layers.0.mlp.down_proj.scales", "F16", &[2, 32]),
        ];
        let repo = Repo::new(id).file("model.safetensors", File::safetensors(tensors));
        let repo = repo.file("config.json", File::from_bytes(config.to_string()));
        repo.file("quantize_config.json", File::from_bytes(recipe.to_owned()))
    };
    let in_config =
        json!({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}});
    let repos = [
        model("org/sound", json!({}), r#"{"bits": 4, "group_size": 32}"#),
        model("org/group", json!({}), r#"{"bits": 4, "group_size": 64}"#),
        model("org/invalid", json!({}), "[]"),
        model("org/ignored", in_config, r#"{"bits": 4, "group_size": 64}"#),
    ];
    let hub = LocalHub::start(repos).unwrap();
    for (id, expected) in [
        ("org/sound", &[][..]),
        ("org/group", &["partShapeMismatch", "partShapeMismatch"]),
        ("org/invalid", &["unusableConfig"]),
        ("org/ignored", &[]),
    ] {
        let report = verify(&hub, id, false).await;
        let kinds = report.findings().into_iter();
        let kinds = kinds.map(|found| serde_json::to_value(found).unwrap());
        let kinds: Vec<_> = kinds.map(|found| found["kind"].clone()).collect();
        assert_eq!(kinds, expected, "{id}: {:?}", report.findings());
    }
}

/// The configuration at the root may describe another model than the weights in a folder.
#[tokio::test]
async fn weights_are_compared_with_the_configuration_next_to_them() {
    let config = json!({
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
        "num_hidden_layers": 1, "vocab_size": 10,
        "quantization_config": { "quant_method": "gptq", "bits": 4, "group_size": 32 },
    });
    let packed = || {
        File::safetensors([
            ("model.embed_tokens.weight", "BF16", &[10, 32][..]),
            ("model.layers.0.mlp.down_proj.qweight", "I32", &[8, 32]),
            ("model.layers.0.mlp.down_proj.qzeros", "I32", &[2, 4]),
            ("model.layers.0.mlp.down_proj.scales", "F16", &[2, 32]),
        ])
    };
    for (folder, is_compared) in [("", false), ("text/", true)] {
        let config = File::from_bytes(config.to_string());
        let repo = Repo::new("org/model").file("text/model.safetensors", packed());
        let repo = repo.file(&format!("{folder}config.json"), config);
        let hub = LocalHub::start([repo]).unwrap();
        let report = verify(&hub, "org/model", true).await;
        let rules = report.findings().iter().any(|found| matches!(found, Finding::Mismatch(_)));
        assert_eq!(rules, is_compared, "{folder:?}: {:?}", report.findings());
    }
}

/// An EAGLE head states the configuration of a whole model, and uses the embeddings of another one.
#[tokio::test]
async fn a_draft_of_another_model_is_not_compared() {
    let config = json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "vocab_size": 100,
        "num_attention_heads": 4, "num_hidden_layers": 1, "tie_word_embeddings": false,
    });
    for (projection, is_compared) in [([64, 128], false), ([100, 64], true)] {
        let tensors = [
            ("embed_tokens.weight", "BF16", &[100, 64][..]),
            ("fc.weight", "BF16", &projection),
            ("layers.0.self_attn.q_proj.weight", "BF16", &[64, 128]),
        ];
        let repo = Repo::new("org/eagle").file("model.safetensors", File::safetensors(tensors));
        let repo = repo.file("config.json", File::from_bytes(config.to_string()));
        let report = verify(&LocalHub::start([repo]).unwrap(), "org/eagle", false).await;
        assert_eq!(report.is_valid(), !is_compared, "{:?}", report.findings());
        let reason = report.sets[0].config_check.reason.as_deref();
        let is_draft = reason == Some("the model drafts tokens for another model");
        assert_eq!(is_draft, !is_compared, "{reason:?}");
    }
}
