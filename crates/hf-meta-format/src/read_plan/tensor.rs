//! A selected tensor, and its position in a file.

use std::sync::Arc;

use super::error::PlanError;
use super::options::PlanOptions;
use super::selection::SelectedPart;
use crate::formats::{Dtype, FileHeader, RepoPath, TensorInfo, clip};

/// The reason for big-endian files.
const BIG_ENDIAN: &str = "its values are big-endian";

/// A file with selected tensors.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct PlannedFile {
    /// The path in the repository or folder.
    pub path: RepoPath,
    /// The size in bytes.
    pub size: u64,
}

/// A selected tensor that cannot be read by range.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOutTensor {
    /// The name.
    pub name: Box<str>,
    /// The file.
    pub file: Arc<PlannedFile>,
    /// The reason.
    pub reason: PlanError,
}

/// A selected tensor, or some of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedTensor {
    /// The name.
    pub name: Box<str>,
    /// The type of the elements.
    pub dtype: Dtype,
    /// The shape, with the number of selected rows.
    pub shape: Vec<u64>,
    /// The file.
    pub file: Arc<PlannedFile>,
    /// The position of the first byte in the file.
    pub start: u64,
    /// The position after the last byte.
    pub end: u64,
}

crate::serialize_as_objects! {
    PlannedTensor, tensor {
        "name": &*tensor.name,
        "dtype": &tensor.dtype,
        "shape": &tensor.shape,
        "file": &tensor.file.path,
        "start": tensor.start,
        "end": tensor.end,
    }
}

impl PlannedTensor {
    /// Returns the size in bytes.
    pub fn byte_length(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Creates a tensor of a file, with all rows or some of them.
    pub(super) fn new(
        file: &Arc<PlannedFile>,
        header: &FileHeader,
        name: &str,
        tensor: &TensorInfo,
        part: SelectedPart,
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        if header.is_big_endian {
            let file = file.path.to_string();
            return Err(PlanError::UnsupportedFile { file, reason: BIG_ENDIAN });
        }
        let outside = || PlanError::OutsideFile { tensor: clip(name) };
        let (begin, end) = tensor.data_offsets;
        let (mut shape, mut span) = (tensor.shape.clone(), begin..end);
        if let SelectedPart::Rows(rows) = part {
            shape[0] = rows.end - rows.start;
            let row_bytes = row_bytes(name, tensor)?;
            let at = |row: u64| row.checked_mul(row_bytes)?.checked_add(begin);
            span = at(rows.start).ok_or_else(outside)?..at(rows.end).ok_or_else(outside)?;
        }
        let data = match &header.pickle {
            None => Some(header.header_range().end),
            Some(pickle) => {
                let unsupported = |reason| PlanError::UnsupportedTensor {
                    tensor: clip(name),
                    file: file.path.to_string(),
                    reason,
                };
                let place = pickle.places.of(tensor).map_err(unsupported)?;
                let start = place.map(|(storage, offset)| {
                    let start = options.storage_starts.of(&file.path, storage);
                    start.map_err(unsupported).map(|start| start.checked_add(offset))
                });
                let start = start.transpose()?.map_or(Some(0), |start| start);
                // The table counts offsets as if the tensors followed one another.
                span = span.start - begin..span.end - begin;
                start
            }
        };
        let data = data.ok_or_else(outside)?;
        let start = data.checked_add(span.start).ok_or_else(outside)?;
        let end = data.checked_add(span.end).ok_or_else(outside)?;
        if start > end || end > file.size {
            return Err(outside());
        }
        let (name, dtype, file) = (name.into(), tensor.dtype.clone(), Arc::clone(file));
        Ok(Self { name, dtype, shape, file, start, end })
    }

    /// Returns the size of an element in bytes; 1 if it has no whole number of bytes.
    pub(super) fn alignment(&self) -> u64 {
        self.dtype.block().filter(|block| block.elements == 1).map_or(1, |block| block.bytes)
    }

    /// Returns the file and the position, to sort by.
    pub(super) fn position(&self) -> (&PlannedFile, u64, u64) {
        (&self.file, self.start, self.end)
    }
}

/// Returns the size of a row in bytes.
fn row_bytes(name: &str, tensor: &TensorInfo) -> Result<u64, PlanError> {
    let row = TensorInfo::new(tensor.dtype.clone(), tensor.shape[1..].to_vec(), (0, 0));
    let bytes = row.elements().and_then(|elements| tensor.dtype.byte_length(elements));
    bytes.ok_or_else(|| {
        let reason = format!("of dtype {} has rows without a whole number of bytes", tensor.dtype);
        PlanError::NoSuchRows { tensor: clip(name), reason }
    })
}
