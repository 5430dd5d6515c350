//! Parts: the files of a census. Each has the rows of 256 repositories.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::mem::take;

use bytes::Bytes;
use itertools::Itertools;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterPropertiesBuilder;
use serde::{Deserialize, Serialize};

use super::read_repo::RepoReader;
use super::row::{CensusRow, SCHEMA_VERSION};
use super::storage::Storage;
use super::table::{
    TableRow, TableWriter, each_row, encode, read_footer, row_groups, writer_properties,
};
use super::{CensusError, ListedRepo, Manifest, StoredHeader};
use hf_meta::count::RuleSet;

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
    fn new() -> Result<Self, CensusError> {
        let properties =
            header_properties().set_compression(Compression::ZSTD(ZstdLevel::default()));
        let writer = TableWriter::temporary(&(), properties)?;
        Ok(Self { writer, groups: Vec::new() })
    }

    /// Adds the headers of a repository.
    fn add(
        &mut self,
        headers: impl Iterator<Item = Result<StoredHeader, CensusError>>,
    ) -> Result<(), CensusError> {
        let mut repo = String::new();
        for header in headers {
            let header = header?;
            repo.clone_from(&header.repo);
            self.writer.write(header)?;
        }
        self.groups.resize(self.writer.end_row_group()?, repo);
        Ok(())
    }

    /// Returns a table that is sorted by repository and file.
    fn into_sorted(self, footer: &PartFooter) -> Result<File, CensusError> {
        let groups = self.groups.into_iter().enumerate().map(|(group, repo)| (repo, group));
        let groups: Vec<_> = groups.sorted_unstable().map(|(_, group)| group).collect();
        let mut sorted = TableWriter::temporary(footer, header_properties())?;
        for header in row_groups::<StoredHeader>(self.writer.into_reader()?, groups)? {
            sorted.write(header?)?;
        }
        sorted.into_reader()
    }
}

fn header_properties() -> WriterPropertiesBuilder {
    StoredHeader::published(writer_properties())
}

/// A part before it is written.
pub(super) struct PendingPart {
    footer: PartFooter,
    pub(super) rows: Vec<CensusRow>,
    /// The repositories that are read.
    pub(super) repos: Vec<ListedRepo>,
    /// The headers of `rows`.
    headers: HeaderSpool,
}

impl PendingPart {
    /// Creates a part without rows.
    pub(super) fn new(
        part: &CensusPart,
        parts: usize,
        repos: Vec<ListedRepo>,
    ) -> Result<Self, CensusError> {
        let unread = repos.iter().map(|repo| (repo.repo.clone(), repo.clone())).collect();
        let footer = PartFooter { unread, ..PartFooter::new(part, parts) };
        Ok(Self { footer, rows: Vec::new(), repos, headers: HeaderSpool::new()? })
    }

    /// Continues an existing part. The rows of `repos` are removed.
    pub(super) async fn resume(
        storage: &Storage,
        part: &CensusPart,
        footer: PartFooter,
        rows: Vec<CensusRow>,
        repos: Vec<ListedRepo>,
    ) -> Result<Self, CensusError> {
        let unread: BTreeSet<_> = repos.iter().map(|repo| repo.repo.clone()).collect();
        let mut pending =
            Self { footer: footer.clone(), rows: Vec::new(), repos, headers: HeaderSpool::new()? };
        let copy = |row: CensusRow| (!unread.contains(&row.repo)).then_some(row);
        pending.copy_rows(storage, part, (&footer, rows), copy).await?;
        Ok(pending)
    }

