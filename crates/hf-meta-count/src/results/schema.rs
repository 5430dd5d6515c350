//! JSON Schemas of the results, from the types that are serialized.

use std::collections::BTreeMap;

use hf_meta_format::same_schema;
use schemars::Schema;
use serde_json::json;

use crate::count::ParameterCount;
use crate::memory::GpuShare;

/// Adds the properties that all findings have.
pub(super) fn add_message(schema: &mut Schema) {
    let severities = json!({ "enum": ["note", "warning", "error"] });
    let properties = json!({ "severity": severities, "message": { "type": "string" } });
    schema.insert("properties".to_owned(), properties);
    schema.insert("required".to_owned(), json!(["severity", "message", "kind"]));
}

same_schema! {
    GpuShare as f64,
    ParameterCount as BTreeMap<String, u64>,
}
