//! The tensors of one file.

use std::ops::Range;

use super::names::{NameList, Names};
use super::records::Records;
use super::spans::{SpanError, data_length};
use super::{HeaderError, TensorInfo, clip};

/// The tensors of one file, in the order of its header.
///
/// Names and tensors are stored packed: a file may list half a million tensors.
/// [`iter`](Self::iter) and [`get`](Self::get) build a [`TensorInfo`] for each tensor that they return;
/// [`for_each`](Self::for_each) reuses one.
///
/// ```
/// use hf_meta::SafetensorsFileHeader;
///
/// let json = br#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
/// let header = SafetensorsFileHeader::from_json(json)?;
/// let tensors = header.tensors();
/// assert_eq!(tensors.len(), 1);
/// assert_eq!(tensors.get("w").unwrap().shape, [2, 3]);
/// for (name, tensor) in tensors {
///     println!("{name}: {} of {:?}", tensor.dtype, tensor.shape);
/// }
/// # Ok::<(), hf_meta::formats::HeaderError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorTable {
    names: Names,
    records: Records,
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

    /// Returns every tensor with its name, in the order of the file.
    #[must_use]
    pub fn iter(&self) -> TensorTableIter<'_> {
        TensorTableIter { table: self, rest: 0..self.len() }
    }

    /// Returns the tensor of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<TensorInfo> {
        self.names.position(name).map(|at| self.records.get(at))
    }

    /// Returns the names of the tensors, in the order of the file.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.iter()
    }

    /// Calls a function with every tensor, in the order of the file.
    ///
    /// All calls get the same [`TensorInfo`] with new values, so no memory is allocated per tensor.
    pub fn for_each(&self, mut function: impl FnMut(&str, &TensorInfo)) {
        let visited = self.try_for_each(|name, tensor| {
            function(name, tensor);
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(()) = visited;
    }

    /// Calls a function with every tensor, as [`for_each`](Self::for_each), until it fails.
    ///
    /// # Errors
    ///
    /// Returns the first error of the function.
    pub fn try_for_each<E>(
        &self,
        mut function: impl FnMut(&str, &TensorInfo) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut tensor = TensorInfo::EMPTY;
        let mut records = self.records.reader();
        self.names.iter().try_for_each(|name| {
            records.read_into(&mut tensor);
            function(name, &tensor)
        })
    }
}

impl TensorTable {
    /// Returns the memory of the table, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.names.memory() + self.records.memory()
    }

    /// Checks that the data of the tensors has no holes and overlaps, and returns its length in bytes.
    fn data_length(&self) -> Result<u64, HeaderError> {
        let mut spans = Vec::with_capacity(self.len());
        self.for_each(|_, tensor| spans.push(tensor.data_offsets));
        let tensor = |at| clip(self.names.get(at));
        data_length(&spans).map_err(|error| match error {
            SpanError::Hole { at, begin, expected } => {
                HeaderError::Hole { tensor: tensor(at), begin, expected }
            }
            SpanError::Overlap { at, begin, expected } => {
                HeaderError::Overlap { tensor: tensor(at), begin, expected }
            }
        })
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

/// A [`TensorTable`] under construction, which checks each tensor.
#[derive(Debug)]
pub(super) struct TensorTableBuilder {
    names: NameList,
    records: Records,
    /// The end of the last tensor's data, as long as the data of every tensor begins where that of the one
    /// before it ends. Most writers list tensors in the order of their data, and then nothing is sorted.
    data_end: Option<u64>,
    /// The error of the first invalid tensor. It is returned by `finish` only: a text that is not JSON has
    /// no tensors, and a duplicate name explains most other errors.
    error: Option<HeaderError>,
}

impl TensorTableBuilder {
    /// Creates a builder with memory for about as many tensors as a header of `length` bytes has.
    pub(super) fn for_header(length: usize) -> Self {
        // Most writers take 110 to 140 bytes per tensor, of which the name has 30 to 60.
        let tensors = length / 128;
        Self {
            names: NameList::with_capacity(tensors, length / 3),
            records: Records::with_capacity(tensors, length / 8),
            data_end: Some(0),
            error: None,
        }
    }

    /// Adds a tensor. All names together must not be longer than
    /// [`LONGEST`](super::names::LONGEST) bytes.
    pub(super) fn push(&mut self, name: &str, tensor: &TensorInfo) {
        self.names.push(name);
        if self.error.is_none() {
            let (begin, end) = tensor.data_offsets;
            self.data_end = self.data_end.filter(|expected| *expected == begin).map(|_| end);
            match tensor.check(name) {
                Ok(()) => self.records.push(tensor),
                Err(error) => self.error = Some(error),
            }
        }
    }

    /// Returns the table, and the length of the tensors' data in bytes.
    ///
    /// # Errors
    ///
    /// Returns the first broken rule: a duplicate name, an invalid tensor, a hole or an overlap in the data.
    pub(super) fn finish(self) -> Result<(TensorTable, u64), HeaderError> {
        let Self { names, mut records, data_end, error } = self;
        let names = names.into_names();
        let names = names.map_err(|tensor| HeaderError::DuplicateTensor { tensor })?;
        error.map_or(Ok(()), Err)?;
        records.shrink_to_fit();
        let table = TensorTable { names, records };
        let data_length = data_end.map_or_else(|| table.data_length(), Ok)?;
        Ok((table, data_length))
    }
}
