//! Tables and bars that show shares of a total, and tables of weight sets.

use maud::{Markup, html};

use super::data::{PageView, Section, SetRow, SetRows, TableRow, TableRows, TensorRow};
use super::snippets;
use hf_meta::report::text::{bytes, counted, escape, share, thousands};

/// The number of colors in the style sheet. Additional rows share the last color.
const COLORS: usize = 6;

/// The width of a bar in the units of its SVG view box.
const BAR_WIDTH: u64 = 1_000;

/// The maximum number of sets in an open table. Longer tables are collapsed.
const MAX_EXPANDED: usize = 12;

/// Renders one bar with the colored shares of all rows.
///
/// It is an SVG, because the content security policy forbids widths in style attributes.
pub(super) fn bar(rows: &TableRows, total: u64) -> Markup {
    let mut end = 0;
    let parts = rows.rows.iter().enumerate().map(|(at, row)| {
        let start = end;
        end += row.bytes;
        (at.min(COLORS - 1), units(start, total), units(end, total))
    });
    html! {
        svg .bar viewBox={ "0 0 " (BAR_WIDTH) " 10" } preserveAspectRatio="none" aria-hidden="true" {
            @for (color, start, end) in parts {
                rect class={ "color-" (color) } x=(start) width=(end - start) height="10" {}
            }
        }
    }
}

/// Converts a share of a total to the units of a bar.
fn units(part: u64, total: u64) -> u64 {
    let units = u128::from(part.min(total)) * u128::from(BAR_WIDTH) / u128::from(total.max(1));
    u64::try_from(units).unwrap_or(BAR_WIDTH)
}

/// Renders the dtypes with their colors from the bar.
pub(super) fn dtypes(rows: &TableRows, total: u64) -> Markup {
    let name = |at: usize, row: &TableRow| {
        html! { span class={ "dot color-" (at.min(COLORS - 1)) } {} (escape(&row.name)) }
    };
    shares(["dtype", "parameters"], rows, total, name)
}

/// Renders a table with one bar per row.
pub(super) fn rows(heading: &str, quantity: &str, rows: &TableRows, total: u64) -> Markup {
    let name = |at: usize, row: &TableRow| {
        html! {
            span .name { (escape(&row.name)) }
            svg .share viewBox={ "0 0 " (BAR_WIDTH) " 10" } preserveAspectRatio="none" aria-hidden="true" {
                rect class={ "color-" (at.min(COLORS - 1)) } width=(units(row.bytes, total)) height="10" {}
            }
        }
    };
    shares([heading, quantity], rows, total, name)
}

fn shares(
    [heading, quantity]: [&str; 2],
    rows: &TableRows,
    total: u64,
    name: impl Fn(usize, &TableRow) -> Markup,
) -> Markup {
    let columns = [("", heading), ("count", quantity), ("", "bytes"), ("wide", "share")];
    let row = |(at, row): (usize, &TableRow)| {
        html! {
            th scope="row" { (name(at, row)) }
            td .count { (thousands(row.count)) }
            td { (bytes(row.bytes)) }
            td .wide { (share(row.bytes, total)) }
        }
    };
    table(heading, &columns, rows.rows.iter().enumerate().map(row), rows.omitted())
}

/// Renders a table. Each column has a class and a heading.
fn table(
    class: &str,
    columns: &[(&str, &str)],
    rows: impl Iterator<Item = Markup>,
    omitted: usize,
) -> Markup {
    html! {
        table class=(class) {
            thead {
                tr {
                    @for (class, heading) in columns {
                        th class=[Some(class).filter(|class| !class.is_empty())] scope="col" { (heading) }
                    }
                }
            }
            tbody {
                @for row in rows { tr { (row) } }
            }
        }
        (more(omitted))
    }
}

/// Renders a collapsed table of tensors.
pub(super) fn tensors(tensors: &TableRows<TensorRow>) -> Markup {
    let columns = [("", "tensor"), ("", "dtype"), ("", "shape"), ("wide", "bytes")];
    let row = |row: &TensorRow| {
        html! {
            th scope="row" { span .name { (escape(&row.name)) } }
            td { (escape(row.dtype.as_str())) }
            td .shape { (row.shape) }
            td .wide { (bytes(row.bytes)) }
        }
    };
    html! {
        details #tensors {
            summary { (counted(tensors.total as u64, "tensor")) }
            (table("tensor", &columns, tensors.rows.iter().map(row), tensors.omitted()))
        }
    }
}

/// Renders the number of omitted rows, if any.
fn more(omitted: usize) -> Markup {
    html! {
        @if omitted > 0 {
            p .more { "and " (thousands(omitted as u64)) " more" }
        }
    }
}

/// Renders the sets to choose from.
pub(super) fn choice_of_sets(view: &PageView<'_>, repo: &str, sets: &SetRows) -> Markup {
    html! {
        section aria-labelledby="choice" {
            h2 #choice { "Choose a weight set" }
            (sets_table(view, repo, sets))
        }
    }
}

/// Renders the other sets, or nothing if there are none.
pub(super) fn other_sets(view: &PageView<'_>, repo: &str, others: &Section<SetRows>) -> Markup {
    match others {
        Section::Ready(sets) if !sets.rows.is_empty() => sets_section(&html! {
            p .hint { "Components, variants and checkpoints. They are not included in the counts above. Each has its own badge." }
            @if sets.total > MAX_EXPANDED {
                details #sets {
                    summary { (counted(sets.total as u64, "set")) }
                    (sets_table(view, repo, sets))
                }
            } @else {
                (sets_table(view, repo, sets))
            }
        }),
        Section::Pending => sets_section(&html! {
            p .hint data-pending="" { "The files are being listed." }
        }),
        Section::Unavailable => {
            sets_section(&html! { p .hint { "The list of files is currently unavailable." } })
        }
        Section::Omitted | Section::Ready(_) => html! {},
    }
}

fn sets_section(content: &Markup) -> Markup {
    html! { h3 { "Other weight sets" } (content) }
}

fn sets_table(view: &PageView<'_>, repo: &str, sets: &SetRows) -> Markup {
    let columns = [("", "weights"), ("wide", "files"), ("", "bytes")];
    table("sets", &columns, sets.rows.iter().map(|set| set_row(view, repo, set)), sets.omitted())
}

/// Renders a path that can wrap after each folder.
pub(super) fn breakable(path: &str) -> Markup {
    html! {
        @for part in escape(path).split_inclusive('/') { (part) wbr; }
    }
}

/// Renders a row. A set has an unknown number of files if its index does not follow the naming scheme.
fn set_row(view: &PageView<'_>, repo: &str, set: &SetRow) -> Markup {
    let path = set.path.as_str();
    html! {
        th scope="row" {
            a .name href=(snippets::page(view, repo, Some(path))) { (breakable(path)) }
        }
        @if set.files == 0 {
            td .wide { "?" } td { "?" }
        } @else {
            td .wide { (thousands(set.files as u64)) } td { (bytes(set.bytes)) }
        }
    }
}
