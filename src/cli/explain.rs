//! How the parameters were counted.

use std::io::{self, Write};

use hf_meta::CountReport;
use hf_meta::count::{MixtureOfExperts, TensorGroup};
use hf_meta::report::text::{escape, size_of_model, thousands};

use super::columns;
use super::style::BOLD;

/// The tensors in groups that were counted alike, the largest first, and the rules they were counted by.
pub(crate) fn groups(out: &mut impl Write, facts: &CountReport) -> io::Result<()> {
    let (counting, totals) = (&facts.breakdown, facts.parameter_count.totals());
    writeln!(out, "{BOLD}{}{BOLD:#}", escape(&facts.source))?;
    let mut groups: Vec<_> = counting.groups.iter().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count.parameters));
    let mut table =
        vec![["dtype", "tensors", "elements", "parameters", "counted"].map(str::to_owned)];
    table.extend(groups.iter().map(|group| row(group)));
    let method = counting.method.as_deref();
    let method = method.map_or_else(String::new, |method| format!(", for {}", escape(method)));
    let rules = format!("by the rules of {}{method}", counting.rules);
    let figures = [totals.tensors, totals.elements, totals.parameters].map(thousands);
    let [tensors, elements, parameters] = figures;
    table.push(["total".to_owned(), tensors, elements, parameters, rules]);
    columns::table(out, [false, true, true, true, false], &table)?;
    if let Some(moe) = &counting.moe {
        writeln!(out, "{}", active(moe))?;
        writeln!(out, "{}", formula(moe))?;
    }
    writeln!(out)
}

fn row(group: &TensorGroup) -> [String; 5] {
    let count = group.count;
    let buffer = group.buffer.map_or_else(String::new, |buffer| format!(" ({buffer})"));
    let [tensors, elements, parameters] =
        [count.tensors, count.elements, count.parameters].map(thousands);
    let reason = format!("{}{buffer}", group.reason);
    [escape(group.dtype.as_str()), tensors, elements, parameters, reason]
}

/// How much of a mixture of experts works on a token, as names of models have it and exactly.
pub(crate) fn active(moe: &MixtureOfExperts) -> String {
    let (active, total) = (moe.active(), moe.total());
    let name = format!("{}-A{}", size_of_model(total), size_of_model(active));
    format!("{name}: {} parameters are active for a token", thousands(active))
}

fn formula(moe: &MixtureOfExperts) -> String {
    let [always, active, expert] = [moe.always_active, moe.active(), moe.per_expert].map(thousands);
    let (used, experts) = (moe.experts_per_token, moe.experts);
    let draft = match moe.draft {
        0 => String::new(),
        draft => format!("; {} only draft tokens ahead", thousands(draft)),
    };
    format!("{active} = {always} always + {used} of {experts} experts × {expert}{draft}")
}
