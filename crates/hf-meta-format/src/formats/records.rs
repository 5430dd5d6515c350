//! Tensors, numbers and strings in a compact binary form.

use std::slice::SliceIndex;

use super::{Dtype, TensorInfo};

/// One record per tensor, accessed by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    packed: PackedTensors,
    starts: Vec<u32>,
}

impl Records {
    /// Creates an empty list with capacity for `records` records of `bytes` bytes in total.
    pub(super) fn with_capacity(records: usize, bytes: usize) -> Self {
        let packed = PackedTensors { bytes: Vec::with_capacity(bytes) };
        Self { packed, starts: Vec::with_capacity(records) }
    }

    /// Returns whether another tensor fits, because offsets have 32 bits.
    pub(super) fn has_room(&self) -> bool {
        u32::try_from(self.packed.byte_length()).is_ok()
    }

    /// Adds a tensor. There must be room for it.
    pub(super) fn push(&mut self, tensor: &TensorInfo) {
        #[expect(clippy::cast_possible_truncation, reason = "there is room")]
        self.starts.push(self.packed.byte_length() as u32);
        self.packed.push(tensor);
    }

    /// Returns the tensor at an index.
    pub(super) fn get(&self, at: usize) -> TensorInfo {
        let mut tensor = TensorInfo::EMPTY;
        self.packed.reader(self.starts[at] as usize..).read_tensor(&mut tensor);
        tensor
    }

    /// Returns the memory use of the records in bytes.
    pub(super) fn memory(&self) -> usize {
        self.packed.byte_length() + self.starts.len() * size_of::<u32>()
    }

    /// Returns a reader that starts at the first record.
    pub(super) fn reader(&self) -> PackedReader<'_> {
        self.packed.reader(..)
    }

    /// Releases unused capacity.
    pub(super) fn shrink_to_fit(&mut self) {
        self.packed.bytes.shrink_to_fit();
        self.starts.shrink_to_fit();
    }
}

/// A buffer of tensors, mixed with numbers and strings.
///
/// A tensor is stored as its dtype, its rank, its dimensions, and the start and length of its data. All numbers are
/// LEB128, with seven bits per byte, and so never longer than their decimal digits: any header takes less memory than
/// its JSON. With a `Vec` per shape, a hostile header could take many times more. [`push_layout`](Self::push_layout)
/// adds only the dtype and the dimensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PackedTensors {
    bytes: Vec<u8>,
}

/// The tag of an unknown dtype, which is followed by its name.
const OTHER: u8 = u8::MAX;

impl PackedTensors {
    /// Returns the length of the buffer in bytes.
    pub(crate) fn byte_length(&self) -> usize {
        self.bytes.len()
    }

    /// Returns a reader of a part of the buffer.
    pub(crate) fn reader(&self, range: impl SliceIndex<[u8], Output = [u8]>) -> PackedReader<'_> {
        PackedReader { rest: &self.bytes[range] }
    }

    /// Adds a tensor.
    fn push(&mut self, tensor: &TensorInfo) {
        self.push_layout(tensor);
        self.push_number(tensor.data_offsets.0);
        self.push_number(tensor.byte_length());
    }

    /// Adds the dtype and the shape of a tensor.
    pub(crate) fn push_layout(&mut self, tensor: &TensorInfo) {
        if let Some(rank) = tensor.dtype.rank() {
            self.bytes.push(rank);
        } else {
            self.bytes.push(OTHER);
            self.push_text(tensor.dtype.as_str());
        }
        self.push_number(tensor.shape.len() as u64);
        for &length in &tensor.shape {
            self.push_number(length);
        }
    }

    /// Adds a length-prefixed string.
    pub(crate) fn push_text(&mut self, text: &str) {
        self.push_number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Adds a number.
    pub(crate) fn push_number(&mut self, mut number: u64) {
        while number > 0x7f {
            self.bytes.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.bytes.push(number.to_le_bytes()[0]);
    }
}

/// The unread part of a [`PackedTensors`]. It was written by this module, so it is valid.
#[derive(Clone, Debug)]
pub(crate) struct PackedReader<'a> {
    rest: &'a [u8],
}

impl<'a> PackedReader<'a> {
    /// Returns the number of unread bytes.
    pub(crate) fn byte_length(&self) -> usize {
        self.rest.len()
    }

    /// Reads a tensor into `tensor`, and reuses the memory of its shape.
    pub(crate) fn read_tensor(&mut self, tensor: &mut TensorInfo) {
        self.read_layout(tensor);
        let begin = self.number();
        tensor.data_offsets = (begin, begin + self.number());
    }

    /// Reads a dtype and a shape into a tensor.
    pub(crate) fn read_layout(&mut self, tensor: &mut TensorInfo) {
        match self.rest.split_first() {
            // Most tensors have the same dtype as the previous one.
            Some((&rank, rest)) if tensor.dtype.rank() == Some(rank) => self.rest = rest,
            _ => tensor.dtype = self.dtype(),
        }
        tensor.shape.clear();
        for _ in 0..self.number() {
            tensor.shape.push(self.number());
        }
    }

    #[inline]
    pub(crate) fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        while let Some((&byte, rest)) = self.rest.split_first() {
            self.rest = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
            shift += 7;
        }
        number
    }

    /// Reads a length-prefixed string.
    pub(crate) fn text(&mut self) -> &'a str {
        let length = usize::try_from(self.number()).unwrap_or_default();
        std::str::from_utf8(self.rest.split_off(..length).unwrap_or_default()).unwrap_or_default()
    }

    fn dtype(&mut self) -> Dtype {
        match self.rest.split_off_first() {
            Some(&rank) if rank != OTHER => Dtype::KNOWN[usize::from(rank)].clone(),
            _ => self.text().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut records = Records::default();
        for tensor in &tensors {
            records.push(tensor);
        }
        let (mut reader, mut read) = (records.reader(), TensorInfo::EMPTY);
        for (at, tensor) in tensors.iter().enumerate() {
            assert_eq!(records.get(at), *tensor);
            reader.read_tensor(&mut read);
            assert_eq!(read, *tensor);
        }
        assert_eq!(reader.byte_length(), 0);
    }

    /// A header that is cached must not keep the capacity that its parser reserved.
    #[test]
    fn records_have_no_spare_capacity() {
        let mut records = Records::with_capacity(1_000, 100_000);
        records.push(&TensorInfo::new(Dtype::BF16, vec![50_257, 768], (0, 77_194_752)));
        // Dtype, rank, two dimensions of 3 and 2 bytes, start and length of 1 and 4, and the offset of the record.
        assert_eq!(records.memory(), 1 + 1 + 3 + 2 + 1 + 4 + 4);
        records.shrink_to_fit();
        assert!(records.starts.capacity() < 1_000 && records.packed.bytes.capacity() < 100_000);
    }
}
