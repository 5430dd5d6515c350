//! JSON Schemas of the results, from the types that are serialized.

use std::collections::BTreeMap;

use hf_meta_format::same_schema;
use schemars::{JsonSchema, Schema};
use serde_json::json;

use crate::count::ParameterCount;
use crate::memory::GpuShare;

/// Adds the properties that all findings have.
pub(super) fn add_message(schema: &mut Schema) {
    let severities = json!({ "enum": ["note", "warning", "error"] });
    let text = json!({ "type": "string" });
    let properties = json!({ "severity": severities, "message": text, "help": text });
    schema.insert("properties".to_owned(), properties);
    schema.insert("required".to_owned(), json!(["severity", "message", "kind"]));
}

same_schema! {
    GpuShare as f64,
    ParameterCount as BTreeMap<String, u64>,
}

/// Every field of the specification can be missing.
fn make_fields_optional(schema: &mut Schema) {
    schema.insert("required".to_owned(), json!(["missing"]));
}

/// The JSON of a [`ModelSpec`](hf_meta_format::metadata::ModelSpec), whose fields are a table.
#[derive(JsonSchema)]
#[schemars(rename = "ModelSpec", rename_all = "camelCase", transform = make_fields_optional)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct ModelSpecSchema {
    sai_model_spec: String,
    architecture: String,
    implementation: String,
    title: String,
    description: String,
    author: String,
    date: String,
    hash_sha256: String,
    implementation_version: String,
    license: String,
    usage_hint: String,
    thumbnail: ThumbnailSchema,
    tags: Vec<String>,
    merged_from: Vec<String>,
    resolution: ResolutionSchema,
    trigger_phrase: String,
    prediction_type: String,
    /// The first and the last step.
    timestep_range: [u64; 2],
    encoder_layer: String,
    preprocessor: String,
    is_negative_embedding: bool,
    unet_dtype: Vec<String>,
    vae_dtype: Vec<String>,
    data_format: String,
    format_type: String,
    language: Vec<String>,
    format_template: String,
    /// The required fields that the file does not have.
    missing: Vec<String>,
}

/// The width and the height of images in pixels.
#[derive(JsonSchema)]
#[schemars(rename = "Resolution")]
#[expect(dead_code, reason = "only its schema is used")]
struct ResolutionSchema {
    width: u32,
    height: u32,
}

/// The description of a thumbnail.
#[derive(JsonSchema)]
#[schemars(rename = "Thumbnail", rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct ThumbnailSchema {
    /// The media type according to the bytes, such as `image/jpeg`.
    media_type: String,
    width: u32,
    height: u32,
    /// The size of the image file in bytes.
    bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use hf_meta_format::metadata::MODEL_SPEC_FIELDS;

    #[test]
    fn the_schema_has_the_fields_of_the_specification() {
        let schema = schemars::schema_for!(ModelSpecSchema);
        let properties = schema.get("properties").unwrap().as_object().unwrap();
        let mut expected: Vec<_> = MODEL_SPEC_FIELDS.iter().map(|field| field.json_name).collect();
        expected.push("missing");
        expected.sort_unstable();
        let mut found: Vec<_> = properties.keys().map(String::as_str).collect();
        found.sort_unstable();
        assert_eq!(found, expected);
    }
}
