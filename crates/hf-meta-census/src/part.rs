//! Parts: the files of a census. Each has the rows of 256 repositories.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs::File;

use bytes::Bytes;
use object_store::PutMode;
use parquet::file::properties::EnabledStatistics;
use serde::{Deserialize, Serialize};

use super::read_repo::RepoReader;
use super::row::{CensusRow, SCHEMA_VERSION, TOOL};
use super::storage::Storage;
use super::table::{BATCH_ROWS, TableWriter, each_row, encode, read_footer, writer_properties};
use super::{CensusError, ListedRepo, Manifest, StoredHeader};
use hf_meta::HeaderBytes;
use hf_meta::count::RuleSet;

/// The folder with rows.
const MODELS: &str = "models";

/// The folder with headers.
const HEADERS: &str = "headers";

/// The number of headers in memory while a part is copied. Each may be as large as the limit for a header.
const HEADER_BATCH_ROWS: usize = 1;

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
struct PartFooter {
    part: String,
    rules: String,
    schema_version: i64,
    tool: String,
    /// The number of parts of the census.
    parts: usize,
}

/// A header table in a temporary file, because the headers of a part may not fit in memory.
type HeaderWriter = TableWriter<File, StoredHeader>;

/// A part before it is written. Each repository has its index in the part.
pub(super) struct PendingPart {
    pub(super) rows: Vec<(usize, CensusRow)>,
    /// The repositories that still have no row.
    pub(super) repos: Vec<(usize, ListedRepo)>,
    /// The headers of `rows`.
    headers: HeaderWriter,
}

impl PendingPart {
    pub(super) fn new(part: &CensusPart) -> Result<Self, CensusError> {
        // Headers do not repeat, and their first bytes are just their length.
        let properties = writer_properties()
            .set_column_dictionary_enabled("header".into(), false)
            .set_column_statistics_enabled("header".into(), EnabledStatistics::None);
        let headers = TableWriter::temporary(&PartFooter::new(part, 0, &[]), properties)?;
        Ok(Self { rows: Vec::new(), repos: Vec::new(), headers })
    }

    /// Copies rows of an existing part and their headers. `copy` receives each row with its index, and returns its copy
    /// with the new index, or `None`.
    pub(super) async fn copy_rows(
        &mut self,
        storage: &Storage,
        part: &CensusPart,
        rows: Vec<CensusRow>,
        copy: impl FnMut((usize, CensusRow)) -> Option<(usize, CensusRow)>,
    ) -> Result<(), CensusError> {
        let copied: Vec<_> = rows.into_iter().enumerate().filter_map(copy).collect();
        let commits = copied.iter().map(|(_, row)| (&row.repo, row.commit.as_ref()));
        let commits: HashMap<_, _> = commits.collect();
        for header in part.read_headers(storage).await? {
            let header = header?;
            if commits.get(&header.repo) == Some(&Some(&header.commit)) {
                self.headers.write(header)?;
            }
        }
        self.rows.extend(copied);
        Ok(())
    }

    /// Reads the repositories that still have no row. Returns all rows, in order, and their headers.
    pub(super) async fn complete(
        self,
        reader: &RepoReader,
        on_row: impl Fn(&CensusRow),
    ) -> Result<(Vec<CensusRow>, HeaderWriter), CensusError> {
        let Self { mut rows, repos, mut headers } = self;
        let add = |at, row: CensusRow, read: Option<HeaderBytes>| {
            for header in read.into_iter().flat_map(|read| StoredHeader::all(&row.repo, read)) {
                headers.write(header)?;
            }
            on_row(&row);
            rows.push((at, row));
            Ok(())
        };
        reader.read_all(repos, add).await?;
        rows.sort_unstable_by_key(|(at, _)| *at);
        Ok((rows.into_iter().map(|(_, row)| row).collect(), headers))
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
        Ok(storage.list(MODELS).await?.iter().filter_map(|file| Self::parse(file)).collect())
    }

