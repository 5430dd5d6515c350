//! JSON Schemas of the results, from the types that are serialized.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use crate::count::ParameterCount;
use crate::formats::safetensors::SafetensorsFileHeader;
use crate::formats::{Dtype, HeaderError, RepoPath, TensorInfo, TensorTable};
use crate::ids::CommitSha;
use crate::memory::GpuShare;

/// Returns the schema of an object with these properties: their names, `true` for required ones, and their schemas.
pub(super) fn object_schema<const N: usize>(entries: [(&str, bool, Schema); N]) -> Schema {
    let required = entries.iter().filter(|(_, is_required, _)| *is_required);
    let required: Vec<_> = required.map(|(name, ..)| (*name).to_owned()).collect();
    let properties = entries.into_iter().map(|(name, _, schema)| (name.to_owned(), schema.into()));
    let properties: Map<String, Value> = properties.collect();
    json_schema!({ "type": "object", "properties": properties, "required": required })
}

/// Returns the schema of a type.
pub(super) fn schema_of<T: JsonSchema>(
    _: Option<PhantomData<T>>,
    generator: &mut SchemaGenerator,
) -> Schema {
    generator.subschema_for::<T>()
}

/// Returns the type of a value.
pub(super) fn type_of<T>(_: &T) -> PhantomData<T> {
    PhantomData
}

/// Adds the properties that all findings have.
pub(super) fn add_message(schema: &mut Schema) {
    let severities = json!({ "enum": ["note", "warning", "error"] });
    let properties = json!({ "severity": severities, "message": { "type": "string" } });
    schema.insert("properties".to_owned(), properties);
    schema.insert("required".to_owned(), json!(["severity", "message", "kind"]));
}

/// An entry of the header of a safetensors file.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum HeaderEntry {
    Tensor(TensorInfo),
    Metadata(BTreeMap<String, String>),
}

/// Implements the schema of types that are serialized as other types.
macro_rules! same_schema {
    ($($type:ty as $other:ty,)+) => {$(
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                <$other>::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$other>::json_schema(generator)
            }
        }
    )+};
}

same_schema! {
    CommitSha as String,
    GpuShare as f64,
    Dtype as String,
    HeaderError as String,
    RepoPath as String,
    ParameterCount as BTreeMap<String, u64>,
    TensorTable as BTreeMap<String, TensorInfo>,
    SafetensorsFileHeader as BTreeMap<String, HeaderEntry>,
}
