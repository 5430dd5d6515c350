//! `verify --engine`: whether an engine loads a model.

use std::ffi::OsString;
use std::io;
use std::time::SystemTime;

use clap::ValueHint;
use hf_meta::{Error, ErrorKind, Model, VerifyReport};
use hf_meta_count::engines::{add_pair, refused};
use hf_meta_count::memory::{Engine, Memory, MemoryOptions};
use hf_meta_count::results::text::{bytes, escape, thousands};
use hf_meta_count::results::{EnginePairKind, EngineReport};

use super::context::{CommandContext, SelectionArgs, Sources};
use super::exit::{CommandError, CommandResult, ExitStatus};
use super::memory::{ConditionArgs, answer, known, stores_cache, usable, weight_size};
use super::output::Page;
use super::repos::RepoArg;
use super::terminal::{GREEN, RED, YELLOW};

/// The days after which the table of engines may be outdated.
const MAX_AGE_DAYS: u64 = 365;

/// The files that are loaded together with a model.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
pub(crate) struct PairArgs {
    /// Draft model of --engine: anything that `hf-meta` can read
    ///
    /// Its vocabulary is compared, and its weights and cache are added.
    #[arg(long, value_name = "REPO", value_hint = ValueHint::AnyPath, requires = "engine", hide_short_help = true)]
    draft: Option<OsString>,

    /// Number of tokens that --draft predicts in each step of vLLM
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..), requires = "draft", hide_short_help = true)]
    num_speculative_tokens: Option<u64>,

    /// Adapter that --engine loads together with the model
    #[arg(long, value_name = "REPO", value_hint = ValueHint::AnyPath, requires = "engine", hide_short_help = true)]
    adapter: Option<OsString>,

    /// Projector of images that --engine loads together with the model: a GGUF file on disk, or its URL
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath, requires = "engine", hide_short_help = true)]
    mmproj: Option<OsString>,
}

/// The verified files that are loaded together with each model.
#[derive(Default)]
pub(crate) struct Pairs {
    options: Option<MemoryOptions>,
    found: Vec<(EnginePairKind, VerifyReport)>,
}

impl Pairs {
    /// Adds the files to the answer about a model.
    pub(crate) fn add_to(&self, report: &mut VerifyReport) {
        for (kind, pair) in &self.found {
            if let Some(options) = &self.options {
                add_pair(report, *kind, pair, options);
            }
        }
    }
}

impl PairArgs {
    /// Returns the conditions if a program was selected, with the options of pairs.
    pub(crate) fn conditions(&self, given: &ConditionArgs) -> CommandResult<Option<MemoryOptions>> {
        let Some(mut options) = given.for_engine()? else { return Ok(None) };
        options.vllm.speculative_tokens = self.num_speculative_tokens;
        if self.num_speculative_tokens.is_some() && options.engine != Engine::Vllm {
            let text = "`--num-speculative-tokens` requires `--engine vllm`";
            return Err(CommandError::usage(text));
        }
        Ok(Some(options))
    }

    /// Verifies the files. Returns the exit code if one of them cannot be read.
    pub(crate) async fn read(
        &self,
        options: Option<MemoryOptions>,
        context: &CommandContext,
        is_json: bool,
    ) -> CommandResult<Result<Pairs, ExitStatus>> {
        let given = [
            (EnginePairKind::Draft, &self.draft),
            (EnginePairKind::Adapter, &self.adapter),
            (EnginePairKind::Projector, &self.mmproj),
        ];
        let selection = &SelectionArgs::default();
        let mut pairs = Pairs { options, ..Pairs::default() };
        for (kind, name) in given {
            let Some(name) = name else { continue };
            let repos = &[RepoArg::new(name, None, context.client.endpoint())];
            let sources = Sources { repos, selection, is_json, is_streamed: false };
            let read = move |model: Model| model.verify().engine(options).into_future();
            let collect = |_: &RepoArg, report: Result<VerifyReport, Error>| {
                pairs.found.push((kind, report?));
                Ok(ExitStatus::Success)
            };
            let status = context.for_each(sources, read, collect).await?;
            if status != ExitStatus::Success {
                return Ok(Err(status));
            }
        }
        Ok(Ok(pairs))
    }
}

/// Returns the answer about a source that cannot be read, if that is not a failure of the network.
pub(crate) fn answer_of_error(options: &MemoryOptions, error: &Error) -> Option<EngineReport> {
    let is_decided = matches!(
        error.kind(),
        ErrorKind::RepoNotFound
            | ErrorKind::RevisionNotFound
            | ErrorKind::Gated
            | ErrorKind::RejectedToken
            | ErrorKind::Forbidden
            | ErrorKind::NoWeights
    );
    is_decided.then(|| refused(options, error.to_string()))
}

