//! Writes all rows of a census to one sorted file for publication.

use std::collections::BTreeSet;
use std::mem::take;
use std::path::Path;

use itertools::Itertools;
use serde::Serialize;

use super::CensusError;
use super::census::Census;
use super::part::CensusPart;
use super::row::{CensusRow, SCHEMA_VERSION, TOOL};
use super::table::{BATCH_ROWS, TableWriter, each_row, publish, writer_properties};

/// The number of rows to sort in memory at a time, about 30 MB.
const ROWS_PER_RUN: usize = 16_384;

/// The maximum number of runs to merge at a time. One row group of each is in memory.
const MAX_RUNS: usize = 16;

/// The number of rows per row group of the packed file.
const ROWS_PER_GROUP: usize = 100_000;

/// The metadata in the footer of a packed file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PackFooter {
    /// The versions of the counting rules of the rows.
    rules: BTreeSet<String>,
    schema_version: i64,
    tool: &'static str,
}

/// A sorted table in a temporary file.
type Run = Box<dyn Iterator<Item = Result<CensusRow, CensusError>>>;

impl Census {
    /// Writes all rows to one Parquet file, sorted by repository. Returns the number of rows.
    ///
    /// Memory use grows only with the logarithm of the number of rows: sorted runs are stored in temporary files, and at
    /// most 16 at a time are merged.
    ///
    /// # Errors
    ///
    /// Returns an error if the target contains no census or only part of one, or if a file cannot be read or written.
    pub async fn pack(&self, file: &Path) -> Result<usize, CensusError> {
        let found = CensusPart::list_existing(&self.storage).await?;
        // The runs of each level result from `MAX_RUNS` runs of the level below.
        let mut levels: Vec<Vec<Run>> = Vec::new();
        let (mut rows, mut rules) = (Vec::new(), BTreeSet::new());
        for part in &found {
            let (footer, mut more) = part.read(&self.storage).await?;
            let incomplete = usize::from(footer.unread(&more, false).next().is_some());
            if let missing @ 1.. = footer.parts.saturating_sub(found.len()) + incomplete {
                return Err(self.incomplete(missing, footer.parts));
            }
            rules.extend(more.iter().map(|row| row.rules.clone()));
            rows.append(&mut more);
            if rows.len() >= ROWS_PER_RUN {
                add_run(&mut levels, sorted(take(&mut rows)))?;
            }
        }
        let runs = levels.into_iter().flatten().chain([sorted(rows)]);
        let footer = PackFooter { rules, schema_version: SCHEMA_VERSION, tool: TOOL };
        publish(file, &footer, ROWS_PER_GROUP, runs.kmerge_by(is_before))
    }
}

fn sorted(mut rows: Vec<CensusRow>) -> Run {
    rows.sort_unstable_by(|one, other| one.repo.cmp(&other.repo));
    Box::new(rows.into_iter().map(Ok))
}

/// Stores a run, and merges full levels.
fn add_run(levels: &mut Vec<Vec<Run>>, run: Run) -> Result<(), CensusError> {
    let mut run = write_run(run)?;
    for level in levels.iter_mut() {
        level.push(run);
        if level.len() < MAX_RUNS {
            return Ok(());
        }
        run = write_run(Box::new(take(level).into_iter().kmerge_by(is_before)))?;
    }
    levels.push(vec![run]);
    Ok(())
}

/// Writes a run to a temporary file.
fn write_run(rows: Run) -> Result<Run, CensusError> {
    // Small row groups, because one of each run is in memory while the runs are merged.
    let properties = writer_properties().set_max_row_group_row_count(Some(BATCH_ROWS));
    let mut writer = TableWriter::temporary(&(), properties)?;
    for row in rows {
        writer.write(row?)?;
    }
    let name = std::env::temp_dir().display().to_string();
    Ok(Box::new(each_row(&name, writer.into_reader()?, BATCH_ROWS)?))
}

/// Returns whether a row comes before another. Errors come first.
fn is_before(one: &Result<CensusRow, CensusError>, other: &Result<CensusRow, CensusError>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one.repo < other.repo,
        (one, _) => one.is_err(),
    }
}
