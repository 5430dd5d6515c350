//! The list of models, `/api/models`, and the properties of its repositories.
//!
//! Parameters: <https://huggingface.co/docs/hub/api>. Sorting is descending; only `createdAt` can be ascending, too.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use super::digest::Digest;
use super::error_response::ErrorResponse;
use super::log::LoggedRequest;
use super::repo::Repo;
use super::response::ResponseSpec;
use super::state::{HubState, json_text};
use super::tree;

/// The properties that are listed without `expand`.
const DEFAULT_PROPERTIES: [&str; 9] = [
    "createdAt",
    "downloads",
    "library_name",
    "likes",
    "modelId",
    "pipeline_tag",
    "private",
    "tags",
    "trendingScore",
];

/// The properties that `expand` accepts.
const EXPANDABLE: [&str; 23] = [
    "author",
    "baseModels",
    "cardData",
    "config",
    "createdAt",
    "disabled",
    "downloads",
    "downloadsAllTime",
    "gated",
    "gguf",
    "lastModified",
    "library_name",
    "likes",
    "model-index",
    "pipeline_tag",
    "private",
    "safetensors",
    "sha",
    "siblings",
    "spaces",
    "tags",
    "trendingScore",
    "usedStorage",
];

/// The properties by which the list can be sorted.
const SORT_KEYS: [&str; 5] = ["createdAt", "downloads", "lastModified", "likes", "trendingScore"];

#[derive(Default)]
struct ListQuery {
    filters: Vec<String>,
    author: Option<String>,
    sort: Option<String>,
    is_ascending: bool,
    limit: Option<usize>,
    start: usize,
    expand: Vec<String>,
}

impl ListQuery {
    /// Parses a query. Like the Hub, ignores unknown parameters.
    fn parse(query: &str) -> Result<Self, String> {
        let mut parsed = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            match key.trim_end_matches("[]") {
                "filter" => parsed.filters.extend(value.split(',').map(str::to_owned)),
                "author" => parsed.author = Some(value),
                "sort" => parsed.sort = Some(value),
                "direction" => parsed.is_ascending = value != "-1",
                "limit" => parsed.limit = Some(value.parse().map_err(|_| "limit")?),
                "cursor" => parsed.start = tree::position(&value).ok_or("cursor")?,
                "expand" => parsed.expand.push(value),
                _ => {}
            }
        }
        parsed.check()?;
        Ok(parsed)
    }

    fn check(&self) -> Result<(), String> {
        if let Some(unknown) = self.expand.iter().find(|name| !EXPANDABLE.contains(&name.as_str()))
        {
            return Err(format!("expand: {unknown}"));
        }
        let sort = self.sort.as_deref().unwrap_or("createdAt");
        if !SORT_KEYS.contains(&sort) || self.is_ascending && sort != "createdAt" {
            return Err(format!("sort: {sort}"));
        }
        Ok(())
    }

    fn accepts(&self, repo: &Repo) -> bool {
        let author = self.author.as_deref();
        let tags = || repo.tags(repo.find_commit("main").unwrap_or_default());
        author.is_none_or(|author| repo.author() == Some(author))
            && (self.filters.is_empty()
                || self.filters.iter().all(|filter| tags().contains(filter)))
    }

    /// Returns the entry of a repository.
    fn entry(&self, repo: &Repo) -> Value {
        let mut properties = properties(repo, repo.find_commit("main").unwrap_or_default());
        properties.retain(|name, _| {
            let is_default = || DEFAULT_PROPERTIES.contains(&name.as_str());
            matches!(name.as_str(), "_id" | "id")
                || self.expand.contains(name)
                || self.expand.is_empty() && is_default()
        });
        properties.into()
    }
}

/// All models in the order of a query: first the stored ones, then the computed ones.
struct OrderedModels<'a> {
    stored: Vec<Arc<Repo>>,
    computed: ComputedOrder,
    state: &'a HubState,
}

/// The order of computed repositories.
enum ComputedOrder {
    Ascending(u64),
    Descending(u64),
    Sorted(Vec<u64>),
}

impl ComputedOrder {
    fn index(&self, at: u64) -> Option<u64> {
        match self {
            Self::Ascending(count) => (at < *count).then_some(at),
            Self::Descending(count) => count.checked_sub(at + 1),
            Self::Sorted(indices) => indices.get(usize::try_from(at).ok()?).copied(),
        }
    }
}

