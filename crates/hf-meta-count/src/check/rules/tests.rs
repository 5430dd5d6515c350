//! Sound checkpoints must have no mismatch, and each defect must be found with its kind and module.

mod packed;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::{
    LoadedAs, Mismatch, MismatchKind, check_adapter, check_model, check_recipe, recipe_file,
};
use crate::SafetensorsParseFromRepo;
use crate::count::Configs;
use crate::count::config::QUANTIZE_CONFIG;
use crate::results::{Adapter, Finding, Severity, Weights};
use hf_meta_format::SafetensorsFileHeader;
use hf_meta_format::formats::{FileHeader, RepoPath, TensorInfo, TensorTableBuilder};

/// The class that `config.json` states, from files that transformers finds.
const LOADED: LoadedAs = LoadedAs { is_base: false, is_found: true };

thread_local! {
    /// The number of shapes that were compared.
    pub(super) static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A checkpoint without weights.
#[derive(Clone)]
struct Checkpoint {
    config: Value,
    tensors: BTreeMap<String, (String, Vec<u64>)>,
    metadata: Option<BTreeMap<String, String>>,
    /// The tensors of the base model of an adapter.
    base: Option<BTreeMap<String, Vec<u64>>>,
    is_adapter: bool,
}

impl Checkpoint {
    fn from_fixture(path: &Path) -> Self {
        let fixture: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let shards = fixture["shards"].as_array().into_iter().flatten();
        let lists = shards.chain([&fixture["tensors"]]).filter_map(Value::as_array);
        let tensors = lists.flatten().map(|tensor| {
            let text = |key: &str| tensor[key].as_str().unwrap().to_owned();
            let shape = serde_json::from_value(tensor["shape"].clone()).unwrap();
            (text("name"), (text("dtype"), shape))
        });
        let mut config = fixture["config"].clone();
        if let Some(file) = fixture["files"].get(QUANTIZE_CONFIG) {
            config = json!({"quantize_config": file});
        }
        Self {
            config,
            tensors: tensors.collect(),
            metadata: serde_json::from_value(fixture["metadata"].clone()).unwrap(),
            base: serde_json::from_value(fixture["base"].clone()).unwrap(),
            is_adapter: path.parent().is_some_and(|folder| folder.ends_with("adapters")),
        }
    }

    fn named(fixture: &str) -> Self {
        Self::from_fixture(&fixtures().join(format!("{fixture}.json")))
    }

    /// Applies an edit: `key.key=JSON` sets a key (of `quantize_config.json` below `quantize_config`), `-name` removes the tensors with this start, `name:[1, 2]` sets a
    /// shape, `name>name` copies, `+` adds a prefix to all names. `@` edits a tensor of the base model, and `@+` adds a prefix to all of them.
    fn edit(&mut self, edit: &str) {
        let base = edit.strip_prefix('@').zip(self.base.as_mut());
        if let Some((edit, base)) = base {
            if let Some(prefix) = edit.strip_prefix('+') {
                let names = std::mem::take(base).into_iter();
                *base = names.map(|(name, shape)| (format!("{prefix}{name}"), shape)).collect();
                return;
            }
            match edit.split_once(":[") {
                Some((name, shape)) => {
                    let shape = serde_json::from_str(&format!("[{shape}")).unwrap();
                    assert!(base.insert(name.to_owned(), shape).is_some(), "{edit}");
                }
                None => assert!(base.remove(&edit[1..]).is_some(), "{edit}"),
            }
        } else if let Some(prefix) = edit.strip_prefix('+') {
            let names = std::mem::take(&mut self.tensors).into_iter();
            self.tensors =
                names.map(|(name, tensor)| (format!("{prefix}{name}"), tensor)).collect();
        } else if let Some(start) = edit.strip_prefix('-') {
            let before = self.tensors.len();
            self.tensors.retain(|name, _| !name.starts_with(start));
            assert!(self.tensors.len() < before, "{edit}");
        } else if let Some((name, shape)) = edit.split_once(":[") {
            let shape = serde_json::from_str(&format!("[{shape}")).unwrap();
            self.tensors.entry(name.to_owned()).or_insert(("BF16".to_owned(), Vec::new())).1 =
                shape;
        } else if let Some((name, new)) = edit.split_once('>') {
            let tensor = self.tensors[name].clone();
            self.tensors.insert(new.to_owned(), tensor);
        } else {
            let (keys, value) = edit.split_once('=').unwrap();
            let keys = keys.split('.');
            let place = keys.fold(&mut self.config, |object, key| &mut object[key]);
            *place = serde_json::from_str(value).unwrap();
        }
    }

    fn headers(&self) -> Vec<(RepoPath, FileHeader)> {
        let (mut builder, mut end) = (TensorTableBuilder::new(), 0);
        for (name, (dtype, shape)) in &self.tensors {
            let mut tensor = TensorInfo::new(dtype.as_str().into(), shape.clone(), (end, end));
            let bits = tensor.elements().unwrap() * tensor.dtype.bits().unwrap();
            end += bits.div_ceil(8);
            tensor.data_offsets.1 = end;
            builder.push(name, &tensor);
        }
        let header = FileHeader::new(builder.finish().unwrap(), 0..0);
        let header = header.with_metadata(self.metadata.clone());
        vec![("model.safetensors".parse().unwrap(), header)]
    }

    fn adapter_json(&self) -> Option<Vec<u8>> {
        (!self.config.is_null()).then(|| self.config.to_string().into_bytes())
    }

    fn adapter(&self) -> Option<Adapter> {
        Adapter::new(self.adapter_json().as_deref(), &self.headers())
    }

    /// Returns the base model of an adapter.
    fn base(&self) -> Option<Weights> {
        let mut end = 0;
        let tensors = self.base.as_ref()?.iter().map(|(name, shape)| {
            let start = end;
            end += 4 * shape.iter().product::<u64>();
            (name, json!({"dtype": "F32", "shape": shape, "data_offsets": [start, end]}))
        });
        let json = serde_json::to_vec(&tensors.collect::<BTreeMap<_, _>>()).unwrap();
        let header = SafetensorsFileHeader::from_json(&json).unwrap();
        let headers = vec![("model.safetensors".parse().unwrap(), header)];
        let parsed = SafetensorsParseFromRepo::from_headers(None, headers, &Configs::default());
        Some(parsed.unwrap().into())
    }

    fn mismatches(&self) -> Vec<Mismatch> {
        let headers = self.headers();
        let mut config = self.config.clone();
        let file = config.as_object_mut().and_then(|config| config.remove("quantize_config"));
        let config = config.to_string();
        let mut configs = Configs::from_config_json(config.as_bytes()).unwrap_or_default();
        if let Some(file) = file {
            assert_eq!(recipe_file(&configs, &headers), Some(QUANTIZE_CONFIG));
            configs.add_file(QUANTIZE_CONFIG, file.to_string().as_bytes()).unwrap();
        }
        let found = if self.is_adapter {
            let mut found = check_adapter(self.adapter_json().as_deref(), &headers);
            let base = self.adapter().zip(self.base());
            found.extend(base.iter().flat_map(|(adapter, base)| adapter.check_base(base)));
            found
        } else {
            let (mut found, _) = check_model(Some(config.as_bytes()), &headers, LOADED);
            found.extend(check_recipe(config.as_bytes(), &configs, &headers));
            found
        };
        let mismatch = |finding| match finding {
            Finding::Mismatch(found) => found,
            other => panic!("{other}"),
        };
        found.into_iter().map(mismatch).collect()
    }
}

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// A model of two layers in the layout of Llama.
fn llama() -> Checkpoint {
    let mut tensors = vec![
        ("model.embed_tokens.weight".to_owned(), vec![96, 64]),
        ("model.norm.weight".to_owned(), vec![64]),
        ("lm_head.weight".to_owned(), vec![96, 64]),
    ];
    for layer in 0..2 {
        for (module, shape) in [
            ("input_layernorm", vec![64]),
            ("post_attention_layernorm", vec![64]),
            ("self_attn.q_proj", vec![80, 64]),
            ("self_attn.k_proj", vec![40, 64]),
            ("self_attn.v_proj", vec![40, 64]),
            ("self_attn.o_proj", vec![64, 80]),
            ("mlp.gate_proj", vec![112, 64]),
            ("mlp.up_proj", vec![112, 64]),
            ("mlp.down_proj", vec![64, 112]),
        ] {
            tensors.push((format!("model.layers.{layer}.{module}.weight"), shape));
        }
    }
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "head_dim": 20,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 112, "num_hidden_layers": 2,
        "vocab_size": 96, "tie_word_embeddings": false,
    });
    let tensors = tensors.into_iter().map(|(name, shape)| (name, ("BF16".to_owned(), shape)));
    let tensors = tensors.collect();
    Checkpoint { config, tensors, metadata: None, base: None, is_adapter: false }
}

