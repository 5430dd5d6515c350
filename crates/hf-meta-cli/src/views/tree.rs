//! `--tree`: the modules of a checkpoint as a tree. On a terminal it fits the screen.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;
use std::io;

use glob::Pattern;
use hf_meta::report::text::{counted, escape, shape, share, thousands};
use hf_meta::report::tree::{TreeContent, TreeModule};
use hf_meta::{Dtype, Tree, Weights};

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
}

/// Writes a tree. On a terminal it has bars, and the largest modules are expanded until the lines run out. Otherwise
/// all modules are expanded.
fn write_tree(page: &mut Page<'_>, tree: &Tree, depth: Option<usize>) -> io::Result<()> {
    let max_lines =
        page.terminal.map_or(usize::MAX, |size| size.height.saturating_sub(RESERVED_LINES).max(1));
    let sum =
        |value: fn(&TreeModule) -> u64| tree.modules.iter().map(value).fold(0, u64::saturating_add);
    let (tensors, elements) = (sum(|module| module.tensors), sum(|module| module.elements));
    let layout = TreeLayout::new(&tree.modules, max_lines, depth.unwrap_or(usize::MAX));
    let mut rows = Vec::new();
    layout.for_each_row(&layout.top, None, &mut |name, branch| {
        let TreeModule { tensors, elements, .. } = *branch.module;
        rows.push(TreeRow { name, tensors, elements, content: branch.content() });
    });
    let total = TreeRow { name: "total".to_owned(), tensors, elements, content: String::new() };
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
    page.table(&table, || rows.iter().chain([&total]))?;
    layout.write_note(page, depth.is_some())
}

/// Returns a bar whose length is proportional to `part`, in eighths of a character.
fn bar(part: u64, whole: u64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (u128::from(part) * 8 * BAR_LENGTH as u128).div_ceil(u128::from(whole.max(1)));
    let eighths = usize::try_from(eighths).map_or(8 * BAR_LENGTH, |n| n.min(8 * BAR_LENGTH));
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// The shown modules, each open or closed.
struct TreeLayout<'a> {
    branches: Vec<Branch<'a>>,
    /// The shown top-level modules, as indices into `branches`.
    top: Vec<usize>,
    /// The number of top-level modules that are not shown.
    hidden: usize,
}

/// A module with the indices of its submodules.
struct Branch<'a> {
    module: &'a TreeModule,
    inner: Vec<usize>,
    is_open: bool,
}

impl<'a> TreeLayout<'a> {
    fn new(modules: &'a [TreeModule], max_lines: usize, max_depth: usize) -> Self {
        let mut layout = Self { branches: Vec::new(), top: Vec::new(), hidden: 0 };
        let mut top = layout.add(modules);
        if top.len() > max_lines {
            top.sort_by_key(|&at| Reverse(layout.branches[at].module.elements));
            layout.hidden = top.len() - max_lines;
            top.truncate(max_lines);
            top.sort_unstable();
        }
        layout.open(&top, max_lines - top.len(), max_depth);
        Self { top, ..layout }
    }

    fn add(&mut self, modules: &'a [TreeModule]) -> Vec<usize> {
        let add = |module: &'a TreeModule| {
            let inner = match &module.content {
                TreeContent::Modules(modules) => self.add(modules),
                TreeContent::Tensor { .. } => Vec::new(),
            };
            self.branches.push(Branch { module, inner, is_open: false });
            self.branches.len() - 1
        };
        modules.iter().map(add).collect()
    }

    /// Opens the largest modules as long as there are lines for their contents.
    ///
    /// Top-level modules have depth 1. Modules at the maximum depth stay closed.
    fn open(&mut self, top: &[usize], mut lines: usize, max_depth: usize) {
        let size = |layout: &Self, at: usize, depth: usize| {
            (layout.branches[at].module.elements, Reverse(at), depth)
        };
        let mut closed: BinaryHeap<_> = top.iter().map(|&at| size(self, at, 1)).collect();
        while let Some((_, Reverse(at), depth)) = closed.pop() {
            let branch = &mut self.branches[at];
            if branch.is_short() || branch.inner.len() > lines || depth >= max_depth {
                continue;
            }
            branch.is_open = true;
            lines -= branch.inner.len();
            let inner = branch.inner.clone();
            closed.extend(inner.into_iter().map(|at| size(self, at, depth + 1)));
        }
    }

    /// Calls `visit` for every row in order, with the name after its guide lines.
    fn for_each_row(
        &self,
        rows: &[usize],
        guide: Option<&str>,
        visit: &mut impl FnMut(String, &Branch<'a>),
    ) {
        for (at, row) in rows.iter().enumerate() {
            let branch = &self.branches[*row];
            let mut name = escape(&branch.module.name);
            if branch.is_closed() {
                let _ = write!(name, " [+{}]", thousands(branch.module.tensors));
            }
            let (name, inner) = match (guide, at + 1 == rows.len()) {
                (None, _) => (name, String::new()),
                (Some(guide), false) => (format!("{guide}├─ {name}"), format!("{guide}│  ")),
                (Some(guide), true) => (format!("{guide}└─ {name}"), format!("{guide}   ")),
            };
            visit(name, branch);
            if branch.is_open {
                self.for_each_row(&branch.inner, Some(&inner), visit);
            }
        }
    }

    /// Writes a note if modules are hidden or closed.
    fn write_note(&self, page: &mut Page<'_>, has_depth: bool) -> io::Result<()> {
        let note = if self.hidden > 0 {
            counted(self.hidden as u64, "more module")
        } else if self.branches.iter().any(Branch::is_closed) {
            "the tensors of modules with [+N]".to_owned()
        } else {
            return Ok(());
        };
        let remedy =
            if has_depth { "increase --depth to see more" } else { "pipe the output to see all" };
        page.styled_line(DIM, &format!("not shown: {note}; {remedy}"))
    }
}

impl Branch<'_> {
    /// Returns whether the module's row lists all its tensors.
    fn is_short(&self) -> bool {
        let is_tensor = |module: &TreeModule| matches!(module.content, TreeContent::Tensor { .. });
        match &self.module.content {
            TreeContent::Tensor { .. } => true,
            TreeContent::Modules(inner) => {
                inner.len() <= MAX_INLINE_TENSORS && inner.iter().all(is_tensor)
            }
        }
    }

    fn is_closed(&self) -> bool {
        !self.is_open && !self.is_short()
    }

    /// Formats the tensors that the row lists.
    fn content(&self) -> String {
        match &self.module.content {
            TreeContent::Tensor { dtype, shape } => dtype_and_shape(dtype, shape),
            TreeContent::Modules(inner) if self.is_short() => {
                let inner: Vec<_> = inner.iter().map(inline).collect();
                inner.join(", ")
            }
            TreeContent::Modules(_) => String::new(),
        }
    }
}

/// Formats a tensor for the row of its module.
fn inline(module: &TreeModule) -> String {
    let name = escape(&module.name);
    match &module.content {
        TreeContent::Tensor { dtype, shape } => format!("{name} {}", dtype_and_shape(dtype, shape)),
        TreeContent::Modules(_) => name,
    }
}

fn dtype_and_shape(dtype: &Dtype, lengths: &[u64]) -> String {
    format!("{} {}", escape(dtype.as_str()), shape(lengths))
}

#[cfg(test)]
mod tests;
