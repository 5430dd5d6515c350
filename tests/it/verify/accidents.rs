//! Accidents of authors: a file that was not uploaded, or that belongs to something else. Each transcript names the file, the
//! part of the model, and the key that contradicts it, and says what to do.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::command::CommandOutput;
use crate::support::file_start;

/// A model without weights: its configuration and its tensors.
#[derive(Clone)]
struct Model {
    config: Value,
    tensors: BTreeMap<String, (String, Vec<u64>)>,
    base: BTreeMap<String, Vec<u64>>,
}

impl Model {
    fn new(fixture: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
        let fixture: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let tensors = fixture["tensors"].as_array().unwrap().iter().map(|tensor| {
            let text = |key: &str| tensor[key].as_str().unwrap().to_owned();
            let shape = serde_json::from_value(tensor["shape"].clone()).unwrap();
            (text("name"), (text("dtype"), shape))
        });
        let base = serde_json::from_value(fixture["base"].clone()).unwrap_or_default();
        Self { config: fixture["config"].clone(), tensors: tensors.collect(), base }
    }

    fn without(mut self, part: &str) -> Self {
        self.tensors.retain(|name, _| !name.contains(part));
        self
    }

    fn with(mut self, key: &str, value: Value) -> Self {
        self.config[key] = value;
        self
    }

    /// Writes the weights, which have no bytes on disk.
    fn write_weights(&self, path: &Path) {
        let (mut header, mut end) = (json!({}), 0);
        for (name, (dtype, shape)) in &self.tensors {
            let start = end;
            let size = if dtype == "I64" { 8 } else { 4 };
            end += shape.iter().product::<u64>() * if dtype == "BF16" { 2 } else { size };
            header[name] = json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] });
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let head = file_start(&header.to_string());
        let length = head.len() as u64 + end;
        fs::write(path, head).unwrap();
        File::options().write(true).open(path).unwrap().set_len(length).unwrap();
    }

    fn write(&self, folder: &Path, weights: &str, config: &str) {
        self.write_weights(&folder.join(weights));
        fs::write(folder.join(config), self.config.to_string()).unwrap();
    }

    fn write_adapter(&self, folder: &Path) {
        self.write(folder, "adapter_model.safetensors", "adapter_config.json");
        let dtype = || "F32".to_owned();
        let tensors = self.base.clone().into_iter();
        let tensors = tensors.map(|(name, shape)| (name, (dtype(), shape))).collect();
        let base = Self { tensors, ..self.clone() };
        base.write_weights(&folder.with_extension("base").join("model.safetensors"));
    }
}

const DIFFUSION: &str = "diffusion_pytorch_model.safetensors";

fn write_pipeline(folder: &Path) {
    let index = json!({
        "_class_name": "FluxPipeline",
        "transformer": ["diffusers", "FluxTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    });
    Model::new("diffusers/flux-dev.json").write(
        &folder.join("transformer"),
        DIFFUSION,
        "config.json",
    );
    Model::new("diffusers/vae-flux.json").write(&folder.join("vae"), DIFFUSION, "config.json");
    fs::write(folder.join("model_index.json"), index.to_string()).unwrap();
}

type Accident = (&'static str, fn(&Path));

const ACCIDENTS: [Accident; 10] = [
    ("the transformer was not uploaded", |folder| {
        write_pipeline(folder);
        fs::remove_dir_all(folder.join("transformer")).unwrap();
    }),
    ("a component lacks its configuration", |folder| {
        write_pipeline(folder);
        fs::remove_file(folder.join("vae/config.json")).unwrap();
    }),
    ("the weights of another component", |folder| {
        write_pipeline(folder);
        let weights = |component: &str| folder.join(component).join(DIFFUSION);
        fs::copy(weights("vae"), weights("transformer")).unwrap();
    }),
    ("the configuration of a deeper model", |folder| {
        write_pipeline(folder);
        let deeper = Model::new("diffusers/flux-dev.json").with("num_layers", json!(4));
        deeper.write(&folder.join("transformer"), DIFFUSION, "config.json");
    }),
    ("half of an adapter was saved", |folder| {
        Model::new("adapters/lora.json").without("layers.1.").write_adapter(folder);
    }),
    ("an adapter lacks its configuration", |folder| {
        Model::new("adapters/lora.json").write_adapter(folder);
        fs::remove_file(folder.join("adapter_config.json")).unwrap();
    }),
    ("an adapter was saved with its name", |folder| {
        let mut lora = Model::new("adapters/lora.json");
        let tensors = std::mem::take(&mut lora.tensors).into_iter();
        let named = |name: &str| name.replace(".weight", ".default.weight");
        lora.tensors = tensors.map(|(name, tensor)| (named(&name), tensor)).collect();
        lora.write_adapter(folder);
    }),
    ("an adapter of another base", |folder| {
        let mut lora = Model::new("adapters/lora.json");
        lora.base.values_mut().flatten().for_each(|side| *side *= 2);
        lora.write_adapter(folder);
    }),
    ("the configuration of another architecture", |folder| {
        let resnet = Model::new("timm/resnet18.json").with("architecture", json!("resnet34"));
        resnet.write(folder, "model.safetensors", "config.json");
    }),
    ("the classifier of another data set", |folder| {
        let mut resnet = Model::new("timm/resnet18.json").with("num_classes", json!(7));
        resnet.config["model_args"]["num_classes"] = json!(7);
        resnet.write(folder, "model.safetensors", "config.json");
    }),
];

#[test]
fn accidents_of_authors_are_explained() {
    let mut transcripts = String::new();
    for (title, write) in ACCIDENTS {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("model");
        fs::create_dir(&folder).unwrap();
        write(&folder);
        let mut arguments = vec!["verify", "./model/"];
        if root.path().join("model.base").exists() {
            arguments.extend(["--base", "./model.base/"]);
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_hf-meta"));
        command.env_clear().env("COLUMNS", "80").current_dir(root.path()).args(&arguments);
        let ran = CommandOutput::new(&mut command);
        assert_eq!(ran.code, 1, "{title}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains("\n  help: "), "{title}: {}", ran.stdout);
        let arguments = arguments.join(" ");
        let output = format!("{}{}", ran.stdout, ran.stderr);
        writeln!(transcripts, "# {title}\n$ hf-meta {arguments}\n{output}").unwrap();
    }
    insta::assert_snapshot!(transcripts);
}
