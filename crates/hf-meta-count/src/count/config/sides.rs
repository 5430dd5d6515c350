//! The known sides of matrices: the dimensions in a model's configuration, and what the files state about modules.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;

use serde_json::value::RawValue;

use hf_meta_format::base::json_object::{JsonObject, number, read};
use hf_meta_format::formats::product;

/// Everything that is known about the sides of matrices besides the shapes of the packed tensors.
#[derive(Clone, Copy)]
pub(crate) struct KnownSides<'a> {
    pub(crate) dimensions: &'a Dimensions,
    pub(crate) shapes: &'a MetadataShapes,
    /// The number of weights of the module that the configuration implies.
    pub(crate) expected: Option<u64>,
}

impl KnownSides<'_> {
    /// Returns whether the configuration contains a dimension.
    pub(crate) fn is_dimension(&self, dimension: u64) -> bool {
        self.dimensions.lengths.contains(&dimension)
    }

    /// Returns whether an unpacked tensor has a side of this length.
    pub(crate) fn is_stored(&self, length: u64) -> bool {
        self.shapes.sides.contains(&length)
    }

    /// Returns whether the configuration contains a dimension, or a tensor has a side of this length.
    pub(crate) fn is_side(&self, length: u64) -> bool {
        self.is_dimension(length) || self.is_stored(length)
    }

    /// Returns whether a matrix has as many rows as a number in a range, except for `length`.
    pub(crate) fn has_other_rows(&self, range: RangeInclusive<u64>, length: u64) -> bool {
        !range.is_empty() && self.shapes.rows.range(range).any(|&rows| rows != length)
    }

    /// Returns the model dimensions in a range, in descending order.
    pub(crate) fn dimensions(&self, range: RangeInclusive<u64>) -> impl Iterator<Item = u64> {
        let range = if range.is_empty() { 0..=0 } else { range };
        self.dimensions.lengths.range(range).rev().copied()
    }

    /// Returns the vocabulary, if the module is the head of the model.
    pub(crate) fn vocabulary(&self, module: &str) -> Option<u64> {
        let is_head = module.ends_with("lm_head") || module == "output" || module == "head";
        if is_head { self.dimensions.vocabulary } else { None }
    }

    /// Returns whether the files' metadata say that each byte of a module contains two weights.
    pub(crate) fn is_packed_by_metadata(&self, module: &str) -> bool {
        self.shapes.packed.contains(module)
    }
}

/// The dimensions of weight matrices in a model's configuration, from which the size of a padded weight follows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dimensions {
    pub(crate) vocabulary: Option<u64>,
    pub(crate) lengths: BTreeSet<u64>,
}

/// Suffixes of keys whose values are dimensions of weight matrices.
const DIMENSION_KEYS: [&str; 9] = [
    "hidden_size",
    "intermediate_size",
    "vocab_size",
    "hidden_dim",
    "embed_dim",
    "ffn_dim",
    "d_model",
    "d_ff",
    "n_embd",
];

impl Dimensions {
    /// Adds the dimensions of a model, such as `hidden_size`.
    pub(crate) fn add_model(&mut self, model: &JsonObject<'_>) {
        const MAX_DIMENSIONS: usize = 1_000;

        let is_dimension = |key: &str| DIMENSION_KEYS.iter().any(|end| key.ends_with(end));
        let listed = model.entries().filter(|(key, _)| is_dimension(key));
        let listed = listed.filter_map(|(_, value)| number(value)).take(MAX_DIMENSIONS);
        self.lengths.extend(listed);
        self.vocabulary = self.vocabulary.or_else(|| model.number("vocab_size"));
        let heads = model.number("num_attention_heads");
        let per_head = || model.number("hidden_size")?.checked_div(heads?);
        let width = model.number("head_dim").or_else(per_head);
        for heads in [heads, model.number("num_key_value_heads")].into_iter().flatten() {
            self.lengths.extend(width.and_then(|width| heads.checked_mul(width)));
        }
        // Multi-head latent attention (MLA) of DeepSeek.
        let values = model.number("v_head_dim").zip(heads);
        self.lengths.extend(values.and_then(|(values, heads)| values.checked_mul(heads)));
        let ranks = ["q_lora_rank", "kv_lora_rank"].map(|key| model.number(key));
        self.lengths.extend(ranks.into_iter().flatten());
        let rope = model.number("qk_rope_head_dim");
        self.lengths.extend(ranks[1].zip(rope).and_then(|(rank, rope)| rank.checked_add(rope)));
    }
}

/// The number of weights per module, according to the metadata of the files.
///
/// torchao writes an entry per tensor, as text such as
/// `"h.0.q_proj.weight": {"_type": "Int4Tensor", "_data": {"shape": [64, 128]}}`.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetadataShapes {
    pub(crate) elements: HashMap<Box<str>, u64>,
    /// The modules with two weights per byte, according to the layouts that `ComfyUI` lists for all modules:
    /// `"_quantization_metadata": {"layers": {"blocks.0.to_q": {"format": "convrot_w4a4"}}}`.
    pub(super) packed: HashSet<Box<str>>,
    /// The lengths of vectors and the numbers of rows of signed bytes: sides of matrices that packing leaves alone.
    pub(super) sides: BTreeSet<u64>,
    /// The numbers of rows of matrices that may be packed: outputs of one module are often the inputs of another.
    rows: BTreeSet<u64>,
}

