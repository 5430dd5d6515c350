//! From tensors to files: which shard holds a tensor, where its data lies, and the bytes of each header.
//!
//! The data of a file has no holes.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::json;

use super::module::{Dtype, Module, Tensor};
use super::shuffle;

/// The tensors of a model in the order of its architecture, and how they are laid out in files.
#[derive(Clone)]
pub struct Weights {
    /// The beginning of the file names, such as `model`.
    pub stem: &'static str,
    pub tensors: Vec<Tensor>,
    pub sharding: Sharding,
    pub naming: Naming,
    pub order: Order,
    /// True if headers have the metadata `"format": "pt"`, for `PyTorch`.
    pub has_metadata: bool,
    /// True if the shards have an index.
    pub has_index: bool,
}

/// The distribution of the tensors of a model over files.
#[derive(Clone, Copy)]
pub enum Sharding {
    /// One file without an index.
    Single,
    /// The next shard begins with the tensor that would pass this many bytes.
    UpTo(u64),
    /// The next shard begins where this part of the names changes.
    By(fn(&str) -> &str),
}

/// The end of the name of a shard, by its number, from 1, and the number of shards.
pub type Naming = fn(usize, usize) -> String;

/// The order of the tensors of a file.
#[derive(Clone, Copy)]
pub enum Order {
    /// As writers did until 2023: listed in one hash order, stored in another, and the header not padded.
    Hashed {
        /// Decides both orders.
        salt: u64,
    },
    /// As the `safetensors` crate has done since: listed and stored by dtype, then name, and the header padded to
    /// a multiple of eight bytes.
    Sorted,
}

/// A file, cut off where its data would begin when it has any.
pub struct Stored {
    pub path: String,
    /// The whole of a small file; the header's length in 8 bytes, then the header, of one with weights.
    pub head: Vec<u8>,
    /// The size of the whole file.
    pub size: u64,
}

impl Stored {
    /// A file of JSON, as Python's `json.dumps(…, indent=2)` leaves it on the Hub.
    pub fn json(path: String, value: &impl Serialize) -> serde_json::Result<Self> {
        let mut head = serde_json::to_vec_pretty(value)?;
        head.push(b'\n');
        Ok(Self { path, size: head.len() as u64, head })
    }

    pub fn is_cut(&self) -> bool {
        self.size > self.head.len() as u64
    }
}

impl Weights {
    /// One file, sorted.
    pub fn new(stem: &'static str, module: Module) -> Self {
        Self {
            stem,
            tensors: module.into_tensors(),
            sharding: Sharding::Single,
            naming: |number, count| format!("-{number:05}-of-{count:05}"),
            order: Order::Sorted,
            has_metadata: true,
            has_index: true,
        }
    }

    /// The files of the weights, and their index.
    ///
    /// # Errors
    ///
    /// When a header cannot be written as JSON, which no architecture here can cause.
    pub fn lay_out(&self) -> serde_json::Result<Vec<Stored>> {
        let files = self.split();
        let shards = files.iter().map(|(path, tensors)| self.store(path.clone(), tensors.clone()));
        let mut stored: Vec<_> = shards.collect::<Result<_, _>>()?;
        if self.has_index && !matches!(self.sharding, Sharding::Single) {
            let path = format!("{}.safetensors.index.json", self.stem);
            stored.push(Stored::json(path, &Index::new(&files))?);
        }
        Ok(stored)
    }

    fn store(&self, path: String, mut tensors: Vec<&Tensor>) -> serde_json::Result<Stored> {
        self.order.sort(&mut tensors);
        let (mut entries, data) = place(&tensors);
        if let Order::Hashed { salt } = self.order {
            entries.sort_by_cached_key(|(name, _)| shuffle::hash(name, salt.wrapping_add(1)));
        }
        let mut header = serde_json::to_vec(&Header { has_metadata: self.has_metadata, entries })?;
        if let Order::Sorted = self.order {
            header.resize(header.len().next_multiple_of(8), b' ');
        }
        let head = [&(header.len() as u64).to_le_bytes(), &*header].concat();
        let size = head.len() as u64 + data;
        Ok(Stored { path, head, size })
    }

    /// Each file's path and tensors.
    fn split(&self) -> Vec<(String, Vec<&Tensor>)> {
        let groups = self.sharding.split(&self.tensors);
        let count = groups.len();
        let path = |n| match self.sharding {
            Sharding::Single => format!("{}.safetensors", self.stem),
            _ => format!("{}{}.safetensors", self.stem, (self.naming)(n + 1, count)),
        };
        let files = groups.into_iter().enumerate();
        files.map(|(n, group)| (path(n), group.iter().collect())).collect()
    }
}

impl Sharding {
    fn split(self, tensors: &[Tensor]) -> Vec<&[Tensor]> {
        match self {
            Self::Single => vec![tensors],
            Self::UpTo(limit) => fill(tensors, limit),
            Self::By(part) => tensors.chunk_by(|a, b| part(&a.name) == part(&b.name)).collect(),
        }
    }
}

