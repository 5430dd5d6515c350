//! The JSON form of results: the fields of huggingface.js with the same types, and additional fields.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::diff::{ChangeKind, Diff, DiffSide};
use super::verify::{VerifiedSet, VerifyReport, is_complete, is_valid};
use super::{CountReport, SafetensorsParseFromRepo, SafetensorsShards, Weights};
use crate::count::{
    CountBreakdown, DtypeCount, MixtureOfExperts, ModuleKind, Packing, ParameterCount, TensorGroup,
};
use crate::formats::{Dtype, FileHeader, RepoPath, TensorTable};

impl Serialize for CountReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        write_report(&mut map, self)?;
        map.end()
    }
}

impl Serialize for SafetensorsParseFromRepo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        write_report(&mut map, self.report())?;
        match self {
            Self::Single(file) => map.serialize_entry("header", &file.header)?,
            Self::Sharded(SafetensorsShards { index, headers, .. }) => {
                let headers = headers.iter().map(|(shard, header)| (shard, header));
                map.serialize_entry("index", index)?;
                map.serialize_entry("headers", &headers.collect::<BTreeMap<_, _>>())?;
            }
        }
        map.end()
    }
}

impl Serialize for Weights {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Safetensors(parsed) => parsed.serialize(serializer),
            Self::Gguf(files) | Self::Other(files) => {
                let headers = files.headers.iter().map(|(file, header)| (file, Header(header)));
                let headers: BTreeMap<&RepoPath, _> = headers.collect();
                let mut map = serializer.serialize_map(None)?;
                write_report(&mut map, &files.report)?;
                map.serialize_entry("headers", &headers)?;
                map.end()
            }
        }
    }
}

/// The header of a file in a format other than safetensors.
struct Header<'a>(&'a FileHeader);

impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("metadata", &self.0.metadata())?;
        map.serialize_entry("tensors", &TensorMap(self.0.tensors()))?;
        write_some(&mut map, "pickle", self.0.pickle())?;
        map.end()
    }
}

/// Tensors by name, in file order.
struct TensorMap<'a>(&'a TensorTable);

impl Serialize for TensorMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0)
    }
}

impl Serialize for VerifyReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("source", &self.source)?;
        write_some(&mut map, "commit", self.commit.as_ref())?;
        map.serialize_entry("valid", &self.is_valid())?;
        map.serialize_entry("complete", &self.is_complete())?;
        map.serialize_entry("filepaths", &self.filepaths)?;
        map.serialize_entry("files", &self.files)?;
        map.serialize_entry("validFiles", &self.valid_files)?;
        map.serialize_entry("tensors", &self.tensors)?;
        map.serialize_entry("parameters", &self.parameters)?;
        write_some(&mut map, "adapter", self.adapter.as_ref())?;
        map.serialize_entry("findings", &self.findings)?;
        let sets = self.sets.iter().map(|set| VerifiedSetDocument(self, set));
        map.serialize_entry("sets", &sets.collect::<Vec<_>>())?;
        let unchecked = self.unchecked.as_ref();
        let paths = unchecked.map(|sets| sets.iter().map(|set| &set.path).collect::<Vec<_>>());
        map.serialize_entry("unchecked", &paths)?;
        map.serialize_entry("fetch", &self.fetch)?;
        map.end()
    }
}

/// The result of one set.
struct VerifiedSetDocument<'a>(&'a VerifyReport, &'a VerifiedSet);

impl Serialize for VerifiedSetDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(report, set) = self;
        let findings = report.findings_of(set);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("path", &set.path)?;
        map.serialize_entry("valid", &is_valid(findings))?;
        map.serialize_entry("complete", &is_complete(findings))?;
        map.serialize_entry("files", &set.files)?;
        map.serialize_entry("validFiles", &set.valid_files)?;
        map.serialize_entry("tensors", &set.tensors)?;
        map.serialize_entry("parameters", &set.parameters)?;
        // A single set has all findings of the report.
        write_some(&mut map, "findings", Some(findings).filter(|_| report.sets.len() > 1))?;
        map.end()
    }
}

impl Serialize for Diff {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("equal", &self.is_empty())?;
        map.serialize_entry("before", &self.before)?;
        map.serialize_entry("after", &self.after)?;
        map.serialize_entry("removed", &self.count(ChangeKind::Removed))?;
        map.serialize_entry("added", &self.count(ChangeKind::Added))?;
        map.serialize_entry("reshaped", &self.count(ChangeKind::Reshaped))?;
        map.serialize_entry("retyped", &self.count(ChangeKind::Retyped))?;
        map.serialize_entry("moved", &self.count(ChangeKind::Moved))?;
        map.serialize_entry("unchanged", &self.unchanged)?;
        write_some(&mut map, "renamed", self.renamed.as_ref())?;
        write_some(&mut map, "quantized", self.quantized.as_ref())?;
        map.serialize_entry("changes", &self.changes)?;
        map.end()
    }
}

impl Serialize for DiffSide {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (count, totals) = (&self.parameter_count, self.parameter_count.totals());
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("source", &self.source)?;
        write_some(&mut map, "commit", self.commit.as_ref())?;
        map.serialize_entry("files", &self.files)?;
        map.serialize_entry("tensors", &totals.tensors)?;
        map.serialize_entry("parameterCount", count)?;
        map.serialize_entry("parameterTotal", &count.total())?;
        map.serialize_entry("elementCount", &elements(count))?;
        map.serialize_entry("elementTotal", &totals.elements)?;
        map.serialize_entry("byteCount", &column(count, |row| row.bytes))?;
        map.serialize_entry("byteTotal", &totals.bytes)?;
        map.end()
    }
}

