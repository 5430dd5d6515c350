//! Checkpoints made from the description of an architecture, never from downloaded weights.
//!
//! Three steps, all in memory: an architecture yields its [`Tensor`]s ([`module`], [`format`]), a layout cuts them
//! into shards with headers and an index ([`layout`]), and [`Model::files`] returns the bytes of a repo on
//! disk. The same description always results in the same bytes. [`catalogue`] lists all repos.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "every program that includes this module uses a part of it"
)]

mod bert;
mod bloom;
mod catalogue;
mod deepseek_v3;
mod deepseek_v4;
mod format;
mod gemma;
mod gpt2;
mod gpt_neox;
mod gpt_oss;
mod kimi;
mod layout;
mod llama;
mod module;
mod roberta;
mod shuffle;
mod stable_diffusion;

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub use catalogue::{
    deepseek_r1, deepseek_v4_pro, documented, fixtures, gpt_oss_120b, kimi_k2_5, large, layouts,
    llama_gptq, published,
};
pub use layout::{Naming, Order, Sharding, Stored, Weights};
pub use module::{Dtype, Module, Tensor};

/// A repo to make.
pub struct Model {
    pub repo: &'static str,
    pub weights: Vec<Weights>,
    /// The small files next to the weights, such as `config.json`.
    pub documents: Vec<(&'static str, Value)>,
}

impl Model {
    /// A model in one file, `model.safetensors`.
    pub fn new(repo: &'static str, module: Module) -> Self {
        Self::empty(repo).with(Weights::new("model", module))
    }

    /// A repo without files.
    pub fn empty(repo: &'static str) -> Self {
        Self { repo, weights: Vec::new(), documents: Vec::new() }
    }
    pub fn with(mut self, weights: Weights) -> Self {
        self.weights.push(weights);
        self
    }
    pub fn document(mut self, path: &'static str, value: Value) -> Self {
        self.documents.push((path, value));
        self
    }
    pub fn sharded(self, sharding: Sharding) -> Self {
        self.map_weights(|weights| Weights { sharding, ..weights })
    }
    pub fn named(self, naming: Naming) -> Self {
        self.map_weights(|weights| Weights { naming, ..weights })
    }

    /// In hash orders of this salt instead of sorted.
    pub fn salted(self, salt: u64) -> Self {
        self.map_weights(|weights| Weights { order: Order::Hashed { salt }, ..weights })
    }
    pub fn without_metadata(self) -> Self {
        self.map_weights(|weights| Weights { has_metadata: false, ..weights })
    }

    fn map_weights(self, change: impl Fn(Weights) -> Weights) -> Self {
        Self { weights: self.weights.into_iter().map(change).collect(), ..self }
    }

    /// The files of the repo.
    ///
    /// # Errors
    ///
    /// When a header cannot be written as JSON, which no architecture here can cause.
    pub fn lay_out(&self) -> serde_json::Result<Vec<Stored>> {
        let mut stored = Vec::new();
        for weights in &self.weights {
            stored.extend(weights.lay_out()?);
        }
        for (path, value) in &self.documents {
            stored.push(Stored::json((*path).to_owned(), value)?);
        }
        Ok(stored)
    }

    /// Everything a Hub needs to serve this repo, by path: the files, and `hub.json` with the commit and the sizes of
    /// those that are cut.
    ///
    /// # Errors
    ///
    /// As [`Model::lay_out`].
    pub fn files(&self) -> serde_json::Result<BTreeMap<String, Vec<u8>>> {
        let stored = self.lay_out()?;
        let cut = stored.iter().filter(|file| file.is_cut());
        let sizes: BTreeMap<_, _> = cut.map(|file| (&file.path, file.size)).collect();
        let about = json!({ "commit": self.commit(), "sizes": sizes });
        let about = Stored::json("hub.json".to_owned(), &about)?;
        Ok(stored.into_iter().chain([about]).map(|file| (file.path, file.head)).collect())
    }

    /// Forty hex digits made up from the repo id: these repos have no history that a true one could name.
    pub fn commit(&self) -> String {
        let part = |n| shuffle::hash(self.repo, n);
        format!("{:016x}{:016x}{:08x}", part(1), part(2), part(3) >> 32)
    }

    /// The tensors of all its weights.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.weights.iter().flat_map(|weights| &weights.tensors)
    }
}