    /// Copies rows of an existing part and their headers.
    pub(super) async fn copy_rows(
        &mut self,
        storage: &Storage,
        part: &CensusPart,
        (of_part, rows): (&PartFooter, Vec<CensusRow>),
        copy: impl FnMut(CensusRow) -> Option<CensusRow>,
    ) -> Result<(), CensusError> {
        let copied: Vec<_> = rows.into_iter().filter_map(copy).collect();
        let commits = copied.iter().map(|row| (&row.repo, row.commit.as_ref()));
        let commits: HashMap<_, _> = commits.collect();
        let is_copied =
            |header: &StoredHeader| commits.get(&header.repo) == Some(&Some(&header.commit));
        let headers = part.read_headers(storage, of_part).await?;
        let headers = headers.filter_ok(is_copied).chunk_by(|header| {
            header.as_ref().map_or_else(|_| String::new(), |header| header.repo.clone())
        });
        for (_, of_repo) in &headers {
            self.headers.add(of_repo)?;
        }
        for row in copied {
            self.add_row(row);
        }
        Ok(())
    }

    fn add_row(&mut self, row: CensusRow) {
        if !row.has_failed() {
            self.footer.unread.remove(&row.repo);
        }
        self.rows.push(row);
    }

    /// Reads the repositories until all have a row or the run ends. Then rows that have failed are left out.
    pub(super) async fn complete<Turn>(
        &mut self,
        reader: &RepoReader,
        turn: Turn,
        on_row: impl Fn(&CensusRow),
    ) -> Result<(), CensusError> {
        let repos = take(&mut self.repos);
        // Held until the last repository is started.
        let (mut turn, count) = (Some(turn), repos.len());
        let started = repos.into_iter().enumerate().map(move |(at, repo)| {
            turn.take_if(|_| at + 1 == count);
            (at, repo)
        });
        reader
            .read_all(started, |_, row, read| {
                let headers = read.into_iter().flat_map(|read| StoredHeader::all(&row.repo, read));
                self.headers.add(headers.map(Ok))?;
                on_row(&row);
                self.add_row(row);
                Ok(())
            })
            .await?;
        if !self.is_complete() || reader.is_stopped() {
            self.rows.retain(|row| !row.has_failed());
        }
        Ok(())
    }

    /// Returns whether every repository has a row.
    pub(super) fn is_complete(&self) -> bool {
        self.footer.unread(&self.rows, false).next().is_none()
    }
}

impl CensusPart {
    pub(super) fn new(manifest: &Manifest, number: usize) -> Self {
        Self { digest: manifest.digest().to_owned(), number }
    }

    /// Parses the file name of a table of rows.
    fn parse(file: &str) -> Option<Self> {
        let (digest, number) = file.strip_suffix(".parquet")?.split_once('-')?;
        let part = Self { digest: digest.to_owned(), number: number.parse().ok()? };
        (digest.len() == 16 && file == format!("{part}.parquet")).then_some(part)
    }

    /// Returns whether the part belongs to a manifest.
    pub(super) fn belongs_to(&self, manifest: &Manifest) -> bool {
        self.digest == manifest.digest()
    }

    /// Lists the parts of a census.
    pub(super) async fn list(storage: &Storage) -> Result<BTreeSet<Self>, CensusError> {
        Ok(storage.list(REPOS).await?.iter().filter_map(|file| Self::parse(file)).collect())
    }

    /// Lists the parts of a census, of which there must be at least one.
    pub(super) async fn list_existing(storage: &Storage) -> Result<BTreeSet<Self>, CensusError> {
        let parts = Self::list(storage).await?;
        if parts.is_empty() { Err(no_census(storage)) } else { Ok(parts) }
    }

    /// Reads the part without its headers; `None` if it does not exist, its headers do not, or it was written with other
    /// counting rules or columns.
    pub(super) async fn read_current(
        &self,
        storage: &Storage,
    ) -> Result<Option<(PartFooter, Vec<CensusRow>)>, CensusError> {
        match self.open(storage).await? {
            Some((footer, file))
                if footer.is_current(self)
                    && storage.size(&self.files()).await? == Some(footer.header_bytes) =>
            {
                Ok(Some((footer, self.rows(file)?)))
            }
            _ => Ok(None),
        }
    }

