//! The tensors of one file.

use std::ops::Range;

use super::TensorInfo;
use super::names::Names;
use super::records::Records;

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
    /// Creates a table from as many records as names, in the same order.
    pub(super) fn new(names: Names, mut records: Records) -> Self {
        records.shrink_to_fit();
        Self { names, records }
    }

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
