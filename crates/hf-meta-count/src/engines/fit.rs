//! The reasons that concern the memory.

use crate::memory::{CacheError, Engine, Fit, Memory};
use crate::results::text::{bytes, thousands};
use crate::results::{EngineReason, EngineReasonCode};

/// Returns the reasons why a model does not fit, or may not fit. Without a budget, only its division is checked.
pub(super) fn fit_reasons(memory: &Memory) -> Vec<EngineReason> {
    if let Some(error @ CacheError::Indivisible { .. }) = &memory.unknown {
        return vec![EngineReason::excluded(EngineReasonCode::Parallelism, error.to_string())];
    }
    let reason = memory.fit.as_ref().and_then(|fit| fit_reason(memory, fit));
    reason.into_iter().collect()
}

/// Returns the reason that a context is longer than the maximum. Other engines than vLLM load the model, and some of them warn.
fn context_reason(engine: Engine, context: u64, maximum: u64) -> EngineReason {
    let (context, maximum) = (thousands(context), thousands(maximum));
    let text = format!("the model supports at most {maximum} tokens, not {context}");
    let reason = match engine {
        Engine::Vllm => EngineReason::excluded,
        _ => EngineReason::unknown,
    };
    reason(EngineReasonCode::Context, text)
}

fn fit_reason(memory: &Memory, fit: &Fit) -> Option<EngineReason> {
    if let Some(CacheError::ContextTooLong { context, maximum }) = fit.reason {
        return Some(context_reason(memory.options.engine, context, maximum));
    }
    // vLLM divides a model evenly, so its sizes are those of one GPU.
    let several = memory.options.gpus.filter(|gpus| gpus.count > 1 && memory.options.gpus() == 1);
    let count = several.map_or(1, |gpus| gpus.count);
    let usable = fit.usable.saturating_mul(count);
    let per_gpu = if memory.options.gpus() > 1 { " per GPU" } else { "" };
    let has = format!("{} usable", bytes(usable));
    let least = if memory.has_exact_weights() { "" } else { "at least " };
    if memory.weight_bytes > usable {
        let text = format!("{least}{}{per_gpu}, {has}", bytes(memory.weight_bytes));
        return Some(EngineReason::excluded(EngineReasonCode::Weights, text));
    }
    let at = thousands(memory.context);
    match (fit.fits, memory.total_bytes) {
        (Some(true), _) => None,
        (_, Some(total)) if total > usable => {
            let most = match fit.longest_context {
                _ if count != 1 => String::new(),
                Some(0) => "; not even one token fits".to_owned(),
                Some(tokens) => format!("; {} tokens fit", thousands(tokens)),
                None => String::new(),
            };
            let total = bytes(total);
            let text = format!("{least}{total}{per_gpu} with weights at {at} tokens, {has}{most}");
            Some(EngineReason::excluded(EngineReasonCode::Cache, text))
        }
        (_, Some(_)) if !memory.has_exact_weights() => {
            let (least, most) = (bytes(memory.weight_bytes), bytes(memory.max_weight_bytes));
            let text =
                format!("{least} to {most}{per_gpu}, {has}: how vllm divides them is unknown");
            Some(EngineReason::unknown(EngineReasonCode::Weights, text))
        }
        (_, Some(_)) => {
            let text = format!("the model fits only if it is divided among {count} GPUs");
            Some(EngineReason::unknown(EngineReasonCode::Weights, text))
        }
        (_, None) => {
            let reason = memory.unknown.as_ref().map_or_else(String::new, ToString::to_string);
            Some(EngineReason::unknown(EngineReasonCode::Cache, reason))
        }
    }
}
