//! Reads the shapes of unpacked weights from file metadata.
//!
//! torchao writes an entry per tensor, as text such as
//! `"h.0.q_proj.weight": {"_type": "Int4Tensor", "_data": {"shape": [64, 128]}}`.

use std::collections::{BTreeMap, HashMap};

use super::json_object::{JsonObject, number};
use super::module::product;

/// The number of weights per module, according to the metadata of the files.
#[derive(Clone, Debug, Default)]
pub(super) struct MetadataShapes(HashMap<Box<str>, u64>);

impl MetadataShapes {
    /// Adds the entries of one file. If a module has several shapes, the smallest wins, so the order of files does
    /// not matter.
    pub(super) fn add_metadata(&mut self, metadata: &BTreeMap<String, String>) {
        for (name, text) in metadata {
            let module = name.strip_suffix(".weight");
            if let (Some(module), Some(elements)) = (module, elements(text)) {
                let known = self.0.entry(module.into()).or_insert(elements);
                *known = elements.min(*known);
            }
        }
    }

    pub(super) fn elements(&self, module: &str) -> Option<u64> {
        self.0.get(module).copied()
    }
}

/// The maximum length of an entry, in bytes. torchao writes a few hundred.
const LONGEST_ENTRY: usize = 16_384;

/// Returns the number of elements of the shape in an entry.
fn elements(text: &str) -> Option<u64> {
    if text.len() > LONGEST_ENTRY || !text.contains("\"shape\"") {
        return None;
    }
    let entry: JsonObject = serde_json::from_str(text).ok()?;
    let shape =
        entry.get::<JsonObject>("_data")?.get::<Vec<&serde_json::value::RawValue>>("shape")?;
    let shape = shape.into_iter().map(number).collect::<Option<Vec<_>>>()?;
    product(&shape).filter(|_| !shape.is_empty())
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
            assert_eq!(shapes.elements("m"), Some(6), "{order:?}");
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
            assert_eq!(shapes.elements("m"), expected, "{text}");
        }
    }
}
