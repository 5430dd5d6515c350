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
//! manifest has exactly one row. [`tables`] describes the columns, and
//! [`docs::census`](hf_meta::docs::census) the use.
//!
//! # The life of one row
//!
//! `hf-meta census read repos.parquet -o census` runs:
//!
//! 1. `manifest.rs` reads the list of repositories, in parts of 256.
//! 2. `census.rs` starts a run, in which `run.rs` skips the parts that `storage.rs` finds in the target.
//! 3. `reads.rs` reads a limited number of repositories concurrently, and waits for the end of an outage.
//! 4. `read_repo.rs` calls `internal::count_and_record` of the library, which counts and also returns the header bytes.
//! 5. `row.rs` turns the report, or the error, into a `CensusRow`.
//! 6. `part.rs` collects the rows and headers of a part, `table.rs` encodes them as Parquet, and `storage.rs` writes
//!    them.

mod card;
mod census;
mod diff;
mod error;
mod listing;
mod manifest;
mod pack;
mod part;
mod publish;
mod read_repo;
mod reads;
mod row;
mod run;
mod storage;
mod stored_header;
mod table;
#[doc = include_str!("tables.md")]
pub mod tables {}

use std::collections::BTreeMap;
use std::time::Duration;

use arrow_array::RecordBatch;

pub use self::census::Census;
pub use self::diff::{CensusChange, ChangeKind, diff, verify};
pub use self::error::CensusError;
pub use self::listing::Listing;
pub use self::manifest::{ListedRepo, Manifest, read_names};
pub use self::publish::{PublishOptions, TensorRow};
pub use self::reads::{CensusProgress, CensusStop};
pub use self::row::{
    ActiveParameters, CensusRow, ComponentCount, DtypeSums, OtherWeightSet, SCHEMA_VERSION,
};
pub use self::run::{CensusRun, CensusSummary};
pub use self::stored_header::{MAX_HEADER_BYTES, StoredHeader};
pub use self::table::{TableRow, rows, schema};
/// The third-party crates whose types appear in the public API of this module.
pub use {arrow_array, arrow_schema};

use self::error::Result;
use self::manifest::{check_columns, from_columns, name_column};
use self::reads::{ProgressReporter, ReadSettings, Reads};
use self::table::{table_failed, to_batch};
use hf_meta::Client;
use hf_meta_repo_list::COLUMNS;

/// The recommended limit on the total time that one repository of a census waits for quotas, for
/// [`RetryPolicy::max_wait`](hf_meta::RetryPolicy::max_wait): 24 hours.
pub const MAX_QUOTA_WAIT: Duration = Duration::from_secs(24 * 3_600);

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
) -> Result<RecordBatch> {
    const NAME: &str = "record batch";
    let names = name_column(NAME, &repos.schema(), &COLUMNS)?;
    check_columns(NAME, &repos.schema(), &names)?;
    let repos = from_columns(repos, &names).map_err(table_failed(NAME))?;
    let progress = ProgressReporter::new(on_progress);
    progress.update(|progress| progress.total = repos.len());
    let (concurrency, stop) = (concurrency.max(1), CensusStop::default());
    let settings = ReadSettings {
        concurrency,
        max_outage,
        stop,
        progress: progress.clone(),
        accepts_local: true,
    };
    let mut reads = Reads::new(client, settings);
    let (mut repos, mut rows) = (repos.into_iter().enumerate(), BTreeMap::new());
    loop {
        while reads.has_room()
            && let Some((number, mut repo)) = repos.next()
        {
            repo.normalize();
            reads.start(number, repo);
        }
        let Some(done) = reads.next().await? else { break };
        for (number, read) in done {
            progress.add(&read.row);
            rows.insert(number, read.row);
        }
    }
    to_batch(&rows.into_values().collect::<Vec<_>>()).map_err(table_failed(NAME))
}
