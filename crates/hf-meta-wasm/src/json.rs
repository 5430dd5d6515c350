//! The JSON of results.

use serde::Serialize;

/// Serializes a result. All maps have text as keys, so serialization cannot fail.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