fn base(name: &str) -> Checkpoint {
    if name == "llama" { llama() } else { Checkpoint::named(name) }
}

/// Returns the kind as in JSON.
fn kind(found: &Mismatch) -> String {
    serde_json::to_value(found.kind).unwrap().as_str().unwrap().to_owned()
}

#[test]
fn sound_checkpoints_have_no_mismatch() {
    let mut found = Vec::new();
    let mut checkpoints = 0;
    for folder in ["moe", "quantized", "adapters", "diffusers", "transformers", "timm"] {
        for entry in fixtures().join(folder).read_dir().unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            // The configurations of these fixtures do not describe the shapes, or these files have the names that
            // transformers uses in memory.
            // PEFT does not load the names that training programs dump, which is a defect below.
            let is_dump = path.ends_with("lora-of-other-names.json");
            let original = path.with_extension("").display().to_string() + "-original.json";
            if is_dump || text.contains("\"definition: names of") || Path::new(&original).exists() {
                continue;
            }
            // Definitions have only the modules that show a layout, or the names of other code.
            let is_part = text.contains("\"definition")
                || path.ends_with("transformers-real-gemma-patterns.json");
            let checkpoint = Checkpoint::from_fixture(&path);
            checkpoints += u32::from(!checkpoint.tensors.is_empty());
            let is_missing = |kind| {
                matches!(
                    kind,
                    MismatchKind::MissingModule
                        | MismatchKind::MissingModules
                        | MismatchKind::RenamedModule
                )
            };
            let serious = |found: &Mismatch| {
                found.kind.rule().severity > Severity::Note && !(is_part && is_missing(found.kind))
            };
            let serious = checkpoint.mismatches().into_iter().filter(serious);
            found.extend(
                serious.map(|found| format!("{}: {found}", path.file_stem().unwrap().display())),
            );
        }
    }
    assert_eq!(found, Vec::<String>::new());
    assert!(checkpoints > 200, "{checkpoints}");
    assert_eq!(llama().mismatches(), []);
}