/// The maximum number of known sides. Models have a few dozen.
const MAX_SIDES: usize = 1024;

/// The key of the layouts of `ComfyUI`.
pub(super) const COMFY_LAYOUTS: &str = "_quantization_metadata";

/// The layouts of `ComfyUI` with two weights per byte and one scale per row. Source: `comfy/quant_ops.py`.
const COMFY_PACKED: [&str; 2] = ["convrot_w4a4", "int4_tensorwise"];

impl MetadataShapes {
    /// Adds the entries of one file. If a module has several shapes, the smallest wins, so the order of files does
    /// not matter.
    pub(crate) fn add_metadata(&mut self, metadata: &BTreeMap<String, String>) {
        for (name, text) in metadata {
            let module = name.strip_suffix(".weight");
            if let (Some(module), Some(elements)) = (module, elements(text)) {
                let known = self.elements.entry(module.into()).or_insert(elements);
                *known = elements.min(*known);
            }
        }
        let layouts = metadata.get(COMFY_LAYOUTS).and_then(|text| serde_json::from_str(text).ok());
        let layers = layouts.and_then(|layouts: JsonObject| layouts.get::<JsonObject>("layers"));
        for (module, layout) in layers.iter().flat_map(JsonObject::entries) {
            let format =
                read::<JsonObject>(layout).and_then(|layout| layout.get::<String>("format"));
            if format.is_some_and(|format| COMFY_PACKED.contains(&&*format)) {
                self.packed.insert(module.into());
            }
        }
    }

    /// Adds a side of a matrix that is not packed along it.
    pub(crate) fn add_side(&mut self, side: u64) {
        if self.sides.len() < MAX_SIDES {
            self.sides.insert(side);
        }
    }

    /// Adds the number of rows of a matrix that may be packed.
    pub(crate) fn add_rows(&mut self, rows: u64) {
        if self.rows.len() < MAX_SIDES {
            self.rows.insert(rows);
        }
    }

    /// Returns whether the metadata list any modules.
    pub(crate) fn list_modules(&self) -> bool {
        !self.elements.is_empty() || !self.packed.is_empty()
    }
}

/// The maximum length of an entry, in bytes. torchao writes a few hundred.
const MAX_ENTRY_LENGTH: usize = 16_384;

/// Returns the number of elements of the shape in an entry.
fn elements(text: &str) -> Option<u64> {
    if text.len() > MAX_ENTRY_LENGTH || !text.contains("\"shape\"") {
        return None;
    }
    let entry: JsonObject = serde_json::from_str(text).ok()?;
    let shape = entry.get::<JsonObject>("_data")?.get::<Vec<&RawValue>>("shape")?;
    let shape = shape.into_iter().map(number).collect::<Option<Vec<_>>>()?;
    if shape.is_empty() { None } else { product(&shape) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_files_does_not_matter() {
        let file = |columns: u64| {
            let text = format!(r#"{{"_data":{{"shape":[2,{columns}]}}}}"#);
            BTreeMap::from([("m.weight".to_owned(), text)])
        };
        for order in [[3, 4], [4, 3]] {
            let mut shapes = MetadataShapes::default();
            for columns in order {
                shapes.add_metadata(&file(columns));
            }
            assert_eq!(shapes.elements.get("m").copied(), Some(6), "{order:?}");
        }
    }

    #[test]
    fn shapes_are_read_from_metadata() {
        let cases = [
            (
                r#"{"_type":"Int4Tensor","_data":{"block_size":[1,128],"shape":[64,128]}}"#,
                Some(8192),
            ),
            (r#"{"_type":"Tensor"}"#, None),
            (r#"{"_data":{"shape":[]}}"#, None),
            (r#"{"_data":{"shape":[-1,2]}}"#, None),
            (r#"{"_data":{"shape":[18446744073709551615,2]}}"#, None),
            (r#"{"shape":[2]}"#, None),
            ("shape", None),
        ];
        for (text, expected) in cases {
            let metadata = BTreeMap::from([("m.weight".to_owned(), text.to_owned())]);
            let mut shapes = MetadataShapes::default();
            shapes.add_metadata(&metadata);
            assert_eq!(shapes.elements.get("m").copied(), expected, "{text}");
        }
    }

    #[test]
    fn layouts_of_comfyui_are_read_from_metadata() {
        let cases = [
            (r#"{"layers":{"m":{"format":"convrot_w4a4","convrot_groupsize":256}}}"#, true),
            (r#"{"layers":{"m":{"format":"int8_tensorwise"}}}"#, false),
            (r#"{"layers":{"n":{"format":"convrot_w4a4"}}}"#, false),
            (r#"{"layers":{"m":"convrot_w4a4"}}"#, false),
            ("[", false),
        ];
        for (text, expected) in cases {
            let metadata = BTreeMap::from([(COMFY_LAYOUTS.to_owned(), text.to_owned())]);
            let mut shapes = MetadataShapes::default();
            shapes.add_metadata(&metadata);
            let dimensions = &Dimensions::default();
            let known = KnownSides { dimensions, shapes: &shapes, expected: None };
            assert_eq!(known.is_packed_by_metadata("m"), expected, "{text}");
        }
    }
}
