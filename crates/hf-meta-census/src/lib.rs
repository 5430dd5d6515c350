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
//! | read a random sample again | [`verify`] |
//! | write a data set for publication | [`Census::publish`] |
//! | read a record batch of repositories, without files | [`read_batch`] |
//!
//! A repository that cannot be read still has a row, with a [status](CensusRow::status): every repository of the
//! manifest has exactly one row. [`docs::census`](hf_meta::docs::census) describes the tables.

mod census;
mod columns;
mod diff;
mod error;
mod layout_digest;
mod listing;
mod manifest;
mod outage;
mod pack;
mod part;
mod previous;
mod publish;
mod read_repo;
mod row;
mod run;
mod storage;
mod table;
mod verify;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

pub use self::census::{Census, CensusProgress, CensusSummary};
pub use self::diff::{CensusChange, ChangeKind, diff};
pub use self::error::CensusError;
pub use self::listing::Listing;
pub use self::manifest::{ListedRepo, Manifest};
pub use self::outage::CensusStop;
pub use self::publish::{PublishOptions, TensorRow};
pub use self::read_repo::StoredHeader;
pub use self::row::{
    ActiveParameters, CensusRow, ComponentCount, DtypeSums, OtherWeightSet, SCHEMA_VERSION,
};
pub use self::run::CensusRun;
pub use self::verify::verify;
pub use hf_meta_repo_list::ListedName;
/// The third-party crates whose types appear in the public API of this module.
pub use {arrow_array, arrow_schema};

use self::census::ProgressReporter;
use self::columns::{from_columns, name_column};
use self::manifest::normalize;
use self::outage::CircuitBreaker;
use self::read_repo::RepoReader;
use self::table::{open_rows, schema, table_failed, to_batch};
use hf_meta::Client;
use hf_meta_repo_list::COLUMNS;

/// The recommended limit on the total time that one repository of a census waits for quotas, for
/// [`RetryPolicy::max_wait`](hf_meta::RetryPolicy::max_wait): 24 hours.
pub const MAX_QUOTA_WAIT: Duration = Duration::from_secs(24 * 3_600);

/// The recommended limit on the total header size of one repository of a census, in bytes, for
/// [`ClientBuilder::max_total_header_bytes`](hf_meta::ClientBuilder::max_total_header_bytes). The largest known headers total 120 MB.
pub const MAX_HEADER_BYTES: u64 = 128 << 20;

/// Returns the schema of the `repos` table, whose columns are the fields of [`CensusRow`].
#[must_use]
pub fn repos_schema() -> SchemaRef {
    schema::<CensusRow>()
}

/// Returns the schema of the `files` table, whose columns are the fields of [`StoredHeader`].
#[must_use]
pub fn files_schema() -> SchemaRef {
    schema::<StoredHeader>()
}

/// Returns the schema of the `runs` table, whose columns are the fields of [`CensusRun`].
#[must_use]
pub fn runs_schema() -> SchemaRef {
    schema::<CensusRun>()
}

/// Returns the schema of the `tensors` table, whose columns are the fields of [`TensorRow`].
#[must_use]
pub fn tensors_schema() -> SchemaRef {
    schema::<TensorRow>()
}

/// Returns the schema of a manifest, whose columns are the fields of [`ListedRepo`].
#[must_use]
pub fn manifest_schema() -> SchemaRef {
    schema::<ListedRepo>()
}

/// Returns the rows of a `repos` table in a Parquet file: a part or a packed file.
///
/// # Errors
///
/// Returns an error if the file cannot be read or is not a `repos` table. Each item can also be an error.
pub fn repo_rows(
    file: &Path,
) -> Result<impl Iterator<Item = Result<CensusRow, CensusError>> + use<>, CensusError> {
    open_rows(file)
}

/// Returns the rows of a `files` table in a Parquet file.
///
/// # Errors
///
/// Returns an error if the file cannot be read or is not a `files` table. Each item can also be an error.
pub fn file_rows(
    file: &Path,
) -> Result<impl Iterator<Item = Result<StoredHeader, CensusError>> + use<>, CensusError> {
    open_rows(file)
}

/// Returns the rows of a `runs` table in a Parquet file.
///
/// # Errors
///
/// Returns an error if the file cannot be read or is not a `runs` table. Each item can also be an error.
pub fn run_rows(
    file: &Path,
) -> Result<impl Iterator<Item = Result<CensusRun, CensusError>> + use<>, CensusError> {
    open_rows(file)
}

/// Returns the rows of a `tensors` table in a Parquet file.
///
/// # Errors
///
/// Returns an error if the file cannot be read or is not a `tensors` table. Each item can also be an error.
pub fn tensor_rows(
    file: &Path,
) -> Result<impl Iterator<Item = Result<TensorRow, CensusError>> + use<>, CensusError> {
    open_rows(file)
}

/// Returns the rows of a list of repositories, a Parquet file that [`Listing::write`] wrote.
///
/// # Errors
///
/// Returns an error if the file cannot be read or is not such a list. Each item can also be an error.
pub fn listed_rows(
    file: &Path,
) -> Result<impl Iterator<Item = Result<ListedRepo, CensusError>> + use<>, CensusError> {
    open_rows(file)
}

/// Reads the repositories in a record batch and returns their [`CensusRow`]s in the same order.
///
/// The batch has the columns of a manifest. Only the column of repository names is required: `repo`, `id`, `modelId`
/// or `repository`. At most `concurrency` repositories are read at the same time. `on_progress` is called after each.
///
/// # Errors
///
/// Returns an error if the column is missing, if the Hub rejects the token, or after an outage of `max_outage`. A
/// repository that cannot be read becomes a row, not an error.
pub async fn read_batch(
    client: &Client,
    repos: &RecordBatch,
    concurrency: usize,
    max_outage: Duration,
    on_progress: impl Fn(CensusProgress) + Send + Sync + 'static,
) -> Result<RecordBatch, CensusError> {
    const NAME: &str = "record batch";
    let names = name_column(NAME, &repos.schema(), &COLUMNS)?;
    let mut repos = from_columns(repos, &names).map_err(table_failed(NAME))?;
    for repo in &mut repos {
        normalize(repo);
    }
    let mut rows = Vec::new();
    let progress = Arc::new(ProgressReporter::new(on_progress));
    progress.update(|progress| progress.total = repos.len());
    let report = Arc::clone(&progress);
    let add = |at, row: CensusRow, _| {
        report.add(&row);
        rows.push((at, row));
        Ok(())
    };
    let breaker = Arc::new(CircuitBreaker::new(max_outage, CensusStop::default(), progress));
    let reader = RepoReader::new(client, concurrency, Arc::clone(&breaker));
    reader.read_all(repos.into_iter().enumerate(), add).await?;
    breaker.result()?;
    rows.sort_unstable_by_key(|(at, _)| *at);
    let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
    to_batch(&rows).map_err(table_failed(NAME))
}