    /// Reads the part without its headers.
    pub(super) async fn read(
        &self,
        storage: &Storage,
    ) -> Result<(PartFooter, Vec<CensusRow>), CensusError> {
        let (footer, file) = self.open(storage).await?.ok_or_else(|| no_census(storage))?;
        Ok((footer, self.rows(file)?))
    }

    async fn open(&self, storage: &Storage) -> Result<Option<(PartFooter, Bytes)>, CensusError> {
        let file = storage.read(&self.repos()).await?;
        Ok(file.map(|file| (read_footer(&file).unwrap_or_default(), file)))
    }

    fn rows(&self, file: Bytes) -> Result<Vec<CensusRow>, CensusError> {
        each_row(&self.repos(), file)?.collect()
    }

    /// Returns all headers of the part, sorted by repository and file.
    pub(super) async fn read_headers(
        &self,
        storage: &Storage,
        footer: &PartFooter,
    ) -> Result<impl Iterator<Item = Result<StoredHeader, CensusError>> + use<>, CensusError> {
        let headers = self.files();
        match storage.download(&headers).await? {
            Some((file, bytes)) if bytes == footer.header_bytes => each_row(&headers, file),
            found => Err(CensusError::Headers {
                file: storage.display_path(&headers),
                problem: if found.is_some() { "has been changed" } else { "is missing" },
            }),
        }
    }

    /// Writes the headers and then the rows, because a part exists once its rows do. A part that another process wrote in
    /// the meantime is kept if it has more rows, or as many and this run did not find it. Returns the rows.
    pub(super) async fn write(
        &self,
        storage: &Storage,
        pending: PendingPart,
        exists: bool,
    ) -> Result<Vec<CensusRow>, CensusError> {
        let PendingPart { mut footer, mut rows, headers, .. } = pending;
        rows.sort_unstable_by(|one, other| one.repo.cmp(&other.repo));
        let found = self.open(storage).await?.map(|(found, _)| found);
        let is_kept = |found: &PartFooter| {
            let most = footer.unread.len() + usize::from(!exists);
            found.is_current(self) && found.unread.len() < most
        };
        if !rows.is_empty() && !found.is_some_and(|found| is_kept(&found)) {
            let headers = headers.into_sorted(&PartFooter::new(self, footer.parts))?;
            footer.header_bytes = storage.upload(&self.files(), headers).await?;
            self.write_rows(storage, &rows, footer).await?;
        }
        Ok(rows)
    }

    /// Writes the rows of a part whose headers are stored.
    pub(super) async fn write_rows(
        &self,
        storage: &Storage,
        rows: &[CensusRow],
        footer: PartFooter,
    ) -> Result<(), CensusError> {
        let footer = footer.with_rules(rows);
        let rows = encode(&self.repos(), rows, &footer)?;
        storage.write(&self.repos(), rows).await
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
    CensusError::NoCensus { target: storage.name().to_owned() }
}

impl PartFooter {
    /// Creates the footer of a part without rows.
    fn new(part: &CensusPart, parts: usize) -> Self {
        let footer = Self { part: part.to_string(), parts, ..Self::default() };
        footer.with_rules(&[])
    }

    /// States the schema, and the counting rules of the oldest row.
    fn with_rules(self, rows: &[CensusRow]) -> Self {
        let current = RuleSet::CURRENT.to_string();
        let older = rows.iter().map(|row| &row.rules).find(|rules| **rules != current);
        let rules = older.cloned().unwrap_or(current);
        Self { rules, schema_version: SCHEMA_VERSION, ..self }
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

    /// Returns the repositories without a row, and those with a failed row if `failed` is true.
    pub(super) fn unread<'a>(
        &'a self,
        rows: &'a [CensusRow],
        failed: bool,
    ) -> impl Iterator<Item = &'a ListedRepo> {
        let rows = rows.iter().filter(|_| !failed).map(|row| &*row.repo);
        let rows: HashSet<_> = rows.collect();
        self.unread.values().filter(move |repo| !rows.contains(&*repo.repo))
    }
}
