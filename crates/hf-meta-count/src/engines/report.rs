//! Adds the answer of an engine to a verification.

use super::answer::EngineModel;
use crate::memory::{CacheError, CacheSpec, Memory, MemoryComponent, MemoryOptions};
use crate::results::{
    EngineReason, EngineReasonCode, Finding, Severity, VerifiedSet, VerifyReport,
};
use crate::steps::cache_of_all;
use hf_meta_format::formats::Formats;
use hf_meta_format::formats::weight_sets::ListedWeights;

/// Adds whether the engine of the options loads the sets of a report. `listed` are the files, if they were listed.
pub fn add_answer(
    report: &mut VerifyReport,
    listed: Option<&ListedWeights>,
    options: &MemoryOptions,
) {
    let Some(main) = report.sets.first() else { return };
    let model = EngineModel {
        config: main.config.as_deref(),
        recipe: main.recipe.as_deref(),
        format: Formats::built_in().find_or_safetensors(&main.path).name(),
        architecture: main.architecture.as_deref(),
        is_adapter: report.adapter.is_some(),
        problems: problems(&report.findings()),
        memory: memory(&report.sets, main, listed, options),
    };
    report.engine = Some(Box::new(model.answer(options)));
}

/// Returns the reasons in findings: the first error, or a file that could not be read.
fn problems(findings: &[Finding]) -> Vec<EngineReason> {
    let is_unread = |finding: &&Finding| matches!(finding, Finding::Unreadable { .. });
    let is_error =
        |finding: &&Finding| finding.severity() == Severity::Error && !is_unread(finding);
    let code = EngineReasonCode::Files;
    if let Some(first) = findings.iter().find(is_error) {
        return vec![EngineReason::excluded(code, first.to_string())];
    }
    let unread = findings.iter().find(is_unread);
    unread.into_iter().map(|finding| EngineReason::unknown(code, finding.to_string())).collect()
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
    let mut memory = Memory::new(weight_bytes, cache, *options);
    if sizes.len() > 1 {
        memory.components = sizes;
    }
    Some(memory)
}
