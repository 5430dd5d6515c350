//! Parts of a whole, as bars and as tables.

use maud::{Markup, html};

use super::rows::{Row, Rows};
use crate::report::text::{bytes, escape, share, thousands};

/// Colours of the style sheet; the parts after the last of them share it.
const COLORS: usize = 6;

/// Units of width of a bar.
const WIDTH: u64 = 1_000;

/// Parts of a whole side by side, in the colours of their rows.
///
/// Drawn as SVG, since a policy that forbids styles in the page forbids widths in it, too.
pub(super) fn bar(rows: &Rows, total: u64) -> Markup {
    let mut end = 0;
    let parts = rows.rows.iter().enumerate().map(|(at, row)| {
        let start = end;
        end += row.bytes;
        (at.min(COLORS - 1), units(start, total), units(end, total))
    });
    html! {
        svg .bar viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" aria-hidden="true" {
            @for (color, start, end) in parts {
                rect class={ "color-" (color) } x=(start) width=(end - start) height="10" {}
            }
        }
    }
}

/// A part of a whole in units of a bar.
fn units(part: u64, total: u64) -> u64 {
    let units = u128::from(part.min(total)) * u128::from(WIDTH) / u128::from(total.max(1));
    u64::try_from(units).unwrap_or(WIDTH)
}

/// The dtypes, each with the colour that it has in the bar.
pub(super) fn dtypes(rows: &Rows, total: u64) -> Markup {
    let name = |at: usize, row: &Row| {
        html! { span class={ "dot color-" (at.min(COLORS - 1)) } {} (escape(&row.name)) }
    };
    table(["dtype", "parameters"], rows, total, name)
}

/// Rows by their names, each with a bar of its own.
pub(super) fn rows(heading: &str, figure: &str, rows: &Rows, total: u64) -> Markup {
    let name = |_: usize, row: &Row| {
        html! {
            span .name { (escape(&row.name)) }
            svg .share viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" aria-hidden="true" {
                rect class="color-0" width=(units(row.bytes, total)) height="10" {}
            }
        }
    };
    table([heading, figure], rows, total, name)
}

fn table(
    [heading, figure]: [&str; 2],
    rows: &Rows,
    total: u64,
    name: impl Fn(usize, &Row) -> Markup,
) -> Markup {
    html! {
        table class=(heading) {
            thead {
                tr {
                    th scope="col" { (heading) }
                    th .count scope="col" { (figure) }
                    th scope="col" { "bytes" }
                    th .wide scope="col" { "share" }
                }
            }
            tbody {
                @for (at, row) in rows.rows.iter().enumerate() {
                    tr {
                        th scope="row" { (name(at, row)) }
                        td .count { (thousands(row.count)) }
                        td { (bytes(row.bytes)) }
                        td .wide { (share(row.bytes, total)) }
                    }
                }
            }
        }
        (rows.more())
    }
}
