//! Parts: the files of a census. Each has the rows of 256 repositories.

use serde::{Deserialize, Serialize};

use super::row::{CensusRow, SCHEMA_VERSION, TOOL};
use super::storage::Storage;
use super::table_file::{HeaderWriter, each_row, read_all_rows, read_footer, write_rows};
use super::{CensusError, Manifest, StoredHeader};
use hf_meta::count::RuleSet;

/// The folder with rows.
const MODELS: &str = "models";

/// The folder with headers.
const HEADERS: &str = "headers";

/// The number of headers in memory while a part is copied. Each may be as large as the limit for a header.
const HEADERS_AT_ONCE: usize = 1;

/// The name of a part: the hash of its manifest, and its number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CensusPart(String);

/// The metadata in the footers of a part's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartFooter {
    part: String,
    rules: String,
    schema_version: i64,
    tool: String,
    /// The number of parts of the census.
    parts: usize,
}

pub(super) struct PartRows {
    pub(super) rows: Vec<CensusRow>,
    /// The number of parts of the census.
    pub(super) parts: usize,
}

impl CensusPart {
    pub(super) fn new(manifest: &Manifest, part: usize) -> Self {
        Self(format!("{}-{part:06}", manifest.digest()))
    }

    /// Parses the file name of a table of rows.
    fn parse(file: &str) -> Option<Self> {
        let name = file.strip_suffix(".parquet")?;
        let (digest, part) = name.split_once('-')?;
        let is_name = digest.len() == 16 && part.parse::<u32>().is_ok();
        is_name.then(|| Self(name.to_owned()))
    }

    /// Returns whether the part belongs to a manifest.
    pub(super) fn is_of(&self, manifest: &Manifest) -> bool {
        self.0.starts_with(manifest.digest())
    }

    /// Lists the parts of a census.
    pub(super) async fn list(storage: &Storage) -> Result<Vec<Self>, CensusError> {
        Ok(storage.list(MODELS).await?.iter().filter_map(|file| Self::parse(file)).collect())
    }

    /// Lists the parts of a census, of which there must be at least one.
    pub(super) async fn list_existing(storage: &Storage) -> Result<Vec<Self>, CensusError> {
        let parts = Self::list(storage).await?;
        if parts.is_empty() { Err(no_census(storage)) } else { Ok(parts) }
    }

    /// Reads the rows of the part; `None` if the part does not exist, or was written with other counting rules or
    /// columns.
    pub(super) async fn read_current(
        &self,
        storage: &Storage,
    ) -> Result<Option<Vec<CensusRow>>, CensusError> {
        let Some(file) = storage.read(&self.models()).await? else { return Ok(None) };
        let footer = read_footer::<PartFooter>(&file);
        let is_current =
            footer.is_some_and(|PartFooter { part, rules, schema_version, .. }| {
                part == self.0
                    && rules == RuleSet::CURRENT.to_string()
                    && schema_version == SCHEMA_VERSION
            });
        if is_current { read_all_rows(self.models(), file).map(Some) } else { Ok(None) }
    }

    /// Reads the part without its headers.
    pub(super) async fn read(&self, storage: &Storage) -> Result<PartRows, CensusError> {
        let file = storage.read(&self.models()).await?.ok_or_else(|| no_census(storage))?;
        let parts = read_footer::<PartFooter>(&file).map_or(0, |footer| footer.parts);
        Ok(PartRows { rows: read_all_rows(self.models(), file)?, parts })
    }

    /// Returns all headers of the part. The headers of a repository are consecutive.
    pub(super) async fn read_headers(
        &self,
        storage: &Storage,
    ) -> Result<impl Iterator<Item = Result<StoredHeader, CensusError>> + use<>, CensusError> {
        let file = storage.download(&self.headers()).await?.ok_or_else(|| no_census(storage))?;
        each_row(self.headers(), file, HEADERS_AT_ONCE)
    }

    /// Starts the header table of the part.
    pub(super) fn start_headers(&self) -> Result<HeaderWriter, CensusError> {
        HeaderWriter::headers(&PartFooter::new(self, 0, &[]))
    }

    /// Writes a new part. The rows are written last, because a part exists once its rows do.
    ///
    /// If another process wrote the part first, its files are kept.
    pub(super) async fn create(
        &self,
        storage: &Storage,
        rows: &[CensusRow],
        headers: HeaderWriter,
        parts: usize,
    ) -> Result<(), CensusError> {
        if storage.exists(&self.models()).await? {
            return Ok(());
        }
        storage.upload(&self.headers(), headers.into_reader()?).await?;
        let rows = write_rows(rows, &PartFooter::new(self, parts, rows))?;
        storage.create(&self.models(), rows).await?;
        Ok(())
    }

    /// Replaces an existing part.
    pub(super) async fn replace(
        &self,
        storage: &Storage,
        rows: &[CensusRow],
        headers: Option<HeaderWriter>,
        parts: usize,
    ) -> Result<(), CensusError> {
        if let Some(headers) = headers {
            storage.upload(&self.headers(), headers.into_reader()?).await?;
        }
        let rows = write_rows(rows, &PartFooter::new(self, parts, rows))?;
        storage.replace(&self.models(), rows).await
    }

    fn models(&self) -> String {
        format!("{MODELS}/{}.parquet", self.0)
    }

    fn headers(&self) -> String {
        format!("{HEADERS}/{}.parquet", self.0)
    }
}

/// Returns the error for a target without a census.
fn no_census(storage: &Storage) -> CensusError {
    CensusError::NoCensus { target: storage.name().to_owned() }
}

impl PartFooter {
    /// Creates the footer of a part. Its rules are those of the oldest row.
    fn new(name: &CensusPart, parts: usize, rows: &[CensusRow]) -> Self {
        let current = RuleSet::CURRENT.to_string();
        let older = rows.iter().map(|row| &row.rules).find(|rules| **rules != current);
        Self {
            part: name.0.clone(),
            rules: older.cloned().unwrap_or(current),
            schema_version: SCHEMA_VERSION,
            tool: TOOL.to_owned(),
            parts,
        }
    }
}
