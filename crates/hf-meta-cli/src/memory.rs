//! `--memory` and `--fit`: the memory that a model needs.

use std::io;

use hf_meta::formats::WeightsKind;
use hf_meta::memory::{self, CacheDtype, CacheSize, Engine, Memory, MemoryOptions};
use hf_meta::report::text::{bytes, counted, escape, thousands};
use hf_meta::{CountReport, Model};

use super::exit::CommandError;
use super::output::Page;
use super::table::Table;
use super::terminal::DIM;

/// The context lengths of the table, in tokens, besides the requested one and the maximum of the model.
const CONTEXTS: [u64; 3] = [4 << 10, 32 << 10, 128 << 10];

#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
pub(crate) struct MemoryArgs {
    /// Print the memory of the weights and the cache
    ///
    /// Reads config.json, and prints several context lengths.
    #[arg(long, conflicts_with_all = ["tensors", "tree", "explain", "metadata"])]
    memory: bool,

    /// Print whether the model fits, such as 24GB
    ///
    /// Also prints the longest context that fits into this memory.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    #[arg(conflicts_with_all = ["tensors", "tree", "explain", "metadata"])]
    fit: Option<u64>,

    /// Context length such as 32k [default: the maximum]
    ///
    /// For --memory and --fit. The maximum is the one of the model.
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    context: Option<u64>,

    /// Number of sequences for --memory and --fit [default: 1]
    #[arg(long, hide_short_help = true, value_name = "SEQUENCES", value_parser = clap::value_parser!(u64).range(1..))]
    batch: Option<u64>,

    /// Dtype of the cache for --memory and --fit, such as bf16, fp8 or q8_0 [default: the dtype of the model]
    #[arg(long, hide_short_help = true, value_name = "DTYPE", value_parser = parse::<CacheDtype>)]
    cache_dtype: Option<CacheDtype>,

    /// Program that stores the cache for --memory and --fit: stored (no reserves), vllm or llama.cpp [default: stored]
    #[arg(long, hide_short_help = true, value_name = "NAME", value_parser = parse::<Engine>)]
    engine: Option<Engine>,
}

impl MemoryArgs {
    /// Returns whether memory is part of the output.
    pub(crate) fn is_selected(&self) -> bool {
        self.memory || self.fit.is_some()
    }

    /// Checks the combinations that clap cannot express.
    pub(crate) fn validate(&self) -> Result<(), CommandError> {
        let Self { context, batch, cache_dtype, engine, .. } = self;
        let has_options =
            context.is_some() || batch.is_some() || cache_dtype.is_some() || engine.is_some();
        if has_options && !self.is_selected() {
            return Err(CommandError::usage(
                "`--context`, `--batch`, `--cache-dtype` and `--engine` require `--memory` or `--fit`",
            ));
        }
        Ok(())
    }

    /// Adds the options to a model. Finding another quantization that fits requires a list of them.
    pub(crate) fn apply(&self, model: Model) -> Model {
        if !self.is_selected() {
            return model;
        }
        let Self { context, batch, cache_dtype, engine, .. } = *self;
        let model = model.memory(MemoryOptions { context, batch, cache_dtype, engine });
        if self.fit.is_some() { model.other_sets(true) } else { model }
    }
}

fn parse<T: std::str::FromStr>(text: &str) -> Result<T, T::Err> {
    text.to_ascii_lowercase().parse()
}

pub(crate) fn parse_tokens(text: &str) -> Result<u64, &'static str> {
    memory::parse_tokens(text).ok_or("expected a number of tokens, such as 32768 or 32k")
}

fn parse_size(text: &str) -> Result<u64, &'static str> {
    const UNITS: [(&str, u64); 7] = [
        ("b", 1),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
        ("tb", 1_000_000_000_000),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
        ("tib", 1 << 40),
    ];
    let text = text.to_ascii_lowercase();
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = UNITS.iter().find(|(name, _)| *name == unit.trim());
    let size = unit.and_then(|(_, factor)| number.parse::<u64>().ok()?.checked_mul(*factor));
    size.filter(|size| *size > 0).ok_or("expected a size, such as 24GB or 80GiB")
}

