//! Tensor tables.

use std::ops::Range;

use super::names::{NameList, Names};
use super::records::Records;
use super::{HeaderError, HeaderErrorKind, TensorInfo};

/// The tensors in a file, in header order.
///
/// Names and tensors are stored in a packed form, because a file may list half a million tensors.
/// [`iter`](Self::iter) and [`get`](Self::get) build a new [`TensorInfo`] for each tensor;
/// [`for_each`](Self::for_each) reuses a single one.
///
/// ```
/// use hf_meta_format::SafetensorsFileHeader;
///
/// let json = br#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
/// let header = SafetensorsFileHeader::from_json(json)?;
/// let tensors = header.tensors();
/// assert_eq!(tensors.len(), 1);
/// assert_eq!(tensors.get("w").unwrap().shape, [2, 3]);
/// for (name, tensor) in tensors {
///     println!("{name}: {} of {:?}", tensor.dtype, tensor.shape);
/// }
/// # Ok::<(), hf_meta_format::formats::HeaderError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorTable {
    names: Names,
    records: Records,
    data_length: u64,
}

impl TensorTable {
    /// Returns the number of tensors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether the file has no tensors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an iterator over the tensors and their names, in file order.
    #[must_use]
    pub fn iter(&self) -> TensorTableIter<'_> {
        TensorTableIter { table: self, rest: 0..self.len() }
    }

    /// Returns the tensor with this name, or `None` if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<TensorInfo> {
        self.names.index_of(name).map(|at| self.records.get(at))
    }

    /// Returns the names of the tensors, in file order.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.iter()
    }

    /// Calls `function` with every tensor and its name, in file order.
    ///
    /// The same [`TensorInfo`] is reused for all calls, so no memory is allocated per tensor.
    pub fn for_each(&self, mut function: impl FnMut(&str, &TensorInfo)) {
        let visited = self.try_for_each(|name, tensor| {
            function(name, tensor);
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(()) = visited;
    }

    /// Like [`for_each`](Self::for_each), but stops at the first error.
    ///
    /// # Errors
    ///
    /// Returns the first error returned by `function`.
    pub fn try_for_each<E>(
        &self,
        mut function: impl FnMut(&str, &TensorInfo) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut tensor = TensorInfo::EMPTY;
        let mut records = self.records.reader();
        self.names.iter().try_for_each(|name| {
            records.read_tensor(&mut tensor);
            function(name, &tensor)
        })
    }
}

impl TensorTable {
    /// Returns the memory use of the table in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.names.memory() + self.records.memory()
    }

    /// Returns the size of the tensor data, in bytes.
    pub(super) fn data_length(&self) -> u64 {
        self.data_length
    }

    /// Checks that the tensors' data has no holes or overlaps, and returns its length in bytes.
    fn check_data(&self, alignment: u64) -> Result<u64, HeaderError> {
        let mut spans = Vec::with_capacity(self.len());
        self.for_each(|_, tensor| spans.push(tensor.data_offsets));
        data_length(&spans, alignment, |at| self.names.get(at).to_owned())
    }
}

