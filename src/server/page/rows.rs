//! Rows of tables, as many of them as are told.

use maud::{Markup, html};

use crate::count::DtypeCount;

use crate::formats::safetensors::SafetensorsFileHeader;

use crate::formats::clip;
use crate::report::text::thousands;
use crate::report::tree::TreeModule;

/// The most rows of a table; a repo may have any number of files.
const MOST_ROWS: usize = 100;

/// The first rows of a table, and how many there are in all.
#[derive(Clone, Debug)]
pub(crate) struct Rows<T = Row> {
    pub(super) rows: Vec<T>,
    pub(super) all: usize,
}

/// A part of the weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(super) name: String,
    /// Parameters, or elements as stored.
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl<T> Rows<T> {
    pub(super) fn from_rows(mut rows: impl Iterator<Item = T>) -> Self {
        let first: Vec<_> = rows.by_ref().take(MOST_ROWS).collect();
        Self { all: first.len() + rows.count(), rows: first }
    }

    /// How many are left out, where some are.
    pub(super) fn more(&self) -> Markup {
        html! {
            @if self.all > self.rows.len() {
                p .more { "and " (thousands((self.all - self.rows.len()) as u64)) " more" }
            }
        }
    }
}

impl Row {
    pub(super) fn new(name: &str, count: &DtypeCount) -> Self {
        Self { name: clip(name), count: count.parameters, bytes: count.bytes }
    }

    pub(super) fn of_module(module: &TreeModule) -> Self {
        Self { name: clip(&module.name), count: module.elements, bytes: module.bytes }
    }

    pub(super) fn of_file(path: &str, header: &SafetensorsFileHeader) -> Self {
        Self::new(path, header.parameter_count().totals())
    }
}
