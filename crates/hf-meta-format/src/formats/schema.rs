//! JSON Schemas of headers, from the types that are serialized.

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::safetensors::SafetensorsFileHeader;
use super::{Dtype, HeaderError, RepoPath, TensorInfo, TensorTable};
use crate::ids::CommitSha;
use crate::same_schema;

/// An entry of the header of a safetensors file.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum HeaderEntry {
    Tensor(TensorInfo),
    Metadata(BTreeMap<String, String>),
}

same_schema! {
    CommitSha as String,
    Dtype as String,
    HeaderError as String,
    RepoPath as String,
    TensorTable as BTreeMap<String, TensorInfo>,
    SafetensorsFileHeader as BTreeMap<String, HeaderEntry>,
}
