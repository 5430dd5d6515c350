//! Tensors, and tables of them in a compact binary form.

use serde::{Serialize, Serializer};

use super::names::{NameList, Names};
use super::{Dtype, HeaderError, HeaderErrorKind};

/// The dtype, shape and data offsets of one tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TensorInfo {
    /// The type of the elements.
    pub dtype: Dtype,
    /// The size of each dimension; empty for a scalar.
    pub shape: Vec<u64>,
    /// The start and end offsets of the tensor's data, in bytes. The end is exclusive. Offsets are relative to the
    /// start of the data section, not of the file.
    pub data_offsets: (u64, u64),
}

impl TensorInfo {
    /// Creates an entry. The offsets are not validated; see [`TensorTableBuilder`](super::TensorTableBuilder).
    pub fn new(dtype: Dtype, shape: Vec<u64>, data_offsets: (u64, u64)) -> Self {
        Self { dtype, shape, data_offsets }
    }

    /// A placeholder that parsers overwrite, to reuse its memory.
    #[doc(hidden)]
    pub const EMPTY: Self = Self { dtype: Dtype::U8, shape: Vec::new(), data_offsets: (0, 0) };

    /// Returns the number of elements: 1 for a scalar, 0 if a dimension is 0, or `None` if it overflows 64 bits.
    pub fn elements(&self) -> Option<u64> {
        // With a dimension of 0 the product is 0, even if other dimensions overflow.
        product(&self.shape).or_else(|| self.shape.contains(&0).then_some(0))
    }

    /// Returns the size of the tensor's data in bytes, according to its offsets.
    pub fn byte_length(&self) -> u64 {
        self.data_offsets.1.saturating_sub(self.data_offsets.0)
    }

    /// Returns whether the tensor is a scalar, with shape `[]`.
    pub fn is_scalar(&self) -> bool {
        self.shape.is_empty()
    }

    /// Checks that shape and dtype agree with the data offsets.
    ///
    /// The width of an unknown dtype is unknown, too. Each element must have at least one bit, so that no count is
    /// larger than its file allows.
    pub(super) fn check(&self, name: &str) -> Result<(), HeaderError> {
        let (begin, end) = self.data_offsets;
        let Some(found) = end.checked_sub(begin) else {
            let rule = format!("ends at byte {end}, before it begins at byte {begin}");
            return Err(HeaderError::of_tensor(HeaderErrorKind::ReversedOffsets, name, rule));
        };
        let overflow = || HeaderError::overflow(name);
        let elements = self.elements().ok_or_else(overflow)?;
        let invalid = |kind, rule: String| {
            let rule = format!("has {elements} elements of {}, {rule}", self.dtype);
            Err(HeaderError::of_tensor(kind, name, rule))
        };
        let Some(block) = self.dtype.block() else {
            // An unknown dtype has at least one bit per element.
            if elements.div_ceil(8) <= found {
                return Ok(());
            }
            return invalid(
                HeaderErrorKind::TooManyElements,
                format!("too many for its {found} bytes"),
            );
        };
        let bits = (elements / block.elements).checked_mul(block.bytes * 8);
        let bytes = bits.ok_or_else(overflow)? / 8;
        if !elements.is_multiple_of(block.elements) {
            let rule = "which is not a whole number of bytes".to_owned();
            return invalid(HeaderErrorKind::PartialBlock, rule);
        }
        if bytes != found {
            let rule = format!("which is {bytes} bytes, but spans {found} bytes");
            return invalid(HeaderErrorKind::SizeMismatch, rule);
        }
        Ok(())
    }
}

/// Returns a product; `None` if it does not fit in 64 bits.
pub fn product(factors: &[u64]) -> Option<u64> {
    factors.iter().try_fold(1_u64, |product, &factor| product.checked_mul(factor))
}

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
    packed: Vec<u8>,
    /// The offset of each tensor in `packed`.
    starts: Vec<u32>,
    data_length: u64,
}

impl TensorTable {
    /// Returns the number of tensors.
    pub fn len(&self) -> usize {
        self.names.list.len()
    }

