//! Tables of the sets of weights in a repository, with links to their pages.

use maud::{Markup, html};

use super::rows::TableRows;
use super::{PageView, snippets};
use hf_meta::formats::RepoPath;
use hf_meta::formats::weight_sets::WeightSet;
use hf_meta::report::text::{bytes, counted, escape, thousands};

/// The maximum number of sets in an open table. Longer tables are collapsed.
const MAX_OPEN: usize = 12;

/// The first sets of weights of a repository, sorted by path.
pub(crate) type SetRows = TableRows<SetRow>;

/// A set of weights in a table.
#[derive(Clone, Debug)]
pub(crate) struct SetRow {
    pub(super) path: RepoPath,
    /// The number of files; 0 if it is unknown.
    pub(super) files: usize,
    pub(super) bytes: u64,
}

/// The other sets of weights in the repository, besides the one on the page.
#[derive(Debug)]
pub(crate) enum OtherSets {
    /// The user has chosen a set, so the others are not needed.
    NotNeeded,
    /// The other sets.
    Listed(SetRows),
    /// The files are being listed.
    Pending,
    /// The files cannot be listed at the moment.
    Unavailable,
}

impl SetRows {
    pub(crate) fn from_sets<'a>(sets: impl IntoIterator<Item = &'a WeightSet>) -> Self {
        let row =
            |set: &WeightSet| SetRow { path: set.path.clone(), files: set.files, bytes: set.bytes };
        Self::from_rows(sets.into_iter().map(row))
    }
}

/// Renders the sets to choose from.
pub(super) fn choice(view: &PageView<'_>, repo: &str, sets: &SetRows) -> Markup {
    html! {
        section aria-labelledby="choice" {
            h2 #choice { "Choose a weight set" }
            (table(view, repo, sets))
        }
    }
}

/// Renders the other sets, or nothing if there are none.
pub(super) fn others(view: &PageView<'_>, repo: &str, others: &OtherSets) -> Markup {
    match others {
        OtherSets::Listed(sets) if !sets.rows.is_empty() => section(&html! {
            p .hint { "Components, variants and checkpoints. They are not included in the counts above. Each has its own badge." }
            @if sets.total > MAX_OPEN {
                details #sets {
                    summary { (counted(sets.total as u64, "set")) }
                    (table(view, repo, sets))
                }
            } @else {
                (table(view, repo, sets))
            }
        }),
        OtherSets::Pending => section(&html! {
            p .hint data-pending="" { "The files are being listed." }
        }),
        OtherSets::Unavailable => {
            section(&html! { p .hint { "The list of files is currently unavailable." } })
        }
        OtherSets::NotNeeded | OtherSets::Listed(_) => html! {},
    }
}

fn section(content: &Markup) -> Markup {
    html! { h3 { "Other weight sets" } (content) }
}

fn table(view: &PageView<'_>, repo: &str, sets: &SetRows) -> Markup {
    html! {
        table .sets {
            thead {
                tr { th scope="col" { "weights" } th .wide scope="col" { "files" } th scope="col" { "bytes" } }
            }
            tbody {
                @for set in &sets.rows { (row(view, repo, set)) }
            }
        }
        (sets.more())
    }
}

/// Renders a path that can wrap after each folder.
pub(super) fn path(path: &str) -> Markup {
    html! {
        @for part in escape(path).split_inclusive('/') { (part) wbr; }
    }
}

/// Renders a row. A set has an unknown number of files if its index does not follow the naming scheme.
fn row(view: &PageView<'_>, repo: &str, set: &SetRow) -> Markup {
    let path = set.path.as_str();
    html! {
        tr {
            th scope="row" {
                a .name href=(snippets::page(view, repo, Some(path))) { (self::path(path)) }
            }
            @if set.files == 0 {
                td .wide { "?" } td { "?" }
            } @else {
                td .wide { (thousands(set.files as u64)) } td { (bytes(set.bytes)) }
            }
        }
    }
}
