//! Lists the models of a Hub in a manifest.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use chrono::DateTime;
use serde::{Deserialize, Serialize};
use url::Url;

use super::error::failed_to;
use super::row::now;
use super::table_file::{TableWriter, each_row, read_footer, write_rows};
use super::{CensusError, ListedRepo};
use hf_meta::Client;
use hf_meta::ListedModel;

/// The number of models after which progress is saved, so that an interrupted listing can continue.
const STORED_AT_ONCE: usize = 2_000;

/// The number of rows per row group of a manifest. A part is read from one or two row groups.
const ROW_GROUP: usize = 10_000;

/// The overlap with the previous listing, in milliseconds: changes shortly before its watermark are listed again,
/// because listings lag behind.
const OVERLAP: i64 = 3_600_000;

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
}

/// The metadata in the footer of a manifest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListingFooter {
    /// The URL of the first page.
    url: String,
    /// The earliest time of change of the listed models, in milliseconds since 1970.
    since: Option<i64>,
    /// The URL of the next page; `None` if the listing is complete.
    next: Option<String>,
    /// The start time of the listing, in milliseconds since 1970.
    watermark: i64,
}

impl Listing {
    /// Creates a listing of all models.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists only models with this tag, such as `safetensors`.
    pub fn filter(mut self, tag: impl Into<String>) -> Self {
        self.conditions.push(("filter", tag.into()));
        self
    }

    /// Lists only the models of this user or organization.
    pub fn author(mut self, author: impl Into<String>) -> Self {
        self.conditions.push(("author", author.into()));
        self
    }

    /// Lists only models modified since a time, in milliseconds since the Unix epoch. The hour before it is included.
    pub fn since(self, time: i64) -> Self {
        Self { since: Some(time), ..self }
    }

    /// Returns the time at which an earlier listing started, in milliseconds since the Unix epoch, from its file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or [`write`](Self::write) did not write it.
    pub fn watermark(file: &Path) -> Result<i64, CensusError> {
        let opened = File::open(file).map_err(failed_to("read", file))?;
        let footer = read_footer::<ListingFooter>(&opened);
        let footer = footer.ok_or_else(|| CensusError::Manifest {
            name: file.display().to_string(),
            reason: "is not a listing written by `census list`".to_owned(),
        })?;
        Ok(footer.watermark)
    }

    /// Requests the listing and writes it to a Parquet file. Returns the number of models.
    ///
    /// Pages are stored in a folder next to the file, so that an interrupted listing can be resumed.
    ///
    /// # Errors
    ///
    /// Returns an error if a request fails, a page is invalid, or the file cannot be written.
    pub async fn write(&self, client: &Client, file: &Path) -> Result<usize, CensusError> {
        // Checked before the first request, because a listing takes minutes.
        target(file)?;
        let pages = StoredPages { folder: sibling_of(file, ".pages") };
        fs::create_dir_all(&pages.folder).map_err(failed_to("create", &pages.folder))?;
        let conditions: Vec<_> =
            self.conditions.iter().map(|(name, value)| (*name, &**value)).collect();
        let sort = if self.since.is_some() { "lastModified" } else { "createdAt" };
        let first = client.endpoint().models_url(sort, &conditions);
        let (mut number, mut footer) = pages.resume(&first, self.since);
        let mut seen = HashSet::new();
        while let Some(next) = footer.next.take() {
            let mut models = Vec::new();
            footer.next = self.list(client, next, &mut seen, &mut models).await?;
            pages.store(number, &models, &footer)?;
            number += 1;
        }
        let models = pages.join(file, number, &footer)?;
        fs::remove_dir_all(&pages.folder).map_err(failed_to("delete", &pages.folder))?;
        Ok(models)
    }

    /// Requests a batch of pages. Returns the URL of the next page; `None` at the end.
    async fn list(
        &self,
        client: &Client,
        mut page: String,
        seen: &mut HashSet<String>,
        models: &mut Vec<ListedRepo>,
    ) -> Result<Option<String>, CensusError> {
        let invalid = |reason: String| CensusError::InvalidListing { reason };
        loop {
            let url = Url::parse(&page).map_err(|error| invalid(error.to_string()))?;
            let listed_page = client.models_page(&url).await?;
            let listed = listed_page.models().map_err(|error| invalid(error.to_string()))?;
            let since = self.since.map(|since| since.saturating_sub(OVERLAP));
            let count = listed.len();
            let listed = listed.into_iter().map(ListedRepo::from);
            let is_changed =
                |repo: &ListedRepo| repo.last_modified.is_none_or(|time| Some(time) >= since);
            let changed: Vec<_> = listed.take_while(is_changed).collect();
            let is_end = changed.len() < count;
            models.extend(changed);
            match listed_page.next.filter(|_| !is_end) {
                None => return Ok(None),
                // Detect endless listings, whose pages are empty or form a cycle.
                Some(_) if count == 0 => {
                    return Err(invalid("a page contains no models".to_owned()));
                }
                Some(next) if !seen.insert(next.to_string()) => {
                    return Err(invalid("the pages form a cycle".to_owned()));
                }
                Some(next) => page = next.into(),
            }
            if models.len() >= STORED_AT_ONCE {
                return Ok(Some(page));
            }
        }
    }
}

