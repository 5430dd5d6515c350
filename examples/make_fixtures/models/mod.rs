//! Checkpoints made from the description of an architecture, never from downloaded weights.
//!
//! Three steps, all in memory: an architecture yields its [`Tensor`]s ([`module`]), a layout cuts them into shards
//! with headers and an index ([`layout`]), and [`Model::files`] names the bytes that stand for a repo on disk.
//! The same description always gives the same bytes.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "every program that includes this module uses a part of it"
)]

mod bloom;
mod gpt2;
mod gpt_neox;
mod layout;
mod module;
mod roberta;
mod shuffle;

use std::collections::BTreeMap;

use serde_json::json;

pub use layout::{Checkpoint, Shard, Sharding};
pub use module::{Dtype, Module, Tensor};

/// A repo to make: its tensors in the order of the architecture, and how they are laid out in files.
pub struct Model {
    pub repo: &'static str,
    pub tensors: Vec<Tensor>,
    pub sharding: Sharding,
    /// Decides the hash orders of every header.
    pub salt: u64,
}

impl Model {
    /// A model in one file.
    pub fn new(repo: &'static str, module: Module) -> Self {
        Self {
            repo,
            tensors: module.into_tensors(),
            sharding: Sharding::Single,
            salt: shuffle::hash(repo, 0),
        }
    }

    #[must_use]
    pub fn sharded(self, sharding: Sharding) -> Self {
        Self { sharding, ..self }
    }

    #[must_use]
    pub fn salted(self, salt: u64) -> Self {
        Self { salt, ..self }
    }

    /// Everything a Hub needs to serve this repo, by path: heads, index, and `hub.json` with the commit and the
    /// sizes of the files the heads were cut from.
    ///
    /// # Errors
    ///
    /// When a header cannot be written as JSON, which no architecture here can cause.
    pub fn files(&self) -> serde_json::Result<BTreeMap<String, Vec<u8>>> {
        let Checkpoint { shards, index } = self.lay_out()?;
        let sizes: BTreeMap<_, _> = shards.iter().map(|s| (&s.path, s.size)).collect();
        let hub = json!({ "commit": self.commit(), "sizes": sizes });
        let mut files = BTreeMap::from([("hub.json".to_owned(), pretty(&hub)?)]);
        if let Some(index) = index {
            files.insert("model.safetensors.index.json".to_owned(), pretty(&index)?);
        }
        files.extend(shards.into_iter().map(|s| (s.path, s.head)));
        Ok(files)
    }

    /// Forty hex digits made up from the repo id: these repos have no history that a true one could name.
    pub fn commit(&self) -> String {
        let part = |n| shuffle::hash(self.repo, n);
        format!("{:016x}{:016x}{:08x}", part(1), part(2), part(3) >> 32)
    }
}

/// The models that the documentation of the format and of its clients describes.
pub fn documented() -> Vec<Model> {
    let bloom = |repo, dtype, hidden, layers| Model::new(repo, bloom::model(dtype, hidden, layers));
    vec![
        Model::new("gpt2", gpt2::model()).salted(gpt2::SALT),
        Model::new("roberta-base", roberta::masked_lm(&roberta::BASE)),
        Model::new("Jean-Baptiste/camembert-ner", roberta::tagger(&roberta::CAMEMBERT, 5)),
        Model::new("roberta-large", roberta::masked_lm(&roberta::LARGE)),
        Model::new("distilbert-base-german-cased", roberta::distilbert(31_102)),
        Model::new("EleutherAI/gpt-neox-20b", gpt_neox::model())
            .sharded(Sharding::UpTo(gpt_neox::SHARD_BYTES)),
        bloom("bigscience/bloom-560m", Dtype::F16, 1024, 24),
        bloom("bigscience/bloom", Dtype::BF16, 14_336, 70)
            .sharded(Sharding::PerLayer)
            .salted(bloom::SALT),
        bloom("bigscience/bloom-3b", Dtype::F16, 2560, 30),
    ]
}

/// JSON as Python's `json.dumps(…, indent=2)` leaves it on the Hub.
fn pretty(value: &serde_json::Value) -> serde_json::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}