    /// Lists the parts of a census, of which there must be at least one.
    pub(super) async fn list_existing(storage: &Storage) -> Result<BTreeSet<Self>, CensusError> {
        let parts = Self::list(storage).await?;
        if parts.is_empty() { Err(no_census(storage)) } else { Ok(parts) }
    }

    /// Reads the rows of the part; `None` if the part does not exist, or was written with other counting rules or
    /// columns.
    pub(super) async fn read_current(
        &self,
        storage: &Storage,
    ) -> Result<Option<Vec<CensusRow>>, CensusError> {
        match self.open(storage).await? {
            Some((footer, file)) if footer.is_current(self) => self.rows(file).map(Some),
            _ => Ok(None),
        }
    }

    /// Reads the part without its headers. Returns its rows and the number of parts of the census.
    pub(super) async fn read(
        &self,
        storage: &Storage,
    ) -> Result<(Vec<CensusRow>, usize), CensusError> {
        let (footer, file) = self.open(storage).await?.ok_or_else(|| no_census(storage))?;
        Ok((self.rows(file)?, footer.parts))
    }

    async fn open(&self, storage: &Storage) -> Result<Option<(PartFooter, Bytes)>, CensusError> {
        let file = storage.read(&self.models()).await?;
        Ok(file.map(|file| (read_footer(&file).unwrap_or_default(), file)))
    }

    fn rows(&self, file: Bytes) -> Result<Vec<CensusRow>, CensusError> {
        each_row(&self.models(), file, BATCH_ROWS)?.collect()
    }

    /// Returns all headers of the part. The headers of a repository are consecutive.
    pub(super) async fn read_headers(
        &self,
        storage: &Storage,
    ) -> Result<impl Iterator<Item = Result<StoredHeader, CensusError>> + use<>, CensusError> {
        let file = storage.download(&self.headers()).await?.ok_or_else(|| no_census(storage))?;
        each_row(&self.headers(), file, HEADER_BATCH_ROWS)
    }

    /// Writes the headers and then the rows, because a part exists once its rows do. In the mode `Create`, a part that
    /// another process wrote first is kept. Returns the rows.
    pub(super) async fn write(
        &self,
        storage: &Storage,
        (rows, headers): (Vec<CensusRow>, HeaderWriter),
        parts: usize,
        mode: PutMode,
    ) -> Result<Vec<CensusRow>, CensusError> {
        if mode == PutMode::Overwrite || storage.read(&self.models()).await?.is_none() {
            storage.upload(&self.headers(), headers.into_reader()?).await?;
            self.write_rows(storage, &rows, parts, mode).await?;
        }
        Ok(rows)
    }

    /// Writes the rows of a part whose headers are stored.
    pub(super) async fn write_rows(
        &self,
        storage: &Storage,
        rows: &[CensusRow],
        parts: usize,
        mode: PutMode,
    ) -> Result<(), CensusError> {
        let rows = encode(&self.models(), rows, &PartFooter::new(self, parts, rows))?;
        storage.write(&self.models(), rows, mode).await
    }

    fn models(&self) -> String {
        format!("{MODELS}/{self}.parquet")
    }

    fn headers(&self) -> String {
        format!("{HEADERS}/{self}.parquet")
    }
}

/// Returns the error for a target without a census.
fn no_census(storage: &Storage) -> CensusError {
    CensusError::NoCensus { target: storage.name().to_owned() }
}

impl PartFooter {
    /// Creates the footer of a part. It states the counting rules of the oldest row.
    fn new(part: &CensusPart, parts: usize, rows: &[CensusRow]) -> Self {
        let current = RuleSet::CURRENT.to_string();
        let older = rows.iter().map(|row| &row.rules).find(|rules| **rules != current);
        Self {
            part: part.to_string(),
            rules: older.cloned().unwrap_or(current),
            schema_version: SCHEMA_VERSION,
            tool: TOOL.to_owned(),
            parts,
        }
    }

    /// Returns whether the part was written with the current counting rules and columns.
    fn is_current(&self, part: &CensusPart) -> bool {
        self.part == part.to_string()
            && self.rules == RuleSet::CURRENT.to_string()
            && self.schema_version == SCHEMA_VERSION
    }
}
