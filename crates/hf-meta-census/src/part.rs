//! Parts: the files of a census. Each has the rows of 256 repositories.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::fs::File;

use itertools::Itertools;
use serde::{Deserialize, Serialize};

use super::error::{CensusError, Result};
use super::manifest::{ListedRepo, Manifest};
use super::row::{CensusRow, SCHEMA_VERSION};
use super::storage::Storage;
use super::stored_header::StoredHeader;
use super::table::{TableWriter, each_row, encode, read_footer};
use hf_meta::internal::HeaderBytes;
use hf_meta_count::count::RuleSet;

/// The folder with rows.
const REPOS: &str = "repos";

/// The folder with headers.
const FILES: &str = "files";

/// The name of a part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CensusPart {
    /// The hash of the manifest.
    digest: String,
    pub(super) number: usize,
}

impl fmt::Display for CensusPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:06}", self.digest, self.number)
    }
}

/// The metadata in the footers of a part's files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartFooter {
    part: String,
    rules: String,
    schema_version: i64,
    /// The number of parts of the census.
    pub(super) parts: usize,
    /// The entries of the list that have no row yet, or a row with the status `failed`, by name.
    unread: BTreeMap<String, ListedRepo>,
    /// The size of the file with the headers.
    header_bytes: u64,
}

/// A header table in a temporary file, because the headers of a part may not fit in memory.
///
/// The headers of a repository are in separate row groups, so that they can be sorted by repository.
struct HeaderSpool {
    writer: TableWriter<File, StoredHeader>,
    /// The repository of each row group.
    groups: Vec<String>,
}

impl HeaderSpool {
    /// Adds the headers of a repository.
    fn add(
        &mut self,
        repo: &str,
        headers: impl Iterator<Item = Result<StoredHeader>>,
    ) -> Result<()> {
        self.writer.write_all(headers)?;
        self.groups.resize(self.writer.end_row_group()?, repo.to_owned());
        Ok(())
    }

    /// Returns a table that is sorted by repository and file.
    fn into_sorted(self, footer: &PartFooter) -> Result<File> {
        let groups = (0..self.groups.len()).sorted_by_key(|group| &self.groups[*group]).collect();
        let mut sorted = TableWriter::<_, StoredHeader>::sorted(footer)?;
        let name = std::env::temp_dir().display().to_string();
        sorted.write_all(each_row(&name, self.writer.into_reader()?, Some(groups))?)?;
        sorted.into_reader()
    }
}

/// The content of a part without its headers.
pub(super) struct StoredPart {
    pub(super) part: CensusPart,
    pub(super) footer: PartFooter,
    pub(super) rows: Vec<CensusRow>,
}

/// A part before it is written.
pub(super) struct PendingPart {
    pub(super) content: StoredPart,
    /// The headers of the rows.
    headers: HeaderSpool,
    /// The number of repositories that are being read.
    pub(super) missing: usize,
}

impl PendingPart {
    /// Creates a part of these repositories, without rows.
    pub(super) fn new(part: CensusPart, parts: usize, repos: &[ListedRepo]) -> Result<Self> {
        let unread = repos.iter().map(|repo| (repo.repo.clone(), repo.clone())).collect();
        let footer = PartFooter { unread, ..PartFooter::new(&part, parts) };
        let headers = HeaderSpool { writer: TableWriter::unsorted()?, groups: Vec::new() };
        let content = StoredPart { part, footer, rows: Vec::new() };
        Ok(Self { content, headers, missing: repos.len() })
    }

    /// Continues an existing part, and returns the repositories to read: those without a row, and the failed ones if
    /// `failed` is true.
    pub(super) async fn resume(
        storage: &Storage,
        mut stored: StoredPart,
        failed: bool,
    ) -> Result<(Self, Vec<ListedRepo>)> {
        let repos: Vec<_> = stored.unread(failed).cloned().collect();
        let mut pending = Self::new(stored.part.clone(), stored.footer.parts, &repos)?;
        pending.content.footer = stored.footer.clone();
        let unread: HashSet<_> = repos.iter().map(|repo| &repo.repo).collect();
        stored.rows.retain(|row| !unread.contains(&row.repo));
        pending.copy_rows(storage, stored).await?;
        Ok((pending, repos))
    }

