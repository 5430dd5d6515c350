//! Ranges of files: neighbors are joined, and long ranges are split.

use std::ops::Range;
use std::sync::Arc;

use super::error::PlanError;
use super::options::PlanOptions;
use super::tensor::{PlannedFile, PlannedTensor};

/// The maximum number of ranges of a plan: 16 TiB in ranges of 8 MiB. A header may claim any size.
const MAX_RANGES: usize = 1 << 21;

/// A range of a file to read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadRange {
    /// The file.
    pub file: Arc<PlannedFile>,
    /// The position of the first byte.
    pub start: u64,
    /// The position after the last byte.
    pub end: u64,
    /// The indexes of the tensors with bytes in the range, in [`ReadPlan::tensors`](super::ReadPlan::tensors).
    pub tensors: Range<usize>,
}

/// Bytes of one tensor in a range.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorPiece {
    /// The index of the tensor in [`ReadPlan::tensors`](super::ReadPlan::tensors).
    pub tensor: usize,
    /// The position of the bytes in the data of the tensor.
    pub offset: u64,
    /// The position of the bytes in the range.
    pub bytes: Range<usize>,
}

/// The JSON form of a range.
pub(super) struct PlannedRange<'a> {
    pub(super) range: &'a ReadRange,
    pub(super) tensors: &'a [PlannedTensor],
}

crate::serialize_as_objects! {
    PlannedRange<'_>, document {
        "file": &document.range.file.path,
        "start": document.range.start,
        "end": document.range.end,
        "tensors": document.names(),
    }
}

impl<'a> PlannedRange<'a> {
    fn names(&self) -> Vec<&'a str> {
        let tensors = &self.tensors[self.range.tensors.clone()];
        tensors
            .iter()
            .filter(|tensor| self.range.overlaps(tensor))
            .map(|tensor| &*tensor.name)
            .collect()
    }
}

impl ReadRange {
    /// Returns the number of bytes.
    pub fn byte_length(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    pub(super) fn overlaps(&self, tensor: &PlannedTensor) -> bool {
        tensor.start.max(self.start) < tensor.end.min(self.end)
    }
}

/// Returns the ranges that contain the tensors, in their order.
pub(super) fn file_ranges(
    tensors: &[PlannedTensor],
    options: &PlanOptions,
) -> Result<Vec<ReadRange>, PlanError> {
    // A gap that is longer than half a range could fill one.
    let max_gap = options.max_gap.min(options.max_range / 2);
    let mut ranges = Vec::new();
    let mut current: Option<ReadRange> = None;
    for (at, tensor) in tensors.iter().enumerate().filter(|(_, tensor)| tensor.start < tensor.end) {
        if let Some(range) = &mut current
            && *range.file == *tensor.file
            && tensor.start >= range.end
            && tensor.start - range.end <= max_gap
        {
            (range.end, range.tensors.end) = (tensor.end, at + 1);
            continue;
        }
        let (file, tensors_of) = (Arc::clone(&tensor.file), at..at + 1);
        let next = ReadRange { file, start: tensor.start, end: tensor.end, tensors: tensors_of };
        if let Some(range) = current.replace(next) {
            split(&mut ranges, tensors, &range, options.max_range)?;
        }
    }
    if let Some(range) = current {
        split(&mut ranges, tensors, &range, options.max_range)?;
    }
    Ok(ranges)
}

/// Adds a range, in equal parts of at most `max_range` bytes.
fn split(
    ranges: &mut Vec<ReadRange>,
    tensors: &[PlannedTensor],
    range: &ReadRange,
    max_range: u64,
) -> Result<(), PlanError> {
    let too_many = PlanError::TooMany { limit: MAX_RANGES, items: "ranges" };
    let parts = range.byte_length().div_ceil(max_range);
    let has_room = |parts: &usize| ranges.len().saturating_add(*parts) <= MAX_RANGES;
    usize::try_from(parts).ok().filter(has_room).ok_or(too_many)?;
    let length = range.byte_length().div_ceil(parts);
    let (mut start, mut first) = (range.start, range.tensors.start);
    while start < range.end {
        let end = start.saturating_add(length).min(range.end);
        // Tensors are in the order of their data, so those of a part follow each other. An empty one between them may
        // belong to another file.
        let is_empty = |at: usize| tensors[at].start >= tensors[at].end;
        while is_empty(first) || tensors[first].end <= start {
            first += 1;
        }
        let later = (first + 1..range.tensors.end).filter(|at| !is_empty(*at));
        let last = later.take_while(|at| tensors[*at].start < end).last().unwrap_or(first);
        ranges.push(ReadRange {
            file: Arc::clone(&range.file),
            start,
            end,
            tensors: first..last + 1,
        });
        start = end;
    }
    Ok(())
}
