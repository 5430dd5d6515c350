//! Packed tensors, in fewer bytes than their JSON.

use crate::formats::{Dtype, TensorInfo};

/// Packed tensors: dtype, number of dimensions, dimensions, begin and length of the data.
///
/// Every number is in LEB128, seven bits per byte, and never longer than its decimal digits. A record is
/// therefore shorter than its JSON. A `Vec` per shape would make a hostile header many times as large.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    bytes: Vec<u8>,
    starts: Vec<u32>,
}

/// The tag of a dtype that is not in [`Dtype::KNOWN`]. The name follows it.
const OTHER: u8 = u8::MAX;

impl Records {
    /// Creates an empty list with memory for `records` records of `bytes` bytes in total.
    pub(super) fn with_capacity(records: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), starts: Vec::with_capacity(records) }
    }

    /// Adds a tensor.
    pub(super) fn push(&mut self, tensor: &TensorInfo) {
        let (begin, end) = tensor.data_offsets;
        #[expect(clippy::cast_possible_truncation, reason = "a record is shorter than its JSON")]
        self.starts.push(self.bytes.len() as u32);
        self.push_dtype(&tensor.dtype);
        self.push_number(tensor.shape.len() as u64);
        for &length in &tensor.shape {
            self.push_number(length);
        }
        self.push_number(begin);
        self.push_number(end - begin);
    }

    /// Returns the tensor at a position.
    pub(super) fn get(&self, at: usize) -> TensorInfo {
        let mut tensor = TensorInfo::EMPTY;
        RecordReader(&self.bytes[self.starts[at] as usize..]).read_into(&mut tensor);
        tensor
    }

    /// Returns a reader that starts at the first record.
    pub(super) fn reader(&self) -> RecordReader<'_> {
        RecordReader(&self.bytes)
    }

    /// Frees unused memory.
    pub(super) fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.starts.shrink_to_fit();
    }

    fn push_dtype(&mut self, dtype: &Dtype) {
        self.bytes.push(dtype.rank().unwrap_or(OTHER));
        if let Dtype::Other(_) = dtype {
            self.push_number(dtype.as_str().len() as u64);
            self.bytes.extend_from_slice(dtype.as_str().as_bytes());
        }
    }

    fn push_number(&mut self, mut number: u64) {
        while number > 0x7f {
            self.bytes.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.bytes.push(number.to_le_bytes()[0]);
    }
}

/// A reader of records, with the bytes that are not read yet. They come from [`Records`] and are always valid.
pub(super) struct RecordReader<'a>(&'a [u8]);

impl RecordReader<'_> {
    /// Reads the next record in place of a tensor, and reuses the memory of its shape.
    pub(super) fn read_into(&mut self, tensor: &mut TensorInfo) {
        tensor.dtype = self.dtype();
        tensor.shape.clear();
        for _ in 0..self.number() {
            tensor.shape.push(self.number());
        }
        let begin = self.number();
        tensor.data_offsets = (begin, begin + self.number());
    }

    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or_default()
    }

    fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return number;
            }
            shift += 7;
        }
    }

    fn dtype(&mut self) -> Dtype {
        match self.byte() {
            OTHER => {
                let length = usize::try_from(self.number()).unwrap_or_default();
                let name = self.0.split_off(..length).unwrap_or_default();
                String::from_utf8_lossy(name).as_ref().into()
            }
            rank => Dtype::KNOWN[usize::from(rank)].clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
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
        for (at, tensor) in tensors.iter().enumerate() {
            assert_eq!(records.get(at), *tensor);
        }
    }
}
