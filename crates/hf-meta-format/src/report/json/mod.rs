//! The JSON form of results: the fields of huggingface.js with the same types, and additional fields.

mod diff;
mod verify;

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::CommitSha;
use crate::count::{
    CountBreakdown, DtypeCount, MixtureOfExperts, ModuleKind, Packing, ParameterCount, RuleSet,
    TensorGroup, UnknownActive, UnresolvedModules,
};
use crate::formats::safetensors::{SafetensorsFileHeader, SafetensorsIndexJson};
use crate::formats::weight_sets::WeightSet;
use crate::formats::{Dtype, ModelDescription, RepoPath, TensorTable};
use crate::report::{
    CountReport, FetchStats, Finding, Plan, SafetensorsParseFromRepo, SafetensorsShards, Weights,
};

impl Serialize for CountReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ReportDocument::from(self).serialize(serializer)
    }
}

impl Serialize for SafetensorsParseFromRepo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let report = self.report().into();
        match self {
            Self::Single(file) => {
                SingleDocument { report, header: &file.header }.serialize(serializer)
            }
            Self::Sharded(SafetensorsShards { index, headers, .. }) => {
                let headers = headers.iter().map(|(shard, header)| (shard, header)).collect();
                ShardedDocument { report, index, headers }.serialize(serializer)
            }
        }
    }
}

impl Serialize for Weights {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Safetensors(parsed) => parsed.serialize(serializer),
            Self::Gguf(files) | Self::Other(files) => {
                let headers = files.headers.iter().map(|(file, header)| {
                    let (metadata, tensors) = (header.metadata(), TensorMap(header.tensors()));
                    (file, HeaderDocument { metadata, tensors })
                });
                let (report, headers) = ((&files.report).into(), headers.collect());
                FilesDocument { report, headers }.serialize(serializer)
            }
        }
    }
}

/// Weights in another format than safetensors.
#[derive(Serialize)]
struct FilesDocument<'a> {
    #[serde(flatten)]
    report: ReportDocument<'a>,
    headers: BTreeMap<&'a RepoPath, HeaderDocument<'a>>,
}

#[derive(Serialize)]
struct HeaderDocument<'a> {
    metadata: Option<&'a BTreeMap<String, String>>,
    tensors: TensorMap<'a>,
}

/// Tensors by name, in file order.
struct TensorMap<'a>(&'a TensorTable);

impl Serialize for TensorMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0)
    }
}

#[derive(Serialize)]
struct SingleDocument<'a> {
    #[serde(flatten)]
    report: ReportDocument<'a>,
    header: &'a SafetensorsFileHeader,
}

#[derive(Serialize)]
struct ShardedDocument<'a> {
    #[serde(flatten)]
    report: ReportDocument<'a>,
    index: &'a SafetensorsIndexJson,
    headers: BTreeMap<&'a RepoPath, &'a SafetensorsFileHeader>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReportDocument<'a> {
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'a CommitSha>,
    format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a ModelDescription>,
    sharded: bool,
    parameter_count: &'a ParameterCount,
    parameter_total: u64,
    parameter_exact: bool,
    element_count: BTreeMap<&'a Dtype, u64>,
    element_total: u64,
    scalar_count: BTreeMap<&'a Dtype, u64>,
    buffer_count: BTreeMap<&'a Dtype, u64>,
    byte_count: BTreeMap<&'a Dtype, u64>,
    byte_total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    declared_total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    moe: Option<Moe>,
    #[serde(skip_serializing_if = "Option::is_none")]
    moe_unknown: Option<UnknownActive>,
    breakdown: BreakdownDocument<'a>,
    filepaths: &'a [RepoPath],
    findings: &'a [Finding],
    #[serde(skip_serializing_if = "Option::is_none")]
    other_sets: Option<&'a [WeightSet]>,
    fetch: FetchStats,
    plan: Plan,
    checked_against_bytes: bool,
}

