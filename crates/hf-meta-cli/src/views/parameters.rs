//! The default view: parameters per dtype, files, commit and requests.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io;

use hf_meta::{CountReport, WeightSet};
use hf_meta_count::count::DtypeCount;
use hf_meta_count::memory::CacheSpec;
use hf_meta_count::results::Adapter;
use hf_meta_count::results::text::{bytes, counted, escape, share, short, thousands};
use hf_meta_format::formats::weight_sets::shard_pattern;
use hf_meta_format::formats::{ModelDescription, WeightsKind};

use super::explain;
use crate::output::{Page, if_any, joined};
use crate::table::{Shrink, Table};
use crate::terminal::{BOLD, DIM};

/// The maximum number of other sets of weights to list. The JSON has all of them.
const MAX_SETS: usize = 20;

/// The maximum number of quantizations to list. The JSON has all of them.
const MAX_VARIANTS: usize = 60;

/// The maximum number of ranks of an adapter, and of values of alpha, to list. The JSON has all of them.
const MAX_RANKS: usize = 8;

/// The maximum number of target modules to list. The JSON has all of them.
const MAX_TARGETS: usize = 12;

/// The minimum useful width of the path column.
const MIN_PATH_WIDTH: usize = 16;

/// Writes the parameters per dtype, and the totals of the whole checkpoint.
pub(crate) fn write(page: &mut Page<'_>, report: &CountReport) -> io::Result<()> {
    page.heading(&report.source)?;
    write_dtypes(page, report)?;
    let adapter = report.adapter.as_deref();
    let lines = [
        size(report),
        quantization(report),
        report.breakdown.moe.as_ref().map(explain::active_parameters),
        adapter.map(summary),
        adapter.map(targets),
        match &report.model {
            Some(model) => Some(description(model)),
            None => report.cache_spec.as_deref().map(identity),
        },
        Some(files_and_tensors(report)),
    ];
    lines.into_iter().flatten().try_for_each(|line| page.line(&line))?;
    match &report.other_sets {
        Some(sets) if report.model.is_some() => write_variants(page, report, sets)?,
        Some(sets) => write_sets(page, report, sets)?,
        None => {}
    }
    page.styled_line(DIM, &fetch_stats(report))
}

/// Writes a row per dtype in descending order of parameters, and a total. There is a column for elements if they
/// differ from the parameters, as in a quantized model. A `~` marks uncertain parameters.
fn write_dtypes(page: &mut Page<'_>, report: &CountReport) -> io::Result<()> {
    let count = &report.parameter_count;
    let mark = if report.is_exact() { "" } else { "~" };
    let total = count.totals();
    let is_packed = count.rows().any(|(_, row)| row.parameters != row.elements);
    let mut rows: Vec<_> = count.rows().map(|(dtype, row)| (dtype.as_str(), row)).collect();
    rows.sort_by_key(|(_, row)| Reverse(row.parameters));
    if rows.len() != 1 {
        rows.push(("total", total));
    }
    let table = Table::new()
        .text("dtype", |(name, _): &(&str, &DtypeCount)| escape(name))
        .number("parameters", |(_, row)| format!("{mark}{}", thousands(row.parameters)))
        .optional_number("share", |(_, row)| share(row.parameters, total.parameters))
        .optional_number("elements", |(_, row)| thousands(row.elements))
        .shown_if(is_packed)
        .optional_number("bits each", |(_, row)| bits_per_parameter(row.bytes, row.parameters))
        .shown_if(report.model.is_some())
        .number("bytes", |(_, row)| bytes(row.bytes));
    page.table(&table, || rows.iter().copied())
}

/// Formats the size for people: parameters, buffers, and the memory of the weights alone in common dtypes. Returns
/// `None` without parameters.
fn size(report: &CountReport) -> Option<String> {
    let (totals, breakdown) = (report.parameter_count.totals(), &report.breakdown);
    let parameters = Some(totals.parameters).filter(|parameters| *parameters > 0)?;
    let mark = if breakdown.is_exact() { "" } else { "~" };
    let buffers = breakdown.groups.iter().filter(|group| group.buffer.is_some());
    let buffers = buffers.map(|group| group.count.parameters).fold(0, u64::saturating_add);
    let buffers = if_any(buffers, |buffers| format!(", of which {} are buffers", short(buffers)));
    let bits = bits_per_parameter(breakdown.weight_bytes(), parameters);
    let [bf16, int8, int4] = [parameters.saturating_mul(2), parameters, parameters.div_ceil(2)];
    let [bf16, int8, int4] = [bf16, int8, int4].map(bytes);
    let noun = if parameters == 1 { "parameter" } else { "parameters" };
    Some(format!(
        "{mark}{} {noun}{buffers}, {bits} bits each; weights only: {bf16} in bf16, {int8} in int8, {int4} in int4",
        short(parameters)
    ))
}