impl<'a> IntoIterator for &'a TensorTable {
    type Item = (&'a str, TensorInfo);
    type IntoIter = TensorTableIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// An iterator over the tensors of a [`TensorTable`], created by [`TensorTable::iter`].
#[derive(Clone, Debug)]
pub struct TensorTableIter<'a> {
    table: &'a TensorTable,
    rest: Range<usize>,
}

impl<'a> Iterator for TensorTableIter<'a> {
    type Item = (&'a str, TensorInfo);

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.rest.next()?;
        Some((self.table.names.get(at), self.table.records.get(at)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rest.size_hint()
    }
}

impl ExactSizeIterator for TensorTableIter<'_> {}

/// A builder for a [`TensorTable`] that validates each tensor.
///
/// ```
/// use hf_meta_format::formats::{TensorInfo, TensorTableBuilder};
/// use hf_meta_format::Dtype;
///
/// let mut builder = TensorTableBuilder::new();
/// builder.push("w", &TensorInfo::new(Dtype::F32, vec![2, 3], (0, 24)));
/// assert_eq!(builder.finish()?.len(), 1);
/// # Ok::<(), hf_meta_format::formats::HeaderError>(())
/// ```
#[derive(Debug)]
pub struct TensorTableBuilder {
    names: NameList,
    records: Records,
    /// The alignment of each tensor's data in bytes.
    alignment: u64,
    /// The end of the last tensor's data; `None` once a tensor's data has not started where the previous tensor's
    /// ended. Most writers list tensors in data order, so no sort is needed.
    data_end: Option<u64>,
    /// The error of the first invalid tensor. Only `finish` returns it, because invalid JSON and duplicate names take
    /// precedence.
    error: Option<HeaderError>,
}

impl Default for TensorTableBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl TensorTableBuilder {
    /// Creates a builder for tensors whose data is contiguous, without padding.
    #[must_use]
    pub fn new() -> Self {
        Self::for_header(0)
    }

    /// Creates a builder with capacity for a typical header of `length` bytes.
    pub(super) fn for_header(length: usize) -> Self {
        // Most writers use 110 to 140 bytes per tensor, of which 30 to 60 are the name.
        let tensors = length / 128;
        Self {
            names: NameList::with_capacity(tensors, length / 3),
            records: Records::with_capacity(tensors, length / 8),
            alignment: 1,
            data_end: Some(0),
            error: None,
        }
    }

    /// Sets the alignment of tensor data, in bytes: each tensor's data must begin at the first multiple of it after
    /// the preceding data.
    #[must_use]
    pub fn with_alignment(self, alignment: u64) -> Self {
        Self { alignment: alignment.max(1), ..self }
    }

    /// Adds a tensor. If it is invalid, [`finish`](Self::finish) returns the error.
    pub fn push(&mut self, name: &str, tensor: &TensorInfo) {
        if !self.names.has_room_for(name.len()) || !self.records.has_room() {
            self.error.get_or_insert_with(|| HeaderError::overflow(name));
            return;
        }
        self.names.push(name);
        if self.error.is_none() {
            let (begin, end) = tensor.data_offsets;
            let is_next =
                |before: &u64| before.checked_next_multiple_of(self.alignment) == Some(begin);
            self.data_end = self.data_end.filter(is_next).map(|_| end);
            match tensor.check(name) {
                Ok(()) => self.records.push(tensor),
                Err(error) => self.error = Some(error),
            }
        }
    }

    /// Builds the table.
    ///
    /// # Errors
    ///
    /// Returns the first violated rule: a duplicate name, an invalid tensor, or a gap or overlap in the data.
    pub fn finish(self) -> Result<TensorTable, HeaderError> {
        let Self { names, mut records, alignment, data_end, error } = self;
        let names = names.into_names();
        let names = names.map_err(|name| {
            let rule = "appears twice in the header";
            HeaderError::of_tensor(HeaderErrorKind::DuplicateTensor, &name, rule)
        })?;
        error.map_or(Ok(()), Err)?;
        records.shrink_to_fit();
        let table = TensorTable { names, records, data_length: 0 };
        let data_length = data_end.map_or_else(|| table.check_data(alignment), Ok)?;
        Ok(TensorTable { data_length, ..table })
    }
}

/// Returns the length of the data in bytes. `spans` contains the start and end of each tensor, in any order. Each
/// must start at the first multiple of `alignment` after the end of the previous one.
///
/// # Errors
///
/// Returns the first hole or overlap.
fn data_length(
    spans: &[(u64, u64)],
    alignment: u64,
    name: impl Fn(usize) -> String,
) -> Result<u64, HeaderError> {
    #[expect(clippy::cast_possible_truncation, reason = "fewer spans than bytes of names")]
    let mut order: Vec<u32> = (0..spans.len() as u32).collect();
    order.sort_by_key(|&at| spans[at as usize]);
    order.into_iter().try_fold(0_u64, |expected, at| {
        let at = at as usize;
        let (begin, end) = spans[at];
        let expected = expected.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        if begin == expected {
            Ok(end)
        } else {
            Err(HeaderError::misplaced(&name(at), begin, expected))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Dtype;

    #[test]
    fn a_table_reports_its_length_and_memory() {
        let mut builder = TensorTableBuilder::new();
        for (name, at) in ["a", "b", "c"].into_iter().zip(0..) {
            builder.push(name, &TensorInfo::new(Dtype::U8, vec![1], (at, at + 1)));
        }
        let table = builder.finish().unwrap();
        let mut tensors = table.iter();
        assert_eq!(tensors.size_hint(), (3, Some(3)));
        tensors.next();
        assert_eq!(tensors.len(), 2);
        let (names, records) = (table.names.memory(), table.records.memory());
        assert!(names > 0 && table.memory() > records && records > 0 && table.memory() > names);
    }

    fn length(spans: &[(u64, u64)], alignment: u64) -> Result<u64, HeaderError> {
        data_length(spans, alignment, |at| at.to_string())
    }

    #[test]
    fn spans_may_be_listed_in_any_order() {
        let cases: [(&[(u64, u64)], u64); 6] = [
            (&[], 0),
            (&[(0, 0)], 0),
            (&[(0, 4), (4, 6)], 6),
            (&[(4, 6), (0, 4)], 6),
            // Empty tensors can be anywhere in the list.
            (&[(0, 4), (4, 6), (4, 4), (0, 0), (6, 6)], 6),
            (&[(4, 4), (0, 4)], 4),
        ];
        for (spans, end) in cases {
            assert_eq!(length(spans, 1), Ok(end), "{spans:?}");
        }
    }

    #[test]
    fn holes_and_overlaps_are_errors() {
        assert_eq!(length(&[(1, 2)], 1), Err(HeaderError::misplaced("0", 1, 0)));
        assert_eq!(length(&[(5, 6), (0, 4)], 1), Err(HeaderError::misplaced("0", 5, 4)));
        assert_eq!(length(&[(0, 4), (3, 6)], 1), Err(HeaderError::misplaced("1", 3, 4)));
        assert_eq!(length(&[(0, 4), (2, 2)], 1), Err(HeaderError::misplaced("1", 2, 4)));
    }

    #[test]
    fn each_span_begins_at_a_multiple_of_the_alignment() {
        assert_eq!(length(&[(32, 40), (0, 4)], 32), Ok(40));
        let hole = HeaderError::misplaced("1", 64, 32);
        assert_eq!(length(&[(0, 4), (64, 65)], 32), Err(hole));
        let overlap = HeaderError::misplaced("1", 16, 32);
        assert_eq!(length(&[(0, 4), (16, 20)], 32), Err(overlap));
    }
}