/// Never splits or reorders, so a tensor larger than the limit gets a separate shard.
fn fill(tensors: &[Tensor], limit: u64) -> Vec<&[Tensor]> {
    let mut filled = tensors.first().map_or(0, Tensor::bytes);
    let fits = |_: &Tensor, next: &Tensor| {
        let fits = filled + next.bytes() <= limit;
        filled = next.bytes() + if fits { filled } else { 0 };
        fits
    };
    tensors.chunk_by(fits).collect()
}

#[derive(serde::Serialize)]
struct Index<'a> {
    metadata: Totals,
    weight_map: BTreeMap<&'a str, &'a str>,
}

#[derive(serde::Serialize)]
struct Totals {
    total_size: u64,
}

impl<'a> Index<'a> {
    fn new(files: &'a [(String, Vec<&Tensor>)]) -> Self {
        let tensors =
            || files.iter().flat_map(|(path, tensors)| tensors.iter().map(move |t| (path, t)));
        let total_size = tensors().map(|(_, t)| t.bytes()).sum();
        let weight_map = tensors().map(|(path, t)| (&*t.name, beside_index(path))).collect();
        Self { metadata: Totals { total_size }, weight_map }
    }
}

/// The name of a shard, which lies in the folder of the index.
fn beside_index(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl Order {
    /// The order of the data.
    fn sort(self, tensors: &mut [&Tensor]) {
        match self {
            Self::Hashed { salt } => tensors.sort_by_cached_key(|t| shuffle::hash(&t.name, salt)),
            Self::Sorted => {
                tensors.sort_by(|a, b| b.dtype.cmp(&a.dtype).then_with(|| a.name.cmp(&b.name)));
            }
        }
    }
}

/// Assigns offsets to all tensors, and returns them with the length of the data.
fn place<'a>(tensors: &[&'a Tensor]) -> (Vec<(&'a str, Entry<'a>)>, u64) {
    let mut end = 0;
    let entries = tensors.iter().map(|t| {
        let start = end;
        end += t.bytes();
        (&*t.name, Entry { dtype: t.dtype, shape: &t.shape, data_offsets: [start, end] })
    });
    (entries.collect(), end)
}

#[derive(serde::Serialize)]
struct Entry<'a> {
    dtype: Dtype,
    shape: &'a [u64],
    data_offsets: [u64; 2],
}

/// Serialized by hand because a map type would bring its own order.
struct Header<'a> {
    has_metadata: bool,
    entries: Vec<(&'a str, Entry<'a>)>,
}

impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.has_metadata {
            map.serialize_entry("__metadata__", &json!({ "format": "pt" }))?;
        }
        for (name, entry) in &self.entries {
            map.serialize_entry(name, entry)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::super::bloom;
    use super::*;

    /// Tensors of these names, one byte for each unit of length.
    fn weights(tensors: &[(&str, u64)], sharding: Sharding) -> Weights {
        let module = tensors
            .iter()
            .fold(Module::new(Dtype::U8), |module, (name, length)| module.tensor(name, &[*length]));
        Weights { sharding, ..Weights::new("model", module) }
    }

    fn shape_of(files: &[(String, Vec<&Tensor>)]) -> Vec<usize> {
        files.iter().map(|(_, tensors)| tensors.len()).collect()
    }

    #[test]
    fn a_shard_may_be_filled_to_the_limit_and_not_passed() {
        let tensors = [("a", 4), ("b", 6), ("c", 1), ("d", 11), ("e", 1)];
        let weights = weights(&tensors, Sharding::UpTo(10));
        let files = weights.split();
        assert_eq!(shape_of(&files), [2, 1, 1, 1]);
        assert_eq!(files[3].0, "model-00004-of-00004.safetensors");
    }

    #[test]
    fn what_stands_outside_the_layers_gets_its_own_shards() {
        let tensors =
            ["embed", "embed_norm", "h.1.a", "h.1.b", "h.10.a", "norm"].map(|name| (name, 1));
        let weights = weights(&tensors, Sharding::By(bloom::part));
        assert_eq!(shape_of(&weights.split()), [2, 2, 1, 1]);
    }

    #[test]
    fn a_header_is_compact_json_with_its_metadata_first() {
        let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#;
        let weights = weights(&[("a", 3)], Sharding::Single);
        for (order, padding) in [(Order::Hashed { salt: 0 }, ""), (Order::Sorted, "    ")] {
            let header = format!("{header}{padding}");
            let length = header.len() as u64;
            let head = [&length.to_le_bytes(), header.as_bytes()].concat();
            let stored = Weights { order, ..weights.clone() }.lay_out().ok();
            let stored = stored.and_then(|mut files| files.pop());
            assert_eq!(stored.map(|file| (file.head, file.size)), Some((head, 8 + length + 3)));
        }
    }
}
