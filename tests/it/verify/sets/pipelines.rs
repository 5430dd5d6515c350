//! The components of a pipeline.
//!
//! Add a test here if the repository has a `model_index.json`.

use hf_meta_count::results::Finding;
use serde_json::{Value, json};

use super::{TRANSFORMER, VAE, VARIANT, assert_no_request_twice, checked, listed_pipeline, verify};
use crate::call::layouts::{pipeline, repo};
use crate::command::run;
use crate::hub::{File, LocalHub, Repo};
use crate::support::{modules_json, weights};

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

/// The widths of an encoder's modules, and of a pipeline's components, are compared before anything is loaded.
#[tokio::test]
async fn parts_that_do_not_fit_each_other_are_found() {
    let text = |json: Value| File::from_bytes(json.to_string());
    let modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense")];
    let encoder = |inputs: u64| {
        let dense = json!({ "in_features": inputs, "out_features": 8, "bias": false });
        Repo::new("org/st")
            .file("modules.json", modules_json(&modules))
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
