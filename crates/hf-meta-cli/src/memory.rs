//! `--memory` and `--fit`: the memory that a model needs.

use std::collections::BTreeSet;
use std::io;

use clap::{ArgAction, ArgGroup};
use hf_meta::CountReport;
use hf_meta_count::memory::{
    self, CacheDtype, CacheError, ContextSource, Engine, Fit, GpuSet, GpuShare, Memory,
    MemoryComponent, MemoryOptions, QuantizationFit, VLLM_VERSION, VllmOptions, VllmPlan,
};
use hf_meta_count::results::text::{bytes, counted, escape, thousands};

use super::exit::{CommandError, CommandResult, ExitStatus};
use super::output::Page;
use super::table::Table;
use super::terminal::DIM;

/// The context lengths of the table, in tokens, besides the requested one and the maximum of the model.
const CONTEXTS: [u64; 3] = [4 << 10, 32 << 10, 128 << 10];

/// The options of `--memory`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
#[command(group(ArgGroup::new("sized").args(["memory", "fit", "gpu"]).multiple(true)))]
pub(crate) struct MemoryArgs {
    /// Print the memory of the weights and the cache
    ///
    /// Reads config.json, and prints several context lengths.
    #[arg(long, conflicts_with_all = OTHER_VIEWS)]
    memory: bool,

    #[command(flatten)]
    pub(crate) conditions: ConditionArgs,
}

/// The views without memory.
const OTHER_VIEWS: [&str; 4] = ["tensors", "tree", "explain", "metadata"];

/// The options that need a memory or a GPU.
const CONDITIONS: [&str; 4] = ["context", "batch", "cache_dtype", "engine"];

/// The conditions for which memory is computed, also in `verify`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
pub(crate) struct ConditionArgs {
    /// Print whether the model fits, such as 24GB
    ///
    /// Also prints the longest context that fits into this memory. Exits with 1 if a model does not fit or if that is unknown.
    /// A card of 24 GB has 24GiB, which are 25.8GB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    fit: Option<u64>,

    /// Print whether the model fits on GPUs, such as 2xH100
    ///
    /// The memory is the one that the driver reports. Exits like --fit.
    #[arg(long, value_name = "GPUS", value_parser = parse::<GpuSet>, conflicts_with = "fit")]
    gpu: Option<GpuSet>,

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

    /// Program that stores the cache for --memory and --fit: stored (no reserves, as in transformers), vllm, sglang, llama.cpp or mlx-lm [default: stored]
    #[arg(long, hide_short_help = true, value_name = "NAME", value_parser = parse::<Engine>, action = ArgAction::Append)]
    engine: Vec<Engine>,

    /// Maximum number of tokens of a step of vLLM [default: as `vllm serve` on the GPU, or 8192]
    // A name of this length would move all descriptions of the short help to separate lines.
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens, hide_short_help = true)]
    max_num_batched_tokens: Option<u64>,

    /// Number of GPUs that share the model [default: 1]
    ///
    /// vLLM divides it by tensor parallelism. Sizes are per GPU. With --gpu, the default is the number of GPUs.
    #[arg(long, value_name = "GPUS", value_parser = clap::value_parser!(u64).range(1..=1024))]
    tp: Option<u64>,

    /// Number of stages among which vLLM divides the layers [default: 1]
    ///
    /// The other GPUs of --gpu share the layers of a stage, unless --tp states their number.
    #[arg(long, value_name = "STAGES", value_parser = clap::value_parser!(u64).range(1..=1024), hide_short_help = true)]
    pp: Option<u64>,

    /// Share of the memory that vLLM uses, including activations [default: 0.9, as in vLLM]
    #[arg(long, value_name = "SHARE", value_parser = parse::<GpuShare>, hide_short_help = true)]
    gpu_memory_utilization: Option<GpuShare>,

    /// Memory for other programs, such as 1GB [default: none]
    ///
    /// vLLM has a share instead.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, hide_short_help = true)]
    reserve: Option<u64>,
}

