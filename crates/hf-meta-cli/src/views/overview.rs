//! The overview of several repositories: one row each, as a table or for other programs.

use std::cmp::Reverse;
use std::io;

use hf_meta::results::text::{bytes, escape, short, thousands};
use hf_meta::{CountReport, Error};

use super::parameters::{bits_per_parameter, scalar_bytes};
use crate::memory::answer;
use crate::output::{Page, if_any};
use crate::table::{OutputFormat, Shrink, Table};

/// The minimum useful width of the repository column.
const MIN_REPO_WIDTH: usize = 16;

/// The minimum useful width of the quantization column.
const MIN_METHOD_WIDTH: usize = 12;

/// The values by which rows are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SortKey {
    /// By name
    Name,
    /// By parameters, largest first; tensors by elements
    Parameters,
    /// By active parameters, largest first
    Active,
    /// By bytes, largest first
    Bytes,
}

/// The values of one repository, or its error code.
#[derive(Clone, Debug, Default)]
pub(crate) struct OverviewRow {
    repo: String,
    parameters: Option<u64>,
    is_exact: bool,
    active: Option<u64>,
    dtype: String,
    bytes: Option<u64>,
    /// The stored bits per parameter.
    bits: String,
    memory: Option<u64>,
    /// The answer whether the model fits, and the longest context that fits, if they were requested.
    fit: Option<(Option<bool>, Option<u64>)>,
    quantization: String,
    commit: String,
    error: &'static str,
}

impl OverviewRow {
    pub(crate) fn from_report(report: &CountReport) -> Self {
        let (count, breakdown) = (&report.parameter_count, &report.breakdown);
        let main = count.iter().max_by_key(|(_, parameters)| *parameters);
        let fit = report.memory.as_ref().and_then(|memory| memory.fit.as_ref());
        Self {
            repo: escape(&report.source),
            parameters: Some(count.total()),
            is_exact: breakdown.is_exact(),
            active: breakdown.moe.map(|moe| moe.active()),
            dtype: main.map_or_else(String::new, |(dtype, _)| escape(dtype.as_str())),
            bytes: Some(count.totals().bytes),
            bits: if_any(count.total(), |total| {
                bits_per_parameter(count.totals().bytes - scalar_bytes(count), total)
            }),
            memory: report.memory.as_ref().and_then(|memory| memory.total_bytes),
            fit: fit.map(|fit| (fit.fits, fit.longest_context)),
            quantization: report.quantization().map_or_else(String::new, escape),
            commit: report.commit.as_ref().map_or_else(String::new, ToString::to_string),
            error: "",
        }
    }

    pub(crate) fn from_error(repo: &str, error: &Error) -> Self {
        Self { repo: escape(repo), error: error.code(), ..Self::default() }
    }
}

/// Writes the rows in a format for other programs, or as a table for people. Tables for people, including Markdown, omit
/// failed repositories, whose errors are on stderr.
pub(crate) fn write(
    page: &mut Page<'_>,
    mut rows: Vec<OverviewRow>,
    format: OutputFormat,
    key: Option<SortKey>,
) -> io::Result<()> {
    // Failed repositories come last, because they have no values.
    match key {
        Some(SortKey::Name) => rows.sort_by(|a, b| a.repo.cmp(&b.repo)),
        Some(SortKey::Parameters) => rows.sort_by_key(|row| Reverse(row.parameters)),
        Some(SortKey::Active) => rows.sort_by_key(|row| Reverse(row.active.or(row.parameters))),
        Some(SortKey::Bytes) => rows.sort_by_key(|row| Reverse(row.bytes)),
        None => {}
    }
    if matches!(format, OutputFormat::Tsv | OutputFormat::Csv) {
        return columns(None).write_rows(page.out, format, &rows);
    }
    rows.retain(|row| row.error.is_empty());
    match format {
        _ if rows.is_empty() => Ok(()),
        OutputFormat::Md => columns(Some(&rows)).write_rows(page.out, format, &rows),
        _ => page.table(&columns(Some(&rows)), || &rows),
    }
}

/// Returns the columns: the ones that the rows have, for people, or all of them with exact numbers, for other programs.
pub(crate) fn columns<'a>(rows: Option<&[OverviewRow]>) -> Table<'static, &'a OverviewRow> {
    let is_exact = rows.is_none();
    let has = |value: fn(&OverviewRow) -> bool| rows.is_none_or(|rows| rows.iter().any(value));
    // On a narrow terminal, the answers are more important.
    let (detail, method) = if has(|row| row.fit.is_some()) {
        (Shrink::Drop, Shrink::Drop)
    } else {
        (Shrink::Never, Shrink::TruncateTo(MIN_METHOD_WIDTH))
    };
    let number = |format: fn(u64) -> String| {
        let format = if is_exact { |number| u64::to_string(&number) } else { format };
        move |number: Option<u64>| number.map_or_else(String::new, format)
    };
    let [short, bytes, thousands] = [short, bytes, thousands].map(number);
    Table::new()
        .text("repository", |row: &&OverviewRow| row.repo.clone())
        .shrink(Shrink::TruncateTo(MIN_REPO_WIDTH))
        .number("parameters", move |row| {
            let is_certain = is_exact || row.is_exact || row.parameters.is_none();
            format!("{}{}", if is_certain { "" } else { "~" }, short(row.parameters))
        })
        .shrink(detail)
        .text("exact", |row| row.parameters.map_or_else(String::new, |_| row.is_exact.to_string()))
        .shown_if(is_exact)
        .optional_number("active", move |row| short(row.active))
        .shown_if(has(|row| row.active.is_some()))
        .text("dtype", |row| row.dtype.clone())
        .shrink(Shrink::Drop)
        .optional_number("bits", |row| row.bits.clone())
        .number("bytes", move |row| bytes(row.bytes))
        .shrink(detail)
        .number("memory", move |row| bytes(row.memory))
        .shown_if(has(|row| row.memory.is_some()))
        .text("fits", move |row| match row.fit {
            Some((Some(fits), _)) if is_exact => fits.to_string(),
            Some((fits, _)) if !is_exact => answer(fits).to_owned(),
            _ => String::new(),
        })
        .shown_if(has(|row| row.fit.is_some()))
        .number("longest_context", move |row| thousands(row.fit.and_then(|(_, longest)| longest)))
        .shown_if(has(|row| row.fit.is_some()))
        .text("quantization", |row| row.quantization.clone())
        .shrink(method)
        .shown_if(has(|row| !row.quantization.is_empty()))
        .text("commit", |row| row.commit.clone())
        .shown_if(is_exact)
        .text("error", |row| row.error.to_owned())
        .shown_if(is_exact)
}
