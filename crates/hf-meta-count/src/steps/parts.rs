//! The parts that a loader builds from a repository: the components of a diffusers pipeline, or the modules of
//! sentence-transformers. They are listed before any of them is read.

use serde_json::value::RawValue;

use crate::results::Finding;
use hf_meta_format::base::json_object::{JsonObject, parse, read, standard_json};
use hf_meta_format::base::sort::sort_by_key;
use hf_meta_format::formats::weight_sets::{ListedWeights, PIPELINE};
use hf_meta_format::formats::{RepoPath, clip};

/// A part of a repository.
#[derive(Clone, Debug)]
pub(crate) struct RepoPart {
    /// The name in the list: a component, or the path of a module.
    pub(crate) name: String,
    /// The folder of its files; `None` for the root.
    pub(crate) folder: Option<RepoPath>,
    /// The class without its library.
    pub(crate) class: String,
    needs: Needs,
    loader: &'static str,
}

/// The files that a part needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// Any file.
    Anything,
    /// Nothing.
    Nothing,
    /// A configuration.
    Config(&'static str),
    /// A configuration and weights.
    Weights(&'static str),
}

/// The list of parts of a repository.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    /// The loader.
    pub(crate) loader: Option<&'static str>,
    pub(crate) parts: Vec<RepoPart>,
}

/// The classes of sentence-transformers 6.2 with their files (`config_file_name` of each class, and what `load` reads).
const MODULES: [(&str, Needs); 22] = [
    ("Asym", Needs::Anything),
    ("BoW", Needs::Config("config.json")),
    ("CLIPModel", Needs::Anything),
    ("CNN", Needs::Weights("cnn_config.json")),
    ("Dense", Needs::Weights("config.json")),
    ("Dropout", Needs::Nothing),
    ("InputModule", Needs::Anything),
    ("LSTM", Needs::Weights("lstm_config.json")),
    ("LayerNorm", Needs::Weights("config.json")),
    ("MLMTransformer", Needs::Weights("config.json")),
    ("Module", Needs::Anything),
    ("Normalize", Needs::Nothing),
    ("Pooling", Needs::Config("config.json")),
    ("Router", Needs::Config("router_config.json")),
    ("SparseAutoEncoder", Needs::Weights("config.json")),
    ("SparseStaticEmbedding", Needs::Anything),
    ("SpladePooling", Needs::Nothing),
    ("StaticEmbedding", Needs::Anything),
    ("Transformer", Needs::Weights("config.json")),
    ("WeightedLayerPooling", Needs::Config("config.json")),
    ("WordEmbeddings", Needs::Config("wordembedding_config.json")),
    ("WordWeights", Needs::Config("config.json")),
];

impl Parts {
    /// Reads `model_index.json` or `modules.json`. Returns the reason if its loader does not accept it.
    pub(crate) fn read(index: &RepoPath, json: &[u8]) -> Result<Self, String> {
        let json = standard_json(json);
        if index.file_name().as_str() == PIPELINE {
            Self::of_pipeline(index, &json)
        } else {
            Self::of_modules(index, &json)
        }
    }

    /// Reads the components of a pipeline. diffusers loads each one from the folder of its name; one that is not used is
    /// listed as `[null, null]` (`DiffusionPipeline.from_pretrained`).
    fn of_pipeline(index: &RepoPath, json: &[u8]) -> Result<Self, String> {
        let object = parse::<JsonObject<'_>>(json).map_err(|_| "it is not a JSON object")?;
        let mut parts: Vec<_> = Vec::new();
        for (name, value) in object.entries().filter(|(name, _)| !name.starts_with('_')) {
            let Some([library, class]) = read::<[String; 2]>(value) else { continue };
            let needs =
                if is_model(&class) { Needs::Weights("config.json") } else { Needs::Anything };
            let loader = if library == "transformers" { "transformers" } else { "diffusers" };
            let folder = Some(RepoPath::join(index.folder().as_ref(), name));
            parts.push(RepoPart { name: name.to_owned(), folder, class, needs, loader });
        }
        sort_by_key(&mut parts, |part| part.name.clone());
        parts.dedup_by(|one, other| one.name == other.name);
        Ok(Self { loader: Some("diffusers"), parts })
    }

