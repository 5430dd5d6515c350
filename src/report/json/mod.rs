//! The JSON form of a result: the fields of huggingface.js in its types, and ours beside them.

mod diff;
mod verify;

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::count::{CountBreakdown, MixtureOfExperts, RuleSet, TensorGroup};
use crate::count::{DtypeCount, ParameterCount};
use crate::formats::safetensors::{SafetensorsFileHeader, SafetensorsIndexJson};
use crate::formats::weight_sets::WeightSet;
use crate::formats::{Dtype, RepoPath};
use crate::hub::CommitSha;
use crate::report::Finding;
use crate::report::{CountReport, Facts, FetchStats, SafetensorsParseFromRepo};

/// A result without its `header`, or its `index` and `headers`: the figures alone, in the same JSON.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a>(pub &'a SafetensorsParseFromRepo);

impl Serialize for Summary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Document::summary(self.0.facts(), self.0.is_sharded(), self.0.filepaths())
            .serialize(serializer)
    }
}

impl Serialize for CountReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Document::summary(&self.facts, self.sharded, self.paths.clone()).serialize(serializer)
    }
}

impl Serialize for SafetensorsParseFromRepo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let summary = Document::summary(self.facts(), self.is_sharded(), self.filepaths());
        let document = match self {
            Self::Single(file) => Document { header: Some(&file.header), ..summary },
            Self::Sharded(shards) => Document {
                index: Some(&shards.index),
                headers: Some(Headers(&shards.headers)),
                ..summary
            },
        };
        document.serialize(serializer)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'a CommitSha>,
    sharded: bool,
    parameter_count: BTreeMap<&'a Dtype, u64>,
    parameter_total: u64,
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
    counting: CountingDocument<'a>,
    filepaths: Vec<RepoPath>,
    findings: &'a [Finding],
    #[serde(skip_serializing_if = "Option::is_none")]
    other_sets: Option<&'a [WeightSet]>,
    cost: FetchDocument,
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<&'a SafetensorsFileHeader>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<&'a SafetensorsIndexJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Headers<'a>>,
}

impl<'a> Document<'a> {
    fn summary(facts: &'a Facts, sharded: bool, filepaths: Vec<RepoPath>) -> Self {
        let count = &facts.parameter_count;
        Self {
            source: &facts.source,
            commit: facts.commit.as_ref(),
            sharded,
            parameter_count: count.iter().collect(),
            parameter_total: count.total(),
            element_count: elements(count),
            element_total: count.totals().elements,
            scalar_count: column(count, |row| row.scalars),
            buffer_count: buffers(&facts.counting.groups),
            byte_count: column(count, |row| row.bytes),
            byte_total: count.totals().bytes,
            declared_total: facts.declared_total,
            moe: facts.counting.moe.map(Moe::from),
            counting: CountingDocument::from(&facts.counting),
            filepaths,
            findings: &facts.findings,
            other_sets: facts.other_sets.as_deref(),
            cost: facts.cost.into(),
            header: None,
            index: None,
            headers: None,
        }
    }
}

/// The elements of every dtype that a tensor with dimensions has.
fn elements(count: &ParameterCount) -> BTreeMap<&Dtype, u64> {
    let rows = count.rows().filter(|(_, row)| row.tensors > row.scalars);
    rows.map(|(dtype, row)| (dtype, row.elements)).collect()
}

/// Which of the parameters are in buffers.
fn buffers(groups: &[TensorGroup]) -> BTreeMap<&Dtype, u64> {
    let mut buffers = BTreeMap::new();
    for group in groups.iter().filter(|group| group.buffer.is_some() && group.count.counted > 0) {
        *buffers.entry(&group.dtype).or_insert(0) += group.count.parameters;
    }
    buffers
}

/// One figure of every dtype that has any of it.
fn column(count: &ParameterCount, figure: fn(&DtypeCount) -> u64) -> BTreeMap<&Dtype, u64> {
    count
        .rows()
        .map(|(dtype, row)| (dtype, figure(row)))
        .filter(|(_, figure)| *figure > 0)
        .collect()
}

/// The headers by their shards, as an object.
#[derive(Clone, Copy)]
struct Headers<'a>(&'a [(RepoPath, SafetensorsFileHeader)]);

impl Serialize for Headers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(shard, header)| (shard, header)))
    }
}

/// How the parameters were counted.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CountingDocument<'a> {
    rules: RuleSet,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    groups: Vec<Group<'a>>,
}

impl<'a> From<&'a CountBreakdown> for CountingDocument<'a> {
    fn from(counting: &'a CountBreakdown) -> Self {
        let groups = counting.groups.iter().map(Group::from).collect();
        Self { rules: counting.rules, method: counting.method.as_deref(), groups }
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
            (group.reason.to_string(), group.buffer.map(|kind| kind.to_string()));
        Self { dtype: &group.dtype, reason, buffer, tensors, elements, parameters, bytes }
    }
}

/// The mixture of experts, by the names that huggingface.js proposes (its #2182).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Moe {
    num_experts: u64,
    top_k: u64,
    per_expert: u64,
    always_active: u64,
    draft: u64,
    active: u64,
    formula: &'static str,
}

impl From<MixtureOfExperts> for Moe {
    fn from(moe: MixtureOfExperts) -> Self {
        Self {
            num_experts: moe.experts,
            top_k: moe.experts_per_token,
            per_expert: moe.per_expert,
            always_active: moe.always_active,
            draft: moe.draft,
            active: moe.active(),
            formula: "alwaysActive + topK * perExpert",
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FetchDocument {
    requests: u64,
    bytes_read: u64,
    bytes_total: u64,
    seconds: f64,
}

impl From<FetchStats> for FetchDocument {
    fn from(cost: FetchStats) -> Self {
        Self {
            requests: cost.requests,
            bytes_read: cost.bytes_read,
            bytes_total: cost.bytes_total,
            seconds: cost.elapsed.as_secs_f64(),
        }
    }
}
