//! From tensors to files: which shard holds a tensor, where its data lies, and the bytes of each header.
//!
//! A header lists the tensors of its file in one hash order and their data lies in another, so neither is the order of
//! the names nor of the other; the data has no holes, and the header is not padded.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use super::module::{Dtype, Tensor};
use super::{Model, shuffle};

/// How the tensors of a model are spread over files.
#[derive(Clone, Copy)]
pub enum Sharding {
    /// One `model.safetensors` without an index.
    Single,
    /// `model-00001-of-N.safetensors`: the next shard begins with the tensor that would pass this many bytes.
    UpTo(u64),
    /// `model_00001-of-N.safetensors`: a shard for each layer `h.k`, one for what precedes and one for what follows.
    PerLayer,
}

/// The files of a model.
pub struct Checkpoint {
    pub shards: Vec<Shard>,
    /// What `model.safetensors.index.json` says, for a sharded model.
    pub index: Option<Value>,
}

/// A weights file, cut off where its data would begin.
pub struct Shard {
    pub path: String,
    /// The header's length in 8 bytes, then the header.
    pub head: Vec<u8>,
    /// The size of the whole file, data included.
    pub size: u64,
}

impl Model {
    /// # Errors
    ///
    /// When a header cannot be written as JSON, which no architecture here can cause.
    pub fn lay_out(&self) -> serde_json::Result<Checkpoint> {
        let files = self.sharding.split(&self.tensors);
        let index = match self.sharding {
            Sharding::Single => None,
            _ => Some(index(&files)),
        };
        let shards = files.into_iter().map(|(path, tensors)| Shard::new(path, tensors, self.salt));
        Ok(Checkpoint { shards: shards.collect::<Result<_, _>>()?, index })
    }
}

impl Sharding {
    /// Each file's path and tensors.
    fn split(self, tensors: &[Tensor]) -> Vec<(String, &[Tensor])> {
        let groups: Vec<_> = match self {
            Self::Single => vec![tensors],
            Self::UpTo(limit) => fill(tensors, limit),
            Self::PerLayer => tensors.chunk_by(|a, b| layer(&a.name) == layer(&b.name)).collect(),
        };
        let count = groups.len();
        groups.into_iter().enumerate().map(|(n, group)| (self.path(n + 1, count), group)).collect()
    }

    fn path(self, number: usize, count: usize) -> String {
        match self {
            Self::Single => "model.safetensors".to_owned(),
            Self::UpTo(_) => format!("model-{number:05}-of-{count:05}.safetensors"),
            Self::PerLayer => format!("model_{number:05}-of-{count:05}.safetensors"),
        }
    }
}

/// Never splits or reorders, so a tensor larger than the limit gets a shard of its own.
fn fill(tensors: &[Tensor], limit: u64) -> Vec<&[Tensor]> {
    let mut filled = tensors.first().map_or(0, Tensor::bytes);
    let fits = |_: &Tensor, next: &Tensor| {
        let fits = filled + next.bytes() <= limit;
        filled = next.bytes() + if fits { filled } else { 0 };
        fits
    };
    tensors.chunk_by(fits).collect()
}

/// The `k` of `h.k.…`; nothing for a tensor outside the layers.
fn layer(name: &str) -> Option<&str> {
    name.strip_prefix("h.")?.split('.').next()
}

fn index(files: &[(String, &[Tensor])]) -> Value {
    let tensors =
        || files.iter().flat_map(|(path, tensors)| tensors.iter().map(move |t| (path, t)));
    let total: u64 = tensors().map(|(_, t)| t.bytes()).sum();
    let map: BTreeMap<_, _> = tensors().map(|(path, t)| (&t.name, path)).collect();
    json!({ "metadata": { "total_size": total }, "weight_map": map })
}

impl Shard {
    fn new(path: String, tensors: &[Tensor], salt: u64) -> serde_json::Result<Self> {
        let (entries, data) = place(tensors, salt);
        let header = serde_json::to_vec(&Header(entries))?;
        let head = [&(header.len() as u64).to_le_bytes(), &*header].concat();
        let size = head.len() as u64 + data;
        Ok(Self { path, head, size })
    }
}

/// Gives every tensor its place in the data, and returns them as the header lists them, with the length of the data.
fn place(tensors: &[Tensor], salt: u64) -> (Vec<(&str, Entry<'_>)>, u64) {
    let mut order: Vec<_> = tensors.iter().collect();
    order.sort_by_cached_key(|t| shuffle::hash(&t.name, salt));
    let mut end = 0;
    let mut entries: Vec<_> = order
        .into_iter()
        .map(|t| {
            let start = end;
            end += t.bytes();
            (&*t.name, Entry { dtype: t.dtype, shape: &t.shape, data_offsets: [start, end] })
        })
        .collect();
    entries.sort_by_cached_key(|(name, _)| shuffle::hash(name, salt.wrapping_add(1)));
    (entries, end)
}

#[derive(serde::Serialize)]
struct Entry<'a> {
    dtype: Dtype,
    shape: &'a [u64],
    data_offsets: [u64; 2],
}

/// Serialized by hand because a map type would bring its own order.
struct Header<'a>(Vec<(&'a str, Entry<'a>)>);

impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len() + 1))?;
        map.serialize_entry("__metadata__", &json!({ "format": "pt" }))?;
        for (name, entry) in &self.0 {
            map.serialize_entry(name, entry)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(name: &str, length: u64) -> Tensor {
        Tensor { name: name.to_owned(), dtype: Dtype::U8, shape: vec![length] }
    }

    fn shape_of(groups: &[(String, &[Tensor])]) -> Vec<usize> {
        groups.iter().map(|(_, tensors)| tensors.len()).collect()
    }

    #[test]
    fn a_shard_may_be_filled_to_the_limit_and_not_passed() {
        let tensors = [bytes("a", 4), bytes("b", 6), bytes("c", 1), bytes("d", 11), bytes("e", 1)];
        let files = Sharding::UpTo(10).split(&tensors);
        assert_eq!(shape_of(&files), [2, 1, 1, 1]);
        assert_eq!(files[3].0, "model-00004-of-00004.safetensors");
    }

    #[test]
    fn what_stands_outside_the_layers_gets_its_own_shards() {
        let tensors =
            ["embed", "embed_norm", "h.1.a", "h.1.b", "h.10.a", "norm"].map(|name| bytes(name, 1));
        let files = Sharding::PerLayer.split(&tensors);
        assert_eq!(shape_of(&files), [2, 2, 1, 1]);
        assert_eq!(files[0].0, "model_00001-of-00004.safetensors");
    }

    #[test]
    fn a_header_is_compact_json_with_its_metadata_first() {
        let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#;
        let length = header.len() as u64;
        let head = [&length.to_le_bytes(), header.as_bytes()].concat();
        let shard = Shard::new("x".to_owned(), &[bytes("a", 3)], 0).ok();
        assert_eq!(shard.map(|shard| (shard.head, shard.size)), Some((head, 8 + length + 3)));
    }
}
