//! Sorts all rows of a census, and writes them to one file for publication.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs::File;
use std::mem::take;
use std::path::Path;

use itertools::Itertools;
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde::Serialize;

use super::census::Census;
use super::error::failed_to;
use super::part::CensusPart;
use super::row::{CensusRow, SCHEMA_VERSION};
use super::storage::Storage;
use super::table::{BATCH_ROWS, ROWS_PER_GROUP, TableWriter, each_row, publish};
use super::{CensusError, repo_rows};

/// The number of rows to sort in memory at a time, about 30 MB.
const ROWS_PER_RUN: usize = 16_384;

/// The maximum number of runs to merge at a time. One page of each column of each run is in memory.
const MAX_RUNS: usize = 16;

/// The metadata in the footer of a packed file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PackFooter<'a> {
    /// The versions of the counting rules of the rows.
    rules: BTreeSet<String>,
    schema_version: i64,
    tool: &'a str,
}

/// A sorted table in a temporary file.
type Run = Box<dyn Iterator<Item = Result<CensusRow, CensusError>> + Send>;

impl Census {
    /// Writes all rows to one Parquet file, sorted by repository: a local file, or the URL of an object. Returns the
    /// number of rows.
    ///
    /// Memory use grows only with the logarithm of the number of rows: sorted runs are stored in temporary files, and at
    /// most 16 at a time are merged.
    ///
    /// # Errors
    ///
    /// Returns an error if the target contains no census or only part of one, or if a file cannot be read or written.
    pub async fn pack(&self, file: &str) -> Result<usize, CensusError> {
        let (mut sorter, mut rules) = (RowSorter::default(), BTreeSet::new());
        let found = CensusPart::list_existing(&self.storage).await?;
        for part in &found {
            let (footer, rows) = part.read(&self.storage).await?;
            let incomplete = usize::from(footer.unread(&rows, false).next().is_some());
            if let missing @ 1.. = footer.parts.saturating_sub(found.len()) + incomplete {
                return Err(self.incomplete(missing, footer.parts));
            }
            rules.extend(rows.iter().map(|row| row.rules.clone()));
            sorter.add(rows)?;
        }
        let footer = PackFooter { rules, schema_version: SCHEMA_VERSION, tool: &self.tool };
        let Some((storage, name)) = Storage::open_object(file)? else {
            return publish(file.as_ref(), &footer, ROWS_PER_GROUP, sorter.finish());
        };
        let folder = tempfile::tempdir().map_err(failed_to("write", std::env::temp_dir()))?;
        let packed = folder.path().join("rows");
        let rows = publish(&packed, &footer, ROWS_PER_GROUP, sorter.finish())?;
        let packed = File::open(&packed).map_err(failed_to("read", &packed))?;
        storage.upload(&name, packed).await?;
        Ok(rows)
    }
}

/// Returns the rows of a census, sorted by repository: a folder, a URL, or a packed file.
pub(super) async fn sorted_rows(
    census: &str,
) -> Result<impl Iterator<Item = Result<CensusRow, CensusError>> + Send, CensusError> {
    let mut sorter = RowSorter::default();
    for_each_part(census, |rows| sorter.add(rows)).await?;
    Ok(sorter.finish())
}

/// Calls a function with the rows of a census: a folder, a URL, or a packed file.
pub(super) async fn for_each_part(
    census: &str,
    mut on_rows: impl FnMut(Vec<CensusRow>) -> Result<(), CensusError>,
) -> Result<(), CensusError> {
    if Path::new(census).is_file() {
        let rows = repo_rows(census.as_ref())?.chunks(BATCH_ROWS);
        return rows.into_iter().try_for_each(|rows| on_rows(rows.try_collect()?));
    }
    let storage = Storage::open_existing(census)?;
    for part in CensusPart::list_existing(&storage).await? {
        on_rows(part.read(&storage).await?.1)?;
    }
    Ok(())
}

/// Sorts rows by repository, in temporary files.
#[derive(Default)]
struct RowSorter {
    rows: Vec<CensusRow>,
    /// The runs of each level result from `MAX_RUNS` runs of the level below.
    levels: Vec<Vec<Run>>,
}

impl RowSorter {
    fn add(&mut self, mut rows: Vec<CensusRow>) -> Result<(), CensusError> {
        self.rows.append(&mut rows);
        if self.rows.len() >= ROWS_PER_RUN {
            add_run(&mut self.levels, sorted(take(&mut self.rows)))?;
        }
        Ok(())
    }

    fn finish(self) -> impl Iterator<Item = Result<CensusRow, CensusError>> + Send {
        let runs = self.levels.into_iter().flatten().chain([sorted(self.rows)]);
        runs.kmerge_by(|one, other| order(one, other).is_lt())
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
        run = write_run(Box::new(
            take(level).into_iter().kmerge_by(|one, other| order(one, other).is_lt()),
        ))?;
    }
    levels.push(vec![run]);
    Ok(())
}

/// Writes a run to a temporary file.
fn write_run(rows: Run) -> Result<Run, CensusError> {
    // Small pages without dictionaries, but large row groups: one page of each column of each run is in memory while the
    // runs are merged, and the description of all row groups. A reader of Zstandard takes 0.1 MB per column, one of LZ4
    // nothing.
    let properties = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_max_row_group_row_count(Some(ROWS_PER_RUN))
        .set_data_page_row_count_limit(BATCH_ROWS)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None);
    let mut writer = TableWriter::temporary(&(), properties)?;
    for row in rows {
        writer.write(row?)?;
    }
    let name = std::env::temp_dir().display().to_string();
    Ok(Box::new(each_row(&name, writer.into_reader()?, BATCH_ROWS)?))
}

/// Returns the order of two rows. Errors come first.
pub(super) fn order(
    one: &Result<CensusRow, CensusError>,
    other: &Result<CensusRow, CensusError>,
) -> Ordering {
    match (one, other) {
        (Ok(one), Ok(other)) => one.repo.cmp(&other.repo),
        (one, other) => other.is_err().cmp(&one.is_err()),
    }
}
