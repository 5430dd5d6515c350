//! A set of weights from the fixtures, taken apart to be changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::hub::{File, Repo};
use crate::support;

pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// The files of a repo; what is changed in one is not made good in the others.
#[derive(Clone)]
pub(crate) struct Checkpoint {
    pub(crate) index: Value,
    /// Headers and lengths of data.
    pub(crate) shards: BTreeMap<String, (Value, u64)>,
    /// Everything else; it takes the place of what is above.
    others: BTreeMap<String, Vec<u8>>,
}

impl Checkpoint {
    /// The fixture of a sharded repo.
    pub(crate) fn of(repo: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(repo);
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

    /// The header of a shard.
    pub(crate) fn header(&mut self, shard: &str) -> &mut Value {
        &mut self.shards.get_mut(shard).unwrap().0
    }

    /// What a header says of a tensor.
    pub(crate) fn entry(&mut self, shard: &str, tensor: &str) -> &mut Value {
        &mut self.header(shard)[tensor]
    }

    /// The bytes of a shard's data.
    pub(crate) fn data(&mut self, shard: &str) -> &mut u64 {
        &mut self.shards.get_mut(shard).unwrap().1
    }

    /// The shard of the index for a tensor, in a form to be changed.
    pub(crate) fn place(&mut self, tensor: &str) -> &mut Value {
        &mut self.index["weight_map"][tensor]
    }

    /// Puts a `U8` tensor of one byte at the end of a shard, and says nothing of it elsewhere.
    pub(crate) fn add(&mut self, shard: &str, tensor: &str) {
        self.append(shard, tensor, "U8", 1, 1);
    }

    /// Puts a tensor of one dimension at the end of a shard, and says nothing of it elsewhere.
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

    /// Takes a tensor out of a shard, and closes the hole in its data.
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

    /// Puts a file in the place of another, or beside them.
    pub(crate) fn replace(&mut self, name: &str, text: &str) {
        self.others.insert(name.to_owned(), text.into());
    }

    /// Gives a shard another name, in the index, too.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        let shard = self.shards.remove(from).unwrap();
        self.shards.insert(to.to_owned(), shard);
        for place in self.index["weight_map"].as_object_mut().unwrap().values_mut() {
            if place == from {
                *place = to.into();
            }
        }
    }

    /// Takes a tensor out of the index.
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