/// Adds the rules between the conditions and the other options of the command without a subcommand.
pub(crate) fn define(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| match arg.get_id().as_str() {
        "fit" | "gpu" => arg.conflicts_with_all(OTHER_VIEWS),
        id if CONDITIONS.contains(&id) => arg.requires("sized"),
        _ => arg,
    })
}

/// Adds the rules between the conditions and `--engine` of `verify`.
pub(crate) fn define_engine(verify: clap::Command) -> clap::Command {
    const NEEDS_ENGINE: [&str; 10] = [
        "fit",
        "gpu",
        "context",
        "batch",
        "cache_dtype",
        "max_num_batched_tokens",
        "tp",
        "pp",
        "gpu_memory_utilization",
        "reserve",
    ];
    verify.mut_args(|arg| match arg.get_id().as_str() {
        "engine" => arg.hide_short_help(false).help(
            "Print whether a program loads the model: vllm, sglang, transformers, llama.cpp or mlx-lm",
        ),
        id if NEEDS_ENGINE.contains(&id) => arg.requires("engine"),
        _ => arg,
    })
}

impl MemoryArgs {
    /// Returns whether memory is part of the output.
    pub(crate) fn is_selected(&self) -> bool {
        self.memory || self.conditions.fit.is_some() || self.conditions.gpu.is_some()
    }

    /// Returns the conditions for which to compute the memory; `None` if it is not part of the output.
    pub(crate) fn options(&self) -> CommandResult<Option<MemoryOptions>> {
        let options = self.conditions.options()?;
        Ok(self.is_selected().then_some(options))
    }
}

impl ConditionArgs {
    /// Returns the conditions if a program was selected.
    pub(crate) fn for_engine(&self) -> CommandResult<Option<MemoryOptions>> {
        (!self.engine.is_empty()).then(|| self.options()).transpose()
    }

    /// Returns the conditions.
    pub(crate) fn options(&self) -> CommandResult<MemoryOptions> {
        if self.engine.len() > 1 {
            return Err(CommandError::usage("`--engine` accepts one program"));
        }
        let engine = self.engine.first().copied().unwrap_or_default();
        let has_vllm_option = self.max_num_batched_tokens.is_some()
            || self.tp.is_some()
            || self.pp.is_some()
            || self.gpu_memory_utilization.is_some();
        if has_vllm_option && engine != Engine::Vllm {
            return Err(CommandError::usage(
                "`--max-num-batched-tokens`, `--tp`, `--pp` and `--gpu-memory-utilization` require `--engine vllm`",
            ));
        }
        let default = VllmOptions::default();
        let stages = self.pp.unwrap_or(default.stages);
        // A stage has an equal part of the GPUs.
        let shared = self.gpu.map(|gpus| (gpus.count / stages).max(1));
        let vllm = VllmOptions {
            max_batched_tokens: self.max_num_batched_tokens,
            gpus: self.tp.or(shared).unwrap_or(default.gpus),
            stages,
            gpu_memory_utilization: self
                .gpu_memory_utilization
                .unwrap_or(default.gpu_memory_utilization),
            ..default
        };
        let mut options = MemoryOptions {
            context: self.context,
            batch: self.batch,
            cache_dtype: self.cache_dtype,
            engine,
            vllm,
            budget: self.fit,
            reserve: self.reserve.unwrap_or(0),
            gpus: self.gpu,
        };
        options.finish().map_err(CommandError::usage)?;
        Ok(options)
    }
}

fn parse<T: std::str::FromStr>(text: &str) -> Result<T, T::Err> {
    text.to_ascii_lowercase().parse()
}

pub(crate) fn parse_tokens(text: &str) -> Result<u64, &'static str> {
    memory::parse_tokens(text).ok_or("expected a number of tokens, such as 32768 or 32k")
}