    /// Adds the rows of an existing part, and copies their headers.
    pub(super) async fn copy_rows(&mut self, storage: &Storage, stored: StoredPart) -> Result<()> {
        let commits = stored.rows.iter().filter_map(|row| Some((&row.repo, row.commit.as_ref()?)));
        let commits: HashSet<_> = commits.collect();
        let headers = stored.read_headers(storage).await?;
        let headers = headers.filter_ok(|header| commits.contains(&(&header.repo, &header.commit)));
        let headers = headers.chunk_by(|header| {
            header.as_ref().map_or_else(|_| String::new(), |header| header.repo.clone())
        });
        for (repo, of_repo) in &headers {
            self.headers.add(&repo, of_repo)?;
        }
        stored.rows.into_iter().for_each(|row| self.add_row(row));
        Ok(())
    }

    /// Adds the row of a repository that was read, and its headers.
    pub(super) fn add(&mut self, row: CensusRow, headers: Option<HeaderBytes>) -> Result<()> {
        let headers = headers.into_iter().flat_map(|read| StoredHeader::all(&row.repo, read));
        self.headers.add(&row.repo, headers.map(Ok))?;
        self.add_row(row);
        self.missing -= 1;
        Ok(())
    }

    fn add_row(&mut self, row: CensusRow) {
        if !row.has_failed() {
            self.content.footer.unread.remove(&row.repo);
        }
        self.content.rows.push(row);
    }

    /// Writes the headers and then the rows, because a part exists once its rows do. An incomplete part is written without
    /// failed rows. A part with as many rows is kept: another process wrote it, or no repository could be read. Returns the
    /// rows.
    pub(super) async fn write(self, storage: &Storage) -> Result<Vec<CensusRow>> {
        let Self { mut content, headers, missing } = self;
        let StoredPart { part, footer, rows } = &mut content;
        rows.retain(|row| missing == 0 || !row.has_failed());
        rows.sort_unstable_by(|one, other| one.repo.cmp(&other.repo));
        let found = part.find(storage, true).await?;
        let is_kept = found.is_some_and(|found| {
            found.footer.unread.len() <= footer.unread.len() && found.rows.len() >= rows.len()
        });
        if !rows.is_empty() && !is_kept {
            let headers = headers.into_sorted(&PartFooter::new(part, footer.parts))?;
            footer.header_bytes = storage.upload(&part.files(), headers).await?;
            content.write(storage).await?;
        }
        Ok(content.rows)
    }
}

impl StoredPart {
    /// Returns all headers of the part, sorted by repository and file.
    pub(super) async fn read_headers(
        &self,
        storage: &Storage,
    ) -> Result<impl Iterator<Item = Result<StoredHeader>> + use<>> {
        let headers = self.part.files();
        match storage.download(&headers).await? {
            Some((file, bytes)) if bytes == self.footer.header_bytes => {
                each_row(&headers, file, None)
            }
            found => Err(CensusError::Headers {
                file: storage.display_path(&headers),
                problem: if found.is_some() { "has been changed" } else { "is missing" },
            }),
        }
    }

    /// Writes the rows of the part, whose headers are stored.
    pub(super) async fn write(&mut self, storage: &Storage) -> Result<()> {
        let Self { part, footer, rows } = self;
        footer.set_rules(rows);
        storage.write(&part.repos(), encode(&part.repos(), rows, footer)?).await
    }

