//! The overview of several repositories: one row each, as a table or for other programs.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io;

use hf_meta::{CountReport, Error};
use hf_meta_count::memory::{CacheError, ContextSource, Memory};
use hf_meta_count::results::text::{bytes, escape, short, thousands};
use serde_json::{Value, to_value};

use super::parameters::bits_per_parameter;
use crate::memory::{answer, known, stores_cache};
use crate::output::{Page, if_any};
use crate::table::{OutputFormat, Shrink, Table};

/// The minimum useful width of the repository column.
const MIN_REPO_WIDTH: usize = 16;

/// The minimum useful width of the quantization column.
const MIN_METHOD_WIDTH: usize = 12;

/// The minimum useful width of the column with reasons.
const MIN_REASON_WIDTH: usize = 16;

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
    /// By the bytes of --memory or --fit, largest first
    Memory,
    /// By the longest context that fits, or else the context of --memory, longest first
    Context,
}

impl SortKey {
    /// Returns whether the key needs `--memory` or `--fit`.
    pub(crate) fn needs_memory(self) -> bool {
        matches!(self, Self::Memory | Self::Context)
    }
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
    /// The memory, if it was requested.
    memory: Option<MemoryCells>,
    quantization: String,
    commit: String,
    error: &'static str,
}

/// The memory of one repository.
#[derive(Clone, Debug)]
struct MemoryCells {
    total: Option<u64>,
    /// The context and its origin, if the model stores a cache.
    context: Option<(u64, ContextSource)>,
    gpus: u64,
    /// The answer whether the model fits, and the longest context that fits, if they were requested.
    fit: Option<(Option<bool>, Option<u64>)>,
    /// The reason for a missing number or answer, or for a negative one that no memory would change.
    reason: Option<CacheError>,
}

impl MemoryCells {
    fn new(memory: &Memory) -> Self {
        let fit = memory.fit.as_ref();
        let reason = fit.and_then(|fit| fit.reason.clone());
        Self {
            total: memory.total_bytes,
            context: stores_cache(memory).then_some((memory.context, memory.context_source)),
            gpus: memory.options.gpus(),
            fit: fit.map(|fit| (fit.fits, fit.longest_context)),
            reason: reason.or_else(|| memory.unknown.clone()),
        }
    }

    /// Returns the answer whether the model fits, for people.
    fn answer(&self) -> String {
        match (self.fit, &self.reason) {
            (Some((Some(false), _)), Some(CacheError::ContextTooLong { maximum, .. })) => {
                format!("no (max {})", short_tokens(*maximum))
            }
            (Some((fits, _)), _) => answer(fits).to_owned(),
            (None, _) => String::new(),
        }
    }

    /// Returns the reason, for people, unless the answer contains it.
    fn reason(&self) -> Option<String> {
        let reason = self.reason.as_ref();
        let reason = reason.filter(|reason| !matches!(reason, CacheError::ContextTooLong { .. }));
        reason.map(|reason| escape(&reason.to_string()))
    }

    /// Returns the code of the reason.
    fn code(&self) -> String {
        let reason = to_value(&self.reason).unwrap_or_default();
        reason.get("code").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn is_assumed(&self) -> bool {
        self.context.is_some_and(|(_, source)| source == ContextSource::Default)
    }
}

/// Formats a number of tokens as in the names of models, such as `32k`.
fn short_tokens(tokens: u64) -> String {
    if tokens.is_multiple_of(1 << 10) {
        format!("{}k", thousands(tokens >> 10))
    } else {
        thousands(tokens)
    }
}

impl OverviewRow {
    pub(crate) fn from_report(report: &CountReport) -> Self {
        let (count, breakdown) = (&report.parameter_count, &report.breakdown);
        let main = count.iter().max_by_key(|(_, parameters)| *parameters);
        Self {
            repo: escape(&report.source),
            parameters: Some(count.total()),
            is_exact: breakdown.is_exact(),
            active: breakdown.moe.map(|moe| moe.active()),
            dtype: main.map_or_else(String::new, |(dtype, _)| escape(dtype.as_str())),
            bytes: Some(count.totals().bytes),
            bits: if_any(count.total(), |total| {
                bits_per_parameter(breakdown.weight_bytes(), total)
            }),
            memory: report.memory.as_deref().map(MemoryCells::new),
            quantization: report.quantization().map_or_else(String::new, escape),
            commit: report.commit.as_ref().map_or_else(String::new, ToString::to_string),
            error: "",
        }
    }

    pub(crate) fn from_error(repo: &str, error: &Error) -> Self {
        Self { repo: escape(repo), error: error.code(), ..Self::default() }
    }