fn parse_size(text: &str) -> Result<u64, &'static str> {
    memory::parse_size(text).ok_or("expected a size, such as 24GB or 23.6GiB")
}

/// Writes what fits, and the memory at several context lengths.
pub(crate) fn write(page: &mut Page<'_>, report: &CountReport) -> io::Result<()> {
    let Some(memory) = &report.memory else { return Ok(()) };
    page.heading(&report.source)?;
    let fit = memory.fit.as_ref();
    if let Some(fit) = fit {
        page.line(&verdict(memory, fit))?;
        page.lines(largest_quantization(fit))?;
    }
    let rows: Vec<_> = contexts(memory).into_iter().map(|context| memory.at(context)).collect();
    let has_cache = stores_cache(memory);
    let [weights, cache, state, total] = if memory.options.gpus() > 1 {
        ["weights/GPU", "cache/GPU", "state/GPU", "total/GPU"]
    } else {
        ["weights", "cache", "state", "total"]
    };
    let table = Table::new()
        .number("context", |row: &&Memory| thousands(row.context))
        .shown_if(has_cache)
        .number(weights, |row| weight_size(row))
        .number(cache, |row| known(row.cache.map(|size| size.bytes)))
        .shown_if(has_cache)
        .number(state, |row| known(row.state.map(|size| size.bytes)))
        .shown_if(memory.state.is_none_or(|size| size.bytes > 0))
        .number(total, |row| known(row.total_bytes));
    page.table(&table, || &rows)?;
    if !memory.components.is_empty() {
        let table = Table::new()
            .text("component", |set: &&MemoryComponent| escape(set.path.as_str()))
            .number("weights", |set| bytes(set.weight_bytes));
        page.table(&table, || &memory.components)?;
    }
    if let Some(fit) = fit.filter(|fit| !fit.quantizations.is_empty()) {
        let table = Table::new()
            .text("quantization", |row: &&QuantizationFit| escape(&row.quantization))
            .number("weights", |row| bytes(row.weight_bytes))
            .number("cache", |_| known(memory.sequence_bytes()))
            .number("total", |row| known(row.total_bytes))
            .text("fits", |row| answer(row.fits).to_owned());
        page.table(&table, || &fit.quantizations)?;
    }
    page.lines(summary(memory))?;
    page.lines(fit.and_then(|fit| card(memory, fit.budget)))?;
    page.styled_line(DIM, "excluded: activations, the runtime of the accelerator, fragmentation")
}

/// Formats the size of the weights on a GPU, which may be a minimum.
pub(crate) fn weight_size(memory: &Memory) -> String {
    let least = if memory.has_exact_weights() { "" } else { "≥ " };
    format!("{least}{}", bytes(memory.weight_bytes))
}

/// Returns whether the model stores a cache, as far as is known.
pub(crate) fn stores_cache(memory: &Memory) -> bool {
    memory.spec.as_ref().is_ok_and(|spec| !spec.caches.is_empty()) || memory.unknown.is_some()
}

/// Returns the context lengths of the table, in ascending order.
fn contexts(memory: &Memory) -> BTreeSet<u64> {
    let max_context = memory.max_context();
    let known = memory.spec.as_ref().ok().filter(|spec| !spec.caches.is_empty());
    let others = known.iter().flat_map(|_| CONTEXTS.into_iter().chain(max_context));
    let is_possible = |context: &u64| max_context.is_none_or(|max| *context <= max);
    others.filter(is_possible).chain([memory.context]).collect()
}

pub(crate) fn known(number: Option<u64>) -> String {
    number.map_or_else(|| "?".to_owned(), bytes)
}

/// Returns the word for an answer.
pub(crate) fn answer(fits: Option<bool>) -> &'static str {
    match fits {
        Some(true) => "yes",
        Some(false) => "no",
        None => "?",
    }
}

