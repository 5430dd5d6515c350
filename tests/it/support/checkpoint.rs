//! A checkpoint from the fixtures that tests can change.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::hub::{File, Repo};
use crate::support;

pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// The files of a repository. A change in one file does not change the others.
#[derive(Clone)]
pub(crate) struct Checkpoint {
    pub(crate) index: Value,
    /// Headers, and lengths of the data in bytes.
    pub(crate) shards: BTreeMap<String, (Value, u64)>,
    /// Other files. They replace an index or a shard of the same name.
    others: BTreeMap<String, Vec<u8>>,
}

impl Checkpoint {
    /// Reads the fixture of a sharded repository.
    pub(crate) fn from_fixture(repo: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(repo);
        let read = |name: &str| fs::read(folder.join(name)).unwrap();
        let hub: Value = serde_json::from_slice(&read("hub.json")).unwrap();
        let shard = |(name, size): (&String, &Value)| {
            let head = read(name);
            let data = size.as_u64().unwrap() - head.len() as u64;
            (name.clone(), (serde_json::from_slice(&head[8..]).unwrap(), data))
        };
        Self {
            index: serde_json::from_slice(&read(INDEX)).unwrap(),
            shards: hub["sizes"].as_object().unwrap().iter().map(shard).collect(),
            others: BTreeMap::new(),
        }
    }

    /// Returns the header of a shard.
    pub(crate) fn header(&mut self, shard: &str) -> &mut Value {
        &mut self.shards.get_mut(shard).unwrap().0
    }

    /// Returns the header entry of a tensor.
    pub(crate) fn entry(&mut self, shard: &str, tensor: &str) -> &mut Value {
        &mut self.header(shard)[tensor]
    }

    /// Returns the length of a shard's data in bytes.
    pub(crate) fn data(&mut self, shard: &str) -> &mut u64 {
        &mut self.shards.get_mut(shard).unwrap().1
    }

    /// Returns the shard of a tensor in the index.
    pub(crate) fn indexed_shard(&mut self, tensor: &str) -> &mut Value {
        &mut self.index["weight_map"][tensor]
    }

    /// Appends a `U8` tensor of one byte to a shard, but not to the index.
    pub(crate) fn add(&mut self, shard: &str, tensor: &str) {
        self.append(shard, tensor, "U8", 1, 1);
    }

    /// Appends a tensor of one dimension to a shard, but not to the index.
    pub(crate) fn append(
        &mut self,
        shard: &str,
        tensor: &str,
        dtype: &str,
        length: u64,
        bytes: u64,
    ) {
        let (header, data) = self.shards.get_mut(shard).unwrap();
        let span = [*data, *data + bytes];
        *data += bytes;
        header[tensor] = json!({ "dtype": dtype, "shape": [length], "data_offsets": span });
    }

    /// Removes a tensor from a shard, and closes the hole in the data.
    pub(crate) fn cut_out(&mut self, shard: &str, tensor: &str) {
        let (header, data) = self.shards.get_mut(shard).unwrap();
        let entries = header.as_object_mut().unwrap();
        let entry = entries.remove(tensor).unwrap();
        let [begin, end] = [0, 1].map(|at| entry["data_offsets"][at].as_u64().unwrap());
        *data -= end - begin;
        let offsets = entries.values_mut().filter_map(|entry| entry.get_mut("data_offsets"));
        for offset in offsets.filter_map(Value::as_array_mut).flatten() {
            let place = offset.as_u64().unwrap();
            if place >= end {
                *offset = json!(place - (end - begin));
            }
        }
    }

    /// Adds or replaces a file.
    pub(crate) fn replace(&mut self, name: &str, text: &str) {
        self.others.insert(name.to_owned(), text.into());
    }

    /// Renames a shard, also in the index.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        let shard = self.shards.remove(from).unwrap();
        self.shards.insert(to.to_owned(), shard);
        for place in self.index["weight_map"].as_object_mut().unwrap().values_mut() {
            if place == from {
                *place = to.into();
            }
        }
    }

    /// Removes a tensor from the index.
    pub(crate) fn unlist(&mut self, tensor: &str) {
        self.index["weight_map"].as_object_mut().unwrap().remove(tensor);
    }

    pub(crate) fn repo(&self, id: &str) -> Repo {
        let shards = self.shards.iter().map(|(name, (header, data))| {
            (name.clone(), support::file_with_header(&header.to_string(), *data))
        });
        let index = (INDEX.to_owned(), File::from_bytes(self.index.to_string()));
        let others =
            self.others.iter().map(|(name, bytes)| (name.clone(), File::from_bytes(bytes.clone())));
        let files = std::iter::once(index).chain(shards).chain(others);
        files.fold(Repo::new(id), |repo, (name, file)| repo.file(&name, file))
    }
}