/// Writes the answer in one line, the reasons, and the memory.
pub(crate) fn write(page: &mut Page<'_>, report: &EngineReport) -> io::Result<()> {
    let style = match report.loads {
        Some(true) => GREEN,
        Some(false) => RED,
        None => YELLOW,
    };
    let word = if report.loads.is_none() { "unknown" } else { answer(report.loads) };
    let gpus = report.gpus.map_or_else(String::new, |gpus| format!(" on {gpus}"));
    let engine = format!("{} {}{gpus}", report.name, report.version);
    page.line(&format!("{engine}: {style}{word}{style:#}"))?;
    for reason in &report.reasons {
        let style = if reason.loads.is_none() { YELLOW } else { RED };
        page.labeled(style, reason.code.label(), &escape(&reason.message))?;
    }
    if let Some(memory) = report.memory.as_deref() {
        page.lines(sizes(memory))?;
    }
    page.lines(report.pairs.iter().map(|pair| {
        let weights = known(pair.weight_bytes);
        let cache = pair.cache_bytes.filter(|bytes| *bytes > 0).map(bytes);
        let cache = cache.map_or_else(String::new, |cache| format!(", cache {cache}"));
        let (kind, source) = (pair.kind.label(), escape(&pair.source));
        format!("of which {kind} {source}: weights {weights}{cache}")
    }))?;
    let age = age_in_days(report.date).filter(|days| *days > MAX_AGE_DAYS);
    page.lines(age.map(|days| {
        let days = thousands(days);
        format!("the table of {} is {days} days old: a newer version may differ", report.name)
    }))
}

/// Describes the memory, in lines.
fn sizes(memory: &Memory) -> Vec<String> {
    let [start, per_gpu] =
        if memory.options.gpus() > 1 { ["per GPU: ", " per GPU"] } else { ["", ""] };
    let weights = format!("{start}weights {}", weight_size(memory));
    let cache = stores_cache(memory).then(|| {
        let Some(size) = memory.sequence_bytes() else { return "cache unknown".to_owned() };
        let (size, tokens) = (bytes(size), thousands(memory.context));
        format!("cache {size} at {tokens} tokens in {}", memory.cache_dtype)
    });
    let needs = [Some(weights), cache].into_iter().flatten().collect::<Vec<_>>().join(", ");
    let Some(fit) = &memory.fit else { return vec![needs] };
    let usable = usable(memory, fit);
    let longest = fit.longest_context.filter(|tokens| *tokens > 0 && stores_cache(memory));
    let longest = longest.map(|tokens| format!("longest context that fits: {}", thousands(tokens)));
    let excluded = match memory.options.engine {
        Engine::Vllm | Engine::Sglang => "activations, CUDA graphs, NCCL",
        _ => "activations, the runtime of the accelerator, fragmentation",
    };
    let excluded = format!("not counted: {excluded}");
    let usable = format!("usable{per_gpu}: {usable}");
    [Some(needs), Some(usable), longest, Some(excluded)].into_iter().flatten().collect()
}

/// Returns the days since a date such as `2026-11-01`.
fn age_in_days(date: &str) -> Option<u64> {
    let mut parts = date.split('-').map(|part| part.parse::<u64>().ok());
    let [year, month, day] = [parts.next()??, parts.next()??, parts.next()??];
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs() / 86_400;
    today.checked_sub(days_since_1970(year, month, day)?)
}

/// Returns the days from 1970 to a date of the Gregorian calendar. The only crate for dates is a part of the feature
/// `census`, which most builds lack.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    /// The days from 1 March of the year 0 to 1 January 1970.
    const DAYS_TO_1970: u64 = 719_468;

    // A year that begins in March ends with the leap day, and its months have 153 days in every five.
    let months = (month + 9) % 12;
    let year = year.checked_sub(u64::from(month < 3))?;
    let days = year * 365 + year / 4 - year / 100 + year / 400;
    (days + (months * 153 + 2) / 5 + day).checked_sub(DAYS_TO_1970 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days() {
        let cases = [
            (1970, 1, 1, Some(0)),
            (1970, 3, 1, Some(59)),
            (2000, 2, 29, Some(11_016)),
            (2026, 11, 1, Some(20_758)),
            (2100, 3, 1, Some(47_541)),
            (1969, 12, 31, None),
        ];
        for (year, month, day, days) in cases {
            assert_eq!(days_since_1970(year, month, day), days, "{year}-{month}-{day}");
        }
        assert_eq!(age_in_days("soon"), None);
    }
}