/// Describes the layers and the options, in lines.
fn summary(memory: &Memory) -> Vec<String> {
    let layers = memory.spec.as_ref().ok().map(|spec| {
        let name = escape(&spec.architecture);
        if spec.caches.is_empty() {
            return format!("{name}: no cache");
        }
        let caches = spec.caches.iter().map(|cache| {
            let tokens = cache.tokens.map(|tokens| format!(" {}", thousands(tokens)));
            format!("{} × {}{}", cache.layers, cache.kind.name(), tokens.unwrap_or_default())
        });
        let caches: Vec<_> = caches.collect();
        format!("{name}, {}: {}", counted(spec.layers, "layer"), caches.join(", "))
    });
    let unknown = memory.unknown.as_ref();
    let unknown = unknown.map(|error| format!("cache unknown: {}", escape(&error.to_string())));
    let batch = match memory.options.batch.unwrap_or(1) {
        1 => String::new(),
        batch => format!(", {batch} sequences"),
    };
    let assumed = match memory.context_source {
        ContextSource::Default => "; no maximum context is stated",
        _ => "",
    };
    let (dtype, engine) = (memory.cache_dtype, memory.options.engine);
    let options = format!("cache in {dtype}{batch}, engine {engine}{assumed}");
    let options = if stores_cache(memory) { Some(options) } else { None };
    let vllm = memory.plan.map(|plan| assumptions(memory, plan));
    [layers, unknown, options].into_iter().flatten().chain(vllm.into_iter().flatten()).collect()
}

/// Describes the conditions in vLLM, in lines.
fn assumptions(memory: &Memory, plan: VllmPlan) -> [String; 2] {
    let options = plan.options;
    let default = VllmOptions::default().batched_tokens();
    let (tokens, in_flight) = (options.batched_tokens(), options.tokens_in_flight());
    let source = match memory.options.gpus {
        Some(gpus) => format!(" on {gpus}"),
        None if tokens == default => ", `vllm serve` on an H100".to_owned(),
        None => String::new(),
    };
    let gpus = match (memory.options.gpus(), memory.has_exact_weights()) {
        (1, _) => String::new(),
        (gpus, true) => format!(" on each of {gpus} GPUs"),
        (gpus, false) => format!(" on each of {gpus} GPUs, with unknown parts of the weights"),
    };
    let (tokens, in_flight) = (thousands(tokens), thousands(in_flight));
    let (blocks, block) = (counted(plan.blocks, "block"), thousands(plan.block_size));
    [
        format!("vLLM {VLLM_VERSION}{source}: {tokens} batched tokens, {in_flight} in flight"),
        format!("{blocks} of {block} tokens{gpus}"),
    ]
}

/// Describes the memory of `--fit`: the part of it that the engine uses.
fn budget(memory: &Memory, fit: &Fit) -> String {
    let per_gpu = if memory.options.gpus() > 1 { " per GPU" } else { "" };
    format!("{}{per_gpu}", usable(memory, fit))
}

/// Describes the part of a memory that the engine uses.
pub(crate) fn usable(memory: &Memory, fit: &Fit) -> String {
    match (fit.usable, memory.options.reserve) {
        (all, _) if all == fit.budget => bytes(all),
        (part, 0) => {
            let share = memory.options.vllm.gpu_memory_utilization;
            format!("{} ({share} of {})", bytes(part), bytes(fit.budget))
        }
        (part, reserve) => {
            format!("{} ({} less {} reserved)", bytes(part), bytes(fit.budget), bytes(reserve))
        }
    }
}

/// Compares a size in decimal units with a card that is sold with this size, which has binary units.
fn card(memory: &Memory, budget: u64) -> Option<String> {
    if memory.options.gpus.is_some() {
        return None;
    }
    let size = budget.checked_div(1_000_000_000).filter(|size| size * 1_000_000_000 == budget)?;
    let real = bytes(size.checked_mul(1 << 30)?);
    Some(format!("cards of {size} GB have {size} GiB ({real}): --fit {size}GiB"))
}

