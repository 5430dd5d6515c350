//! A plan: the selected tensors, and the ranges that contain them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::error::PlanError;
use super::options::{PlanOptions, TensorOrder};
use super::ranges::{PlannedRange, ReadRange, TensorPiece, file_ranges};
use super::selection::TensorSelection;
use super::tensor::{LeftOutTensor, PlannedFile, PlannedTensor};
use crate::formats::{FileHeader, RepoPath, clip};

/// The ranges that contain the selected tensors of a checkpoint.
///
/// Serializes to `ranges` with `file`, `start`, `end` (exclusive) and the names of the `tensors`, and `tensors` with their
/// dtypes, shapes and positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadPlan {
    /// The ranges, in the order of the tensors.
    pub ranges: Vec<ReadRange>,
    /// The selected tensors, in the order of their data.
    pub tensors: Vec<PlannedTensor>,
    /// The value of `format` in the metadata of all files, if they agree.
    pub format: Option<String>,
    /// The selected tensors that cannot be read by range, if the options [leave them out](PlanOptions::leave_out).
    pub left_out: Vec<LeftOutTensor>,
}

crate::serialize_as_objects! {
    ReadPlan, plan {
        "ranges": plan.planned_ranges(),
        "tensors": &plan.tensors,
        "tensorBytes": plan.tensor_bytes(),
        "bytesToRead": plan.bytes_to_read(),
    }
}

impl ReadPlan {
    /// Plans the ranges for the selected tensors of files.
    ///
    /// # Errors
    ///
    /// Returns an error if a pattern matches no tensor, if rows do not exist or are not contiguous, or if a selected
    /// tensor cannot be read by range: big-endian ones, and those of PyTorch files whose elements are not in their order or
    /// shared. Zipped PyTorch files need [`local_headers`](Self::local_headers).
    pub fn new<'a>(
        files: impl IntoIterator<Item = (RepoPath, &'a FileHeader)>,
        selection: &TensorSelection,
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        let (mut matcher, mut tensors) = (selection.matcher()?, Vec::new());
        let (mut format, mut aliases, mut left_out) = (None, Vec::new(), Vec::new());
        for (path, header) in files {
            let file = Arc::new(PlannedFile { path, size: header.file_size() });
            let first = tensors.len();
            aliases.extend(header.pickle.iter().flat_map(|pickle| pickle.aliases()));
            header.tensors().try_for_each(|name, tensor| {
                let Some(part) = matcher.select(name, tensor)? else { return Ok(()) };
                match PlannedTensor::new(&file, header, name, tensor, part, options) {
                    Ok(tensor) => tensors.push(tensor),
                    Err(reason) if options.leave_out && reason.is_about_one_tensor() => {
                        let (name, file) = (name.into(), Arc::clone(&file));
                        left_out.push(LeftOutTensor { name, file, reason });
                    }
                    Err(reason) => return Err(reason),
                }
                Ok(())
            })?;
            if tensors.len() > first {
                let found = header.metadata().and_then(|metadata| metadata.get("format"));
                let known = if first == 0 { found.cloned() } else { format };
                format = known.filter(|known| found == Some(known));
            }
        }
        matcher.finish(&aliases)?;
        if tensors.is_empty() && left_out.is_empty() {
            return Err(PlanError::Empty);
        }
        tensors.sort_by(|one, other| one.position().cmp(&other.position()));
        check(&tensors)?;
        if options.order == TensorOrder::Alignment {
            // A stable sort: the tensors of a size keep their order.
            tensors.sort_by_key(|tensor| Reverse(tensor.alignment()));
        }
        let ranges = file_ranges(&tensors, options)?;
        Ok(Self { ranges, tensors, format, left_out })
    }

    /// Plans parts of these tensors: for each, the index of its tensor and a range of the tensor's data, sorted. The parts
    /// become the tensors of the plan, without shapes.
    ///
    /// # Errors
    ///
    /// Returns an error if a part is not inside its tensor.
    pub fn parts(
        &self,
        parts: &[(usize, Range<u64>)],
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        let part = |(at, range): &(usize, Range<u64>)| {
            let tensor = self.tensors.get(*at)?;
            let [start, end] = [range.start, range.end].map(|at| tensor.start.checked_add(at));
            let (start, end) = (start?, end?);
            let is_inside = start <= end && end <= tensor.end;
            let shape = Vec::new();
            is_inside.then(|| PlannedTensor { shape, start, end, ..tensor.clone() })
        };
        let outside = || PlanError::OutsideFile { tensor: "part".to_owned() };
        let parts = parts.iter().map(|range| part(range).ok_or_else(outside));
        let tensors = parts.collect::<Result<Vec<_>, _>>()?;
        let ranges = file_ranges(&tensors, options)?;
        Ok(Self { ranges, tensors, ..Self::default() })
    }

    /// Returns the size of the selected tensors in bytes.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.iter().map(PlannedTensor::byte_length).fold(0, u64::saturating_add)
    }

    /// Returns the number of bytes in all ranges.
    pub fn bytes_to_read(&self) -> u64 {
        self.ranges.iter().map(ReadRange::byte_length).fold(0, u64::saturating_add)
    }

    fn planned_ranges(&self) -> Vec<PlannedRange<'_>> {
        let tensors = &self.tensors[..];
        self.ranges.iter().map(|range| PlannedRange { range, tensors }).collect()
    }

    /// Returns the bytes of each tensor in a range, in the order of the tensors. Bytes between tensors belong to none.
    pub fn pieces<'a>(&'a self, range: &'a ReadRange) -> impl Iterator<Item = TensorPiece> + 'a {
        let indexes = range.tensors.clone();
        let tensors = self.tensors.get(indexes.clone()).unwrap_or_default();
        indexes.zip(tensors).filter(|(_, tensor)| range.overlaps(tensor)).map(|(at, tensor)| {
            let (start, end) = (tensor.start.max(range.start), tensor.end.min(range.end));
            let index =
                |position: u64| usize::try_from(position - range.start).unwrap_or(usize::MAX);
            TensorPiece {
                tensor: at,
                offset: start - tensor.start,
                bytes: index(start)..index(end),
            }
        })
    }
}

/// Checks that no name occurs twice, and that no data overlaps.
fn check(tensors: &[PlannedTensor]) -> Result<(), PlanError> {
    let mut names = HashMap::with_capacity(tensors.len());
    for tensor in tensors {
        if let Some(first) = names.insert(&*tensor.name, &tensor.file) {
            let [first, second] = [first, &tensor.file].map(|file| file.path.to_string());
            return Err(PlanError::Duplicate { tensor: clip(&tensor.name), first, second });
        }
    }
    // Tensors of other files, and empty ones, overlap none.
    let mut data = tensors.iter().filter(|tensor| tensor.start < tensor.end);
    let Some(mut before) = data.next() else { return Ok(()) };
    for tensor in data {
        if tensor.file == before.file && tensor.start < before.end {
            let file = tensor.file.path.to_string();
            return Err(PlanError::Overlap { tensor: clip(&tensor.name), file });
        }
        before = tensor;
    }
    Ok(())
}
