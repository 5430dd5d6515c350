//! The JSON form of results: the fields of huggingface.js with the same types, and additional fields.

use std::collections::BTreeMap;

use hf_meta_format::base::sort::Ordered;
use hf_meta_format::formats::Dtype;
use hf_meta_format::serialize_as_objects;

use super::diff::{ChangeKind, Diff};
use super::{CountReport, EngineReport, Plan, VerifiedSet, VerifyReport, is_complete, is_valid};
use crate::count::{
    CountBreakdown, DtypeCount, MixtureOfExperts, ModuleKind, ParameterCount, TensorGroup,
};
use crate::memory::{GpuSet, Memory, QuantizationFit, VLLM_VERSION, VllmPlan};

serialize_as_objects! {
    CountReport, report {
        "source": report.source,
        "commit" ? &report.commit,
        "format": report.format,
        "model" ? &report.model,
        "sharded": report.sharded,
        "parameterCount": report.parameter_count,
        "parameterTotal": report.parameter_count.total(),
        "parameterExact": report.is_exact(),
        "elementCount": elements(&report.parameter_count),
        "elementTotal": report.parameter_count.totals().elements,
        "scalarCount": column(&report.parameter_count, |row| row.scalars),
        "bufferCount": buffers(&report.breakdown.groups),
        "byteCount": column(&report.parameter_count, |row| row.bytes),
        "byteTotal": report.parameter_count.totals().bytes,
        "declaredTotal" ? report.declared_total,
        "moe" ? report.breakdown.moe,
        "moeUnknown" ? report.breakdown.moe_unknown,
        "breakdown": report.breakdown,
        "filepaths": report.filepaths,
        "findings": report.findings,
        "otherSets" ? &report.other_sets,
        "adapter" ? &report.adapter,
        "memory" ? &report.memory,
        "engine" ? &report.engine,
        "fetch": report.fetch,
        "plan": report.plan,
        "checkedAgainstBytes": report.plan != Plan::Hub,
    }

    Memory, memory {
        "context": memory.context,
        "contextSource": memory.context_source,
        "batch": memory.options.batch.unwrap_or(1),
        "engine": memory.options.engine.name(),
        "cacheDtype": memory.cache_dtype.name(),
        "exact": memory.unknown.is_none(),
        "weightBytes": memory.weight_bytes,
        "maxWeightBytes" ? (!memory.has_exact_weights()).then_some(memory.max_weight_bytes),
        "components" ? Some(&memory.components).filter(|sets| !sets.is_empty()),
        "cacheElements": memory.cache.map(|size| size.elements),
        "cacheBytes": memory.cache.map(|size| size.bytes),
        "stateElements": memory.state.map(|size| size.elements),
        "stateBytes": memory.state.map(|size| size.bytes),
        "totalBytes": memory.total_bytes,
        "architecture" ? memory.spec.as_ref().ok().map(|spec| &spec.architecture),
        "maxContext" ? memory.spec.as_ref().ok().map(|spec| spec.max_context),
        "layers" ? memory.spec.as_ref().ok().map(|spec| spec.layers),
        "caches" ? memory.spec.as_ref().ok().map(|spec| &spec.caches),
        "unknown" ? &memory.unknown,
        "vllm" ? memory.plan,
        "budgetBytes" ? memory.fit.as_ref().map(|fit| fit.budget),
        "usableBytes" ? memory.fit.as_ref().map(|fit| fit.usable),
        "fits" ? memory.fit.as_ref().map(|fit| fit.fits),
        "reason" ? memory.fit.as_ref().and_then(|fit| fit.reason.as_ref()),
        "longestContext" ? memory.fit.as_ref().map(|fit| fit.longest_context),
        "sequences" ? memory.fit.as_ref().map(|fit| fit.sequences),
        "quantizations" ? quantizations(memory),
        "largestQuantization" ? quantizations(memory).map(|_| largest_quantization(memory)),
    }

    VllmPlan, plan {
        "version": VLLM_VERSION,
        "gpus": plan.options.gpus,
        "gpuMemoryUtilization": plan.options.gpu_memory_utilization,
        "maxBatchedTokens": plan.options.batched_tokens(),
        "tokensInFlight": plan.options.tokens_in_flight(),
        "blockSize": plan.block_size,
        "bytesPerBlock": plan.bytes_per_block,
        "blocks": plan.blocks,
    }

    CountBreakdown, breakdown {
        "rules": breakdown.rules,
        "method" ? &breakdown.method,
        "groups": breakdown.groups,
        "modules" ? Some(&breakdown.module_kinds).filter(|kinds| !kinds.is_empty()),
        "unresolved" ? Some(&breakdown.unresolved).filter(|found| !found.is_empty()),
    }

    TensorGroup, group {
        "dtype": group.dtype,
        "reason": group.counted_as.to_string(),
        "buffer" ? group.buffer.map(|kind| kind.to_string()),
        "tensors": group.count.tensors,
        "elements": group.count.elements,
        "parameters": group.count.parameters,
        "bytes": group.count.bytes,
    }

    ModuleKind, kind {
        "layout": kind.packing.layout,
        "bits" ? kind.packing.bits,
        "evidence": kind.evidence.to_string(),
        "parts": kind.components.iter().cloned().ordered::<BTreeMap<_, _>>(),
        "modules": kind.modules,
        "elements": kind.elements,
        "parameters": kind.parameters,
    }

    MixtureOfExperts, moe {
        "numExperts": moe.experts,
        "topK": moe.experts_per_token,
        "perExpert" ? moe.per_expert,
        "alwaysActive": moe.always_active,
        "routedActive": moe.routed_active,
        "draft": moe.draft,
        "active": moe.active(),
        "activeWithoutLookupTables": moe.active_without_lookup_tables(),
        "activeIsUpperBound": moe.is_upper_bound,
        "formula": match moe.per_expert {
            Some(_) => "alwaysActive + topK * perExpert",
            None => "alwaysActive + routedActive",
        },
    }

    VerifyReport, report {
        "source": report.source,
        "commit" ? &report.commit,
        "valid": report.is_valid(),
        "complete": report.is_complete(),
        "loader" ? &report.loader,
        "filepaths": report.filepaths,
        "files": report.sets.iter().map(|set| set.files).sum::<usize>(),
        "validFiles": report.sets.iter().map(|set| set.valid_files).sum::<usize>(),
        "tensors": report.sets.iter().map(|set| set.tensors).fold(0, u64::saturating_add),
        "parameters": report.parameters(),
        "adapter" ? &report.adapter,
        "findings": report.findings(),
        "sets": report.sets.iter().map(|set| SetDocument(set, report.sets.len() > 1)).collect::<Vec<_>>(),
        "unchecked": report.unchecked.as_ref().map(|sets| sets.iter().map(|set| &set.path).collect::<Vec<_>>()),
        "values" ? &report.values,
        "engine" ? &report.engine,
        "fetch": report.fetch,
    }

    EngineReport, report {
        "name": report.name,
        "version": report.version,
        "date": report.date,
        "gpus" ? report.gpus,
        "loads": report.loads,
        "reasons": report.reasons,
        "pairs" ? Some(&report.pairs).filter(|pairs| !pairs.is_empty()),
        "memory" ? &report.memory,
    }

    GpuSet, gpus {
        "name": gpus.gpu.name,
        "count": gpus.count,
        "memoryBytes": gpus.gpu.memory,
        "capability": gpus.gpu.capability,
    }

    SetDocument<'_>, document {
        "path": document.0.path,
        "valid": is_valid(&document.0.findings),
        "complete": is_complete(&document.0.findings),
        "files": document.0.files,
        "validFiles": document.0.valid_files,
        "tensors": document.0.tensors,
        "parameters": document.0.parameters,
        "configCheck": document.0.config_check,
        "findings" ? document.1.then_some(&document.0.findings),
    }

    Diff, diff {
        "equal": diff.is_empty(),
        "before": DiffSide(&diff.before),
        "after": DiffSide(&diff.after),
        "removed": diff.count(ChangeKind::Removed),
        "added": diff.count(ChangeKind::Added),
        "reshaped": diff.count(ChangeKind::Reshaped),
        "retyped": diff.count(ChangeKind::Retyped),
        "moved": diff.count(ChangeKind::Moved),
        "unchanged": diff.unchanged,
        "renamed" ? &diff.renamed,
        "quantized" ? &diff.quantized,
        "changes": diff.changes,
        "values" ? &diff.values,
    }

    DiffSide<'_>, side {
        "source": side.0.source,
        "commit" ? &side.0.commit,
        "files": side.0.file_count(),
        "tensors": side.0.parameter_count.totals().tensors,
        "parameterCount": side.0.parameter_count,
        "parameterTotal": side.0.parameter_count.total(),
        "elementCount": elements(&side.0.parameter_count),
        "elementTotal": side.0.parameter_count.totals().elements,
        "byteCount": column(&side.0.parameter_count, |row| row.bytes),
        "byteTotal": side.0.parameter_count.totals().bytes,
    }
}