/// Describes whether the model fits, and the longest context that does.
fn verdict(memory: &Memory, fit: &Fit) -> String {
    let size = budget(memory, fit);
    let context = match fit.longest_context {
        Some(0) => "; not even one token fits".to_owned(),
        Some(context) if stores_cache(memory) => {
            format!("; at most {} tokens fit", thousands(context))
        }
        _ => String::new(),
    };
    let at = match memory.context_source {
        _ if !stores_cache(memory) => String::new(),
        ContextSource::Default => format!(", at {} tokens (assumed)", thousands(memory.context)),
        _ => format!(", at {} tokens", thousands(memory.context)),
    };
    match (fit.fits, &fit.reason) {
        (None, Some(CacheError::NoDivision { .. })) => {
            let (least, most) = (bytes(memory.weight_bytes), bytes(memory.max_weight_bytes));
            format!("{size}: unknown, the weights need {least} to {most}{at}")
        }
        (None, _) => format!("{size}: the weights fit; the cache is unknown"),
        (Some(false), _) if memory.weight_bytes > fit.usable => {
            format!("{size}: no, the weights do not fit")
        }
        (_, Some(CacheError::ContextTooLong { .. })) => {
            format!("{size}: no, {} tokens exceed its maximum{context}", thousands(memory.context))
        }
        (fits, _) => format!("{size}: {}{at}{context}", answer(fits)),
    }
}

/// Names the largest quantization that fits, if the repository has quantizations.
fn largest_quantization(fit: &Fit) -> Option<String> {
    fit.quantizations.first()?;
    Some(match fit.largest_quantization() {
        Some(set) => {
            let (name, weights) = (escape(&set.quantization), bytes(set.weight_bytes));
            format!("the largest quantization that fits is {name} ({weights})")
        }
        None if fit.fits.is_none() || fit.reason.is_some() => return None,
        None => "no quantization fits".to_owned(),
    })
}

/// The answers for several models.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    fitting: u64,
    excluded: u64,
    unknown: u64,
    /// The memory, and the same in other units.
    budget: Option<(String, Option<String>)>,
}

impl Answers {
    /// Adds the answer for a model.
    pub(crate) fn add(&mut self, report: &CountReport) {
        let Some(memory) = report.memory.as_deref() else { return };
        let Some(fit) = &memory.fit else { return };
        *match fit.fits {
            Some(true) => &mut self.fitting,
            Some(false) => &mut self.excluded,
            None => &mut self.unknown,
        } += 1;
        self.budget.get_or_insert_with(|| (budget(memory, fit), card(memory, fit.budget)));
    }

    /// Returns the exit status: a failure if a model does not fit, or if that is unknown.
    pub(crate) fn status(&self) -> ExitStatus {
        if self.excluded + self.unknown > 0 { ExitStatus::CheckFailed } else { ExitStatus::Success }
    }

    /// Describes the answers for at least `min` models.
    pub(crate) fn describe(&self, min: u64) -> Option<String> {
        let (budget, card) = self.budget.as_ref()?;
        let all = self.fitting + self.excluded + self.unknown;
        if all < min {
            return None;
        }
        let verb = if self.excluded == 1 { "does" } else { "do" };
        let [fitting, excluded, unknown, all] =
            [self.fitting, self.excluded, self.unknown, all].map(thousands);
        let card = card.as_ref().map_or_else(String::new, |card| format!("; {card}"));
        Some(format!(
            "{budget}: {fitting} of {all} fit, {excluded} {verb} not fit, {unknown} unknown{card}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_units() {
        let tokens = ["4096", "32k", "1M", "0", "k", "-1", "1.5k", "99999999999999999999"];
        let expected = [Some(4_096), Some(32_768), Some(1 << 20), None, None, None, None, None];
        assert_eq!(tokens.map(|text| parse_tokens(text).ok()), expected);
    }
}