/// Returns the mismatches of a model of an unknown architecture, whose layers have experts, without some tensors.
fn without_expert_tensors(removed: &str) -> Vec<Mismatch> {
    let mut tensors = BTreeMap::new();
    for (layer, expert) in (0..5).flat_map(|layer| (0..6).map(move |expert| (layer, expert))) {
        for part in ["w1", "w2", "w3"] {
            let name = format!("h.{layer}.moe.experts.{expert}.{part}.weight");
            tensors.insert(name, ("BF16".to_owned(), vec![32, 64]));
        }
    }
    let before = tensors.len();
    tensors.retain(|name, _| !name.starts_with(removed));
    assert!(tensors.len() < before);
    let config = json!({"model_type": "unknown"});
    Checkpoint { config, tensors, metadata: None, base: None, is_adapter: false }.mismatches()
}

/// Layers have the same experts, and experts the same matrices, whatever the architecture is.
#[test]
fn each_layer_has_all_experts() {
    let found = |removed| {
        let found = without_expert_tensors(removed).into_iter();
        found.map(|found| found.to_string()).collect::<Vec<_>>()
    };
    let missing = "expert 5 of `h.2.moe.experts` is missing, unlike in other layers";
    assert_eq!(found("h.2.moe.experts.5."), [missing]);
    for part in ["h.4.moe.experts.0.w2.weight", "h.1.moe.experts.3.w1.weight"] {
        assert_eq!(found(part), [format!("`{part}` is missing")]);
    }
}

