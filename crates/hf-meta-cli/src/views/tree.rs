//! `--tree`: the modules of a checkpoint as a tree. On a terminal it fits the screen.

use std::io;

use glob::Pattern;
use hf_meta::{Tree, Weights};
use hf_meta_count::results::text::{escape, share, thousands};
use hf_meta_count::results::tree::{TreeContent, TreeModule};

use super::parameters;
use crate::output::Page;
use crate::table::{Shrink, Table};
use crate::terminal::DIM;

/// The length of a bar, in characters.
const BAR_LENGTH: usize = 10;

/// The minimum width of a terminal with bars, in columns. In a narrower one, names need the space.
const MIN_WIDTH_FOR_BARS: usize = 100;

/// The minimum width of the name column, in characters.
const MIN_NAME_WIDTH: usize = 22;

/// The minimum useful width of the tensor column, in characters.
const MIN_CONTENT_WIDTH: usize = 18;

/// The number of terminal lines reserved for headings, totals, notes and the prompt.
const RESERVED_LINES: usize = 8;

/// The maximum number of tensors to list in the row of their module.
const MAX_INLINE_TENSORS: usize = 4;

/// Writes the tree of the tensors that match the filter, and its totals.
pub(crate) fn write(
    page: &mut Page<'_>,
    weights: &Weights,
    filter: Option<&Pattern>,
    depth: Option<usize>,
) -> io::Result<()> {
    page.heading(&weights.report().source)?;
    let keep = |name: &str| filter.is_none_or(|filter| filter.matches(name));
    write_tree(page, &Tree::filtered(weights, keep), depth)?;
    page.line(&parameters::files_and_tensors(weights.report()))?;
    let totals = weights.report().parameter_count.totals();
    if filter.is_none() && totals.parameters != totals.elements {
        let parameters = thousands(totals.parameters);
        let note =
            format!("elements are as stored and contain {parameters} parameters; see --explain");
        page.styled_line(DIM, &note)?;
    }
    Ok(())
}

/// One row of the tree, or the total.
struct TreeRow {
    name: String,
    tensors: u64,
    elements: u64,
    content: String,
    /// True if the modules inside are not shown.
    is_closed: bool,
}

/// Writes a tree. On a terminal it has bars, and as many levels as fit the screen. Otherwise all levels are shown.
fn write_tree(page: &mut Page<'_>, tree: &Tree, depth: Option<usize>) -> io::Result<()> {
    let lines = page.terminal.map_or(usize::MAX, |size| size.height.saturating_sub(RESERVED_LINES));
    let levels = depth.unwrap_or_else(|| fitting_levels(&tree.modules, lines));
    let sum =
        |value: fn(&TreeModule) -> u64| tree.modules.iter().map(value).fold(0, u64::saturating_add);
    let (tensors, elements) = (sum(|module| module.tensors), sum(|module| module.elements));
    let mut rows = Vec::new();
    add_rows(&tree.modules, None, levels, &mut rows);
    let is_closed = rows.iter().any(|row| row.is_closed);
    let (name, content) = ("total".to_owned(), String::new());
    rows.push(TreeRow { name, tensors, elements, content, is_closed: false });
    let table = Table::new()
        .text("module", |row: &&TreeRow| row.name.clone())
        .shrink(Shrink::TruncateTo(MIN_NAME_WIDTH))
        .optional_number("tensors", |row| thousands(row.tensors))
        .number("elements", |row| thousands(row.elements))
        .optional_number("share", |row| share(row.elements, elements))
        .text("", |row| bar(row.elements, elements))
        .shown_if(page.terminal.is_some_and(|size| size.width >= MIN_WIDTH_FOR_BARS))
        .text("", |row| row.content.clone())
        .shrink(Shrink::TruncateTo(MIN_CONTENT_WIDTH));
    page.table(&table, || &rows)?;
    if !is_closed {
        return Ok(());
    }
    let remedy = if depth.is_some() { "increase --depth" } else { "pipe the output" };
    let note = format!("not shown: the tensors of modules with [+N]; {remedy} to see more");
    page.styled_line(DIM, &note)
}

/// Returns a bar whose length is proportional to `part`, in eighths of a character.
fn bar(part: u64, whole: u64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (u128::from(part) * 8 * BAR_LENGTH as u128).div_ceil(u128::from(whole.max(1)));
    let eighths = usize::try_from(eighths).map_or(8 * BAR_LENGTH, |n| n.min(8 * BAR_LENGTH));
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Returns the number of levels of modules whose rows fit the lines, at least one.
fn fitting_levels(modules: &[TreeModule], lines: usize) -> usize {
    let (mut levels, mut rows, mut level) = (1, modules.len(), vec![modules]);
    loop {
        level = level.into_iter().flatten().map(inner_rows).collect();
        let more: usize = level.iter().map(|modules| modules.len()).sum();
        rows += more;
        if more == 0 || rows > lines {
            return levels;
        }
        levels += 1;
    }
}

/// Adds the rows of modules with this number of levels. `guide` contains the lines before the names.
fn add_rows(modules: &[TreeModule], guide: Option<&str>, levels: usize, rows: &mut Vec<TreeRow>) {
    for (at, module) in modules.iter().enumerate() {
        let TreeModule { tensors, elements, .. } = *module;
        let (mut name, inner) = (escape(&module.name), inner_rows(module));
        let is_closed = levels <= 1 && !inner.is_empty();
        if is_closed {
            name = format!("{name} [+{}]", thousands(tensors));
        }
        let (name, inner_guide) = match (guide, at + 1 == modules.len()) {
            (None, _) => (name, String::new()),
            (Some(guide), false) => (format!("{guide}├─ {name}"), format!("{guide}│  ")),
            (Some(guide), true) => (format!("{guide}└─ {name}"), format!("{guide}   ")),
        };
        rows.push(TreeRow { name, tensors, elements, content: content(module), is_closed });
        if !is_closed {
            add_rows(inner, Some(&inner_guide), levels - 1, rows);
        }
    }
}

/// Returns the modules inside that have a row: none if the row of the module lists its tensors.
fn inner_rows(module: &TreeModule) -> &[TreeModule] {
    let is_tensor = |module: &TreeModule| matches!(module.content, TreeContent::Tensor { .. });
    match &module.content {
        TreeContent::Modules(inner)
            if inner.len() > MAX_INLINE_TENSORS || !inner.iter().all(is_tensor) =>
        {
            inner
        }
        _ => &[],
    }
}

/// Formats the tensors that the row of a module lists.
fn content(module: &TreeModule) -> String {
    match &module.content {
        TreeContent::Tensor { dtype, shape: lengths } => {
            format!("{} {lengths:?}", escape(dtype.as_str()))
        }
        TreeContent::Modules(inner) if inner_rows(module).is_empty() => {
            let tensor =
                |tensor: &TreeModule| format!("{} {}", escape(&tensor.name), content(tensor));
            inner.iter().map(tensor).collect::<Vec<_>>().join(", ")
        }
        TreeContent::Modules(_) => String::new(),
    }
}

#[cfg(test)]
mod tests;
