//! Models in the Hub's API: pages of the listing, and the parameter count that the Hub reports.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::Endpoint;
use crate::formats::Dtype;

/// The model properties to request. `expand` replaces the default ones.
const PROPERTIES: [&str; 12] = [
    "author",
    "config",
    "createdAt",
    "downloads",
    "gated",
    "lastModified",
    "library_name",
    "pipeline_tag",
    "safetensors",
    "sha",
    "siblings",
    "tags",
];

/// The number of models per page. The Hub's maximum is 1,000.
const PAGE_SIZE: &str = "1000";

/// The maximum size of one page in bytes. A model has a few kilobytes of file names.
pub(crate) const MAX_MODELS_PAGE_BYTES: u64 = 64_000_000;

/// A model in a listing.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedModel {
    /// The name of the repository.
    pub id: String,
    /// The commit of `main`.
    pub sha: Option<String>,
    /// The owner of the repository.
    pub author: Option<String>,
    /// The time of the creation (RFC 3339).
    pub created_at: Option<String>,
    /// The time of the last commit (RFC 3339).
    pub last_modified: Option<String>,
    /// The number of downloads in the last 30 days.
    pub downloads: Option<i64>,
    /// `false`, `"auto"` or `"manual"`.
    #[serde(default)]
    gated: Value,
    /// The task, such as `text-generation`.
    #[serde(rename = "pipeline_tag")]
    pub pipeline_tag: Option<String>,
    /// The library that loads the model, such as `transformers`.
    #[serde(rename = "library_name")]
    pub library: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    safetensors: Value,
    siblings: Option<Vec<ModelFile>>,
}

#[derive(Debug, Deserialize)]
struct ModelFile {
    rfilename: String,
}

impl ListedModel {
    /// Returns the kind of gating; `None` if the repository is open.
    pub fn gate(&self) -> Option<String> {
        self.gated.as_str().map(str::to_owned)
    }

    /// Returns the first architecture.
    pub fn architecture(&self) -> Option<String> {
        self.config["architectures"][0].as_str().map(str::to_owned)
    }

    /// Returns the number of parameters that the Hub reports.
    pub fn total(&self) -> Option<i64> {
        self.safetensors["total"].as_i64()
    }

    /// Returns the value of the first tag with a prefix, such as `license:`.
    pub fn tag(&self, prefix: &str) -> Option<String> {
        self.tags.iter().find_map(|tag| tag.strip_prefix(prefix)).map(str::to_owned)
    }

    /// Takes the paths of all files.
    pub fn take_files(&mut self) -> Option<Vec<String>> {
        Some(self.siblings.take()?.into_iter().map(|file| file.rfilename).collect())
    }
}

impl Endpoint {
    /// Returns the URL of the first page of a listing of models, `{endpoint}/api/models?…`, in descending order of
    /// `sort`.
    pub fn models_url(&self, sort: &str, conditions: &[(&str, &str)]) -> Url {
        let mut url = self.url().clone();
        url.set_path(&format!("{}/api/models", self.path()));
        url.query_pairs_mut()
            .extend_pairs(conditions)
            .extend_pairs([("sort", sort), ("direction", "-1"), ("limit", PAGE_SIZE)])
            .extend_pairs(PROPERTIES.map(|property| ("expand[]", property)));
        url
    }
}

/// The parameter count that the Hub reports for a repository.
///
/// It is not verified against the files, and the Hub's counting rules have changed more than once. Prefer a count
/// from the headers. This one is useful for repositories whose files cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct HubReportedCount {
    /// The number of parameters per dtype, sorted by dtype name.
    pub parameters: Vec<(Dtype, u64)>,
    /// The total number of parameters.
    pub total: u64,
}

#[derive(Deserialize)]
struct RevisionInfo {
    safetensors: Option<SafetensorsInfo>,
}

#[derive(Deserialize)]
struct SafetensorsInfo {
    parameters: BTreeMap<String, u64>,
    total: u64,
}

impl HubReportedCount {
    /// The maximum size of the JSON in bytes. The Hub sends a few hundred bytes.
    pub(crate) const MAX_BYTES: u64 = 1 << 16;

    /// Parses the response from [`Endpoint::reported_count_url`](super::Endpoint::reported_count_url). Returns `None`
    /// if it has no count.
    pub(crate) fn from_json(json: &[u8]) -> Option<Self> {
        let SafetensorsInfo { parameters, total } =
            serde_json::from_slice::<RevisionInfo>(json).ok()?.safetensors?;
        let parameters = parameters.iter().map(|(dtype, count)| (dtype.as_str().into(), *count));
        Some(Self { parameters: parameters.collect(), total })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_properties_of_a_model_are_read_from_a_listing() {
        let json = r#"{"_id":"1","id":"a/b","sha":"0","gated":"manual","private":false,"downloads":7,"likes":1,
            "tags":["license:mit","base_model:c/d","base_model:quantized:c/d"],"library_name":"transformers",
            "config":{"architectures":["X"],"model_type":"x"},"safetensors":{"parameters":{"F32":5},"total":5},
            "siblings":[{"rfilename":"config.json"}],"createdAt":"2024-01-02T03:04:05.000Z"}"#;
        let mut model: ListedModel = serde_json::from_str(json).unwrap();
        assert_eq!(model.gate().as_deref(), Some("manual"));
        assert_eq!(model.architecture().as_deref(), Some("X"));
        assert_eq!(model.tag("license:").as_deref(), Some("mit"));
        assert_eq!(model.tag("base_model:").as_deref(), Some("c/d"));
        assert_eq!((model.total(), model.downloads), (Some(5), Some(7)));
        assert_eq!(model.take_files(), Some(vec!["config.json".to_owned()]));
        let mut least: ListedModel =
            serde_json::from_str(r#"{"id":"a/b","gated":false,"config":null}"#).unwrap();
        assert_eq!((least.gate(), least.architecture(), least.total()), (None, None, None));
        assert_eq!(least.take_files(), None);
    }

    #[test]
    fn conditions_become_query_parameters() {
        let endpoint = Endpoint::parse("https://hub.example/hf").unwrap();
        let url = endpoint.models_url("createdAt", &[("filter", "safetensors"), ("author", "a&b")]);
        assert!(url.as_str().starts_with(
            "https://hub.example/hf/api/models?filter=safetensors&author=a%26b&sort=createdAt&direction=-1&limit=1000&expand%5B%5D=author"
        ));
    }

    #[test]
    fn the_count_is_parsed_or_absent() {
        let json = br#"{"id":"a/b","safetensors":{"parameters":{"BF16":7},"total":7}}"#;
        let count = HubReportedCount { parameters: vec![(Dtype::BF16, 7)], total: 7 };
        assert_eq!(HubReportedCount::from_json(json), Some(count));
        for json in [
            "",
            "[]",
            "{}",
            r#"{"safetensors":null}"#,
            r#"{"safetensors":{"parameters":{"BF16":-1},"total":7}}"#,
            r#"{"safetensors":{"parameters":{"BF16":1},"total":1e300}}"#,
        ] {
            assert_eq!(HubReportedCount::from_json(json.as_bytes()), None, "{json}");
        }
    }
}
