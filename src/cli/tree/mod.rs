//! The modules of a set of weights, drawn as a tree that fits on a screen.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::io::{self, IsTerminal, Write};

use hf_meta::Dtype;
use hf_meta::report::text::{counted, escape, shape, share, thousands};
use hf_meta::report::tree::{Tree, TreeContent, TreeModule};

use super::columns;
use super::style::DIM;

/// The length of a bar, in characters.
const BAR: usize = 10;

/// The least room that the contents of modules are of use in, in characters.
const LEAST_CONTENT: usize = 16;

/// Lines of a screen that are kept for the headings, the total, what is said below it, and the prompt.
const KEPT: usize = 8;

/// The most tensors of a module that stand in its own row.
const MOST_INLINE: usize = 4;

/// The size of a terminal, in characters and lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    width: usize,
    height: usize,
}

impl Screen {
    /// That of stdout, where it is a terminal.
    pub(crate) fn of_stdout() -> Option<Self> {
        if !io::stdout().is_terminal() {
            return None;
        }
        let size = terminal_size::terminal_size();
        let (width, height) = size.map_or((80, 24), |(width, height)| (width.0, height.0));
        Some(Self { width: width.into(), height: height.into() })
    }
}

/// Draws a tree: on a screen with bars, and open as far as it has lines, the largest modules first;
/// elsewhere without bars, and all open.
pub(crate) fn draw(out: &mut impl Write, tree: &Tree, screen: Option<Screen>) -> io::Result<()> {
    let lines = screen.map_or(usize::MAX, |screen| screen.height.saturating_sub(KEPT).max(1));
    let sum = |figure: fn(&TreeModule) -> u64| {
        tree.modules.iter().map(figure).fold(0, u64::saturating_add)
    };
    let (tensors, elements) = (sum(|module| module.tensors), sum(|module| module.elements));
    let mut rows = vec![["module", "tensors", "elements", "share", ""].map(str::to_owned)];
    let plan = Plan::new(&tree.modules, lines);
    plan.list(&plan.top, None, &mut |name, branch| {
        let module = branch.module;
        let bar = screen.map_or_else(String::new, |_| bar(module.elements, elements) + "  ");
        rows.push(row(name, module.tensors, module.elements, elements, bar + &branch.content()));
    });
    rows.push(row("total".to_owned(), tensors, elements, elements, String::new()));
    if let Some(screen) = screen {
        fit(&mut rows, screen.width);
    }
    columns::table(out, [false, true, true, true, false], &rows)?;
    plan.closing(out)
}

fn row(name: String, tensors: u64, elements: u64, all: u64, tail: String) -> [String; 5] {
    [name, thousands(tensors), thousands(elements), share(elements, all), tail]
}

/// Cuts names, then contents, to the width of a screen. Figures and bars are whole at any width.
fn fit(rows: &mut [[String; 5]], width: usize) {
    let widest = |rows: &[[String; 5]], at: usize| {
        rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)
    };
    let figures: usize = (1..4).map(|at| widest(rows, at) + 2).sum();
    let names = width.saturating_sub(figures + 2 + BAR).max(BAR);
    for row in rows.iter_mut() {
        cut(&mut row[0], names);
    }
    let rest = width.saturating_sub(widest(rows, 0) + figures + 2);
    for row in rows {
        if rest < BAR + LEAST_CONTENT {
            row[4] = row[4].chars().take(BAR).collect();
        }
        cut(&mut row[4], rest.max(BAR));
    }
}

/// Cuts a text to so many characters.
fn cut(text: &mut String, most: usize) {
    if text.chars().count() > most {
        *text = text.chars().take(most.saturating_sub(1)).chain(['…']).collect();
    }
    text.truncate(text.trim_end().len());
}

/// A part of a whole, to the eighth of a character.
fn bar(part: u64, whole: u64) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (u128::from(part) * 8 * BAR as u128).div_ceil(u128::from(whole.max(1)));
    let (full, rest) = (eighths / 8, eighths % 8);
    (0..BAR as u128)
        .map(|at| match at.cmp(&full) {
            Ordering::Less => '█',
            Ordering::Equal => EIGHTHS[usize::try_from(rest).unwrap_or(0)],
            Ordering::Greater => ' ',
        })
        .collect()
}

