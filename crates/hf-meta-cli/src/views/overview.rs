//! The overview of several repositories: one row each, as a table or for other programs.

use std::cmp::Reverse;
use std::io;

use hf_meta::report::text::{bytes, escape, short, thousands};
use hf_meta::{CountReport, Error};

use super::parameters::{bits_per_parameter, scalar_bytes};
use crate::memory::answer;
use crate::output::Page;
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
        let file_type = report.model.as_ref().and_then(|model| model.file_type.as_deref());
        let fit = report.memory.as_ref().and_then(|memory| memory.fit.as_ref());
        Self {
            repo: escape(&report.source),
            parameters: Some(count.total()),
            is_exact: breakdown.is_exact(),
            active: breakdown.moe.map(|moe| moe.active()),
            dtype: main.map_or_else(String::new, |(dtype, _)| escape(dtype.as_str())),
            bytes: Some(count.totals().bytes),
            bits: match count.total() {
                0 => String::new(),
                total => bits_per_parameter(count.totals().bytes - scalar_bytes(count), total),
            },
            memory: report.memory.as_ref().and_then(|memory| memory.total_bytes),
            fit: fit.map(|fit| (fit.fits, fit.longest_context)),
            quantization: breakdown
                .method
                .as_deref()
                .or(file_type)
                .map_or_else(String::new, escape),
            commit: report.commit.as_ref().map_or_else(String::new, ToString::to_string),
            error: "",
        }
    }

    pub(crate) fn from_error(repo: &str, error: &Error) -> Self {
        Self { repo: escape(repo), error: error.code(), ..Self::default() }
    }

    /// Returns the longest context that fits.
    fn longest_context(&self) -> Option<u64> {
        self.fit.and_then(|(_, longest)| longest)
    }
}

/// Sorts the rows. Failed repositories come last.
fn sort(rows: &mut [OverviewRow], key: SortKey) {
    match key {
        SortKey::Name => rows.sort_by(|a, b| a.repo.cmp(&b.repo)),
        SortKey::Parameters => rows.sort_by_key(|row| Reverse(row.parameters)),
        SortKey::Active => rows.sort_by_key(|row| Reverse(row.active.or(row.parameters))),
        SortKey::Bytes => rows.sort_by_key(|row| Reverse(row.bytes)),
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
    if let Some(key) = key {
        sort(&mut rows, key);
    }
    if matches!(format, OutputFormat::Tsv | OutputFormat::Csv) {
        return machine_columns().write_rows(page.out, format, &rows);
    }
    rows.retain(|row| row.error.is_empty());
    match format {
        _ if rows.is_empty() => Ok(()),
        OutputFormat::Md => human_columns(&rows).write_rows(page.out, format, &rows),
        _ => page.table(&human_columns(&rows), || &rows),
    }
}

/// Returns the columns for people, without empty ones.
fn human_columns(rows: &[OverviewRow]) -> Table<'static, &OverviewRow> {
    let has = |value: fn(&OverviewRow) -> bool| rows.iter().any(value);
    // On a narrow terminal, the answers are more important.
    let (detail, method) = if has(|row| row.fit.is_some()) {
        (Shrink::Drop, Shrink::Drop)
    } else {
        (Shrink::Never, Shrink::TruncateTo(MIN_METHOD_WIDTH))
    };
    Table::new()
        .text("repository", |row: &&OverviewRow| row.repo.clone())
        .shrink(Shrink::TruncateTo(MIN_REPO_WIDTH))
        .number("parameters", |row| {
            let mark = if row.is_exact { "" } else { "~" };
            row.parameters.map_or_else(String::new, |number| format!("{mark}{}", short(number)))
        })
        .shrink(detail)
        .optional_number("active", |row| row.active.map_or_else(String::new, short))
        .shown_if(has(|row| row.active.is_some()))
        .text("dtype", |row| row.dtype.clone())
        .shrink(Shrink::Drop)
        .optional_number("bits", |row| row.bits.clone())
        .number("bytes", |row| row.bytes.map_or_else(String::new, bytes))
        .shrink(detail)
        .number("memory", |row| row.memory.map_or_else(String::new, bytes))
        .shown_if(has(|row| row.memory.is_some()))
        .text("fits", |row| row.fit.map_or_else(String::new, |(fits, _)| answer(fits).to_owned()))
        .shown_if(has(|row| row.fit.is_some()))
        .number("longest_context", |row| row.longest_context().map_or_else(String::new, thousands))
        .shown_if(has(|row| row.fit.is_some()))
        .text("quantization", |row| row.quantization.clone())
        .shrink(method)
        .shown_if(has(|row| !row.quantization.is_empty()))
}

/// Returns the columns for other programs, which are always the same and have all digits.
pub(crate) fn machine_columns<'a>() -> Table<'static, &'a OverviewRow> {
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    Table::new()
        .text("repository", |row: &&OverviewRow| row.repo.clone())
        .number("parameters", move |row| number(row.parameters))
        .text("exact", |row| row.parameters.map_or_else(String::new, |_| row.is_exact.to_string()))
        .number("active", move |row| number(row.active))
        .text("dtype", |row| row.dtype.clone())
        .number("bits", |row| row.bits.clone())
        .number("bytes", move |row| number(row.bytes))
        .number("memory", move |row| number(row.memory))
        .text("fits", |row| match row.fit {
            Some((Some(fits), _)) => fits.to_string(),
            _ => String::new(),
        })
        .number("longest_context", move |row| number(row.longest_context()))
        .text("quantization", |row| row.quantization.clone())
        .text("commit", |row| row.commit.clone())
        .text("error", |row| row.error.to_owned())
}