/// The report of one of two checkpoints that are compared.
struct DiffSide<'a>(&'a CountReport);

/// Returns the quantizations in a repository, if there are any.
fn quantizations(memory: &Memory) -> Option<&[QuantizationFit]> {
    let fit = memory.fit.as_ref();
    fit.map(|fit| &*fit.quantizations).filter(|quantizations| !quantizations.is_empty())
}

/// Returns the name of the largest quantization that fits.
fn largest_quantization(memory: &Memory) -> Option<&str> {
    Some(&memory.fit.as_ref()?.largest_quantization()?.quantization)
}

/// The result of one set, and whether there are others. A single set has all findings of the report.
struct SetDocument<'a>(&'a VerifiedSet, bool);

/// Returns the elements per dtype, for all dtypes with at least one non-scalar tensor.
fn elements(count: &ParameterCount) -> BTreeMap<&Dtype, u64> {
    let rows = count.rows().filter(|(_, row)| row.tensors > row.scalars);
    rows.map(|(dtype, row)| (dtype, row.elements)).ordered()
}

/// Returns the parameters in buffers, per dtype.
fn buffers(groups: &[TensorGroup]) -> BTreeMap<&Dtype, u64> {
    let mut buffers = BTreeMap::new();
    for group in groups.iter().filter(|group| group.buffer.is_some() && group.count.counted > 0) {
        *buffers.entry(&group.dtype).or_insert(0) += group.count.parameters;
    }
    buffers
}

/// Returns one value per dtype, without the zeros.
fn column(count: &ParameterCount, value: fn(&DtypeCount) -> u64) -> BTreeMap<&Dtype, u64> {
    let values = count.rows().map(|(dtype, row)| (dtype, value(row)));
    values.filter(|(_, value)| *value > 0).ordered()
}