/// A class that transformers does not have may have any modules, and a base model has no head.
#[test]
fn the_class_that_is_loaded_decides_what_is_required() {
    let mut checkpoint = llama();
    checkpoint.edit("-lm_head");
    let config = |classes: &str| {
        let mut config = checkpoint.config.clone();
        config["architectures"] = serde_json::from_str(classes).unwrap();
        config.to_string()
    };
    let is_base = LoadedAs { is_base: true, ..LOADED };
    let cases = [
        (r#"["LlamaForCausalLM"]"#, LOADED, 1),
        (r#"["LlamaForCausalLM"]"#, is_base, 0),
        (r#"["LlamaModel"]"#, LOADED, 0),
        (r#"["OtherForCausalLM"]"#, LOADED, 0),
        ("null", LOADED, 0),
    ];
    for (classes, loaded, expected) in cases {
        let config = config(classes);
        let (found, check) = check_model(Some(config.as_bytes()), &checkpoint.headers(), loaded);
        assert_eq!((found.len(), check.compared), (expected, true), "{classes} {found:?}");
    }
}

/// transformers loads no name that it does not expect. Another loader may.
#[test]
fn names_of_another_loader_are_not_compared() {
    let mut checkpoint = llama();
    let names = std::mem::take(&mut checkpoint.tensors).into_iter();
    let rename = |name: String| {
        name.replace("layers", "blocks").replace("embed_tokens", "wte").replace("model.norm", "ln")
    };
    checkpoint.tensors = names.map(|(name, tensor)| (rename(name), tensor)).collect();
    let config = checkpoint.config.to_string();
    let found = |loaded| {
        let (found, check) = check_model(Some(config.as_bytes()), &checkpoint.headers(), loaded);
        (found.len(), check.reason)
    };
    let reason = Some("the names are not those of `llama`".to_owned());
    assert_eq!(found(LOADED), (1, reason.clone()));
    assert_eq!(found(LoadedAs { is_found: false, ..LOADED }), (0, reason));
}

/// Padded embeddings, spare keys and other legal differences.
/// Libraries leave such recipes in the configuration of plain weights, or quantize these while they load them.
#[test]
fn recipes_without_packed_weights_have_no_mismatch() {
    let recipes = [
        r#"{"quant_method":"bitsandbytes","load_in_4bit":false}"#,
        r#"{"quant_method":"modelopt","quant_algo":null,"kv_cache_quant_algo":"FP8"}"#,
        r#"{"quant_method":"bitnet","quantization_mode":"online"}"#,
        r#"{"quant_method":"torchao","quant_type":{"default":{"_data":{"group_size":32}}}}"#,
        r#"{"quant_method":"compressed-tensors","config_groups":{},"kv_cache_scheme":{"num_bits":8}}"#,
        r#"{"quant_method":"compressed-tensors","config_groups":{"a":{"weights":null}}}"#,
        r#"{"quant_method":"compressed-tensors","format":"dense","config_groups":{"a":{"weights":{"num_bits":8}}}}"#,
    ];
    for recipe in recipes {
        let mut checkpoint = base("llama");
        checkpoint.edit(&format!("quantization_config={recipe}"));
        assert_eq!(checkpoint.mismatches(), [], "{recipe}");
    }
}

#[test]
fn legal_differences_have_no_mismatch() {
    let cases: [(&str, &[&str]); 25] = [
        // QuIP# joins modules, and its models have their own code.
        (
            "llama",
            &[
                "quip_params={}",
                "-model.layers.0.self_attn.q_proj",
                "-model.layers.0.self_attn.k_proj",
                "model.layers.0.self_attn.qkv_proj.weight:[64, 64]",
            ],
        ),
        // A training program stores the names in memory.
        ("llama", &[r#"model_type="mistral""#, "+model."]),
        ("llama", &["-lm_head", "tie_word_embeddings=true"]),
        (
            "llama",
            &[
                "head_dim=null",
                "num_attention_heads=4",
                "model.layers.0.self_attn.q_proj.weight:[64, 64]",
                "model.layers.1.self_attn.q_proj.weight:[64, 64]",
                "model.layers.0.self_attn.o_proj.weight:[64, 64]",
                "model.layers.1.self_attn.o_proj.weight:[64, 64]",
                "num_key_value_heads=2",
                "model.layers.0.self_attn.k_proj.weight:[32, 64]",
                "model.layers.1.self_attn.k_proj.weight:[32, 64]",
                "model.layers.0.self_attn.v_proj.weight:[32, 64]",
                "model.layers.1.self_attn.v_proj.weight:[32, 64]",
            ],
        ),
        ("llama", &[r#"model_type="unknown""#, "hidden_size=1"]),
        ("llama", &["hidden_size=\"64\""]),
        // Layers that draft tokens have other modules.
        (
            "llama",
            &[
                "model.layers.2.eh_proj.weight:[64, 128]",
                "model.layers.2.mlp.up_proj.weight:[1, 2]",
            ],
        ),
        ("llama", &["vision_config={}", "visual.x.weight:[8, 8]"]),
        ("llama", &[r#"mm_vision_tower="clip""#, "model.vision_tower.x.weight:[8, 8]"]),
        ("llama", &["auto_map={}", "model.vision_tower.x.weight:[8, 8]"]),
        (
            "llama",
            &[
                "model.layers.0.self_attn.rotary_emb.inv_freq:[8]",
                "model.layers.0.mlp.up_proj.bias:[112]",
            ],
        ),
        ("adapters/lora", &[r#"target_modules="all-linear""#]),
        // Python has expressions that are not supported.
        ("adapters/lora", &[r#"target_modules=".*(?<!x)q_proj""#]),
        ("adapters/lora-rank-pattern", &[r#"rank_pattern={"(?<!x)q_proj": 1}"#]),
        ("adapters/lora", &["target_modules=null"]),
        ("adapters/lora", &[r#"modules_to_save=["classifier", "score"]"#]),
        ("adapters/lora", &["layers_to_transform=1", r#"layers_pattern="h""#]),
        // The blocks of T5 contain lists, whose numbers are not layers.
        (
            "adapters/lora-t5",
            &[
                "layers_to_transform=[0]",
                "-base_model.model.decoder.block.1.",
                "-base_model.model.encoder.block.1.",
            ],
        ),
        ("adapters/lora", &["r=8.0", r#"lora_alpha="16""#]),
        // Experts with several matrices of each kind.
        (
            "adapters/lora",
            &[
                "-base_model.model.model.layers.0.self_attn.q_proj.lora_B",
                "base_model.model.model.layers.0.self_attn.q_proj.lora_B0.weight:[80, 8]",
                "base_model.model.model.layers.0.self_attn.q_proj.lora_B1.weight:[80, 8]",
            ],
        ),
        // A model that was saved with its adapter.
        (
            "adapters/lora",
            &[
                "-base_model.model.model.layers.0.self_attn.q_proj.lora_B",
                "-base_model.model.model.layers.1.",
                "base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight:[80, 64]",
                "base_model.model.model.layers.0.self_attn.v_proj.base_layer.weight:[40, 64]",
            ],
        ),
        // Libraries for linear layers leave experts as they are.
        (
            "quantized/bitsandbytes-real-nf4",
            &[
                "model.layers.0.mlp.experts.0.up_proj.weight:[64, 128]",
                "model.layers.0.mlp.experts.1.up_proj.weight:[64, 128]",
            ],
        ),
        // A base model with another prefix, or with packed weights.
        ("adapters/lora", &["@+model.language_model."]),
        ("adapters/kohya-unet", &["@+model.diffusion_model."]),
        ("adapters/lora-experts", &["@model.layers.0.self_attn.q_proj.weight:[64, 64, 1, 1, 1]"]),
    ];
    for (name, edits) in cases {
        let mut checkpoint = base(name);
        for edit in edits {
            checkpoint.edit(edit);
        }
        let mut found = checkpoint.mismatches();
        found.retain(|found| found.kind != MismatchKind::UnknownTensor);
        assert_eq!(found, [], "{name} {edits:?}");
    }
}

/// transformers 4 stores the modules of vision towers below `vision_model`, and version 5 reads both names.
#[test]
fn vision_towers_have_two_names() {
    let vision = [
        ("embeddings.class_embedding", vec![32]),
        ("embeddings.patch_embedding.weight", vec![32, 3, 8, 8]),
        ("embeddings.position_embedding.weight", vec![17, 32]),
        ("pre_layrnorm", vec![32]),
        ("post_layernorm", vec![32]),
        ("encoder.layers.0.layer_norm1", vec![32]),
        ("encoder.layers.0.layer_norm2", vec![32]),
        ("encoder.layers.0.mlp.fc1", vec![48, 32]),
        ("encoder.layers.0.mlp.fc2", vec![32, 48]),
        ("encoder.layers.0.self_attn.q_proj", vec![32, 32]),
        ("encoder.layers.0.self_attn.k_proj", vec![32, 32]),
        ("encoder.layers.0.self_attn.v_proj", vec![32, 32]),
        ("encoder.layers.0.self_attn.out_proj", vec![32, 32]),
    ];
    for tower in ["vision_tower", "vision_tower.vision_model"] {
        let mut llava = llama();
        llava.edit("+language_model.");
        llava.config = json!({
            "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
            "text_config": llava.config,
            "vision_config": {
                "model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 48,
                "image_size": 32, "patch_size": 8, "num_channels": 3, "num_attention_heads": 4,
                "num_hidden_layers": 1,
            },
        });
        let mut add = |name: String, shape: &[u64]| {
            llava.tensors.insert(name, ("BF16".to_owned(), shape.to_vec()));
        };
        for (name, shape) in &vision {
            if name.starts_with("embeddings.") {
                add(format!("{tower}.{name}"), shape);
            } else {
                add(format!("{tower}.{name}.weight"), shape);
                add(format!("{tower}.{name}.bias"), &shape[..1]);
            }
        }
        for (layer, columns) in [(1, 32), (2, 64)] {
            add(format!("multi_modal_projector.linear_{layer}.weight"), &[64, columns]);
            add(format!("multi_modal_projector.linear_{layer}.bias"), &[64]);
        }
        assert_eq!(llava.mismatches(), [], "{tower}");
        llava.edit(&format!("-{tower}.encoder.layers.0.mlp.fc1"));
        assert_ne!(llava.mismatches(), [], "{tower}");
    }
}

/// The text encoders of many pipelines.
#[test]
fn an_encoder_has_no_decoder() {
    let layer = "encoder.block.0.layer";
    let tensors = [
        ("shared.weight".to_owned(), vec![200, 32]),
        ("encoder.final_layer_norm.weight".to_owned(), vec![32]),
        (format!("{layer}.0.SelfAttention.q.weight"), vec![32, 32]),
        (format!("{layer}.0.SelfAttention.k.weight"), vec![32, 32]),
        (format!("{layer}.0.SelfAttention.v.weight"), vec![32, 32]),
        (format!("{layer}.0.SelfAttention.o.weight"), vec![32, 32]),
        (format!("{layer}.0.SelfAttention.relative_attention_bias.weight"), vec![32, 4]),
        (format!("{layer}.0.layer_norm.weight"), vec![32]),
        (format!("{layer}.1.DenseReluDense.wi.weight"), vec![48, 32]),
        (format!("{layer}.1.DenseReluDense.wo.weight"), vec![32, 48]),
        (format!("{layer}.1.layer_norm.weight"), vec![32]),
    ];
    let config = json!({
        "architectures": ["T5EncoderModel"], "model_type": "t5", "d_model": 32, "d_kv": 8,
        "d_ff": 48, "num_heads": 4, "num_layers": 1, "vocab_size": 200,
        "relative_attention_num_buckets": 32,
    });
    let tensors = tensors.into_iter().map(|(name, shape)| (name, ("F32".to_owned(), shape)));
    let mut checkpoint = Checkpoint { config, tensors: tensors.collect(), ..llama() };
    assert_eq!(checkpoint.mismatches(), []);
    checkpoint.edit(r#"architectures=["T5Model"]"#);
    assert!(checkpoint.mismatches().iter().any(|found| found.module == "decoder"));
}

/// transformers stores `DINOv2` with other names than those that it has in memory, and that adapters have.
#[test]
fn an_adapter_of_a_base_model_with_other_names_is_not_compared() {
    let mut checkpoint = Checkpoint::named("adapters/lora");
    checkpoint.tensors.clear();
    let mut base = BTreeMap::new();
    for name in ["encoder.layer.0.attention", "encoder.layer.1.attention"] {
        for (part, shape) in [("A", vec![8, 32]), ("B", vec![32, 8])] {
            let part = format!("base_model.model.{name}.q_proj.lora_{part}.weight");
            checkpoint.tensors.insert(part, ("F32".to_owned(), shape));
        }
        base.insert(format!("{name}.attention.query.weight"), vec![32, 32]);
    }
    checkpoint.base = Some(base);
    let found = checkpoint.mismatches();
    assert!(found.iter().any(|found| found.kind == MismatchKind::UnmatchedBase), "{found:?}");
    assert!(found.iter().all(|found| found.kind != MismatchKind::MissingBase), "{found:?}");
}

#[test]
fn each_defect_is_found() {
    let (mut wrong, mut defects) = (Vec::new(), 0);
    for line in include_str!("defects.txt").lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once("; ").unwrap();
        let (edits, expected) = rest.split_once(" -> ").unwrap();
        let mut checkpoint = base(name);
        for edit in edits.split(" & ") {
            checkpoint.edit(edit);
        }
        let found = checkpoint.mismatches();
        let all = found.iter().map(|found| {
            let shown = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
            format!("{} {} {}", kind(found), shown(&found.module), shown(&found.key))
        });
        let all: Vec<_> = all.collect();
        if !all.iter().any(|found| found == expected) {
            wrong.push(format!("{line}: {all:?}"));
        }
        defects += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(defects >= 60, "{defects}");
}

/// SDNQ leaves small modules as they are, groups of compressed-tensors may have a scale per output, and AutoRound stores
/// zero points in any case.
#[test]
fn writers_may_quantize_modules_differently() {
    const CASES: [(&str, &[&str]); 3] = [
        ("awq-gemm-g128", &["quantization_config.zero_point=false"]),
        (
            "sdnq-real-int8",
            &[
                "-model.layers.0.self_attn.k_proj",
                "model.layers.0.self_attn.k_proj.weight:[64, 128]",
                "quantization_config.minimum_allowed_numel=16384",
            ],
        ),
        (
            "compressed-tensors-mixed-bits",
            &[
                "model.layers.0.mlp.down_proj.weight_scale:[256, 1]",
                "quantization_config.config_groups.group_2.weights.strategy=\"channel\"",
                "quantization_config.config_groups.group_2.weights.group_size=null",
            ],
        ),
    ];
    for (fixture, edits) in CASES {
        let mut checkpoint = Checkpoint::named(&format!("quantized/{fixture}"));
        let sound = checkpoint.mismatches();
        for edit in edits {
            checkpoint.edit(edit);
        }
        assert_eq!(checkpoint.mismatches(), sound, "{fixture}");
    }
}

/// A renamed module is looked for next to it. With one lookup among all unknown tensors, a file could take hours.
#[test]
fn renamed_modules_are_compared_with_their_siblings() {
    const LAYERS: usize = 300;

    let mut model = llama();
    model.edit(&format!("num_hidden_layers={LAYERS}"));
    let layer: Vec<_> = model.tensors.iter().filter(|(name, _)| name.contains(".1.")).collect();
    let layer: Vec<_> =
        layer.into_iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
    for number in 2..LAYERS {
        let name = |name: &str| name.replace(".1.", &format!(".{number}."));
        let tensors = layer.iter().map(|(old, tensor)| (name(old), tensor.clone()));
        model.tensors.extend(tensors);
    }
    let tensors = std::mem::take(&mut model.tensors).into_iter();
    let renamed = tensors.map(|(name, tensor)| (name.replace("q_proj", "query"), tensor));
    model.tensors = renamed.collect();
    COMPARED.set(0);
    assert!(model.mismatches().iter().any(|found| found.kind == MismatchKind::RenamedModule));
    let (compared, all) = (COMPARED.get(), model.tensors.len());
    assert!(compared < 4 * all, "{compared} comparisons for {all} tensors");
}

/// Parses each nested model once. With one parse per enclosing model, this file would take minutes.
#[test]
fn models_inside_each_other_are_read_once() {
    const DEPTH: usize = 10_000;

    let headers = llama().headers();
    for key in ["text_config", "llm_config", "language_config", "thinker_config", "decoder", "moe"]
    {
        let inner = r#"{"tie_word_embeddings":true}"#;
        let start = format!(r#"{{"model_type":"llama","num_hidden_layers":2,"{key}":"#);
        let config = start.repeat(DEPTH) + inner + &"}".repeat(DEPTH);
        let json = config.as_bytes();
        let configs = Configs::from_config_json(json).unwrap();
        assert_eq!(configs.method(), None);
        let spec = crate::memory::CacheSpec::from_config_json(json).unwrap();
        assert_eq!((&*spec.architecture, spec.layers), ("llama", 2), "{key}");
        let mut findings = Vec::new();
        crate::check::embeddings::check_embeddings(json, &headers, &mut findings);
        assert_eq!(findings, [], "{key}");
        assert_eq!(check_model(Some(json), &headers, LOADED).0, [], "{key}");
        assert_eq!(check_recipe(json, &configs, &headers), [], "{key}");
    }
}

/// The last layer of SD3 has no output of the text and a shorter modulation, which no other layer shows. The first layer of
/// `ModernBERT` has no norm.
#[test]
fn layers_of_unknown_architectures_are_compared_with_each_other() {
    let mut model = llama();
    model.tensors.clear();
    model.config = json!({"model_type": "new"});
    for layer in 0..6 {
        for module in ["attn.q", "norm", "modulation", "add"] {
            model.edit(&format!("blocks.{layer}.{module}.weight:[64, 64]"));
            model.edit(&format!("blocks.{layer}.{module}.bias:[64]"));
        }
    }
    let found = |edits: &[&str]| {
        let (config, tensors) = (model.config.clone(), model.tensors.clone());
        let mut model = Checkpoint { config, tensors, ..llama() };
        for edit in edits {
            model.edit(edit);
        }
        let found = model.mismatches();
        found.iter().map(|found| format!("{} {}", kind(found), found.module)).collect::<Vec<_>>()
    };
    let missing = |layer: u32| {
        ["bias", "weight"].map(|part| format!("missingModule blocks.{layer}.add.{part}"))
    };
    assert_eq!(found(&["-blocks.3.add."]), missing(3));
    assert_eq!(found(&["-blocks.5.add."]), missing(5));
    assert_eq!(found(&["-blocks.0.norm."]), [""; 0]);
    assert_eq!(found(&["-blocks.5.add.", "blocks.5.modulation.weight:[32, 64]"]), [""; 0]);
}
