//! The census: one row for each repository of the Hub, as Arrow record batches and Parquet files.
//!
//! | step | item |
//! |---|---|
//! | list the models of a Hub | [`Listing`] |
//! | open a list of repositories | [`Manifest`] |
//! | read them, and store rows and headers in parts | [`Census::read`] |
//! | read failed repositories again | [`Census::retry`] |
//! | count stored headers anew | [`Census::count`] |
//! | write all rows to one sorted file | [`Census::pack`] |
//! | compare two censuses | [`diff`] |
//! | read a record batch of repositories, without files | [`read_batch`] |
//!
//! A repository that cannot be read is a row with a [status](CensusRow::status): every repository of the manifest has
//! exactly one row. The page [`docs::census`](crate::docs::census) describes the tables.

mod again;
mod arrow;
mod diff;
mod error;
mod layout_digest;
mod listed_repo;
mod listing;
mod manifest;
mod pack;
mod part;
mod previous;
mod read_limits;
mod read_repo;
mod row;
mod run;
mod storage;
mod stored_header;
mod table_file;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

pub use self::diff::{CensusChange, diff};
pub use self::error::CensusError;
pub use self::listed_repo::ListedRepo;
pub use self::listing::Listing;
pub use self::manifest::Manifest;
pub use self::row::{ActiveParameters, CensusRow, DtypeSums, OtherSet, SCHEMA_VERSION};
pub use self::run::{Census, CensusProgress, CensusSummary};
pub use self::stored_header::StoredHeader;
/// The types of other crates in the interface of this module.
pub use {arrow_array, arrow_schema};

use self::read_limits::ReadLimits;
use self::table_file::ROWS_AT_ONCE;
use crate::client::Client;
use crate::name_list::COLUMNS;

/// The longest time that a repository of a census should wait for quotas, over all windows, for
/// [`RetryPolicy::max_wait`](crate::RetryPolicy::max_wait).
pub const MAX_QUOTA_WAIT: Duration = Duration::from_secs(24 * 3_600);

/// The limit in bytes of the headers of a repository of a census, for
/// [`ClientBuilder::headers_limit`](crate::ClientBuilder::headers_limit). The largest known ones have 120 MB.
pub const HEADERS_LIMIT: u64 = 128 << 20;

/// Returns the columns of the table `models`: the fields of [`CensusRow`].
#[must_use]
pub fn models_schema() -> SchemaRef {
    arrow::schema::<CensusRow>()
}

/// Returns the columns of the table `headers`: the fields of [`StoredHeader`].
#[must_use]
pub fn headers_schema() -> SchemaRef {
    arrow::schema::<StoredHeader>()
}

/// Returns the columns of a manifest: the fields of [`ListedRepo`].
#[must_use]
pub fn manifest_schema() -> SchemaRef {
    arrow::schema::<ListedRepo>()
}

/// Returns the rows of a Parquet file of the table `models`: a part, or a packed file.
///
/// # Errors
///
/// If the file cannot be read, or is not such a table.
pub fn model_rows(
    file: &Path,
) -> Result<impl Iterator<Item = Result<CensusRow, CensusError>> + use<>, CensusError> {
    rows(file, ROWS_AT_ONCE)
}

/// Returns the rows of a Parquet file of the table `headers`.
///
/// # Errors
///
/// If the file cannot be read, or is not such a table.
pub fn header_rows(
    file: &Path,
) -> Result<impl Iterator<Item = Result<StoredHeader, CensusError>> + use<>, CensusError> {
    rows(file, 1)
}

/// Returns the rows of a Parquet file of a list of repositories by [`Listing::write`].
///
/// # Errors
///
/// If the file cannot be read, or is not such a table.
pub fn listed_rows(
    file: &Path,
) -> Result<impl Iterator<Item = Result<ListedRepo, CensusError>> + use<>, CensusError> {
    rows(file, ROWS_AT_ONCE)
}

fn rows<Row: arrow::ArrowRow>(
    file: &Path,
    rows_at_once: usize,
) -> Result<impl Iterator<Item = Result<Row, CensusError>> + use<Row>, CensusError> {
    let name = file.display().to_string();
    let opened = File::open(file).map_err(error::failed_to("read", file))?;
    table_file::each_row(name, opened, rows_at_once)
}

/// Reads the repositories of a record batch, and returns their rows in the same order.
///
/// The batch has the columns of a manifest. A column of names is enough: `repo`, `id`, `modelId` or `repository`. At
/// most `jobs` repositories are read at once.
///
/// # Errors
///
/// If there is no column of names. A repository that cannot be read is a row.
pub async fn read_batch(
    client: &Client,
    repos: &RecordBatch,
    jobs: usize,
) -> Result<RecordBatch, CensusError> {
    let has_text = |name: &&&str| listed_repo::text_column(repos, &[name]).is_some();
    let names = COLUMNS.iter().find(has_text);
    let names = names.ok_or_else(|| CensusError::Manifest {
        name: "record batch".to_owned(),
        reason: format!("has no column `{}`", COLUMNS.join("`, `")),
    })?;
    let repos = listed_repo::from_columns(repos, names)?.into_iter().enumerate().collect();
    let limits = ReadLimits::new(jobs);
    let mut rows = run::read_rows(client, repos, &limits, jobs, None, false, |_| ()).await?;
    rows.sort_unstable_by_key(|(at, _)| *at);
    let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
    arrow::to_batch(&rows)
}