    /// Returns whether the file has no tensors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an iterator over the tensors and their names, in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, TensorInfo)> {
        self.names.list.iter().zip(&self.starts).map(|(name, start)| (name, self.tensor(*start)))
    }

    /// Returns the tensor with this name, or `None` if there is none.
    pub fn get(&self, name: &str) -> Option<TensorInfo> {
        self.names.index_of(name).map(|at| self.tensor(self.starts[at as usize]))
    }

    /// Returns the names of the tensors, in file order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.list.iter()
    }

    /// Calls `function` with every tensor and its name, in file order.
    ///
    /// The same [`TensorInfo`] is reused for all calls, so no memory is allocated per tensor.
    pub fn for_each(&self, mut function: impl FnMut(&str, &TensorInfo)) {
        let Ok(()) = self.try_for_each(|name, tensor| {
            function(name, tensor);
            Ok::<_, std::convert::Infallible>(())
        });
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
        let mut rest = &self.packed[..];
        self.names.list.iter().try_for_each(|name| {
            read_tensor(&mut rest, &mut tensor);
            function(name, &tensor)
        })
    }

    /// Returns the memory use of the table in bytes.
    pub fn memory(&self) -> usize {
        self.names.memory() + self.packed.len() + self.starts.len() * size_of::<u32>()
    }

    fn tensor(&self, start: u32) -> TensorInfo {
        let mut tensor = TensorInfo::EMPTY;
        read_tensor(&mut &self.packed[start as usize..], &mut tensor);
        tensor
    }

    /// Returns the size of the tensor data, in bytes.
    pub(super) fn data_length(&self) -> u64 {
        self.data_length
    }

    /// Checks that the tensors' data has no holes or overlaps, and returns its length in bytes.
    fn check_data(&self) -> Result<u64, HeaderError> {
        let mut spans = Vec::with_capacity(self.len());
        self.for_each(|_, tensor| spans.push((tensor.data_offsets, spans.len())));
        spans.sort_unstable();
        spans.into_iter().try_fold(0, |expected, ((begin, end), at)| {
            if begin == expected {
                Ok(end)
            } else {
                Err(HeaderError::misplaced(self.names.list.get(at), begin, expected))
            }
        })
    }
}