/// Which modules are shown, and which of them with what is in them.
struct Plan<'a> {
    branches: Vec<Branch<'a>>,
    /// What is shown at the top, by its place in `branches`.
    top: Vec<usize>,
    /// How many modules at the top are not shown.
    hidden: usize,
}

struct Branch<'a> {
    module: &'a TreeModule,
    inner: Vec<usize>,
    is_open: bool,
}

impl<'a> Plan<'a> {
    fn new(modules: &'a [TreeModule], lines: usize) -> Self {
        let mut plan = Self { branches: Vec::new(), top: Vec::new(), hidden: 0 };
        let mut top = plan.add(modules);
        if top.len() > lines {
            top.sort_by_key(|&at| Reverse(plan.branches[at].module.elements));
            plan.hidden = top.len() - lines;
            top.truncate(lines);
            top.sort_unstable();
        }
        plan.open(&top, lines - top.len());
        Self { top, ..plan }
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

    /// Opens the largest modules as long as there is room for what is in them.
    fn open(&mut self, top: &[usize], mut lines: usize) {
        let size = |plan: &Self, at: usize| (plan.branches[at].module.elements, Reverse(at));
        let mut closed: BinaryHeap<_> = top.iter().map(|&at| size(self, at)).collect();
        while let Some((_, Reverse(at))) = closed.pop() {
            let branch = &mut self.branches[at];
            if branch.is_short() || branch.inner.len() > lines {
                continue;
            }
            branch.is_open = true;
            lines -= branch.inner.len();
            let inner = branch.inner.clone();
            closed.extend(inner.into_iter().map(|at| size(self, at)));
        }
    }

    /// Tells of every row in its order, with its name behind the lines that lead to it.
    fn list(
        &self,
        rows: &[usize],
        guide: Option<&str>,
        tell: &mut impl FnMut(String, &Branch<'a>),
    ) {
        for (at, row) in rows.iter().enumerate() {
            let branch = &self.branches[*row];
            let mut name = escape(&branch.module.name);
            if branch.is_closed() {
                name.push_str(" …");
            }
            let (name, inner) = match (guide, at + 1 == rows.len()) {
                (None, _) => (name, String::new()),
                (Some(guide), false) => (format!("{guide}├─ {name}"), format!("{guide}│  ")),
                (Some(guide), true) => (format!("{guide}└─ {name}"), format!("{guide}   ")),
            };
            tell(name, branch);
            if branch.is_open {
                self.list(&branch.inner, Some(&inner), tell);
            }
        }
    }

    /// Says what is not shown.
    fn closing(&self, out: &mut impl Write) -> io::Result<()> {
        if self.hidden > 0 {
            let more = counted(self.hidden as u64, "more module");
            writeln!(
                out,
                "{DIM}{more} at the top; the output to a file or a pager has all{DIM:#}"
            )?;
        } else if self.branches.iter().any(Branch::is_closed) {
            writeln!(
                out,
                "{DIM}… what does not fit; the output to a file or a pager has it{DIM:#}"
            )?;
        }
        Ok(())
    }
}

impl Branch<'_> {
    /// Whether all that is in it stands in its own row.
    fn is_short(&self) -> bool {
        let is_tensor = |module: &TreeModule| matches!(module.content, TreeContent::Tensor { .. });
        match &self.module.content {
            TreeContent::Tensor { .. } => true,
            TreeContent::Modules(inner) => {
                inner.len() <= MOST_INLINE && inner.iter().all(is_tensor)
            }
        }
    }

    fn is_closed(&self) -> bool {
        !self.is_open && !self.is_short()
    }

    fn content(&self) -> String {
        match &self.module.content {
            TreeContent::Tensor { dtype, shape } => tensor(dtype, shape),
            TreeContent::Modules(inner) if self.is_short() => {
                let inner: Vec<_> = inner.iter().map(named).collect();
                inner.join(", ")
            }
            TreeContent::Modules(_) => String::new(),
        }
    }
}

/// A module in the row of another.
fn named(module: &TreeModule) -> String {
    let name = escape(&module.name);
    match &module.content {
        TreeContent::Tensor { dtype, shape } => format!("{name} {}", tensor(dtype, shape)),
        TreeContent::Modules(_) => name,
    }
}

fn tensor(dtype: &Dtype, lengths: &[u64]) -> String {
    format!("{} {}", escape(dtype.as_str()), shape(lengths))
}

#[cfg(test)]
mod tests;