/// The saved pages of an unfinished listing.
struct StoredPages {
    folder: PathBuf,
}

impl StoredPages {
    /// Returns the number of the next file and the footer of the last one. Pages of other listings are ignored.
    fn resume(&self, first: &Url, since: Option<i64>) -> (usize, ListingFooter) {
        let url = first.to_string();
        let mut last =
            (0, ListingFooter { url, since, next: Some(first.to_string()), watermark: now() });
        for number in 0.. {
            let Ok(file) = File::open(self.file(number)) else { break };
            match read_footer::<ListingFooter>(&file) {
                Some(footer) if footer.url == last.1.url && footer.since == since => {
                    last = (number + 1, footer);
                }
                _ => break,
            }
        }
        last
    }

    fn store(
        &self,
        number: usize,
        models: &[ListedRepo],
        footer: &ListingFooter,
    ) -> Result<(), CensusError> {
        let file = self.file(number);
        replace(&file, |temporary| {
            fs::write(temporary, write_rows(models, footer)?).map_err(failed_to("write", &file))
        })
    }

    /// Joins the pages into one file.
    fn join(
        &self,
        file: &Path,
        pages: usize,
        footer: &ListingFooter,
    ) -> Result<usize, CensusError> {
        let mut models = 0;
        replace(file, |temporary| {
            let output = File::create(temporary).map_err(failed_to("write", file))?;
            let name = file.display().to_string();
            let mut writer =
                TableWriter::<_, ListedRepo>::published(output, name, footer, ROW_GROUP)?;
            for number in 0..pages {
                let page = self.file(number);
                let opened = File::open(&page).map_err(failed_to("read", &page))?;
                for row in each_row(page.display().to_string(), opened, ROW_GROUP)? {
                    models += 1;
                    writer.write(row?)?;
                }
            }
            writer.finish()?.sync_all().map_err(failed_to("write", file))
        })?;
        Ok(models)
    }

    fn file(&self, number: usize) -> PathBuf {
        self.folder.join(format!("{number:06}.parquet"))
    }
}

/// Writes a file to a temporary name and renames it, so that it is never incomplete. If writing fails, nothing
/// remains. Links are followed, and special files such as pipes are not replaced.
pub(super) fn replace(
    file: &Path,
    write: impl FnOnce(&Path) -> Result<(), CensusError>,
) -> Result<(), CensusError> {
    let target = target(file)?;
    let temporary = sibling_of(&target, ".part");
    let written = write(&temporary);
    let written =
        written.and_then(|()| fs::rename(&temporary, &target).map_err(failed_to("write", file)));
    if written.is_err() {
        // Otherwise a full disk would stay full. Errors are ignored, because the first error is reported.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Returns the file with all links resolved, if it can be replaced.
fn target(file: &Path) -> Result<PathBuf, CensusError> {
    let target = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    if target.exists() && !target.is_file() {
        return Err(failed_to("write", file)(io::Error::other("it is not a regular file")));
    }
    Ok(target)
}

fn sibling_of(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl From<ListedModel> for ListedRepo {
    fn from(mut model: ListedModel) -> Self {
        let time = |text: Option<String>| {
            Some(DateTime::parse_from_rfc3339(&text?).ok()?.timestamp_millis())
        };
        let (files, gated, hub_total) = (model.take_files(), model.gate(), model.total());
        let (license, base_model) = (model.tag("license:"), model.tag("base_model:"));
        let architecture = model.architecture();
        let ListedModel { id, sha, author, downloads, pipeline_tag, library, .. } = model;
        Self {
            repo: id,
            commit: sha,
            files,
            author,
            created_at: time(model.created_at),
            last_modified: time(model.last_modified),
            downloads,
            gated,
            hub_total,
            pipeline_tag,
            library,
            license,
            architecture,
            base_model,
        }
    }
}
