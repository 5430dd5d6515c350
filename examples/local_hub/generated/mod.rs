//! Generated models: model `i` of a seed is always the same, and its parameters follow from its architecture.
//!
//! Most are one file of weights, some are sharded, and some have each of the conditions that a census meets: no weights,
//! several sets, a gate, damage, quantization, unusual names.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "every program that includes this module uses a part of it"
)]

mod architecture;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use architecture::{Architecture, EXPERTS, framed, safetensors};
use hf_meta_testing::{File, LazyRepos, Repo};
use serde_json::{Value, json};

/// Models of a seed. Clones share the pushes.
#[derive(Clone)]
pub struct GeneratedModels {
    count: u64,
    seed: u64,
    pushes: Arc<AtomicU64>,
}

/// The kind of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// `model.safetensors`.
    Single,
    /// Two to six shards and an index.
    Sharded,
    /// Keras weights only, although the model has the tag `safetensors`.
    KerasOnly,
    /// A GGUF file only.
    GgufOnly,
    /// A file that only members may read.
    Gated,
    /// Two files of which none is the model.
    SeveralSets,
    /// A header that is not JSON.
    Malformed,
    /// An index that names a file that does not exist.
    MissingShard,
    /// Linear layers of 4 bits in the format of GPTQ.
    Gptq,
    /// Experts of 4 bits in the format MXFP4.
    Mxfp4,
    /// A file with another name than the usual ones, in a repository with an unusual name.
    UnusualName,
}

impl ModelKind {
    /// All kinds, with their number in a thousand models.
    pub const ALL: [(Self, u64); 11] = [
        (Self::Single, 790),
        (Self::Sharded, 140),
        (Self::KerasOnly, 15),
        (Self::GgufOnly, 8),
        (Self::Gated, 12),
        (Self::SeveralSets, 8),
        (Self::Malformed, 4),
        (Self::MissingShard, 4),
        (Self::Gptq, 8),
        (Self::Mxfp4, 4),
        (Self::UnusualName, 7),
    ];

    fn from_hash(hash: u64) -> Self {
        let mut rest = hash % 1000;
        for (kind, number) in Self::ALL {
            match rest.checked_sub(number) {
                None => return kind,
                Some(more) => rest = more,
            }
        }
        Self::Single
    }
}

/// The true state of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelTruth {
    pub repo: String,
    pub kind: ModelKind,
    pub commit: String,
    /// True if the model has the tag `safetensors`, which a list can be filtered by.
    pub is_tagged: bool,
    /// The number of weight files that are read.
    pub files: u64,
    /// The number of parameters, or the code of the error.
    pub parameters: Result<u64, &'static str>,
}

impl GeneratedModels {
    /// Creates the models of a seed.
    pub fn new(count: u64, seed: u64) -> Self {
        Self { count, seed, pushes: Arc::default() }
    }

