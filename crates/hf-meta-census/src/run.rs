//! Runs: everything that differs between two reads of the same repositories, so that their other tables are equal.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::error::Result;
use super::storage::Storage;
use super::table::{TableRow, each_row, encode};

/// The folder with runs.
const RUNS: &str = "runs";

/// A run that read or counted repositories of a census.
///
/// The fields are the columns of the `runs` table. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CensusRun {
    /// `read`, `retry` or `count`.
    pub action: String,
    /// The URL of the Hub.
    pub endpoint: String,
    /// The time at which the run started.
    pub started_at: i64,
    /// The time at which the run ended.
    pub ended_at: i64,
    /// The program, its version and its commit.
    pub tool: String,
    /// The version of the counting rules, such as `hf-meta 1`.
    pub rules: String,
    /// The version of the table columns: [`SCHEMA_VERSION`].
    pub schema_version: i64,
    /// The number of the slice.
    pub slice: i64,
    /// The number of slices.
    pub slices: i64,
    /// The number of repositories that were read, copied or counted.
    pub repos: i64,
    /// The number of repositories that failed.
    pub failed: i64,
    /// The number of HTTP requests, including redirects and retries.
    pub requests: i64,
    /// The number of bytes read.
    pub bytes_read: i64,
    /// The share of the Hub's quota that the run was allowed to use.
    pub quota_share: f64,
    /// The time during which the run waited for the quota, in milliseconds.
    pub waited_ms: i64,
    /// The error that ended the run.
    pub error: Option<String>,
}

impl TableRow for CensusRun {
    const NAME: &str = "The table `runs`";
    const KEY: &[&str] = &["started_at", "slice"];
}

/// Returns all runs of a census, in the order of their time.
pub(super) async fn read_runs(storage: &Storage) -> Result<Vec<CensusRun>> {
    let mut runs = Vec::new();
    for name in storage.list(RUNS).await? {
        let name = format!("{RUNS}/{name}");
        let Some(file) = storage.read(&name).await? else { continue };
        for run in each_row::<CensusRun, _>(&name, file, None)? {
            runs.push(run?);
        }
    }
    runs.sort_by_key(|run| (run.started_at, run.slice));
    Ok(runs)
}

impl CensusRun {
    /// Writes the run to a separate file. A run that did nothing is not written.
    pub(super) async fn write(self, storage: &Storage) -> Result<()> {
        if self.repos == 0 && self.requests == 0 {
            return Ok(());
        }
        // Slices may start at the same time.
        let unique = RandomState::new().hash_one(self.started_at);
        let file = format!("{RUNS}/{}-{unique:016x}.parquet", self.started_at);
        storage.write(&file, encode(&file, &[self], &())?).await
    }
}

/// Returns the time in milliseconds since 1970.
pub(super) fn unix_millis() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
