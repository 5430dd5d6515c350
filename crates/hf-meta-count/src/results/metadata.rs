//! The metadata of files: pairs of texts, the fields of the SAI Model Spec, and a thumbnail.

use std::collections::BTreeMap;

use serde::Serialize;

use hf_meta_format::metadata::{MODEL_SPEC_PREFIX, ModelSpec, Thumbnail, ThumbnailSummary};

use super::{SafetensorsParseFromRepo, Weights};

/// The metadata of an index and of all files: the JSON of `hf-meta --metadata --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct MetadataDocument<'a> {
    /// The repository, URL or path that was read.
    pub source: &'a str,
    /// The metadata of the index. Values other than texts are JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_metadata: Option<BTreeMap<String, String>>,
    /// The weight files.
    pub files: Vec<FileMetadata<'a>>,
}

/// The metadata of a file.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FileMetadata<'a> {
    /// The path in the repository or folder.
    pub path: String,
    /// The texts as they are in the file.
    pub metadata: Option<&'a BTreeMap<String, String>>,
    /// The fields of the SAI Model Spec, or the keys of GGUF with the same meaning.
    #[cfg_attr(feature = "schema", schemars(with = "Option<super::schema::ModelSpecSchema>"))]
    pub model_spec: Option<ModelSpec>,
    /// The description of the thumbnail, if it is an image.
    #[cfg_attr(feature = "schema", schemars(with = "Option<super::schema::ThumbnailSchema>"))]
    pub thumbnail: Option<ThumbnailSummary>,
}

impl<'a> MetadataDocument<'a> {
    /// Collects the metadata of headers.
    // A function of the second module of the npm package, see `crates/hf-meta-wasm/build.mjs`.
    #[inline(never)]
    pub fn new(weights: &'a Weights) -> Self {
        let files = weights.files().map(|(path, header)| {
            let metadata = header.metadata();
            let model_spec = metadata.and_then(ModelSpec::from_metadata);
            let thumbnail = model_spec.as_ref().and_then(ModelSpec::thumbnail);
            FileMetadata { path: path.to_string(), metadata, model_spec, thumbnail }
        });
        let index = index_metadata(weights);
        let index_metadata = (!index.is_empty()).then(|| index.into_iter().collect());
        Self { source: &weights.report().source, index_metadata, files: files.collect() }
    }
}

/// Returns the metadata of the index, in its order. Texts are without quotes.
pub fn index_metadata(weights: &Weights) -> Vec<(String, String)> {
    let Weights::Safetensors(SafetensorsParseFromRepo::Sharded(shards)) = weights else {
        return Vec::new();
    };
    let entries = shards.index.metadata().into_iter().flatten();
    let text = |value: &String| serde_json::from_str(value).unwrap_or_else(|_| value.clone());
    entries.map(|(key, value)| (key.clone(), text(value))).collect()
}

/// Returns the first thumbnail that is an image.
// A function of the second module of the npm package, see `crates/hf-meta-wasm/build.mjs`.
#[inline(never)]
pub fn find_thumbnail(weights: &Weights) -> Option<Thumbnail> {
    let key = format!("{MODEL_SPEC_PREFIX}thumbnail");
    let mut urls = weights.files().filter_map(|(_, header)| header.metadata()?.get(&key));
    urls.find_map(|url| Thumbnail::parse(url).ok())
}