    /// Changes about one percent of the models.
    pub fn push(&self) {
        self.pushes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of the last push to a model; 0 for the state at the start.
    pub fn last_push(&self, index: u64) -> u64 {
        self.pushes_to(index).last().unwrap_or(0)
    }

    fn pushes_to(&self, index: u64) -> impl Iterator<Item = u64> {
        let is_changed = move |push: &u64| self.hash(index, *push).is_multiple_of(100);
        (1..=self.pushes.load(Ordering::Relaxed)).filter(is_changed)
    }

    /// Returns the true state of a model, without its files.
    pub fn truth(&self, index: u64) -> ModelTruth {
        let (kind, push) = (self.kind(index), self.last_push(index));
        let shape = Architecture::new(self.hash(index, 0), push);
        let (files, parameters) = match kind {
            ModelKind::Sharded => (shape.shards, Ok(shape.parameters())),
            ModelKind::Mxfp4 => (1, Ok(shape.parameters_with_experts())),
            ModelKind::KerasOnly => (0, Err("noWeights")),
            ModelKind::Gated => (0, Err("gated")),
            ModelKind::SeveralSets => (0, Err("severalSets")),
            ModelKind::Malformed => (0, Err("malformedHeader")),
            ModelKind::MissingShard => (0, Err("missingShards")),
            ModelKind::GgufOnly => (1, Ok(shape.vocabulary * shape.hidden)),
            ModelKind::Single | ModelKind::Gptq | ModelKind::UnusualName => {
                (1, Ok(shape.parameters()))
            }
        };
        ModelTruth {
            repo: self.id(index),
            kind,
            commit: self.commit(index, push),
            is_tagged: kind != ModelKind::GgufOnly,
            files,
            parameters,
        }
    }

    fn kind(&self, index: u64) -> ModelKind {
        ModelKind::from_hash(self.hash(index, 0))
    }

    fn id(&self, index: u64) -> String {
        match (self.kind(index), index % 2) {
            (ModelKind::UnusualName, 0) => format!("My.Model_v1.5-{index}"),
            (ModelKind::UnusualName, _) => format!("0-Org_X/{}-{index}", "Ab".repeat(30)),
            _ => format!("org{}/model-{index}", index % 97),
        }
    }

    fn commit(&self, index: u64, push: u64) -> String {
        let part = |part| format!("{:016x}", self.hash(index, (push << 2) | part));
        format!("{}{}{}", part(1), part(2), &part(3)[..8])
    }

    fn hash(&self, index: u64, salt: u64) -> u64 {
        mix(mix(mix(self.seed).wrapping_add(index)).wrapping_add(salt))
    }

    /// Returns the files of a model after a push.
    fn files(&self, index: u64, push: u64) -> Vec<(String, File)> {
        let shape = Architecture::new(self.hash(index, 0), push);
        let one = |name: &str, file: File| vec![(name.to_owned(), file)];
        let plain = || safetensors(&shape.tensors());
        let mut files = match self.kind(index) {
            ModelKind::Single | ModelKind::Gated => one("model.safetensors", plain()),
            ModelKind::Sharded => shape.sharded(shape.shards),
            ModelKind::MissingShard => {
                let mut files = shape.sharded(shape.shards);
                files.pop();
                files
            }
            ModelKind::KerasOnly => one("tf_model.h5", File::padded("HDF", 1000 + push)),
            ModelKind::GgufOnly => one("model-Q8_0.gguf", shape.gguf()),
            ModelKind::SeveralSets => {
                ["first", "second"].map(|name| (format!("{name}.safetensors"), plain())).into()
            }
            ModelKind::Malformed => {
                one("model.safetensors", File::padded(framed(r#"{"w":{"dtype":"F32","#), 1000))
            }
            ModelKind::Gptq => one("model.safetensors", safetensors(&shape.gptq())),
            ModelKind::Mxfp4 => one("model.safetensors", safetensors(&shape.mxfp4())),
            ModelKind::UnusualName => one("final weights_v2.safetensors", plain()),
        };
        files.push(("config.json".to_owned(), File::from_bytes(self.config(index).to_string())));
        files
    }

    fn config(&self, index: u64) -> Value {
        match self.kind(index) {
            ModelKind::Gptq => json!({
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "quantization_config": { "quant_method": "gptq", "bits": 4, "group_size": 128 },
            }),
            ModelKind::Mxfp4 => json!({
                "architectures": ["GptOssForCausalLM"],
                "model_type": "gpt_oss",
                "num_local_experts": EXPERTS,
                "num_experts_per_tok": 2,
                "quantization_config": { "quant_method": "mxfp4" },
            }),
            _ => json!({ "architectures": ["LlamaForCausalLM"], "model_type": "llama" }),
        }
    }
}

impl LazyRepos for GeneratedModels {
    fn count(&self) -> u64 {
        self.count
    }

    fn index_of(&self, id: &str) -> Option<u64> {
        let index = id.rsplit_once('-')?.1.parse().ok().filter(|index| *index < self.count)?;
        (self.id(index) == id).then_some(index)
    }

    fn repo(&self, index: u64) -> Repo {
        let mut repo = Repo::new(&self.id(index));
        for push in std::iter::once(0).chain(self.pushes_to(index)) {
            repo = repo.commit(&self.commit(index, push));
            for (path, file) in self.files(index, push) {
                repo = repo.file(&path, file);
            }
        }
        let truth = self.truth(index);
        if truth.kind == ModelKind::Gated {
            repo = repo.gated();
        }
        if let Ok(parameters) = truth.parameters {
            repo = repo.hub_reported_count("BF16", parameters);
        }
        if truth.kind == ModelKind::KerasOnly {
            repo = repo.listed("tags", vec!["safetensors", "license:mit"]);
        } else {
            repo = repo.listed("tags", vec!["license:apache-2.0", "base_model:org/base"]);
        }
        repo.listed("createdAt", time(index))
            .listed("lastModified", self.last_modified(index))
            .listed("downloads", self.hash(index, 0) % 10_000)
            .listed("pipeline_tag", "text-generation")
            .listed("library_name", "transformers")
    }

    fn last_modified(&self, index: u64) -> String {
        match self.last_push(index) {
            0 => time(index),
            push => time(self.count + 1440 * push + index % 1440),
        }
    }
}

/// Returns a time by its minutes since 2020, in years of months of 28 days.
fn time(minutes: u64) -> String {
    let (hours, days, months) = (minutes / 60, minutes / 1440, minutes / 40_320);
    let (year, month) = (2020 + months / 12, 1 + months % 12);
    let (day, hour, minute) = (1 + days % 28, hours % 24, minutes % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:00.000Z")
}

/// Mixes the bits of a number (`SplitMix64`).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
