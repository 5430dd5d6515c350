//! `--explain`: how the parameters were counted.

use std::cmp::Reverse;
use std::io;

use hf_meta::CountReport;
use hf_meta_count::count::{CountBreakdown, DtypeCount, MixtureOfExperts, ModuleKind, TensorGroup};
use hf_meta_count::results::text::{counted, escape, size_of_model, thousands};

use crate::output::{Page, if_any};
use crate::table::{Shrink, Table};

/// The minimum useful width of the text column.
const MIN_TEXT_WIDTH: usize = 24;

/// The width of most parts of packed modules with their dtypes.
const MIN_PARTS_WIDTH: usize = 16;

/// The dtype of tensors that are counted alike, their counts, and the way in which they are counted.
type ExplainRow<'a> = (&'a str, &'a DtypeCount, String);

/// Writes the groups of tensors in descending order of parameters, and the rules that apply.
pub(crate) fn write(page: &mut Page<'_>, report: &CountReport) -> io::Result<()> {
    let breakdown = &report.breakdown;
    page.heading(&report.source)?;
    let mut groups: Vec<_> = breakdown.groups.iter().collect();
    groups.sort_by_key(|group| Reverse(group.count.parameters));
    let total = || ("total", report.parameter_count.totals(), rules(breakdown));
    let table = Table::new()
        .text("dtype", |(dtype, ..): &ExplainRow<'_>| escape(dtype))
        .optional_number("tensors", |(_, count, _)| thousands(count.tensors))
        .optional_number("elements", |(_, count, _)| thousands(count.elements))
        .number("parameters", |(_, count, _)| thousands(count.parameters))
        .text("counted", |(.., counted)| counted.clone())
        .shrink(Shrink::WrapTo(MIN_TEXT_WIDTH));
    page.table(&table, || groups.iter().map(|group| group_row(group)).chain([total()]))?;
    if let Some(moe) = &breakdown.moe {
        page.line(&active_parameters(moe))?;
        page.line(&formula(moe))?;
        if moe.lookup_tables > 0 {
            let without = thousands(moe.active_without_lookup_tables());
            writeln!(page.out, "{without} without lookup tables")?;
        }
    }
    if let Some(reason) = breakdown.moe_unknown {
        page.line(&format!("the active parameters are unknown: {reason}"))?;
    }
    write_modules(page, breakdown)
}

/// Writes the kinds of quantized modules, and the unresolved modules.
fn write_modules(page: &mut Page<'_>, breakdown: &CountBreakdown) -> io::Result<()> {
    let mut kinds: Vec<_> = breakdown.module_kinds.iter().collect();
    kinds.sort_by_key(|kind| Reverse(kind.parameters));
    if !kinds.is_empty() {
        let table = Table::new()
            .text("packing", |kind: &&ModuleKind| kind.packing.to_string())
            .optional_number("modules", |kind| thousands(kind.modules))
            .optional_number("stored", |kind| thousands(kind.elements))
            .number("parameters", |kind| thousands(kind.parameters))
            .text("size from", |kind| kind.evidence.to_string())
            .shrink(Shrink::Drop)
            .text("parts", |kind| parts(kind))
            .shrink(Shrink::WrapTo(MIN_PARTS_WIDTH));
        writeln!(page.out)?;
        page.table(&table, || kinds.iter().copied())?;
    }
    for found in &breakdown.unresolved {
        let names: Vec<_> = found.examples.iter().map(|name| escape(name)).collect();
        let more = found.modules.saturating_sub(names.len() as u64);
        let more = if_any(more, |more| format!(", and {} more", thousands(more)));
        let modules = counted(found.modules, "module");
        page.line(&format!("{modules} uncertain: {}: {}{more}", found.reason, names.join(", ")))?;
    }
    Ok(())
}

/// Formats the parts of a module with their dtypes.
fn parts(kind: &ModuleKind) -> String {
    let parts = kind.components.iter().map(|(part, dtype)| {
        let part = if part.is_empty() { "weights" } else { part };
        format!("{part} {}", escape(dtype.as_str()))
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn group_row(group: &TensorGroup) -> ExplainRow<'_> {
    let buffer = group.buffer.map_or_else(String::new, |buffer| format!(" ({buffer})"));
    (group.dtype.as_str(), &group.count, format!("{}{buffer}", group.counted_as))
}

fn rules(breakdown: &CountBreakdown) -> String {
    let method = breakdown.method.as_deref();
    let method = method.map_or_else(String::new, |method| format!(", for {}", escape(method)));
    format!("by the rules of {}{method}", breakdown.rules)
}

/// Formats the active parameters of a mixture of experts, with the short form that model names use.
pub(super) fn active_parameters(moe: &MixtureOfExperts) -> String {
    let (active, total) = (moe.active(), moe.total());
    let name = format!("{}-A{}", size_of_model(total), size_of_model(active));
    let bound = if moe.is_upper_bound { "at most " } else { "" };
    format!("{name}: {bound}{} parameters are active per token", thousands(active))
}

fn formula(moe: &MixtureOfExperts) -> String {
    let [always, active, routed] =
        [moe.always_active, moe.active(), moe.routed_active].map(thousands);
    let (used, experts) = (moe.experts_per_token, moe.experts);
    let routed = match moe.per_expert {
        Some(expert) => format!("{used} of {experts} experts × {}", thousands(expert)),
        None => format!("{routed} in at most {used} of {experts} experts per layer"),
    };
    let draft = if_any(moe.draft, |draft| format!("; {} more only draft tokens", thousands(draft)));
    format!("{active} = {always} always + {routed}{draft}")
}