impl<'a> OrderedModels<'a> {
    fn new(state: &'a HubState, query: &ListQuery) -> Self {
        let sort = query.sort.as_deref().unwrap_or("createdAt");
        let mut stored = state.stored_repos();
        stored.retain(|repo| {
            !repo.id().starts_with("datasets/") && !repo.id().starts_with("spaces/")
        });
        let key = |repo: &Arc<Repo>| {
            let value = properties(repo, "").remove(sort).unwrap_or_default();
            // Sort numbers numerically and times as text.
            (value.as_u64(), value.as_str().map(str::to_owned), repo.id().to_owned())
        };
        stored.sort_by_cached_key(key);
        if !query.is_ascending {
            stored.reverse();
        }
        let count = state.computed.as_ref().map_or(0, |repos| repos.count());
        let computed = match (&state.computed, sort) {
            (Some(repos), "lastModified") => {
                let mut indices: Vec<_> = (0..count).collect();
                indices.sort_by_cached_key(|index| (repos.last_modified(*index), *index));
                indices.reverse();
                ComputedOrder::Sorted(indices)
            }
            _ if query.is_ascending => ComputedOrder::Ascending(count),
            _ => ComputedOrder::Descending(count),
        };
        Self { stored, computed, state }
    }

    fn get(&self, at: usize) -> Option<Arc<Repo>> {
        if let Some(repo) = self.stored.get(at) {
            return Some(Arc::clone(repo));
        }
        let index = self.computed.index((at - self.stored.len()) as u64)?;
        Some(Arc::new(self.state.computed.as_ref()?.repo(index)))
    }
}

impl HubState {
    /// Returns a page of the list of models.
    ///
    /// # Errors
    ///
    /// If the token is invalid.
    pub(super) fn list_models(
        &self,
        request: &LoggedRequest,
    ) -> Result<ResponseSpec, ErrorResponse> {
        let caller = self.caller(request)?;
        let text = request.query.as_deref().unwrap_or_default();
        let query = match ListQuery::parse(text) {
            Ok(query) => query,
            Err(what) => {
                let error = json!({ "error": format!("Invalid option: {what}") }).to_string();
                let response = json_text(error);
                return Ok(ResponseSpec { status: StatusCode::BAD_REQUEST, ..response });
            }
        };
        let models = OrderedModels::new(self, &query);
        let limit = query.limit.unwrap_or(self.tree_page).clamp(1, self.tree_page);
        let (mut at, mut page) = (query.start, Vec::new());
        let next = loop {
            match models.get(at) {
                None => break None,
                Some(_) if page.len() == limit => break Some(tree::next_query(text, at)),
                Some(repo) => {
                    at += 1;
                    if repo.is_visible_to(caller) && query.accepts(&repo) {
                        page.push(query.entry(&repo));
                    }
                }
            }
        };
        Ok(self.with_next_page(json_text(Value::from(page).to_string()), request, next))
    }
}

/// Returns the properties of a repository at a commit.
pub(super) fn properties(repo: &Repo, commit: &str) -> Map<String, Value> {
    let siblings: Vec<_> = repo.paths(commit).map(|path| json!({ "rfilename": path })).collect();
    let id = Digest::new(repo.id()).sha1();
    let mut properties = Map::from_iter([
        ("_id".to_owned(), id[..24].into()),
        ("id".to_owned(), repo.id().into()),
        ("modelId".to_owned(), repo.id().into()),
        ("author".to_owned(), repo.author().into()),
        ("sha".to_owned(), commit.into()),
        ("private".to_owned(), repo.is_private().into()),
        ("disabled".to_owned(), repo.is_disabled().into()),
        ("gated".to_owned(), if repo.is_gated() { "auto".into() } else { false.into() }),
        ("createdAt".to_owned(), "2022-03-02T23:29:04.000Z".into()),
        ("lastModified".to_owned(), "2025-01-01T00:00:00.000Z".into()),
        ("downloads".to_owned(), 0.into()),
        ("likes".to_owned(), 0.into()),
        ("trendingScore".to_owned(), 0.into()),
        ("siblings".to_owned(), siblings.into()),
        ("config".to_owned(), listed_config(repo, commit)),
        ("safetensors".to_owned(), reported_counts(repo)),
    ]);
    properties.extend(repo.listed_properties().clone());
    properties.insert("tags".to_owned(), repo.tags(commit).into());
    properties.retain(|_, value| !value.is_null());
    properties
}

/// Returns the part of `config.json` that the Hub lists.
fn listed_config(repo: &Repo, commit: &str) -> Value {
    let file = repo.find_file(commit, "config.json");
    let json = file.and_then(|file| file.start(u64::MAX).ok()).unwrap_or_default();
    let Ok(mut config) = serde_json::from_slice::<Map<String, Value>>(&json) else {
        return Value::Null;
    };
    config
        .retain(|key, _| matches!(&**key, "architectures" | "model_type" | "quantization_config"));
    config.into()
}

fn reported_counts(repo: &Repo) -> Value {
    let counts = repo.reported_counts();
    if counts.is_empty() {
        return Value::Null;
    }
    let total: u64 = counts.iter().map(|(_, parameters)| parameters).sum();
    let parameters: Map<_, _> =
        counts.iter().map(|(dtype, count)| (dtype.clone(), (*count).into())).collect();
    json!({ "parameters": parameters, "total": total })
}