impl<'a> From<&'a CountReport> for ReportDocument<'a> {
    fn from(report: &'a CountReport) -> Self {
        let count = &report.parameter_count;
        Self {
            source: &report.source,
            commit: report.commit.as_ref(),
            format: report.format,
            model: report.model.as_ref(),
            sharded: report.sharded,
            parameter_count: count,
            parameter_total: count.total(),
            parameter_exact: report.breakdown.is_exact(),
            element_count: elements(count),
            element_total: count.totals().elements,
            scalar_count: column(count, |row| row.scalars),
            buffer_count: buffers(&report.breakdown.groups),
            byte_count: column(count, |row| row.bytes),
            byte_total: count.totals().bytes,
            declared_total: report.declared_total,
            moe: report.breakdown.moe.map(Moe::from),
            moe_unknown: report.breakdown.moe_unknown,
            breakdown: (&report.breakdown).into(),
            filepaths: &report.filepaths,
            findings: &report.findings,
            other_sets: report.other_sets.as_deref(),
            fetch: report.fetch,
            plan: report.plan,
            checked_against_bytes: report.plan.reads_files(),
        }
    }
}

/// Returns the elements per dtype, for all dtypes with at least one non-scalar tensor.
fn elements(count: &ParameterCount) -> BTreeMap<&Dtype, u64> {
    let rows = count.rows().filter(|(_, row)| row.tensors > row.scalars);
    rows.map(|(dtype, row)| (dtype, row.elements)).collect()
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
fn column(count: &ParameterCount, figure: fn(&DtypeCount) -> u64) -> BTreeMap<&Dtype, u64> {
    count
        .rows()
        .map(|(dtype, row)| (dtype, figure(row)))
        .filter(|(_, figure)| *figure > 0)
        .collect()
}

/// The breakdown of a count.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BreakdownDocument<'a> {
    rules: RuleSet,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    groups: Vec<Group<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    modules: Vec<QuantizedModules<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    unresolved: &'a [UnresolvedModules],
}

impl<'a> From<&'a CountBreakdown> for BreakdownDocument<'a> {
    fn from(counting: &'a CountBreakdown) -> Self {
        let groups = counting.groups.iter().map(Group::from).collect();
        let modules = counting.module_kinds.iter().map(QuantizedModules::from).collect();
        let method = counting.method.as_deref();
        let unresolved = &counting.unresolved;
        Self { rules: counting.rules, method, groups, modules, unresolved }
    }
}

/// Quantized modules with the same packing and parts.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QuantizedModules<'a> {
    layout: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bits: Option<u32>,
    evidence: &'static str,
    parts: BTreeMap<&'static str, &'a Dtype>,
    modules: u64,
    elements: u64,
    parameters: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    huggingface_js: Option<u64>,
}

impl<'a> From<&'a ModuleKind> for QuantizedModules<'a> {
    fn from(kind: &'a ModuleKind) -> Self {
        let ModuleKind { packing, modules, elements, parameters, huggingface_js, .. } = *kind;
        let Packing { layout, bits, evidence, .. } = packing;
        let parts = kind.components.iter().map(|(name, dtype)| (*name, dtype)).collect();
        Self { layout, bits, evidence, parts, modules, elements, parameters, huggingface_js }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Group<'a> {
    dtype: &'a Dtype,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    buffer: Option<String>,
    tensors: u64,
    elements: u64,
    parameters: u64,
    bytes: u64,
}

impl<'a> From<&'a TensorGroup> for Group<'a> {
    fn from(group: &'a TensorGroup) -> Self {
        let DtypeCount { tensors, elements, parameters, bytes, .. } = group.count;
        let (reason, buffer) =
            (group.counted_as.to_string(), group.buffer.map(|kind| kind.to_string()));
        Self { dtype: &group.dtype, reason, buffer, tensors, elements, parameters, bytes }
    }
}

/// A mixture of experts, with the names that huggingface.js proposes (its #2182).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Moe {
    num_experts: u64,
    top_k: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_expert: Option<u64>,
    always_active: u64,
    routed_active: u64,
    draft: u64,
    active: u64,
    active_without_input_embedding: u64,
    active_is_upper_bound: bool,
    formula: &'static str,
}

impl From<MixtureOfExperts> for Moe {
    fn from(moe: MixtureOfExperts) -> Self {
        Self {
            num_experts: moe.experts,
            top_k: moe.experts_per_token,
            per_expert: moe.per_expert,
            always_active: moe.always_active,
            routed_active: moe.routed_active,
            draft: moe.draft,
            active: moe.active(),
            active_without_input_embedding: moe.active_without_input_embedding(),
            active_is_upper_bound: moe.is_upper_bound,
            formula: match moe.per_expert {
                Some(_) => "alwaysActive + topK * perExpert",
                None => "alwaysActive + routedActive",
            },
        }
    }
}
