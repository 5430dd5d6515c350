//! JSON Schemas from the types that are serialized.

use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

/// Returns the schema of an object with these properties: their names, `true` for required ones, and their schemas.
pub fn object_schema<const N: usize>(entries: [(&str, bool, Schema); N]) -> Schema {
    let required = entries.iter().filter(|(_, is_required, _)| *is_required);
    let required: Vec<_> = required.map(|(name, ..)| (*name).to_owned()).collect();
    let properties = entries.into_iter().map(|(name, _, schema)| (name.to_owned(), schema.into()));
    let properties: Map<String, Value> = properties.collect();
    json_schema!({ "type": "object", "properties": properties, "required": required })
}

/// Returns the schema of a type.
pub fn schema_of<T: JsonSchema>(
    _: Option<PhantomData<T>>,
    generator: &mut SchemaGenerator,
) -> Schema {
    generator.subschema_for::<T>()
}

/// Returns the type of a value.
pub fn type_of<T>(_: &T) -> PhantomData<T> {
    PhantomData
}

/// Implements the schema of types that are serialized as other types.
#[doc(hidden)]
#[macro_export]
macro_rules! same_schema {
    ($($type:ty as $other:ty,)+) => {$(
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$other>::schema_name()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$other>::json_schema(generator)
            }
        }
    )+};
}