    /// Reads the modules of sentence-transformers (`SentenceTransformer._load_modules`): each has a type, a path and a name.
    fn of_modules(index: &RepoPath, json: &[u8]) -> Result<Self, String> {
        let modules: Vec<&RawValue> =
            serde_json::from_slice(json).map_err(|_| "it is not a list of modules")?;
        if modules.is_empty() {
            return Err("it lists no modules".to_owned());
        }
        let part = |(at, value): (usize, &&RawValue)| {
            let module = read::<JsonObject<'_>>(value)
                .ok_or_else(|| format!("module {at} is not an object"))?;
            let text = |key: &str| {
                let found = module.get::<String>(key);
                found.ok_or_else(|| format!("module {at} has no `{key}`"))
            };
            let (kind, path) = (text("type")?, text("path")?);
            let class = kind.rsplit('.').next().unwrap_or_default();
            let known = MODULES.iter().find(|(name, _)| *name == class).map(|(_, needs)| *needs);
            let is_own = kind.starts_with("sentence_transformers.");
            if is_own && known.is_none() {
                return Err(format!("sentence-transformers has no module `{class}`"));
            }
            let needs = match known {
                Some(needs) if is_own => needs,
                _ => Needs::Nothing,
            };
            let folder = index.folder();
            let folder = if path.is_empty() {
                folder
            } else {
                Some(RepoPath::join(folder.as_ref(), path.trim_end_matches('/')))
            };
            Ok(RepoPart {
                name: path,
                folder,
                class: class.to_owned(),
                needs,
                loader: "sentence-transformers",
            })
        };
        let parts: Result<_, String> = modules.iter().enumerate().map(part).collect();
        Ok(Self { loader: Some("sentence-transformers"), parts: parts? })
    }

    /// Returns a finding for each file that a part needs, and that is not in a list of files. `index` is the path of the list
    /// of parts.
    pub(crate) fn missing(&self, index: &RepoPath, listed: &ListedWeights) -> Vec<Finding> {
        /// Files that every copy has, unless it is of weights and their configuration alone, which other loaders read.
        const COPIED: [&str; 2] = ["tokenizer_config.json", "sentence_bert_config.json"];

        let root = index.folder();
        let has = |name: &&str| listed.has_config(&RepoPath::join(root.as_ref(), name));
        let is_whole = COPIED.iter().any(has);
        let mut findings = Vec::new();
        for part in &self.parts {
            let folder = part.folder.as_ref().map_or("", RepoPath::as_str);
            let missing = || Finding::MissingComponent {
                component: clip(if folder.is_empty() { "." } else { folder }),
                file: clip(index.as_str()),
            };
            let lacks_config = |name: &'static str| {
                let path = RepoPath::join(part.folder.as_ref(), name);
                let file = clip(path.as_str());
                (!listed.has_config(&path))
                    .then_some(Finding::MissingConfig { file, loader: part.loader })
            };
            match part.needs {
                Needs::Nothing => {}
                Needs::Config(_) if !is_whole => {}
                Needs::Anything if folder.is_empty() || listed.has_component(folder) => {}
                Needs::Anything => findings.push(missing()),
                Needs::Weights(_) if !listed.has_weights(folder, &self.others(folder)) => {
                    findings.push(missing());
                }
                Needs::Config(name) | Needs::Weights(name) => {
                    findings.extend(lacks_config(name));
                }
            }
        }
        findings
    }

    /// Returns the folders of the parts inside of the root, if that is the folder of a part.
    fn others(&self, folder: &str) -> Vec<&str> {
        if !folder.is_empty() {
            return Vec::new();
        }
        self.folders().map(RepoPath::as_str).collect()
    }

    /// Returns the folders of the parts.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &RepoPath> {
        self.parts.iter().filter_map(|part| part.folder.as_ref())
    }
}

/// Returns whether a class of a component has weights, by its name. Others are tokenizers, processors and schedulers.
fn is_model(class: &str) -> bool {
    /// The classes of other formats, and `MultiControlNetModel`, whose parts are in folders of other names (`save_pretrained`
    /// in diffusers 0.42).
    const STARTS: [&str; 4] = ["Flax", "Multi", "Onnx", "OV"];
    const ENDS: [&str; 8] = [
        "Model",
        "ModelWithProjection",
        "ForConditionalGeneration",
        "ForCausalLM",
        "LMHeadModel",
        "SafetyChecker",
        "HifiGan",
        "Encoder",
    ];

    // The pipelines of Cosmos create the checker without files of the repository.
    let is_other =
        STARTS.iter().any(|start| class.starts_with(start)) || class == "CosmosSafetyChecker";
    let has_name = class.starts_with("Autoencoder") || ENDS.iter().any(|end| class.ends_with(end));
    has_name && !is_other
}
