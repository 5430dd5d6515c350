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

/// The schema of an object whose properties are added one by one.
pub(super) struct ObjectSchema<'a> {
    generator: &'a mut SchemaGenerator,
    properties: Map<String, Value>,
    required: Vec<&'static str>,
}

impl<'a> ObjectSchema<'a> {
    pub(super) fn new(generator: &'a mut SchemaGenerator) -> Self {
        Self { generator, properties: Map::new(), required: Vec::new() }
    }

    /// Adds a property of a type.
    pub(super) fn add<T: JsonSchema>(
        &mut self,
        name: &'static str,
        is_required: bool,
        _: Option<PhantomData<T>>,
    ) {
        self.properties.insert(name.to_owned(), self.generator.subschema_for::<T>().into());
        self.required.extend(is_required.then_some(name));
    }

    pub(super) fn finish(self) -> Schema {
        let Self { properties, required, .. } = self;
        json_schema!({ "type": "object", "properties": properties, "required": required })
    }
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
    Dtype as String,
    HeaderError as String,
    RepoPath as String,
    ParameterCount as BTreeMap<String, u64>,
    TensorTable as BTreeMap<String, TensorInfo>,
    SafetensorsFileHeader as BTreeMap<String, HeaderEntry>,
}
