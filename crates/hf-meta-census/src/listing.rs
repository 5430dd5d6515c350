//! Lists the models of a Hub in a manifest.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use chrono::DateTime;
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use url::Url;

use super::error::{CensusError, Result, failed_to, unusable};
use super::manifest::ListedRepo;
use super::reads::ProgressReporter;
use super::run::unix_millis;
use super::stored_header::short_hash;
use super::table::{publish, read_footer, replaceable, rows, with_suffix};
use hf_meta::internal::api_page;
use hf_meta::{Client, ErrorKind};

/// The model properties to request, separated by spaces. `expand` replaces the default ones.
const PROPERTIES: &str = "author config createdAt downloads gated lastModified library_name likes pipeline_tag \
    safetensors sha siblings tags";

/// The number of models per page. The Hub's maximum is 1,000.
const MODELS_PER_PAGE: usize = 1_000;

/// The maximum size of one page in bytes. A model has a few kilobytes of file names.
const MAX_PAGE_BYTES: u64 = 64_000_000;

/// The overlap with the previous listing, in milliseconds: changes shortly before its start are listed again, because
/// listings lag behind.
const LISTING_OVERLAP_MS: i64 = 3_600_000;

/// A listing of the models on a Hub: all of them, or only those modified since a given time.
///
/// ```no_run
/// use hf_meta_census::Listing;
///
/// # async fn example() -> Result<(), hf_meta_census::CensusError> {
/// let client = hf_meta::Client::from_env()?;
/// let listing = Listing::new().filter("safetensors").author("bigscience");
/// let models = listing.write(&client, "repos.parquet".as_ref()).await?;
/// println!("{models} models");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Listing {
    conditions: Vec<(&'static str, String)>,
    since: Option<i64>,
    /// An earlier listing, whose models are added.
    earlier: Option<PathBuf>,
    limit: Option<usize>,
    progress: ProgressReporter,
}

/// The metadata in the footer of a manifest and of each saved page.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListingFooter {
    /// The URL of the first page.
    url: String,
    /// The earliest time of change of the listed models, in milliseconds since 1970.
    since: Option<i64>,
    /// The URL of the next page; `None` if the listing is complete.
    next: Option<String>,
    /// The number of models up to this page.
    listed: usize,
    /// The start time of the listing, in milliseconds since 1970.
    #[serde(rename = "watermark")]
    started_at: i64,
}

impl Listing {
    /// Creates a listing of all models.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists only models with this tag, such as `safetensors`.
    pub fn filter(self, tag: impl AsRef<str>) -> Self {
        self.condition("filter", tag.as_ref())
    }

    /// Lists only the models of this user or organization.
    pub fn author(self, author: impl AsRef<str>) -> Self {
        self.condition("author", author.as_ref())
    }

    fn condition(mut self, name: &'static str, value: &str) -> Self {
        self.conditions.push((name, value.to_owned()));
        self
    }

    /// Lists only models modified since a time, in milliseconds since the Unix epoch. The hour before it is included.
    pub fn since(self, time: i64) -> Self {
        Self { since: Some(time), ..self }
    }

    /// Requests only models modified since an earlier listing, and adds the other models of its file. So the result is
    /// a listing of all models, which still contains deleted ones.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or [`write`](Self::write) did not write it.
    pub fn update(self, file: &Path) -> Result<Self> {
        let opened = File::open(file).map_err(failed_to("read", file))?;
        let Some(footer) = read_footer::<ListingFooter>(&opened) else {
            return Err(unusable(file, "is not a listing written by `census list`"));
        };
        Ok(Self { earlier: Some(file.to_owned()), ..self.since(footer.started_at) })
    }

    /// Lists at most this many models: the newest ones or, with [`since`](Self::since), those changed last.
    pub fn limit(self, models: Option<usize>) -> Self {
        Self { limit: models, ..self }
    }

    /// Sets a function to be called with the number of models listed so far, after each page.
    pub fn on_progress(self, report: impl Fn(usize) + Send + Sync + 'static) -> Self {
        Self { progress: ProgressReporter::new(move |progress| report(progress.done)), ..self }
    }