    /// Returns the repositories without a row, and those with a failed row if `failed` is true.
    pub(super) fn unread(&self, failed: bool) -> impl Iterator<Item = &ListedRepo> {
        let mut done = HashSet::new();
        if !failed {
            done.extend(self.rows.iter().map(|row| &*row.repo));
        }
        self.footer.unread.values().filter(move |repo| !done.contains(&*repo.repo))
    }
}

impl CensusPart {
    pub(super) fn new(manifest: &Manifest, number: usize) -> Self {
        Self { digest: manifest.digest.clone(), number }
    }

    /// Parses the file name of a table of rows.
    fn parse(file: &str) -> Option<Self> {
        let (digest, number) = file.strip_suffix(".parquet")?.split_once('-')?;
        let part = Self { digest: digest.to_owned(), number: number.parse().ok()? };
        (digest.len() == 16 && file == format!("{part}.parquet")).then_some(part)
    }

    /// Returns whether the part belongs to a manifest.
    pub(super) fn belongs_to(&self, manifest: &Manifest) -> bool {
        self.digest == manifest.digest
    }

    /// Lists the parts of a census.
    pub(super) async fn list(storage: &Storage) -> Result<BTreeSet<Self>> {
        Ok(storage.list(REPOS).await?.iter().filter_map(|file| Self::parse(file)).collect())
    }

    /// Lists the parts of a census, of which there must be at least one.
    pub(super) async fn list_existing(storage: &Storage) -> Result<BTreeSet<Self>> {
        let parts = Self::list(storage).await?;
        if parts.is_empty() { Err(no_census(storage)) } else { Ok(parts) }
    }

    /// Reads the part without its headers; `None` if it does not exist. With `is_current`, also `None` if its headers do
    /// not exist, or if it was written with other counting rules or columns.
    pub(super) async fn find(
        &self,
        storage: &Storage,
        is_current: bool,
    ) -> Result<Option<StoredPart>> {
        let Some(file) = storage.read(&self.repos()).await? else { return Ok(None) };
        let footer: PartFooter = read_footer(&file).unwrap_or_default();
        if is_current {
            let bytes = storage.size(&self.files()).await?;
            if !footer.is_current(self) || bytes != Some(footer.header_bytes) {
                return Ok(None);
            }
        }
        let rows = each_row(&self.repos(), file, None)?.try_collect()?;
        Ok(Some(StoredPart { part: self.clone(), footer, rows }))
    }

    /// Reads the part without its headers.
    pub(super) async fn read(&self, storage: &Storage) -> Result<StoredPart> {
        self.find(storage, false).await?.ok_or_else(|| no_census(storage))
    }

    fn repos(&self) -> String {
        format!("{REPOS}/{self}.parquet")
    }

    fn files(&self) -> String {
        format!("{FILES}/{self}.parquet")
    }
}

/// Returns the error for a target without a census.
fn no_census(storage: &Storage) -> CensusError {
    CensusError::NoCensus { target: storage.name.clone() }
}

impl PartFooter {
    /// Creates the footer of a part without rows.
    fn new(part: &CensusPart, parts: usize) -> Self {
        let mut footer = Self { part: part.to_string(), parts, ..Self::default() };
        footer.set_rules(&[]);
        footer
    }

    /// States the schema, and the counting rules of the oldest row.
    fn set_rules(&mut self, rows: &[CensusRow]) {
        let current = RuleSet::CURRENT.to_string();
        let older = rows.iter().map(|row| &row.rules).find(|rules| **rules != current);
        self.rules = older.cloned().unwrap_or(current);
        self.schema_version = SCHEMA_VERSION;
    }

    /// Returns whether the part was written with the current counting rules and columns.
    fn is_current(&self, part: &CensusPart) -> bool {
        self.part == part.to_string()
            && self.rules == RuleSet::CURRENT.to_string()
            && self.has_current_columns()
    }

    pub(super) fn has_current_columns(&self) -> bool {
        self.schema_version == SCHEMA_VERSION
    }
}
