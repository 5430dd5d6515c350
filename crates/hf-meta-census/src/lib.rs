//! The census: one row per repository of the Hub, as Arrow record batches and Parquet files.
//!
//! | step | item |
//! |---|---|
//! | list the models on a Hub | [`Listing`] |
//! | open a list of repositories | [`Manifest`] |
//! | read the repositories and store their rows and headers in parts | [`Census::read`] |
//! | read failed repositories again | [`Census::retry`] |
//! | recount stored headers | [`Census::count`] |
//! | write all rows to one sorted file | [`Census::pack`] |
//! | compare two censuses | [`diff`] |
//! | read a record batch of repositories, without files | [`read_batch`] |
//!
//! A repository that cannot be read still has a row, with a [status](CensusRow::status): every repository of the
//! manifest has exactly one row. [`docs::census`](hf_meta::docs::census) describes the tables.

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
pub use self::row::{ActiveParameters, CensusRow, DtypeSums, OtherWeightSet, SCHEMA_VERSION};
pub use self::run::{Census, CensusProgress, CensusSummary};
pub use self::stored_header::StoredHeader;
/// The third-party crates whose types appear in the public API of this module.
pub use {arrow_array, arrow_schema};

use self::read_limits::ReadLimits;
use self::table_file::ROWS_AT_ONCE;
use hf_meta::Client;
use hf_meta_repo_list::COLUMNS;

/// The recommended limit on the total time that one repository of a census waits for quotas, for
/// [`RetryPolicy::max_wait`](hf_meta::RetryPolicy::max_wait): 24 hours.
pub const MAX_QUOTA_WAIT: Duration = Duration::from_secs(24 * 3_600);

/// The recommended limit on the total header size of one repository of a census, in bytes, for
/// [`ClientBuilder::max_total_header_bytes`](hf_meta::ClientBuilder::max_total_header_bytes). The largest known headers total 120 MB.
pub const MAX_HEADER_BYTES: u64 = 128 << 20;

/// Returns the schema of the `models` table, whose columns are the fields of [`CensusRow`].
#[must_use]
pub fn models_schema() -> SchemaRef {
    arrow::schema::<CensusRow>()
}

/// Returns the schema of the `headers` table, whose columns are the fields of [`StoredHeader`].
#[must_use]
pub fn headers_schema() -> SchemaRef {
    arrow::schema::<StoredHeader>()
}

/// Returns the schema of a manifest, whose columns are the fields of [`ListedRepo`].
#[must_use]
pub fn manifest_schema() -> SchemaRef {
    arrow::schema::<ListedRepo>()
}

/// Returns the rows of a `models` table in a Parquet file: a part or a packed file.
///
/// # Errors
///
/// Returns an error if the file cannot be read or is not a `models` table. Each item can also be an error.
pub fn model_rows(
    file: &Path,
) -> Result<impl Iterator<Item = Result<CensusRow, CensusError>> + use<>, CensusError> {
    rows(file, ROWS_AT_ONCE)
}

/// Returns the rows of a `headers` table in a Parquet file.
///
/// # Errors
///
/// Returns an error if the file cannot be read or is not a `headers` table. Each item can also be an error.
pub fn header_rows(
    file: &Path,
) -> Result<impl Iterator<Item = Result<StoredHeader, CensusError>> + use<>, CensusError> {
    rows(file, 1)
}

/// Returns the rows of a list of repositories, a Parquet file that [`Listing::write`] wrote.
///
/// # Errors
///
/// Returns an error if the file cannot be read or is not such a list. Each item can also be an error.
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

/// Reads the repositories in a record batch and returns their [`CensusRow`]s in the same order.
///
/// The batch has the columns of a manifest. Only the column of repository names is required: `repo`, `id`, `modelId`
/// or `repository`. At most `jobs` repositories are read concurrently.
///
/// # Errors
///
/// Returns an error if there is no such column. A repository that cannot be read becomes a row, not an error.
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
