//! Sorts all rows of a census, and writes them to one file for publication.
//!
//! The rows of a part are sorted. Sixteen parts at a time are merged into a temporary file, sixteen of these files into
//! another one, and so on.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::mem::take;
use std::path::Path;

use itertools::Itertools;
use serde_json::json;

use super::census::Census;
use super::error::{Result, failed_to};
use super::part::CensusPart;
use super::reads::CensusStop;
use super::row::{CensusRow, SCHEMA_VERSION};
use super::storage::Storage;
use super::stored_header::StoredHeader;
use super::table::{SortedRow, TableWriter, each_row, publish, rows};

/// The number of rows of a packed file to sort in memory at a time, about 10 MB.
const ROWS_PER_RUN: usize = 4_096;

/// The maximum number of runs to merge at a time. One page of each column of each run is in memory.
const MAX_RUNS: usize = 16;

impl Census {
    /// Writes all rows to one Parquet file, sorted by repository: a local file, the URL of an object, or `-`. Returns the
    /// number of rows.
    ///
    /// Memory use grows only with the logarithm of the number of rows.
    ///
    /// # Errors
    ///
    /// Returns an error if the target contains no census or only part of one, if a file cannot be read or written, or if
    /// the run is stopped.
    pub async fn pack(&self, file: &str) -> Result<usize> {
        let (mut merger, mut rules) = (Merger::default(), BTreeSet::new());
        let found = CensusPart::list_existing(&self.storage).await?;
        for part in &found {
            self.settings.stop.check()?;
            let stored = part.read(&self.storage).await?;
            let (parts, incomplete) = (stored.footer.parts, stored.unread(false).next().is_some());
            if let missing @ 1.. = parts.saturating_sub(found.len()) + usize::from(incomplete) {
                return Err(self.incomplete(missing, parts));
            }
            rules.extend(stored.rows.iter().map(|row| row.rules.clone()));
            merger.add(sorted(stored.rows))?;
        }
        let rows = merger.finish(self.settings.stop.clone());
        let (version, tool) = (SCHEMA_VERSION, &self.tool);
        let footer = json!({ "rules": rules, "schemaVersion": version, "tool": tool });
        let object = Storage::open_object(file)?;
        if object.is_none() && file != "-" {
            return publish(file.as_ref(), &footer, rows);
        }
        let folder = tempfile::tempdir().map_err(failed_to("write", std::env::temp_dir()))?;
        let packed = folder.path().join("rows");
        let rows = publish(&packed, &footer, rows)?;
        let mut packed = File::open(&packed).map_err(failed_to("read", &packed))?;
        match object {
            Some((storage, name)) => storage.upload(&name, packed).await?,
            None => io::copy(&mut packed, &mut io::stdout()).map_err(failed_to("write", "-"))?,
        };
        Ok(rows)
    }

    /// Returns all headers, sorted by repository and file.
    pub(super) async fn sorted_headers(
        &self,
    ) -> Result<impl Iterator<Item = Result<StoredHeader>> + Send> {
        let mut merger = Merger::default();
        for part in CensusPart::list_existing(&self.storage).await? {
            self.settings.stop.check()?;
            let stored = part.read(&self.storage).await?;
            merger.add(Box::new(stored.read_headers(&self.storage).await?))?;
        }
        Ok(merger.finish(self.settings.stop.clone()))
    }
}

/// Returns the rows of a census, sorted by repository: a folder, a URL, or a packed file.
pub(super) async fn sorted_rows(
    census: &str,
) -> Result<impl Iterator<Item = Result<CensusRow>> + Send> {
    let mut merger = Merger::default();
    for_each_part(census, |rows| merger.add(sorted(rows))).await?;
    Ok(merger.finish(CensusStop::default()))
}

/// Calls a function with the rows of a census: a folder, a URL, or a packed file.
pub(super) async fn for_each_part(
    census: &str,
    mut on_rows: impl FnMut(Vec<CensusRow>) -> Result<()>,
) -> Result<()> {
    if Path::new(census).is_file() {
        let rows = rows::<CensusRow>(census.as_ref())?.chunks(ROWS_PER_RUN);
        return rows.into_iter().try_for_each(|rows| on_rows(rows.try_collect()?));
    }
    let storage = Storage::open_existing(census)?;
    for part in CensusPart::list_existing(&storage).await? {
        on_rows(part.read(&storage).await?.rows)?;
    }
    Ok(())
}

/// A sorted table.
type Run<Row> = Box<dyn Iterator<Item = Result<Row>> + Send>;

/// Merges sorted tables, in temporary files.
#[derive(Default)]
struct Merger<Row> {
    /// The runs of each level result from `MAX_RUNS` runs of the level below.
    levels: Vec<Vec<Run<Row>>>,
}

impl<Row: SortedRow> Merger<Row> {
    /// Adds a run, and merges full levels.
    fn add(&mut self, mut run: Run<Row>) -> Result<()> {
        for level in &mut self.levels {
            level.push(run);
            if level.len() < MAX_RUNS {
                return Ok(());
            }
            run = write_run(
                take(level).into_iter().kmerge_by(|one, other| order(one, other).is_lt()),
            )?;
        }
        self.levels.push(vec![run]);
        Ok(())
    }

    /// Merges all runs. The rows end with an error if the census is stopped.
    fn finish(self, stop: CensusStop) -> impl Iterator<Item = Result<Row>> + Send {
        let runs = self.levels.into_iter().flatten();
        let rows = runs.kmerge_by(|one, other| order(one, other).is_lt());
        rows.map(move |row| stop.check().and(row))
    }
}

fn sorted<Row: SortedRow>(mut rows: Vec<Row>) -> Run<Row> {
    rows.sort_unstable_by(|one, other| one.key().cmp(&other.key()));
    Box::new(rows.into_iter().map(Ok))
}

/// Writes a run to a temporary file. A reader has one batch in memory.
fn write_run<Row: SortedRow>(rows: impl Iterator<Item = Result<Row>>) -> Result<Run<Row>> {
    let mut run = TableWriter::unsorted()?;
    run.write_all(rows)?;
    let name = std::env::temp_dir().display().to_string();
    Ok(Box::new(each_row(&name, run.into_reader()?, None)?))
}

/// Returns the order of two rows. Errors come first.
pub(super) fn order<Row: SortedRow>(one: &Result<Row>, other: &Result<Row>) -> Ordering {
    match (one, other) {
        (Ok(one), Ok(other)) => one.key().cmp(&other.key()),
        (one, other) => other.is_err().cmp(&one.is_err()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs are merged in files, and these files again.
    #[test]
    fn rows_of_many_runs_are_sorted_and_complete() {
        let runs = MAX_RUNS * MAX_RUNS + 1;
        let repo = |run: usize, n: usize| format!("{n}/{:03}", run * 7 % runs);
        let mut merger = Merger::default();
        for run in 0..runs {
            let row =
                |n| CensusRow { repo: repo(run, n), tensors: Some(1), ..CensusRow::default() };
            merger.add(sorted((0..3).rev().map(row).collect())).unwrap();
        }
        let rows: Vec<_> = merger.finish(CensusStop::default()).map(Result::unwrap).collect();
        let mut expected: Vec<_> =
            (0..3).flat_map(|n| (0..runs).map(move |run| repo(run, n))).collect();
        expected.sort_unstable();
        assert!(rows.iter().map(|row| &row.repo).eq(&expected));
        assert!(rows.iter().all(|row| row.tensors == Some(1)));
    }
}
