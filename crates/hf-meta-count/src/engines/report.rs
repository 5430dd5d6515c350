//! Adds the answer of an engine to a verification.

use super::answer::EngineModel;
use super::fit::fit_reasons;
use super::pairs::Paired;
use crate::memory::{CacheError, CacheSpec, Memory, MemoryComponent, MemoryOptions};
use crate::results::{
    CountReport, EnginePairKind, EngineReason, EngineReasonCode, EngineReport, VerifiedSet,
    VerifyReport,
};
use crate::steps::cache_of_all;
use hf_meta_format::formats::gguf::Gguf;
use hf_meta_format::formats::weight_sets::ListedWeights;
use hf_meta_format::formats::{Format, Formats};

/// Adds whether the engine of the options loads the sets of a report. `listed` are the files, if they were listed.
pub fn add_answer(
    report: &mut VerifyReport,
    listed: Option<&ListedWeights>,
    options: &MemoryOptions,
) {
    let Some(main) = report.sets.first() else { return };
    // Names without an extension are common in stores of GGUF files, and llama.cpp ignores names.
    let format = match main.architecture {
        Some(_) => Gguf.name(),
        None => Formats::built_in().find_or_safetensors(&main.path).name(),
    };
    let model = EngineModel {
        config: main.config.as_deref(),
        recipe: main.recipe.as_deref(),
        format,
        architecture: main.architecture.as_deref(),
        is_adapter: report.adapter.is_some(),
        problems: EngineReason::of_findings(&report.findings()).into_iter().collect(),
        memory: memory(&report.sets, main, listed, options),
    };
    report.engine = Some(Box::new(model.answer(options)));
}

/// Adds a file that is loaded together with the verified model to its answer. `pair` is the verification of the file, with the
/// answer for the same options. Does nothing without an answer.
pub fn add_pair(
    report: &mut VerifyReport,
    kind: EnginePairKind,
    pair: &VerifyReport,
    options: &MemoryOptions,
) {
    let (Some(mut answer), Some(main)) = (report.engine.take(), report.sets.first()) else {
        return;
    };
    let Some(file) = pair.sets.first() else { return report.engine = Some(answer) };
    let mut sizes = pair.sets.iter().map(|set| set.weight_bytes);
    let weight_bytes = sizes.try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?));
    let adapter = pair.adapter.as_deref();
    let paired = match kind {
        EnginePairKind::Draft => {
            let own = pair.engine.as_deref();
            // The memory and the context are checked for both together.
            let is_own = |reason: &&EngineReason| {
                use EngineReasonCode::{Cache, Context, Weights};
                !matches!(reason.code, Cache | Context | Weights)
            };
            let problems = own.iter().flat_map(|own| &own.reasons).filter(is_own).cloned();
            Paired::Draft {
                config: file.config.as_deref(),
                problems: problems.collect(),
                memory: own.and_then(|own| own.memory.clone()),
            }
        }
        EnginePairKind::Adapter => Paired::Adapter {
            config: adapter.and_then(|adapter| Some(&*adapter.stored.as_ref()?.json)),
            rank: adapter.and_then(|adapter| adapter.ranks.keys().last().copied()),
            tensors: adapter
                .and_then(|adapter| adapter.stored.as_ref())
                .map_or_else(Vec::new, |stored| stored.tensors.clone()),
            weight_bytes,
        },
        EnginePairKind::Projector => Paired::Projector { width: file.width, weight_bytes },
    };
    paired.add_to(&mut answer, &pair.source, main.config.as_deref(), options);
    decide_fit(&mut answer);
    report.engine = Some(answer);
}

/// Decides again whether a model and what is loaded with it fit.
fn decide_fit(answer: &mut EngineReport) {
    let Some(memory) = answer.memory.clone() else { return };
    answer.reasons.retain(|reason| !is_about_memory(reason));
    let is_excluded = answer.reasons.iter().any(|reason| reason.loads.is_some());
    answer.loads = match (is_excluded, answer.reasons.is_empty()) {
        (true, _) => Some(false),
        (false, is_empty) => is_empty.then_some(true),
    };
    // The draft has said before that its heads cannot be divided.
    let has_draft = answer.reasons.iter().any(|found| found.code == EngineReasonCode::Draft);
    let is_new = |found: &EngineReason| !(has_draft && found.code == EngineReasonCode::Parallelism);
    fit_reasons(&memory).into_iter().filter(is_new).for_each(|reason| answer.add(reason));
}

/// Returns whether a reason follows from the sizes of weights and cache.
fn is_about_memory(reason: &EngineReason) -> bool {
    use EngineReasonCode::{Cache, Context, Weights};
    matches!(reason.code, Cache | Context | Weights)
}

/// Adds whether the engine of the options loads the model of a count, whose memory was computed for the same options and
/// becomes a part of the answer. A count reads all headers, but does not compare them with the configuration.
pub fn add_count_answer(report: &mut CountReport, options: &MemoryOptions) {
    let memory = report.memory.take().map(|memory| *memory);
    let files = report.files.as_deref();
    let model = EngineModel {
        config: files.and_then(|files| files.config.as_deref()),
        recipe: files.and_then(|files| files.recipe.as_deref()),
        format: report.format,
        architecture: report.model.as_ref().and_then(|model| model.architecture.as_deref()),
        is_adapter: report.adapter.is_some(),
        problems: EngineReason::of_findings(&report.findings).into_iter().collect(),
        memory,
    };
    report.engine = Some(Box::new(model.answer(options)));
}

/// Returns the memory of all sets together; `None` if a file was not counted.
fn memory(
    sets: &[VerifiedSet],
    main: &VerifiedSet,
    listed: Option<&ListedWeights>,
    options: &MemoryOptions,
) -> Option<Memory> {
    let sizes = sets.iter().map(|set| {
        let weight_bytes = set.weight_bytes?;
        Some(MemoryComponent { path: set.path.clone(), weight_bytes })
    });
    let sizes: Vec<_> = sizes.collect::<Option<_>>()?;
    let own = main.cache.clone().unwrap_or_else(|| {
        let json = main.config.as_deref().ok_or(CacheError::NoConfig)?;
        CacheSpec::with_recipe(json, main.recipe.as_deref(), options)
    });
    let cache = match listed {
        Some(listed) => cache_of_all(own, listed, &main.path, sizes.len() - 1, options),
        None => own,
    };
    let weight_bytes = sizes.iter().map(|set| set.weight_bytes).fold(0, u64::saturating_add);
    let mut memory = match main.ranks.as_deref() {
        Some(ranks) if sizes.len() == 1 => Memory::of_ranks(ranks.clone(), cache, *options),
        _ => Memory::new(weight_bytes, cache, *options),
    };
    if sizes.len() > 1 {
        memory.components = sizes;
    }
    Some(memory)
}
