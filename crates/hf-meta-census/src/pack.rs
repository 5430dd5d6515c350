//! Writes all rows of a census to one sorted file for publication.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use super::CensusError;
use super::error::failed_to;
use super::listing::replace;
use super::part::PartRows;
use super::row::CensusRow;
use super::run::Census;
use super::storage::{temporary, temporary_name};
use super::table_file::{TableWriter, each_row};

/// The number of rows to sort in memory at a time, about 30 MB.
const SORTED_AT_ONCE: usize = 16_384;

/// The number of rows per run to buffer while merging.
const MERGED_AT_ONCE: usize = 256;

/// The number of rows per row group of the packed file.
const ROW_GROUP: usize = 100_000;

impl Census {
    /// Writes all rows to one Parquet file, sorted by repository. Returns the number of rows.
    ///
    /// Memory use does not depend on the number of rows: sorted runs are stored in temporary files and merged.
    ///
    /// # Errors
    ///
    /// Returns an error if the target contains no census or only part of one, or if a file cannot be read or written.
    pub async fn pack(&self, file: &Path) -> Result<usize, CensusError> {
        let found = self.parts().await?;
        let number = found.len();
        let (mut runs, mut rows) = (Vec::new(), Vec::new());
        for part in found {
            let PartRows { rows: mut more, parts } = part.read(&self.storage).await?;
            if let missing @ 1.. = parts.saturating_sub(number) {
                let target = self.storage.name().to_owned();
                return Err(CensusError::Incomplete { target, missing, parts });
            }
            rows.append(&mut more);
            if rows.len() >= SORTED_AT_ONCE {
                runs.push(write_run(std::mem::take(&mut rows))?);
            }
        }
        runs.push(write_run(rows)?);
        let mut packed = 0;
        replace(file, |temporary| {
            let failed = failed_to("write", file);
            let output = BufWriter::new(File::create(temporary).map_err(&failed)?);
            let name = file.display().to_string();
            let mut writer = TableWriter::published(output, name, &(), ROW_GROUP)?;
            for row in merge(runs)? {
                packed += 1;
                writer.write(row?)?;
            }
            let mut output = writer.finish()?;
            output.flush().and_then(|()| output.get_ref().sync_all()).map_err(failed)
        })?;
        Ok(packed)
    }
}

fn write_run(mut rows: Vec<CensusRow>) -> Result<File, CensusError> {
    rows.sort_unstable_by(|one, other| one.repo.cmp(&other.repo));
    let mut writer = TableWriter::published(temporary()?, temporary_name(), &(), MERGED_AT_ONCE)?;
    for row in rows {
        writer.write(row)?;
    }
    writer.into_reader()
}

/// Merges sorted files.
fn merge(
    files: Vec<File>,
) -> Result<impl Iterator<Item = Result<CensusRow, CensusError>>, CensusError> {
    let mut runs = Vec::new();
    for file in files {
        runs.push(each_row::<CensusRow>(temporary_name(), file, MERGED_AT_ONCE)?);
    }
    let mut next: Vec<Option<CensusRow>> = Vec::new();
    let mut order = BinaryHeap::new();
    for (run, rows) in runs.iter_mut().enumerate() {
        let first = rows.next().transpose()?;
        order.extend(first.as_ref().map(|row| Reverse((row.repo.clone(), run))));
        next.push(first);
    }
    Ok(std::iter::from_fn(move || {
        let Reverse((_, run)) = order.pop()?;
        let row = next.get_mut(run)?.take()?;
        match runs.get_mut(run)?.next() {
            Some(Ok(following)) => {
                order.push(Reverse((following.repo.clone(), run)));
                next[run] = Some(following);
            }
            Some(Err(error)) => return Some(Err(error)),
            None => {}
        }
        Some(Ok(row))
    }))
}
