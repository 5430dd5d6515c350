//! Writes all rows of a census to one sorted file for publication.

use std::path::Path;

use itertools::Itertools;

use super::CensusError;
use super::census::Census;
use super::part::CensusPart;
use super::row::CensusRow;
use super::table::{BATCH_ROWS, TableWriter, each_row, publish, writer_properties};

/// The number of rows to sort in memory at a time, about 30 MB.
const ROWS_PER_RUN: usize = 16_384;

/// The number of rows per row group of the packed file.
const ROWS_PER_GROUP: usize = 100_000;

impl Census {
    /// Writes all rows to one Parquet file, sorted by repository. Returns the number of rows.
    ///
    /// Memory use does not depend on the number of rows: sorted runs are stored in temporary files and merged.
    ///
    /// # Errors
    ///
    /// Returns an error if the target contains no census or only part of one, or if a file cannot be read or written.
    pub async fn pack(&self, file: &Path) -> Result<usize, CensusError> {
        let found = CensusPart::list_existing(&self.storage).await?;
        let (mut runs, mut rows) = (Vec::new(), Vec::new());
        for part in &found {
            let (footer, mut more) = part.read(&self.storage).await?;
            let incomplete = usize::from(footer.unread(&more, false).next().is_some());
            if let missing @ 1.. = footer.parts.saturating_sub(found.len()) + incomplete {
                return Err(self.incomplete(missing, footer.parts));
            }
            rows.append(&mut more);
            if rows.len() >= ROWS_PER_RUN {
                runs.push(write_run(std::mem::take(&mut rows))?);
            }
        }
        runs.push(write_run(rows)?);
        publish(file, &(), ROWS_PER_GROUP, runs.into_iter().kmerge_by(is_before))
    }
}

/// Sorts rows and writes them to a temporary file. Returns an iterator over them.
fn write_run(
    mut rows: Vec<CensusRow>,
) -> Result<impl Iterator<Item = Result<CensusRow, CensusError>>, CensusError> {
    rows.sort_unstable_by(|one, other| one.repo.cmp(&other.repo));
    // Small row groups, because one of each run is in memory while the runs are merged.
    let properties = writer_properties().set_max_row_group_row_count(Some(BATCH_ROWS));
    let mut writer = TableWriter::temporary(&(), properties)?;
    for row in rows {
        writer.write(row)?;
    }
    each_row(&std::env::temp_dir().display().to_string(), writer.into_reader()?, BATCH_ROWS)
}

/// Returns whether a row comes before another. Errors come first.
fn is_before(one: &Result<CensusRow, CensusError>, other: &Result<CensusRow, CensusError>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one.repo < other.repo,
        (one, _) => one.is_err(),
    }
}