    /// Requests the listing and writes it to a Parquet file. Returns the number of models.
    ///
    /// Pages are stored in a folder next to the file, so that an interrupted listing can be resumed.
    ///
    /// # Errors
    ///
    /// Returns an error if a request fails, a page is invalid, or the file cannot be written.
    pub async fn write(&self, client: &Client, file: &Path) -> Result<usize> {
        // Checked before the first request, because a listing takes minutes.
        replaceable(file)?;
        if File::open(file).is_ok_and(|file| read_footer::<ListingFooter>(&file).is_none()) {
            return Err(unusable(file, "would replace a file that `census list` did not write"));
        }
        let folder = with_suffix(file, ".pages");
        fs::create_dir_all(&folder).map_err(failed_to("create", &folder))?;
        let (mut pages, mut footer) = self.resume(&folder, &self.first_page(client)?);
        let (limit, mut seen) = (self.limit.unwrap_or(usize::MAX), HashSet::new());
        while let Some(mut page) = footer.next.take() {
            if footer.listed >= limit {
                break;
            }
            let (models, next) = loop {
                let requested = self.request(client, &page).await;
                let is_too_large = matches!(&requested, Err(CensusError::Hub(error)) if error.kind() == ErrorKind::TooLarge);
                let smaller =
                    if is_too_large { with_limit(&page, |models| models / 2) } else { None };
                match smaller {
                    Some(smaller) => page = smaller,
                    None => break requested?,
                }
            };
            if next.as_ref().is_some_and(|next| !seen.insert(next.clone())) {
                return Err(invalid("the pages form a cycle"));
            }
            // The server repeats the size of the page.
            footer.next = next.map(|next| with_limit(&next, |_| MODELS_PER_PAGE).unwrap_or(next));
            footer.listed += models.len();
            self.progress.update(|progress| progress.done = footer.listed);
            publish(&page_file(&folder, pages), &footer, models.into_iter().map(Ok))?;
            pages += 1;
        }
        let files = (0..pages).map(|page| page_file(&folder, page));
        let models = files.map(|file| rows::<ListedRepo>(&file)).flatten_ok().take(limit);
        let earlier = self.earlier.iter().map(|file| rows::<ListedRepo>(file)).flatten_ok();
        let models = models.chain(earlier);
        let mut listed = HashSet::new();
        let models = models.map(|model| model.and_then(|model| model)).filter_ok(|model| {
            // The earlier listing comes last, so that changed models replace its models.
            self.earlier.is_none() || listed.insert(short_hash(&model.repo))
        });
        let models = publish(file, &footer, models)?;
        fs::remove_dir_all(&folder).map_err(failed_to("delete", &folder))?;
        Ok(models)
    }

    /// Returns the URL of the first page, in descending order of time.
    fn first_page(&self, client: &Client) -> Result<Url> {
        let sort = if self.since.is_some() { "lastModified" } else { "createdAt" };
        let limit = self.limit.unwrap_or(MODELS_PER_PAGE).clamp(1, MODELS_PER_PAGE);
        let mut url = parse_url(&format!("{}/api/models", client.endpoint()))?;
        url.query_pairs_mut()
            .extend_pairs(&self.conditions)
            .extend_pairs([("sort", sort), ("direction", "-1"), ("limit", &limit.to_string())])
            .extend_pairs(PROPERTIES.split(' ').map(|property| ("expand[]", property)));
        Ok(url)
    }

    /// Returns the number of saved pages and the footer of the last one. Pages of other listings are ignored.
    fn resume(&self, folder: &Path, first: &Url) -> (usize, ListingFooter) {
        let (url, next) = (first.to_string(), Some(first.to_string()));
        let start =
            ListingFooter { url, since: self.since, next, listed: 0, started_at: unix_millis() };
        let saved = |page| {
            let file = File::open(page_file(folder, page)).ok()?;
            let footer = read_footer::<ListingFooter>(&file)?;
            (footer.url == start.url && footer.since == start.since).then_some((page + 1, footer))
        };
        (0..).map_while(saved).last().unwrap_or((0, start))
    }

    /// Requests a page. Returns its models and the URL of the next page; `None` at the end.
    async fn request(
        &self,
        client: &Client,
        page: &str,
    ) -> Result<(Vec<ListedRepo>, Option<String>)> {
        let (json, next) = api_page(client, &parse_url(page)?, MAX_PAGE_BYTES).await?;
        let not_json = |error: serde_json::Error| invalid(&error.to_string());
        let listed: Vec<&RawValue> = serde_json::from_slice(&json).map_err(not_json)?;
        if listed.is_empty() && next.is_some() {
            return Err(invalid("a page contains no models"));
        }
        let since = self.since.map(|since| since.saturating_sub(LISTING_OVERLAP_MS));
        let mut changed = Vec::new();
        for model in &listed {
            let model = serde_json::from_str(model.get()).map_err(not_json)?;
            let repo = listed_repo(&model).ok_or_else(|| invalid("a model has no name"))?;
            if repo.last_modified.is_some_and(|time| Some(time) < since) {
                return Ok((changed, None));
            }
            changed.push(repo);
        }
        Ok((changed, next.map(String::from)))
    }
}