/// Writes the entries of a report, which the headers may follow.
fn write_report<M: SerializeMap>(map: &mut M, report: &CountReport) -> Result<(), M::Error> {
    let (count, breakdown) = (&report.parameter_count, &report.breakdown);
    let totals = count.totals();
    map.serialize_entry("source", &report.source)?;
    write_some(map, "commit", report.commit.as_ref())?;
    map.serialize_entry("format", report.format)?;
    write_some(map, "model", report.model.as_ref())?;
    map.serialize_entry("sharded", &report.sharded)?;
    map.serialize_entry("parameterCount", count)?;
    map.serialize_entry("parameterTotal", &count.total())?;
    map.serialize_entry("parameterExact", &breakdown.is_exact())?;
    map.serialize_entry("elementCount", &elements(count))?;
    map.serialize_entry("elementTotal", &totals.elements)?;
    map.serialize_entry("scalarCount", &column(count, |row| row.scalars))?;
    map.serialize_entry("bufferCount", &buffers(&breakdown.groups))?;
    map.serialize_entry("byteCount", &column(count, |row| row.bytes))?;
    map.serialize_entry("byteTotal", &totals.bytes)?;
    write_some(map, "declaredTotal", report.declared_total)?;
    write_some(map, "moe", breakdown.moe.map(Experts))?;
    write_some(map, "moeUnknown", breakdown.moe_unknown)?;
    map.serialize_entry("breakdown", &Breakdown(breakdown))?;
    map.serialize_entry("filepaths", &report.filepaths)?;
    map.serialize_entry("findings", &report.findings)?;
    write_some(map, "otherSets", report.other_sets.as_ref())?;
    write_some(map, "adapter", report.adapter.as_ref())?;
    write_some(map, "memory", report.memory.as_ref())?;
    map.serialize_entry("fetch", &report.fetch)?;
    map.serialize_entry("plan", &report.plan)?;
    map.serialize_entry("checkedAgainstBytes", &report.plan.reads_files())
}

/// Writes an entry if it has a value.
fn write_some<M: SerializeMap>(
    map: &mut M,
    key: &str,
    value: Option<impl Serialize>,
) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(key, &value))
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
fn column(count: &ParameterCount, value: fn(&DtypeCount) -> u64) -> BTreeMap<&Dtype, u64> {
    let values = count.rows().map(|(dtype, row)| (dtype, value(row)));
    values.filter(|(_, value)| *value > 0).collect()
}

/// The breakdown of a count.
struct Breakdown<'a>(&'a CountBreakdown);

impl Serialize for Breakdown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let CountBreakdown { rules, method, groups, module_kinds, unresolved, .. } = self.0;
        let groups: Vec<_> = groups.iter().map(Group).collect();
        let modules: Vec<_> = module_kinds.iter().map(QuantizedModules).collect();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("rules", rules)?;
        write_some(&mut map, "method", method.as_ref())?;
        map.serialize_entry("groups", &groups)?;
        write_some(&mut map, "modules", Some(modules).filter(|modules| !modules.is_empty()))?;
        write_some(&mut map, "unresolved", Some(unresolved).filter(|list| !list.is_empty()))?;
        map.end()
    }
}

/// Quantized modules with the same packing and parts.
struct QuantizedModules<'a>(&'a ModuleKind);

impl Serialize for QuantizedModules<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ModuleKind { packing, modules, elements, parameters, huggingface_js, .. } = self.0;
        let Packing { layout, bits, evidence, .. } = packing;
        let parts = self.0.components.iter().map(|(name, dtype)| (name, dtype));
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("layout", layout)?;
        write_some(&mut map, "bits", bits.as_ref())?;
        map.serialize_entry("evidence", evidence)?;
        map.serialize_entry("parts", &parts.collect::<BTreeMap<_, _>>())?;
        map.serialize_entry("modules", modules)?;
        map.serialize_entry("elements", elements)?;
        map.serialize_entry("parameters", parameters)?;
        write_some(&mut map, "huggingfaceJs", huggingface_js.as_ref())?;
        map.end()
    }
}

/// Tensors of one dtype that were counted in the same way.
struct Group<'a>(&'a TensorGroup);

impl Serialize for Group<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let TensorGroup { dtype, counted_as, buffer, count, .. } = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("dtype", dtype)?;
        map.serialize_entry("reason", &counted_as.to_string())?;
        write_some(&mut map, "buffer", buffer.map(|kind| kind.to_string()))?;
        map.serialize_entry("tensors", &count.tensors)?;
        map.serialize_entry("elements", &count.elements)?;
        map.serialize_entry("parameters", &count.parameters)?;
        map.serialize_entry("bytes", &count.bytes)?;
        map.end()
    }
}

/// A mixture of experts, with the names that huggingface.js proposes (its #2182).
struct Experts(MixtureOfExperts);

impl Serialize for Experts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let moe = &self.0;
        let formula = match moe.per_expert {
            Some(_) => "alwaysActive + topK * perExpert",
            None => "alwaysActive + routedActive",
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("numExperts", &moe.experts)?;
        map.serialize_entry("topK", &moe.experts_per_token)?;
        write_some(&mut map, "perExpert", moe.per_expert)?;
        map.serialize_entry("alwaysActive", &moe.always_active)?;
        map.serialize_entry("routedActive", &moe.routed_active)?;
        map.serialize_entry("draft", &moe.draft)?;
        map.serialize_entry("active", &moe.active())?;
        map.serialize_entry("activeWithoutLookupTables", &moe.active_without_lookup_tables())?;
        map.serialize_entry("activeIsUpperBound", &moe.is_upper_bound)?;
        map.serialize_entry("formula", formula)?;
        map.end()
    }
}