    /// Returns the answer whether the model fits, and the longest context that does.
    fn fit(&self) -> Option<(Option<bool>, Option<u64>)> {
        self.memory.as_ref()?.fit
    }

    /// Returns the values by which rows are sorted: the memory, and the longest context.
    fn sizes(&self) -> (Option<u64>, Option<u64>) {
        let Some(memory) = &self.memory else { return (None, None) };
        let longest = memory.fit.and_then(|(_, longest)| longest);
        (memory.total, longest.or(memory.context.map(|(context, _)| context)))
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
        Some(SortKey::Memory) => rows.sort_by_key(|row| Reverse(row.sizes().0)),
        Some(SortKey::Context) => rows.sort_by_key(|row| Reverse(row.sizes().1)),
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
    let (detail, method) = if has(|row| row.fit().is_some()) {
        (Shrink::Drop, Shrink::Drop)
    } else {
        (Shrink::Never, Shrink::TruncateTo(MIN_METHOD_WIDTH))
    };
    let number = |format: fn(u64) -> String| {
        let format = if is_exact { |number| u64::to_string(&number) } else { format };
        move |number: Option<u64>| number.map_or_else(String::new, format)
    };
    let [short, bytes] = [short, bytes].map(number);
    let table = Table::new()
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
        .shrink(detail);
    with_memory(table, rows)
        .text("quantization", |row| row.quantization.clone())
        .shrink(method)
        .shown_if(has(|row| !row.quantization.is_empty()))
        .text("reason", move |row| {
            let memory = row.memory.as_ref();
            let code = if is_exact { memory.map(MemoryCells::code) } else { None };
            code.or_else(|| memory.and_then(MemoryCells::reason)).unwrap_or_default()
        })
        .shrink(Shrink::WrapTo(MIN_REASON_WIDTH))
        .shown_if(has(|row| row.memory.as_ref().is_some_and(|memory| memory.reason().is_some())))
        .text("commit", |row| row.commit.clone())
        .shown_if(is_exact)
        .text("error", |row| row.error.to_owned())
        .shown_if(is_exact)
}

/// Returns the name of the source of a context, as in JSON.
fn context_source(row: &OverviewRow) -> String {
    let source = row.memory.as_ref().and_then(|memory| memory.context);
    let source = source.and_then(|(_, source)| to_value(source).ok());
    source.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Adds the columns of `--memory` and `--fit`.
fn with_memory<'a>(
    table: Table<'static, &'a OverviewRow>,
    rows: Option<&[OverviewRow]>,
) -> Table<'static, &'a OverviewRow> {
    let is_exact = rows.is_none();
    let has = |value: fn(&MemoryCells) -> bool| {
        let memory = |row: &OverviewRow| row.memory.as_ref().is_some_and(value);
        rows.is_none_or(|rows| rows.iter().any(memory))
    };
    let contexts = rows.into_iter().flatten().filter_map(|row| row.memory.as_ref()?.context);
    let contexts: BTreeSet<_> = contexts.map(|(context, _)| context).collect();
    let has_contexts = is_exact || contexts.len() > 1 || has(MemoryCells::is_assumed);
    let is_per_gpu = !is_exact && has(|memory| memory.gpus > 1);
    let text = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    table
        .number(if is_per_gpu { "memory/GPU" } else { "memory" }, move |row| {
            let total = row.memory.as_ref().map(|memory| memory.total);
            if is_exact { text(total.flatten()) } else { total.map_or_else(String::new, known) }
        })
        .shown_if(has(|_| true))
        .number("context", move |row| {
            let memory = row.memory.as_ref();
            match memory.and_then(|memory| memory.context) {
                Some((context, _)) if is_exact => context.to_string(),
                Some((context, ContextSource::Default)) => {
                    format!("{} (assumed)", thousands(context))
                }
                Some((context, _)) => thousands(context),
                None => String::new(),
            }
        })
        .shown_if(has_contexts && has(|_| true))
        .text("context_source", |row| context_source(row))
        .shown_if(is_exact)
        .number("gpus", move |row| text(row.memory.as_ref().map(|memory| memory.gpus)))
        .shown_if(is_exact)
        .text("fits", move |row| match row.fit() {
            Some((fits, _)) if is_exact => fits.map_or_else(String::new, |fits| fits.to_string()),
            _ => row.memory.as_ref().map_or_else(String::new, MemoryCells::answer),
        })
        .shown_if(has(|memory| memory.fit.is_some()))
        .number("longest_context", move |row| {
            let longest = row.fit().and_then(|(_, longest)| longest);
            if is_exact { text(longest) } else { longest.map_or_else(String::new, thousands) }
        })
        .shown_if(has(|memory| memory.fit.is_some()))
}
