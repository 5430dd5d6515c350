//! The data that the page shows.

use std::cmp::Reverse;

use hf_meta::count::DtypeCount;
use hf_meta::formats::weight_sets::WeightSet;
use hf_meta::formats::{Dtype, FileHeader, RepoPath, TensorInfo, clip};
use hf_meta::report::tree::{Tree, TreeContent, TreeModule};
use hf_meta::report::{CountReport, Weights};
use hf_meta::{Endpoint, ParameterCount, RepoId};
use hf_meta_badge::{BadgeOptions, Metric, MetricValues};

/// The maximum number of tensors for which details are shown. A tree of modules takes a few hundred bytes per tensor.
pub(crate) const MAX_TENSORS: u64 = 250_000;

/// The maximum number of rows in a table. A repository can have any number of files.
const MAX_ROWS: usize = 100;

/// The maximum number of modules in the table.
const MAX_MODULES: usize = 10;

/// The URLs that the page refers to.
pub(crate) struct PageUrls<'a> {
    /// The URL of the page as users see it, with a trailing slash; `/` if unknown.
    pub(crate) base: &'a str,
    pub(crate) hub: &'a Endpoint,
}

/// A requested repository with the outcome of its lookup.
pub(crate) struct PageView<'a> {
    /// The user's input.
    pub(crate) input: &'a str,
    /// The name of the repository, `org/name` or `name`, if the input names one.
    pub(crate) repo: Option<&'a str>,
    pub(crate) revision: Option<&'a str>,
    pub(crate) path: Option<&'a str>,
    pub(crate) metric: Metric,
    pub(crate) options: &'a BadgeOptions,
    /// The other repositories to show next to this one.
    pub(crate) others: &'a [RepoId],
    pub(crate) outcome: PageOutcome<'a>,
}

/// The outcome of a lookup to show on the page.
pub(crate) enum PageOutcome<'a> {
    /// The counts of the checkpoint, its details, and the other sets of weights in the repository.
    Counted {
        values: &'a MetricValues,
        report: &'a CountReport,
        details: Section<&'a WeightsDetails>,
        others: Section<SetRows>,
    },
    /// The values that the Hub reports, and the reason nothing was counted.
    HubReported(&'a MetricValues, &'a str),
    /// The error for a repository with several sets of weights, and the choices.
    Choice(&'a str, SetRows),
    /// An error.
    Failed(&'a str),
    /// The lookup is still in flight.
    Pending,
}

impl PageOutcome<'_> {
    /// Returns whether the page is still incomplete.
    pub(super) fn is_pending(&self) -> bool {
        matches!(
            self,
            Self::Pending
                | Self::Counted { details: Section::Pending, .. }
                | Self::Counted { others: Section::Pending, .. }
        )
    }
}

/// Returns the dtypes in descending order of size.
pub(super) fn dtype_rows(count: &ParameterCount) -> TableRows {
    let rows = count.rows().map(|(dtype, row)| TableRow::new(dtype.as_str(), row));
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|row| Reverse(row.bytes));
    TableRows::from_rows(rows.into_iter())
}

/// The details of a checkpoint. Their size is bounded for any checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct WeightsDetails {
    /// The largest modules with their stored elements.
    pub(super) modules: TableRows,
    /// The weight files, sorted by path.
    pub(super) files: TableRows,
    /// The tensors, sorted by file and data offset.
    pub(super) tensors: TableRows<TensorRow>,
}

/// A part of the page that a separate lookup fills.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Section<T> {
    Ready(T),
    /// The lookup is still in flight.
    Pending,
    /// The lookup has no result at the moment.
    Unavailable,
    /// No lookup was made: there are more than [`MAX_TENSORS`] tensors, or the user has chosen a set, so that the
    /// others are not needed.
    Omitted,
}

impl WeightsDetails {
    pub(crate) fn from_weights(weights: &Weights) -> Self {
        let files =
            weights.files().map(|(path, header)| TableRow::from_file(path.as_str(), header));
        let headers = weights.files().map(|(_, header)| header);
        let tensors = headers.flat_map(FileHeader::tensors);
        Self {
            modules: TableRows::from_rows(largest(Tree::new(weights)).into_iter()),
            files: TableRows::from_rows(files),
            tensors: TableRows::from_rows(
                tensors.map(|(name, tensor)| TensorRow::new(name, &tensor)),
            ),
        }
    }