/// Writes the memory at several context lengths, and what fits.
pub(crate) fn write(
    page: &mut Page<'_>,
    args: &MemoryArgs,
    report: &CountReport,
) -> io::Result<()> {
    let Some(memory) = &report.memory else { return Ok(()) };
    page.heading(&report.source)?;
    let layout = memory.layout.as_ref().ok();
    let max_context = layout.and_then(|layout| layout.max_context);
    let mut contexts: Vec<_> = match layout {
        Some(_) => CONTEXTS.into_iter().chain(max_context).collect(),
        None => Vec::new(),
    };
    contexts.retain(|context| max_context.is_none_or(|max| *context <= max));
    contexts.push(memory.context);
    contexts.sort_unstable();
    contexts.dedup();
    let rows: Vec<_> = contexts.into_iter().map(|context| memory.at(context)).collect();
    let unknown = || "?".to_owned();
    let size = |size: Option<CacheSize>| size.map_or_else(unknown, |size| bytes(size.bytes));
    let table = Table::new()
        .number("context", |row: &&Memory| thousands(row.context))
        .number("weights", |row| bytes(row.weight_bytes))
        .number("cache", move |row| size(row.cache))
        .number("state", move |row| size(row.state))
        .shown_if(memory.state.is_none_or(|size| size.bytes > 0))
        .number("total", |row| row.total_bytes.map_or_else(unknown, bytes));
    page.table(&table, || &rows)?;
    for line in summary(memory) {
        page.line(&line)?;
    }
    for line in args.fit.iter().flat_map(|budget| fit(report, memory, *budget)) {
        page.line(&line)?;
    }
    page.styled_line(DIM, "excluded: activations, the runtime of the accelerator, fragmentation")
}

/// Describes the layers and the options, in lines.
fn summary(memory: &Memory) -> Vec<String> {
    let layers = match &memory.layout {
        Ok(layout) => {
            let caches = layout.caches.iter().map(|cache| {
                let tokens = cache.tokens.map(|tokens| format!(" {}", thousands(tokens)));
                format!("{} × {}{}", cache.layers, cache.kind.name(), tokens.unwrap_or_default())
            });
            let caches: Vec<_> = caches.collect();
            let name = escape(&layout.architecture);
            format!("{name}, {}: {}", counted(layout.layers, "layer"), caches.join(", "))
        }
        Err(_) => String::new(),
    };
    let unknown = memory.unknown.as_ref();
    let unknown = unknown.map(|error| format!("cache unknown: {}", escape(&error.to_string())));
    let engine = memory.options.engine.unwrap_or(Engine::Stored).name();
    let batch = match memory.options.batch.unwrap_or(1) {
        1 => String::new(),
        batch => format!(", {batch} sequences"),
    };
    let options = format!("cache in {}{batch}, engine {engine}", memory.cache_dtype);
    let lines = [layers, unknown.unwrap_or_default(), options];
    lines.into_iter().filter(|line| !line.is_empty()).collect()
}

/// Describes what fits into `budget` bytes, in lines.
fn fit(report: &CountReport, memory: &Memory, budget: u64) -> Vec<String> {
    let size = bytes(budget);
    let Some(needed) = memory.sequence_bytes() else {
        let answer = if memory.weight_bytes <= budget {
            "the weights fit; the cache is unknown"
        } else {
            "no, the weights do not fit"
        };
        return vec![format!("{size}: {answer}")];
    };
    let answer = if memory.weight_bytes.saturating_add(needed) <= budget { "yes" } else { "no" };
    let context = match memory.longest_context(budget) {
        Some(context) => format!("at most {} tokens fit", thousands(context)),
        None => "not even one token fits".to_owned(),
    };
    let answer = format!("{size}: {answer}, at {} tokens; {context}", thousands(memory.context));
    let sets = report.other_sets.iter().flatten();
    let sets = sets.filter(|set| report.model.is_some() && set.kind == WeightsKind::Model);
    let others = sets.filter_map(|set| Some((set.bytes, set.quantization.as_deref()?)));
    let read = report.model.as_ref().and_then(|model| model.file_type.as_deref());
    let all = others.chain(read.map(|name| (memory.weight_bytes, name)));
    let fits = all.filter(|(bytes, _)| bytes.saturating_add(needed) <= budget);
    let largest = match fits.max() {
        Some((weights, name)) => {
            format!("the largest quantization that fits is {} ({})", escape(name), bytes(weights))
        }
        None if report.model.is_some() => "no quantization fits".to_owned(),
        None => return vec![answer],
    };
    vec![answer, largest]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_tokens_have_units() {
        let tokens = ["4096", "32k", "1M", "0", "k", "-1", "1.5k", "99999999999999999999"];
        let expected = [Some(4_096), Some(32_768), Some(1 << 20), None, None, None, None, None];
        assert_eq!(tokens.map(|text| parse_tokens(text).ok()), expected);
        let sizes = ["24GB", "80 GiB", "1tib", "24", "9999999999TB"];
        let expected = [Some(24_000_000_000), Some(80 << 30), Some(1 << 40), None, None];
        assert_eq!(sizes.map(|text| parse_size(text).ok()), expected);
    }
}
