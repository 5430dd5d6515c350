//! The JSON form of a result: the fields of huggingface.js in its types, and ours beside them.

mod diff;
mod verdict;

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::hub::CommitSha;
use crate::parse::{Cost, SafetensorsParseFromRepo};
use crate::safetensors::{
    Dtype, DtypeCount, Finding, ParameterCount, RepoPath, SafetensorsFileHeader,
    SafetensorsIndexJson,
};

/// A result without its `header`, or its `index` and `headers`: the figures alone, in the same JSON.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a>(pub &'a SafetensorsParseFromRepo);

impl Serialize for Summary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Document::summary(self.0).serialize(serializer)
    }
}

impl Serialize for SafetensorsParseFromRepo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let summary = Document::summary(self);
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
    byte_count: BTreeMap<&'a Dtype, u64>,
    byte_total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    declared_total: Option<u64>,
    filepaths: Vec<RepoPath>,
    findings: &'a [Finding],
    cost: CostDocument,
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<&'a SafetensorsFileHeader>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<&'a SafetensorsIndexJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Headers<'a>>,
}

impl<'a> Document<'a> {
    fn summary(parsed: &'a SafetensorsParseFromRepo) -> Self {
        let facts = parsed.facts();
        let count = &facts.parameter_count;
        Self {
            source: &facts.source,
            commit: facts.commit.as_ref(),
            sharded: parsed.is_sharded(),
            parameter_count: count.iter().collect(),
            parameter_total: count.total(),
            element_count: count.iter().collect(),
            element_total: count.total(),
            scalar_count: column(count, |row| row.scalars),
            byte_count: column(count, |row| row.bytes),
            byte_total: count.totals().bytes,
            declared_total: facts.declared_total,
            filepaths: parsed.filepaths(),
            findings: &facts.findings,
            cost: facts.cost.into(),
            header: None,
            index: None,
            headers: None,
        }
    }
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CostDocument {
    requests: u64,
    bytes_read: u64,
    bytes_total: u64,
    seconds: f64,
}

impl From<Cost> for CostDocument {
    fn from(cost: Cost) -> Self {
        Self {
            requests: cost.requests,
            bytes_read: cost.bytes_read,
            bytes_total: cost.bytes_total,
            seconds: cost.elapsed.as_secs_f64(),
        }
    }
}
