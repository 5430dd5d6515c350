//! Parts: the files of a census, each with the rows of 256 repositories.

use serde::{Deserialize, Serialize};

use super::row::{CensusRow, SCHEMA_VERSION, TOOL};
use super::storage::{Storage, temporary};
use super::table_file::{HeaderWriter, each_row, read_all_rows, read_footer, write_rows};
use super::{CensusError, Manifest, StoredHeader};
use crate::count::RuleSet;

/// The folder of rows.
const MODELS: &str = "models";

/// The folder of headers.
const HEADERS: &str = "headers";

/// The headers that are in memory at once while a part is copied: each may be as large as the limit of a header.
const HEADERS_AT_ONCE: usize = 1;

/// The name of a part: the hash of its manifest and its number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CensusPart(String);

/// The description in the footers of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartFooter {
    part: String,
    rules: String,
    schema_version: i64,
    tool: String,
}

impl CensusPart {
    pub(super) fn new(manifest: &Manifest, part: usize) -> Self {
        Self(format!("{}-{part:06}", manifest.digest()))
    }

    /// Parses the name of a file of rows.
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

    /// Lists the parts of a census, of which there is at least one.
    pub(super) async fn list_existing(storage: &Storage) -> Result<Vec<Self>, CensusError> {
        let parts = Self::list(storage).await?;
        if parts.is_empty() {
            return Err(CensusError::NoCensus { target: storage.name().to_owned() });
        }
        Ok(parts)
    }

    /// Reads the rows of the part; `None` if the part does not exist, or was read by other rules.
    pub(super) async fn read_current(
        &self,
        storage: &Storage,
    ) -> Result<Option<Vec<CensusRow>>, CensusError> {
        let Some(file) = storage.read(&self.models()).await? else { return Ok(None) };
        let footer = read_footer::<PartFooter>(&file);
        if footer.is_some_and(|footer| {
            footer == PartFooter { tool: footer.tool.clone(), ..PartFooter::new(self) }
        }) {
            read_all_rows(file).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Reads the rows of the part.
    pub(super) async fn read(&self, storage: &Storage) -> Result<Vec<CensusRow>, CensusError> {
        let file = storage.read(&self.models()).await?;
        read_all_rows(file.ok_or_else(|| no_census(storage))?)
    }

    /// Calls a function with all headers of each repository of the part.
    pub(super) async fn read_headers(
        &self,
        storage: &Storage,
    ) -> Result<impl Iterator<Item = Result<StoredHeader, CensusError>> + use<>, CensusError> {
        let file = storage.download(&self.headers()).await?.ok_or_else(|| no_census(storage))?;
        each_row(file, HEADERS_AT_ONCE)
    }

    /// Starts the headers of the part.
    pub(super) fn start_headers(&self) -> Result<HeaderWriter, CensusError> {
        HeaderWriter::new(temporary()?, &PartFooter::new(self))
    }

    /// Writes the part. It exists once its rows do, so they are written last.
    pub(super) async fn commit(
        &self,
        storage: &Storage,
        rows: &[CensusRow],
        headers: Option<HeaderWriter>,
        is_new: bool,
    ) -> Result<(), CensusError> {
        if let Some(headers) = headers {
            storage.upload(&self.headers(), headers.finish()?).await?;
        }
        let rows = write_rows(rows, &PartFooter::new(self))?;
        if is_new {
            // Another process may have read the same part. Its rows are as good as these.
            storage.create(&self.models(), rows).await?;
            Ok(())
        } else {
            storage.replace(&self.models(), rows).await
        }
    }

    fn models(&self) -> String {
        format!("{MODELS}/{}.parquet", self.0)
    }

    fn headers(&self) -> String {
        format!("{HEADERS}/{}.parquet", self.0)
    }
}

/// Returns the error of a target without a census.
fn no_census(storage: &Storage) -> CensusError {
    CensusError::NoCensus { target: storage.name().to_owned() }
}

impl PartFooter {
    fn new(name: &CensusPart) -> Self {
        Self {
            part: name.0.clone(),
            rules: RuleSet::CURRENT.to_string(),
            schema_version: SCHEMA_VERSION,
            tool: TOOL.to_owned(),
        }
    }
}