    /// Returns the approximate size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let rows = self.modules.rows.iter().chain(&self.files.rows);
        let rows: usize = rows.map(|row| size_of::<TableRow>() + row.name.len()).sum();
        let tensor = |row: &TensorRow| size_of::<TensorRow>() + row.name.len() + row.shape.len();
        rows + self.tensors.rows.iter().map(tensor).sum::<usize>()
    }
}

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

    /// Returns the number of omitted rows.
    pub(super) fn omitted(&self) -> usize {
        self.total - self.rows.len()
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

impl SetRows {
    pub(crate) fn from_sets<'a>(sets: impl IntoIterator<Item = &'a WeightSet>) -> Self {
        let row =
            |set: &WeightSet| SetRow { path: set.path.clone(), files: set.files, bytes: set.bytes };
        Self::from_rows(sets.into_iter().map(row))
    }
}

/// Returns the largest modules in descending order of size. Together they cover all weights.
///
/// The list starts with the top level of the tree. The largest module is repeatedly replaced by its submodules, as
/// long as the list stays short enough.
fn largest(tree: Tree) -> Vec<TableRow> {
    let mut modules = tree.modules;
    while let Some(at) = largest_module(&modules) {
        let TreeContent::Modules(parts) = &modules[at].content else { break };
        if modules.len() - 1 + parts.len() > MAX_MODULES {
            break;
        }
        let name = std::mem::take(&mut modules[at].name);
        if let TreeContent::Modules(parts) = modules.swap_remove(at).content {
            modules.extend(parts.into_iter().map(|mut part| {
                part.name = format!("{name}.{}", part.name);
                part
            }));
        }
    }
    modules.sort_by_key(|module| Reverse(module.bytes));
    module_rows(&modules)
}

/// Returns the index of the largest module with submodules.
fn largest_module(modules: &[TreeModule]) -> Option<usize> {
    let has_submodules = |module: &TreeModule| matches!(module.content, TreeContent::Modules(_));
    let parents = modules.iter().enumerate().filter(|(_, module)| has_submodules(module));
    parents.max_by_key(|(_, module)| module.bytes).map(|(at, _)| at)
}

/// Returns one row per module, and a final row for all modules beyond the maximum.
fn module_rows(modules: &[TreeModule]) -> Vec<TableRow> {
    let (first, rest) = modules.split_at(modules.len().min(MAX_MODULES));
    let mut rows: Vec<_> = first.iter().map(TableRow::from_module).collect();
    if !rest.is_empty() {
        rows.push(TableRow {
            name: format!("{} more", rest.len()),
            count: rest.iter().fold(0, |sum, module| sum.saturating_add(module.elements)),
            bytes: rest.iter().fold(0, |sum, module| sum.saturating_add(module.bytes)),
        });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a module with these parts, or a tensor if there are none.
    fn module(name: &str, bytes: u64, parts: Vec<TreeModule>) -> TreeModule {
        let json = format!(
            r#"{{"{name}":{{"dtype":"U8","shape":[{bytes}],"data_offsets":[0,{bytes}]}}}}"#
        );
        let header = hf_meta::SafetensorsFileHeader::from_json(json.as_bytes()).unwrap();
        let mut module = Tree::from_headers([&header]).modules.remove(0);
        if !parts.is_empty() {
            module.content = TreeContent::Modules(parts);
        }
        module
    }

    fn largest_rows(modules: Vec<TreeModule>) -> Vec<(String, u64)> {
        let mut tree = Tree::from_headers::<hf_meta::formats::FileHeader>([]);
        tree.modules = modules;
        largest(tree).into_iter().map(|row| (row.name, row.bytes)).collect()
    }

    #[test]
    fn the_largest_module_is_replaced_by_its_submodules() {
        let attention = module("attn", 30, vec![module("q", 10, vec![]), module("k", 20, vec![])]);
        let layers = module("h", 90, vec![attention, module("mlp", 60, vec![])]);
        let rows = largest_rows(vec![module("wte", 40, vec![]), layers]);
        let expected = [("h.mlp", 60), ("wte", 40), ("h.attn.k", 20), ("h.attn.q", 10)];
        assert_eq!(rows, expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    }

    #[test]
    fn a_module_with_too_many_submodules_stays_one_row() {
        let many =
            |count| (0..count).map(|at| module(&format!("{at}"), 1, vec![])).collect::<Vec<_>>();
        let rows = largest_rows(vec![module("a", 11, many(11)), module("b", 5, vec![])]);
        assert_eq!(rows, [("a".to_owned(), 11), ("b".to_owned(), 5)]);
        let rows = largest_rows(many(14));
        assert_eq!(rows.len(), MAX_MODULES + 1);
        assert_eq!(rows.last(), Some(&("4 more".to_owned(), 4)));
        assert_eq!(largest_rows(vec![]), []);
    }
}
