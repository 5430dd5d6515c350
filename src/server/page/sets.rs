//! The sets of weights that there are in a repo, each with a link to a look at it.

use maud::{Markup, html};

use super::rows::Rows;
use super::{Shown, paste};
use crate::formats::RepoPath;
use crate::formats::weight_sets::WeightSet;
use crate::report::text::{bytes, counted, escape, thousands};

/// The most sets that are not folded away.
const MOST_OPEN: usize = 12;

/// The first sets of a repo, in the order of their paths.
pub(crate) type Sets = Rows<Set>;

/// A set of weights.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub(super) path: RepoPath,
    /// How many files it is in; 0 where that is not known.
    pub(super) files: usize,
    pub(super) bytes: u64,
}

/// What is known of the sets of weights beside the one that is shown.
#[derive(Debug)]
pub(crate) enum Others {
    /// They are not asked for.
    Unasked,
    Listed(Sets),
    /// They are being listed.
    Pending,
    /// They cannot be listed at present.
    Unknown,
}

impl Sets {
    pub(crate) fn of<'a>(sets: impl IntoIterator<Item = &'a WeightSet>) -> Self {
        let row =
            |set: &WeightSet| Set { path: set.path.clone(), files: set.files, bytes: set.bytes };
        Self::from_rows(sets.into_iter().map(row))
    }
}

/// The sets of which one has to be chosen.
pub(super) fn choice(shown: &Shown<'_>, repo: &str, sets: &Sets) -> Markup {
    html! {
        section aria-labelledby="choice" {
            h2 #choice { "Choose a set of weights" }
            (table(shown, repo, sets))
        }
    }
}

/// The sets that are there, too; nothing where there are none.
pub(super) fn others(shown: &Shown<'_>, repo: &str, others: &Others) -> Markup {
    match others {
        Others::Listed(sets) if !sets.rows.is_empty() => section(&html! {
            p .hint { "Components, variants and checkpoints. They are not counted above; each has a badge of its own." }
            @if sets.all > MOST_OPEN {
                details #sets {
                    summary { (counted(sets.all as u64, "set")) }
                    (table(shown, repo, sets))
                }
            } @else {
                (table(shown, repo, sets))
            }
        }),
        Others::Pending => section(&html! {
            p .hint data-pending="" { "The files are being listed." }
        }),
        Others::Unknown => section(&html! { p .hint { "The files cannot be listed at present." } }),
        Others::Unasked | Others::Listed(_) => html! {},
    }
}

fn section(content: &Markup) -> Markup {
    html! { h3 { "Other sets of weights" } (content) }
}

fn table(shown: &Shown<'_>, repo: &str, sets: &Sets) -> Markup {
    html! {
        table .sets {
            thead {
                tr { th scope="col" { "weights" } th .wide scope="col" { "files" } th scope="col" { "bytes" } }
            }
            tbody {
                @for set in &sets.rows { (row(shown, repo, set)) }
            }
        }
        (sets.more())
    }
}

/// A path that is broken between its folders where it is too long for a line.
pub(super) fn path(path: &str) -> Markup {
    html! {
        @for part in escape(path).split_inclusive('/') { (part) wbr; }
    }
}

/// What is not known of a set is left open: of an index it may be that no name tells its shards.
fn row(shown: &Shown<'_>, repo: &str, set: &Set) -> Markup {
    let path = set.path.as_str();
    html! {
        tr {
            th scope="row" {
                a .name href=(paste::page(shown, repo, Some(path))) { (self::path(path)) }
            }
            @if set.files == 0 {
                td .wide { "?" } td { "?" }
            } @else {
                td .wide { (thousands(set.files as u64)) } td { (bytes(set.bytes)) }
            }
        }
    }
}