impl Serialize for TensorTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'a> IntoIterator for &'a TensorTable {
    type Item = (&'a str, TensorInfo);
    type IntoIter = Box<dyn ExactSizeIterator<Item = Self::Item> + Send + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

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
#[derive(Debug, Default)]
pub struct TensorTableBuilder {
    names: NameList,
    packed: Vec<u8>,
    starts: Vec<u32>,
    /// The alignment of each tensor's data in bytes, if tensors must be listed in data order.
    alignment: Option<u64>,
    /// The end of the last tensor's data.
    data_end: u64,
    /// True if the data of a tensor does not begin where the data before it ends. Most writers list tensors in data
    /// order, so no sort is needed.
    is_unordered: bool,
    /// The error of the first invalid tensor. Only `finish` returns it, because invalid JSON and duplicate names take
    /// precedence.
    error: Option<HeaderError>,
}

impl TensorTableBuilder {
    /// Creates a builder for tensors whose data is contiguous, without padding.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a builder with capacity for a typical header of `length` bytes.
    pub(super) fn for_header(length: usize) -> Self {
        // Most writers use 110 to 140 bytes per tensor, of which 30 to 60 are the name.
        let tensors = length / 128;
        Self {
            names: NameList::with_capacity(tensors, length / 3),
            packed: Vec::with_capacity(length / 8),
            starts: Vec::with_capacity(tensors),
            ..Self::default()
        }
    }

    /// Creates a builder for tensors that are listed in data order: the data of each must begin at the first multiple of
    /// `alignment` bytes after the data before it.
    pub(super) fn in_data_order(alignment: u64) -> Self {
        Self { alignment: Some(alignment), ..Self::default() }
    }

    /// Adds a tensor. If it is invalid, [`finish`](Self::finish) returns the error.
    pub fn push(&mut self, name: &str, tensor: &TensorInfo) {
        // Offsets have 32 bits.
        let start = match u32::try_from(self.packed.len()) {
            Ok(start) if self.names.has_room_for(name.len()) => start,
            _ => {
                self.error.get_or_insert_with(|| HeaderError::overflow(name));
                return;
            }
        };
        self.names.push(name);
        if self.error.is_none() {
            self.error = self.check_order(name, tensor).and_then(|()| tensor.check(name)).err();
            self.starts.push(start);
            push_tensor(&mut self.packed, tensor);
        }
    }

    /// Checks whether the data of a tensor begins where the data before it ends.
    fn check_order(&mut self, name: &str, tensor: &TensorInfo) -> Result<(), HeaderError> {
        let (begin, end) = tensor.data_offsets;
        let alignment = self.alignment.unwrap_or(1);
        let expected = self.data_end.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        self.data_end = end;
        self.is_unordered |= begin != expected;
        if begin != expected && self.alignment.is_some() {
            return Err(HeaderError::misplaced(name, begin, expected));
        }
        Ok(())
    }

    /// Builds the table.
    ///
    /// # Errors
    ///
    /// Returns the first violated rule: a duplicate name, an invalid tensor, or a gap or overlap in the data.
    pub fn finish(self) -> Result<TensorTable, HeaderError> {
        let Self { names, mut packed, mut starts, data_end, is_unordered, error, .. } = self;
        let names = names.into_names("header")?;
        error.map_or(Ok(()), Err)?;
        packed.shrink_to_fit();
        starts.shrink_to_fit();
        let table = TensorTable { names, packed, starts, data_length: 0 };
        let data_length = if is_unordered { table.check_data()? } else { data_end };
        Ok(TensorTable { data_length, ..table })
    }
}

/// The tag of an unknown dtype, which is followed by its name.
const OTHER: u8 = u8::MAX;

/// Appends a tensor in a compact form: its dtype, its rank, its dimensions, and the start and length of its data.
///
/// All numbers are LEB128, with seven bits per byte, and so never longer than their decimal digits: any header takes less
/// memory than its JSON. With a `Vec` per shape, a hostile header could take many times more.
fn push_tensor(packed: &mut Vec<u8>, tensor: &TensorInfo) {
    push_layout(packed, tensor);
    push_number(packed, tensor.data_offsets.0);
    push_number(packed, tensor.byte_length());
}

/// Appends the dtype and the shape of a tensor.
pub fn push_layout(packed: &mut Vec<u8>, tensor: &TensorInfo) {
    packed.push(tensor.dtype.rank().unwrap_or(OTHER));
    if let Dtype::Other(_) = &tensor.dtype {
        let name = tensor.dtype.as_str().as_bytes();
        push_number(packed, name.len() as u64);
        packed.extend_from_slice(name);
    }
    push_number(packed, tensor.shape.len() as u64);
    for &length in &tensor.shape {
        push_number(packed, length);
    }
}

/// Appends a number.
pub fn push_number(packed: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        packed.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    packed.push(number.to_le_bytes()[0]);
}

/// Takes a tensor from the start of `rest`, and reuses the memory of its shape.
fn read_tensor(rest: &mut &[u8], tensor: &mut TensorInfo) {
    read_layout(rest, tensor);
    let begin = read_number(rest);
    tensor.data_offsets = (begin, begin + read_number(rest));
}

/// Takes a dtype and a shape from the start of `rest`. [`push_layout`] wrote them, so they are valid.
pub fn read_layout(rest: &mut &[u8], tensor: &mut TensorInfo) {
    match rest.split_off_first() {
        // Most tensors have the same dtype as the previous one.
        Some(&rank) if tensor.dtype.rank() == Some(rank) => {}
        Some(&rank) if rank != OTHER => tensor.dtype = Dtype::KNOWN[usize::from(rank)].clone(),
        _ => {
            let length = usize::try_from(read_number(rest)).unwrap_or_default();
            let name = rest.split_off(..length).unwrap_or_default();
            tensor.dtype = std::str::from_utf8(name).unwrap_or_default().into();
        }
    }
    tensor.shape.clear();
    for _ in 0..read_number(rest) {
        tensor.shape.push(read_number(rest));
    }
}

/// Takes a number from the start of `rest`.
#[inline]
pub fn read_number(rest: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    while let Some(&byte) = rest.split_off_first() {
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
        shift += 7;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Dtype, rank, one dimension, start and length are one byte each, and offsets of records have four.
        assert_eq!(table.memory(), table.names.memory() + 3 * (5 + 4));
    }

    /// Returns the length of the data of tensors whose names are their indices.
    fn length(mut builder: TensorTableBuilder, spans: &[(u64, u64)]) -> Result<u64, HeaderError> {
        for (at, (begin, end)) in spans.iter().enumerate() {
            let tensor = TensorInfo::new(Dtype::U8, vec![end - begin], (*begin, *end));
            builder.push(&at.to_string(), &tensor);
        }
        builder.finish().map(|table| table.data_length())
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
            assert_eq!(length(TensorTableBuilder::new(), spans), Ok(end), "{spans:?}");
        }
    }

    #[test]
    fn holes_and_overlaps_are_errors() {
        let length = |spans| length(TensorTableBuilder::new(), spans);
        assert_eq!(length(&[(1, 2)]), Err(HeaderError::misplaced("0", 1, 0)));
        assert_eq!(length(&[(5, 6), (0, 4)]), Err(HeaderError::misplaced("0", 5, 4)));
        assert_eq!(length(&[(0, 4), (3, 6)]), Err(HeaderError::misplaced("1", 3, 4)));
        assert_eq!(length(&[(0, 4), (2, 2)]), Err(HeaderError::misplaced("1", 2, 4)));
    }

    #[test]
    fn tensors_in_data_order_begin_at_multiples_of_the_alignment() {
        let length = |spans| length(TensorTableBuilder::in_data_order(32), spans);
        assert_eq!(length(&[(0, 4), (32, 40)]), Ok(40));
        let hole = HeaderError::misplaced("1", 64, 32);
        assert_eq!(length(&[(0, 4), (64, 65)]), Err(hole));
        let overlap = HeaderError::misplaced("1", 16, 32);
        assert_eq!(length(&[(0, 4), (16, 20)]), Err(overlap));
        let other_order = HeaderError::misplaced("0", 32, 0);
        assert_eq!(length(&[(32, 40), (0, 4)]), Err(other_order));
    }

    #[test]
    fn tensors_are_read_as_they_were_written() {
        let info = |dtype: &str, shape: &[u64], data_offsets| TensorInfo {
            dtype: dtype.into(),
            shape: shape.to_vec(),
            data_offsets,
        };
        let tensors = [
            info("BF16", &[50_257, 768], (0, 77_194_752)),
            info("F64", &[], (127, 128)),
            info("dtype of the future, ß", &[1 << 63, 0, u64::MAX], (u64::MAX - 1, u64::MAX)),
            info("", &[0x7f, 0x80, 0x3fff, 0x4000], (1 << 35, 1 << 36)),
        ];
        let mut packed = Vec::new();
        for tensor in &tensors {
            push_tensor(&mut packed, tensor);
        }
        let (mut rest, mut read) = (&packed[..], TensorInfo::EMPTY);
        for tensor in &tensors {
            read_tensor(&mut rest, &mut read);
            assert_eq!(read, *tensor);
        }
        assert!(rest.is_empty());
    }

    /// A header that is cached must not keep the capacity that its parser reserved.
    #[test]
    fn records_have_no_spare_capacity() {
        let mut builder = TensorTableBuilder::for_header(1_000_000);
        builder.push("w", &TensorInfo::new(Dtype::BF16, vec![50_257, 768], (0, 77_194_752)));
        let table = builder.finish().unwrap();
        // Dtype, rank, two dimensions of 3 and 2 bytes, start and length of 1 and 4.
        assert_eq!(table.packed.len(), 1 + 1 + 3 + 2 + 1 + 4);
        assert!(table.starts.capacity() < 1_000 && table.packed.capacity() < 1_000);
    }

    #[test]
    fn elements_are_the_product_of_the_shape() {
        let cases: [(&[u64], Option<u64>); 6] = [
            (&[], Some(1)),
            (&[768], Some(768)),
            (&[50257, 768], Some(38_597_376)),
            (&[0, u64::MAX, u64::MAX], Some(0)),
            (&[u64::MAX, u64::MAX, 0], Some(0)),
            (&[1 << 63, 2], None),
        ];
        for (shape, elements) in cases {
            let tensor =
                TensorInfo { dtype: Dtype::F32, shape: shape.to_vec(), data_offsets: (0, 0) };
            assert_eq!(tensor.elements(), elements, "{shape:?}");
        }
    }
}
