//! The metadata of files. The build moves these functions to the second module.

use hf_meta_count::Weights;
use hf_meta_count::results::metadata::{MetadataDocument, find_thumbnail};
use hf_meta_format::metadata::Thumbnail;

use super::json::json;

/// Returns the JSON of `hf-meta --metadata --json`.
#[inline(never)]
pub(crate) fn document(weights: &Weights) -> String {
    json(&MetadataDocument::new(weights))
}

/// Returns the first thumbnail that is an image, as a data URL with the media type of its bytes.
#[inline(never)]
pub(crate) fn thumbnail(weights: &Weights) -> Option<String> {
    Thumbnail::data_url(&find_thumbnail(weights)?.bytes)
}
