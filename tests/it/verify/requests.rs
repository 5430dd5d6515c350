//! A verification of several parts sends no request twice, and reads each header once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::command::run;
use crate::hub::{File, Host, LocalHub, LoggedRequest, Repo};
use crate::support::modules_json;

fn fixture(path: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path)).unwrap()
}

/// A fixture of a model.
struct Model(Value);

impl Model {
    fn new(path: &str) -> Self {
        Self(serde_json::from_slice(&fixture(path)).unwrap())
    }

    fn config(&self) -> File {
        File::from_bytes(self.0["config"].to_string())
    }

    fn weights(&self) -> File {
        let tensors = self.0["tensors"].as_array().unwrap().iter().map(|tensor| {
            let text = |key: &str| tensor[key].as_str().unwrap();
            let shape: Vec<u64> = serde_json::from_value(tensor["shape"].clone()).unwrap();
            (text("name"), text("dtype"), shape)
        });
        let tensors: Vec<_> = tensors.collect();
        File::safetensors(tensors.iter().map(|(name, dtype, shape)| (*name, *dtype, &shape[..])))
    }

    /// The weights of the base model of an adapter.
    fn base(&self) -> File {
        let shapes: BTreeMap<String, Vec<u64>> =
            serde_json::from_value(self.0["base"].clone()).unwrap();
        File::safetensors(shapes.iter().map(|(name, shape)| (name.as_str(), "F32", &shape[..])))
    }
}

fn pipeline() -> Repo {
    const WEIGHTS: &str = "diffusion_pytorch_model.safetensors";

    let index = json!({
        "_class_name": "FluxPipeline",
        "transformer": ["diffusers", "FluxTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    });
    let index = File::from_bytes(index.to_string());
    let parts = [("transformer", "flux-dev"), ("vae", "vae-flux")];
    parts.into_iter().fold(
        Repo::new("org/pipeline").file("model_index.json", index),
        |repo, part| {
            let model = Model::new(&format!("diffusers/{}.json", part.1));
            let repo = repo.file(&format!("{}/{WEIGHTS}", part.0), model.weights());
            repo.file(&format!("{}/config.json", part.0), model.config())
        },
    )
}

fn encoder() -> Repo {
    let model = Model::new("adapters/lora-bert.json");
    let modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense")];
    let config = json!({"model_type": "unknown", "hidden_size": 64});
    let pooling = json!({"word_embedding_dimension": 64, "pooling_mode_mean_tokens": true});
    let dense = json!({"in_features": 64, "out_features": 32, "bias": true});
    let linear = [("linear.bias", "F32", &[32][..]), ("linear.weight", "F32", &[32, 64])];
    let file = |content: &Value| File::from_bytes(content.to_string());
    Repo::new("org/encoder")
        .file("modules.json", modules_json(&modules))
        .file("config.json", file(&config))
        .file("model.safetensors", model.base())
        .file("1_Pooling/config.json", file(&pooling))
        .file("2_Dense/config.json", file(&dense))
        .file("2_Dense/model.safetensors", File::safetensors(linear))
}

fn adapter() -> [Repo; 2] {
    let model = Model::new("adapters/lora.json");
    let adapter = Repo::new("org/adapter").file("adapter_config.json", model.config());
    let config = json!({"model_type": "unknown"});
    let base = Repo::new("org/base").file("config.json", File::from_bytes(config.to_string()));
    [
        adapter.file("adapter_model.safetensors", model.weights()),
        base.file("model.safetensors", model.base()),
    ]
}

fn splits() -> Repo {
    (1..=3).fold(Repo::new("org/splits"), |repo, number| {
        let name = format!("split-0000{number}-of-00003.gguf");
        repo.file(&name, File::from_bytes(fixture(&format!("gguf/{name}"))))
    })
}

/// Returns the first and the last byte of the range of a request.
fn span(request: &LoggedRequest) -> Option<(u64, u64)> {
    let (first, last) = request.range.as_deref()?.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[test]
fn no_request_is_sent_twice() {
    let [adapter, base] = adapter();
    let hub = LocalHub::start([pipeline(), encoder(), adapter, base, splits()]).unwrap();
    let cases: [(&[&str], usize); 4] = [
        (&["org/pipeline"], 2),
        (&["org/encoder"], 2),
        (&["org/adapter", "--base", "org/base"], 2),
        (&["org/splits"], 3),
    ];
    for (arguments, files) in cases {
        hub.clear_log();
        let ran = run(&hub, &[&["verify", "--no-cache"], arguments].concat());
        let log = hub.log();
        assert!(ran.code < 2, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        let mut requests = BTreeMap::<_, u32>::new();
        // The weights of a read, by the path that the CDN serves.
        let mut spans = BTreeMap::<_, Vec<_>>::new();
        for request in &log {
            let host = format!("{:?}", request.host);
            let key = (host, &request.path, &request.query, &request.range);
            *requests.entry(key).or_default() += 1;
            if request.host == Host::Cdn {
                spans.entry(&request.path).or_default().extend(span(request));
            }
        }
        let twice: Vec<_> = requests.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "{arguments:?}: {twice:#?}");
        assert_eq!(spans.len(), files, "{arguments:?}: {spans:#?}");
        for (path, spans) in &mut spans {
            spans.sort_unstable();
            let are_apart = spans.is_sorted_by(|one, other| one.1 < other.0);
            assert!(are_apart && spans[0].0 == 0, "{arguments:?}: {path}: {spans:?}");
        }
    }
}