/// Returns the URL of a page with another number of models; `None` if that is zero.
fn with_limit(page: &str, change: impl Fn(usize) -> usize) -> Option<String> {
    let mut url = Url::parse(page).ok()?;
    let mut pairs: Vec<_> = url.query_pairs().into_owned().collect();
    let (_, limit) = pairs.iter_mut().find(|(name, _)| name == "limit")?;
    let models = change(limit.parse().ok()?);
    *limit = models.to_string();
    url.query_pairs_mut().clear().extend_pairs(pairs);
    (models > 0).then(|| url.into())
}

/// Returns the file of a saved page.
fn page_file(folder: &Path, page: usize) -> PathBuf {
    folder.join(format!("{page:06}.parquet"))
}

fn parse_url(text: &str) -> Result<Url> {
    Url::parse(text).map_err(|error| invalid(&error.to_string()))
}

fn invalid(reason: &str) -> CensusError {
    CensusError::InvalidListing { reason: reason.to_owned() }
}

/// Returns a model of the Hub's listing; `None` if it has no name.
fn listed_repo(model: &Value) -> Option<ListedRepo> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let time = |value: &Value| {
        Some(DateTime::parse_from_rfc3339(value.as_str()?).ok()?.timestamp_millis())
    };
    let files = model["siblings"].as_array();
    let tags = model["tags"].as_array();
    let tags: Option<Vec<_>> = tags.map(|tags| tags.iter().filter_map(text).collect());
    let with_prefix = |prefix| {
        let tags = tags.iter().flatten();
        tags.filter_map(move |tag: &String| tag.strip_prefix(prefix).map(str::to_owned))
    };
    // A base model has two tags: `base_model:org/name`, and `base_model:quantized:org/name` with the relation.
    let (relations, bases): (Vec<_>, Vec<_>) =
        with_prefix("base_model:").partition(|base| base.contains(':'));
    let relation = relations.first().and_then(|base| base.split_once(':'));
    Some(ListedRepo {
        repo: text(&model["id"])?,
        commit: text(&model["sha"]),
        files: files
            .map(|files| files.iter().filter_map(|file| text(&file["rfilename"])).collect()),
        author: text(&model["author"]),
        created_at: time(&model["createdAt"]),
        last_modified: time(&model["lastModified"]),
        downloads: model["downloads"].as_i64(),
        // `false`, `"auto"` or `"manual"`.
        gated: text(&model["gated"]),
        hub_total: model["safetensors"]["total"].as_i64(),
        pipeline_tag: text(&model["pipeline_tag"]),
        library: text(&model["library_name"]),
        license: with_prefix("license:").next(),
        architecture: text(&model["config"]["architectures"][0]),
        model_type: text(&model["config"]["model_type"]),
        base_models: tags.is_some().then_some(bases),
        base_model_relation: relation.map(|(relation, _)| relation.to_owned()),
        likes: model["likes"].as_i64(),
        tags,
    })
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
        let repo = listed_repo(&serde_json::from_str(json).unwrap()).unwrap();
        let text = |text: &str| Some(text.to_owned());
        let expected = ListedRepo {
            commit: text("0"),
            files: Some(vec!["config.json".to_owned()]),
            created_at: Some(1_704_164_645_000),
            downloads: Some(7),
            gated: text("manual"),
            hub_total: Some(5),
            library: text("transformers"),
            license: text("mit"),
            architecture: text("X"),
            model_type: text("x"),
            base_models: Some(vec!["c/d".to_owned()]),
            base_model_relation: text("quantized"),
            likes: Some(1),
            tags: Some(vec![
                "license:mit".into(),
                "base_model:c/d".into(),
                "base_model:quantized:c/d".into(),
            ]),
            ..ListedRepo::new("a/b")
        };
        assert_eq!(repo, expected);
        let least = r#"{"id":"a/b","gated":false,"config":null}"#;
        let least = listed_repo(&serde_json::from_str(least).unwrap());
        assert_eq!(least, Some(ListedRepo::new("a/b")));
        assert_eq!(listed_repo(&serde_json::from_str("{}").unwrap()), None);
    }

    #[test]
    fn a_page_is_halved_down_to_one_model() {
        let half = |page: &str| with_limit(page, |models| models / 2);
        let page = "https://hub.example/api/models?filter=a%26b&limit=5&cursor=x";
        let smaller = half(page).unwrap();
        assert_eq!(smaller, page.replace("limit=5", "limit=2"));
        let single = half(&smaller).unwrap();
        assert!(single.contains("limit=1&") && half(&single).is_none());
    }

    #[test]
    fn a_listing_is_requested_with_its_conditions() {
        let client = Client::builder().endpoint("https://hub.example/hf").build().unwrap();
        let listing = Listing::new().filter("safetensors").author("a&b");
        assert!(listing.first_page(&client).unwrap().as_str().starts_with(
            "https://hub.example/hf/api/models?filter=safetensors&author=a%26b&sort=createdAt&direction=-1&limit=1000&expand%5B%5D=author"
        ));
    }
}