/// Formats the quantization method of safetensors, such as `quantized: gptq, 4-bit, 39.5 GB as stored (--explain)`. The
/// description of a GGUF file contains its quantization.
fn quantization(report: &CountReport) -> Option<String> {
    let breakdown = &report.breakdown;
    if report.model.is_some() {
        return None;
    }
    let method = breakdown.method.as_deref()?;
    let kinds = breakdown.module_kinds.iter();
    let bits: BTreeSet<_> = kinds.filter_map(|kind| kind.packing.bits).collect();
    let bits: Vec<_> = bits.iter().map(ToString::to_string).collect();
    let bits = if bits.is_empty() { String::new() } else { format!(", {}-bit", bits.join("/")) };
    let stored = bytes(report.parameter_count.totals().bytes);
    Some(format!("quantized: {}{bits}, {stored} as stored (--explain)", escape(method)))
}

/// Describes the architecture, such as `mixtral, 32 layers, hidden size 4,096, context of 32,768 tokens`.
fn identity(spec: &CacheSpec) -> String {
    let parts = [
        Some(escape(&spec.architecture)),
        Some(counted(spec.layers, "layer")),
        spec.hidden_size.map(|size| format!("hidden size {}", thousands(size))),
        spec.max_context.map(context),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Describes an adapter, such as `LoRA adapter of example/base, rank 16, alpha 32 (224 modules)`.
fn summary(adapter: &Adapter) -> String {
    let families: Vec<_> = adapter.families.iter().map(|family| escape(family)).collect();
    let base = adapter.base_model.as_deref().filter(|base| !base.is_empty());
    let base = base.map_or_else(|| "an unnamed base model".to_owned(), escape);
    let mut parts = vec![format!("{} adapter of {base}", families.join(" and "))];
    let several = adapter.ranks.len() > 1;
    let ranks = adapter.ranks.iter().map(|(rank, modules)| {
        if several { format!("{rank} ({})", counted(*modules, "module")) } else { rank.to_string() }
    });
    if ranks.len() > 0 {
        parts.push(format!("rank {}", joined(ranks, MAX_RANKS)));
    }
    let alphas: Vec<_> = adapter.alphas.iter().take(MAX_RANKS).map(f64::to_string).collect();
    match (adapter.alpha_source, alphas.is_empty()) {
        (Some("rank"), _) => parts.push("alpha not stored (loaders use the rank)".to_owned()),
        (Some("default"), _) => parts.push("alpha not stated (PEFT uses 8)".to_owned()),
        (Some("tensors"), _) => parts.push("alpha stored in tensors".to_owned()),
        (Some(_), false) => parts.push(format!("alpha {}", alphas.join(", "))),
        _ => {}
    }
    parts.push(counted(adapter.modules, "module"));
    parts.join(", ")
}

/// Lists the adapted modules.
fn targets(adapter: &Adapter) -> String {
    let names = adapter.target_modules.iter().map(|name| escape(name));
    match joined(names, MAX_TARGETS) {
        names if names.is_empty() => "no target modules".to_owned(),
        names => format!("target modules: {names}"),
    }
}

/// Formats the number of files and tensors, and the commit.
pub(super) fn files_and_tensors(report: &CountReport) -> String {
    let totals = report.parameter_count.totals();
    let noun = if report.sharded { "shard" } else { "file" };
    let files = counted(report.file_count() as u64, noun);
    let scalars =
        if_any(totals.scalars, |scalars| format!(" ({} not counted)", counted(scalars, "scalar")));
    let commit = report.commit.as_ref();
    let commit = commit.map_or_else(String::new, |commit| format!(", commit {commit}"));
    format!("{files}, {}{scalars}{commit}", counted(totals.tensors, "tensor"))
}

/// Formats the number of stored bits per parameter, as in `16` or `4.25`.
pub(super) fn bits_per_parameter(bytes: u64, parameters: u64) -> String {
    let parameters = u128::from(parameters.max(1));
    let hundredths = (u128::from(bytes) * 800 + parameters / 2) / parameters;
    let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats the requests, bytes and seconds of the call.
fn fetch_stats(report: &CountReport) -> String {
    let stats = report.fetch;
    let read = format!("{} read of {}", bytes(stats.bytes_read), bytes(stats.weight_bytes));
    let seconds = stats.elapsed.as_secs_f64();
    match stats.requests {
        0 => format!("{read}, {seconds:.2} s"),
        requests => format!("{}, {read}, {seconds:.2} s", counted(requests, "request")),
    }
}

/// Returns the path that was read: a file, an index, or the path pattern of shards without an index.
fn read_path(report: &CountReport) -> String {
    let pattern = if report.sharded { shard_pattern(&report.filepaths) } else { None };
    pattern.as_ref().or(report.filepaths.first()).map_or_else(String::new, ToString::to_string)
}

/// Writes the path that was read and the other sets of weights in the repository.
fn write_sets(page: &mut Page<'_>, report: &CountReport, sets: &[WeightSet]) -> io::Result<()> {
    let others = if sets.is_empty() { "no other weights" } else { "other weights, not counted:" };
    page.line(&format!("read from {}; {others}", escape(&read_path(report))))?;
    let table = Table::new()
        .text("", |set: &&WeightSet| format!("  {}", escape(set.path.as_str())))
        .shrink(Shrink::TruncateTo(MIN_PATH_WIDTH))
        .number("", |set| bytes(set.bytes));
    page.table(&table, || sets.iter().take(MAX_SETS))?;
    match sets.len().saturating_sub(MAX_SETS) {
        0 => Ok(()),
        more => writeln!(page.out, "  {} more; --json lists them all", thousands(more as u64)),
    }
}

/// A quantization of a model: a file or a set of files.
struct Variant<'a> {
    path: &'a str,
    kind: &'a str,
    bytes: u64,
    /// The bits per weight, marked with `~` if the file's header was not read.
    bits: String,
}

/// Writes the file that was read and the other sets of weights. Their bits per weight follow from their size, because
/// all sets have the same parameters.
fn write_variants(page: &mut Page<'_>, report: &CountReport, sets: &[WeightSet]) -> io::Result<()> {
    let (totals, read) = (report.parameter_count.totals(), read_path(report));
    let others = sets.iter().map(|set| Variant::new(set, totals.parameters));
    let mut variants: Vec<_> = others.collect();
    variants.push(Variant {
        path: &read,
        kind: report.model.as_ref().and_then(|model| model.file_type.as_deref()).unwrap_or(""),
        bytes: report.fetch.weight_bytes,
        bits: bits_per_parameter(totals.bytes, totals.parameters),
    });
    variants.sort_by_key(|variant| (variant.bits.is_empty(), variant.bytes));
    let table = Table::new()
        .text("file", |variant: &&Variant<'_>| escape(variant.path))
        .shrink(Shrink::TruncateTo(MIN_PATH_WIDTH))
        .text("type", |variant| escape(variant.kind))
        .number("size", |variant| bytes(variant.bytes))
        .number("bits each", |variant| variant.bits.clone())
        .shrink(Shrink::Drop);
    page.table(&table, || variants.iter().take(MAX_VARIANTS))?;
    if let more @ 1.. = variants.len().saturating_sub(MAX_VARIANTS) {
        writeln!(page.out, "{} more; --json lists them all", thousands(more as u64))?;
    }
    if variants.len() > 1 {
        let note = format!("read from {}; select another with --path", escape(&read));
        page.styled_line(BOLD, &note)?;
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
}

/// Describes a model in one line, such as
/// `llama, Q4_K_M, context of 131,072 tokens, tokenizer gpt2 with 128,256 tokens`.
fn description(model: &ModelDescription) -> String {
    let kind = model.kind.as_deref().filter(|kind| *kind != "model");
    let texts = [kind, model.architecture.as_deref(), model.file_type.as_deref()];
    let mut parts: Vec<_> = texts.into_iter().flatten().map(escape).collect();
    parts.extend(model.context_length.map(context));
    if let Some(tokenizer) = &model.tokenizer {
        let tokens = model.vocabulary.map(|tokens| format!(" with {} tokens", thousands(tokens)));
        parts.push(format!("tokenizer {}{}", escape(tokenizer), tokens.unwrap_or_default()));
    }
    parts.join(", ")
}

fn context(tokens: u64) -> String {
    format!("context of {} tokens", thousands(tokens))
}
