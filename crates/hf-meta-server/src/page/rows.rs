//! Table rows, up to a maximum number.

use maud::{Markup, html};

use hf_meta::count::DtypeCount;
use hf_meta::formats::FileHeader;
use hf_meta::formats::{Dtype, TensorInfo, clip};
use hf_meta::report::text::thousands;
use hf_meta::report::tree::TreeModule;

/// The maximum number of rows in a table. A repository can have any number of files.
const MAX_ROWS: usize = 100;

/// The first rows of a table.
#[derive(Clone, Debug)]
pub(crate) struct TableRows<T = TableRow> {
    pub(super) rows: Vec<T>,
    /// The total number of rows, including omitted ones.
    pub(super) total: usize,
}

/// A part of a checkpoint: a dtype, a module or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableRow {
    pub(super) name: String,
    /// The number of parameters, or for a module or file the number of stored elements.
    pub(super) count: u64,
    pub(super) bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorRow {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: String,
    pub(super) bytes: u64,
}

impl TensorRow {
    pub(super) fn new(name: &str, tensor: &TensorInfo) -> Self {
        Self {
            name: clip(name),
            dtype: tensor.dtype.clone(),
            shape: clip(&format!("{:?}", tensor.shape)),
            bytes: tensor.byte_length(),
        }
    }
}

impl<T> TableRows<T> {
    pub(super) fn from_rows(mut rows: impl Iterator<Item = T>) -> Self {
        let first: Vec<_> = rows.by_ref().take(MAX_ROWS).collect();
        Self { total: first.len() + rows.count(), rows: first }
    }

    /// Renders the number of omitted rows, if any.
    pub(super) fn more(&self) -> Markup {
        html! {
            @if self.total > self.rows.len() {
                p .more { "and " (thousands((self.total - self.rows.len()) as u64)) " more" }
            }
        }
    }
}

impl TableRow {
    pub(super) fn new(name: &str, count: &DtypeCount) -> Self {
        Self { name: clip(name), count: count.parameters, bytes: count.bytes }
    }

    pub(super) fn from_module(module: &TreeModule) -> Self {
        Self { name: clip(&module.name), count: module.elements, bytes: module.bytes }
    }

    pub(super) fn from_file(path: &str, header: &FileHeader) -> Self {
        let mut elements = 0_u64;
        header.tensors().for_each(|_, tensor| {
            if !tensor.is_scalar() {
                elements = elements.saturating_add(tensor.elements().unwrap_or(u64::MAX));
            }
        });
        Self { name: clip(path), count: elements, bytes: header.data_length() }
    }
}
