//! Tables and bars that show shares of a total.

use maud::{Markup, html};

use super::rows::{TableRow, TableRows, TensorRow};
use hf_meta::report::text::{bytes, counted, escape, share, thousands};

/// The number of colors in the style sheet. Additional rows share the last color.
const COLORS: usize = 6;

/// The width of a bar in the units of its SVG view box.
const WIDTH: u64 = 1_000;

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
        svg .bar viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" aria-hidden="true" {
            @for (color, start, end) in parts {
                rect class={ "color-" (color) } x=(start) width=(end - start) height="10" {}
            }
        }
    }
}

/// Converts a share of a total to the units of a bar.
fn units(part: u64, total: u64) -> u64 {
    let units = u128::from(part.min(total)) * u128::from(WIDTH) / u128::from(total.max(1));
    u64::try_from(units).unwrap_or(WIDTH)
}

/// Renders the dtypes with their colors from the bar.
pub(super) fn dtypes(rows: &TableRows, total: u64) -> Markup {
    let name = |at: usize, row: &TableRow| {
        html! { span class={ "dot color-" (at.min(COLORS - 1)) } {} (escape(&row.name)) }
    };
    table(["dtype", "parameters"], rows, total, name)
}

/// Renders a table with one bar per row.
pub(super) fn rows(heading: &str, quantity: &str, rows: &TableRows, total: u64) -> Markup {
    let name = |at: usize, row: &TableRow| {
        html! {
            span .name { (escape(&row.name)) }
            svg .share viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" aria-hidden="true" {
                rect class={ "color-" (at.min(COLORS - 1)) } width=(units(row.bytes, total)) height="10" {}
            }
        }
    };
    table([heading, quantity], rows, total, name)
}

fn table(
    [heading, quantity]: [&str; 2],
    rows: &TableRows,
    total: u64,
    name: impl Fn(usize, &TableRow) -> Markup,
) -> Markup {
    html! {
        table class=(heading) {
            thead {
                tr {
                    th scope="col" { (heading) }
                    th .count scope="col" { (quantity) }
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

/// Renders a collapsed table of tensors.
pub(super) fn tensors(tensors: &TableRows<TensorRow>) -> Markup {
    html! {
        details #tensors {
            summary { (counted(tensors.total as u64, "tensor")) }
            table .tensor {
                thead {
                    tr {
                        th scope="col" { "tensor" }
                        th scope="col" { "dtype" }
                        th scope="col" { "shape" }
                        th .wide scope="col" { "bytes" }
                    }
                }
                tbody {
                    @for row in &tensors.rows {
                        tr {
                            th scope="row" { span .name { (escape(&row.name)) } }
                            td { (escape(row.dtype.as_str())) }
                            td .shape { (row.shape) }
                            td .wide { (bytes(row.bytes)) }
                        }
                    }
                }
            }
            (tensors.more())
        }
    }
}
