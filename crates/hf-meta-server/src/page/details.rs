//! Details of a checkpoint that only the page shows: its largest modules, its files and its tensors.

use super::modules::largest;
use super::rows::{TableRow, TableRows, TensorRow};
use hf_meta::formats::FileHeader;
use hf_meta::report::Weights;
use hf_meta::report::tree::Tree;

/// The maximum number of tensors for which details are shown. A tree of modules takes a few hundred bytes per tensor.
pub(crate) const MAX_TENSORS: u64 = 250_000;

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

/// The details to show on the page.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ShownDetails<'a> {
    Read(&'a WeightsDetails),
    /// The headers are being read.
    Pending,
    /// There are more than [`MAX_TENSORS`] tensors.
    TooManyTensors,
    /// The headers cannot be read at the moment.
    Unavailable,
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
