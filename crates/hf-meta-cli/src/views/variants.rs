//! The quantizations of a model: one row per file or set of files, from one listing and one header.

use std::io::{self, Write};

use hf_meta::formats::{ModelDescription, WeightsKind};
use hf_meta::report::text::{bytes, escape, thousands};
use hf_meta::{CountReport, RepoPath, WeightSet};

use super::bits_per_parameter;
use crate::style::BOLD;
use crate::table::Table;
use crate::terminal::{TerminalSize, fitted};

/// The maximum number of rows. The JSON has all of them.
const MAX_VARIANTS: usize = 60;

/// The minimum useful width of the path column.
const MIN_PATH_WIDTH: usize = 20;

/// A row of the table.
struct Variant<'a> {
    path: &'a str,
    kind: &'a str,
    bytes: u64,
    /// The bits per weight, marked with `~` if the file's header was not read.
    bits: String,
}

/// Writes the file that was read and the other sets of weights. Their bits per weight follow from their size, because
/// all sets have the same parameters.
pub(super) fn write(
    out: &mut impl Write,
    report: &CountReport,
    sets: &[WeightSet],
    terminal: Option<TerminalSize>,
) -> io::Result<()> {
    let parameters = report.parameter_count.total();
    let mut variants: Vec<_> = sets.iter().map(|set| Variant::new(set, parameters)).collect();
    variants.push(Variant::from_report(report));
    variants.sort_by_key(|variant| (variant.bits.is_empty(), variant.bytes));
    let read = report.filepaths.first().map_or("", RepoPath::as_str);
    let is_read = |variant: &Variant<'_>| variant.path == read;
    let table = Table::new()
        .text("file", |variant: &&Variant<'_>| escape(variant.path))
        .can_shrink_to(MIN_PATH_WIDTH)
        .text("type", |variant| escape(variant.kind))
        .number("size", |variant| bytes(variant.bytes))
        .number("bits each", |variant| variant.bits.clone());
    table.fit(terminal).write(out, || variants.iter().take(MAX_VARIANTS))?;
    if let more @ 1.. = variants.len().saturating_sub(MAX_VARIANTS) {
        writeln!(out, "{more} more; --json lists them all")?;
    }
    let position = variants.iter().position(is_read).filter(|_| variants.len() > 1);
    if position.is_some() {
        let note = format!("read from {}; select another with --path", escape(read));
        writeln!(out, "{BOLD}{}{BOLD:#}", fitted(&note, terminal))?;
    }
    Ok(())
}

impl<'a> Variant<'a> {
    fn new(set: &'a WeightSet, parameters: u64) -> Self {
        let (kind, has_bits) = match set.kind {
            WeightsKind::Projector => ("projector", false),
            WeightsKind::Adapter => ("adapter", false),
            WeightsKind::ImportanceMatrix => ("importance matrix", false),
            _ => (set.quantization.as_deref().unwrap_or_default(), true),
        };
        let bits = format!("~{}", bits_per_parameter(set.bytes, parameters));
        let bits = if has_bits { bits } else { String::new() };
        Self { path: set.path.as_str(), kind, bytes: set.bytes, bits }
    }

    fn from_report(report: &'a CountReport) -> Self {
        let totals = report.parameter_count.totals();
        Self {
            path: report.filepaths.first().map_or("", RepoPath::as_str),
            kind: report.model.as_ref().and_then(|model| model.file_type.as_deref()).unwrap_or(""),
            bytes: report.fetch.weight_bytes,
            bits: bits_per_parameter(totals.bytes, totals.parameters),
        }
    }
}

/// Describes a model in one line, such as
/// `llama, Q4_K_M, context of 131,072 tokens, tokenizer gpt2 with 128,256 tokens`.
pub(super) fn description(model: &ModelDescription) -> String {
    let kind = model.kind.as_deref().filter(|kind| *kind != "model");
    let texts = [kind, model.architecture.as_deref(), model.file_type.as_deref()];
    let mut parts: Vec<_> = texts.into_iter().flatten().map(escape).collect();
    let number = |count: Option<u64>, text: &str| Some(text.replace("{}", &thousands(count?)));
    parts.extend(number(model.context_length, "context of {} tokens"));
    if let Some(tokenizer) = &model.tokenizer {
        let vocabulary = number(model.vocabulary, " with {} tokens").unwrap_or_default();
        parts.push(format!("tokenizer {}{vocabulary}", escape(tokenizer)));
    }
    parts.join(", ")
}
