//! Tensor entries of a header, and their types.

use super::values::{Cursor, read_name};
use crate::formats::buffer::Stop;
use crate::formats::{
    Dtype, HeaderError, HeaderErrorKind, TensorInfo, TensorTable, TensorTableBuilder,
};

/// The tensors read so far.
#[derive(Debug)]
pub(super) struct TensorEntries {
    /// The number of tensors.
    pub(super) total: u64,
    /// The number of unread tensors.
    pub(super) remaining: u64,
    /// The alignment of the data, in bytes.
    alignment: u64,
    builder: TensorTableBuilder,
    /// The last tensor. If its size is unknown, its data ends where the next tensor's begins.
    last: Option<(String, TensorInfo)>,
    /// The expected offset of the next tensor's data; `None` after a tensor of an unknown type.
    next: Option<u64>,
}

impl TensorEntries {
    /// The maximum length of a name in bytes. GGML stores names in 64 bytes, including a NUL.
    const MAX_NAME_LENGTH: u64 = 63;

    /// The maximum number of dimensions in GGML.
    const MAX_DIMENSIONS: u32 = 4;

    /// The minimum size of an entry in bytes: name, number of dimensions, type and offset.
    pub(super) const MIN_SIZE: u64 = 8 + 1 + 4 + 4 + 8;

    pub(super) fn new(tensors: u64, alignment: u64) -> Self {
        let builder = TensorTableBuilder::new().with_alignment(alignment);
        Self { total: tensors, remaining: tensors, alignment, builder, last: None, next: Some(0) }
    }

    /// Reads a tensor entry.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        let at = self.total - self.remaining;
        let name = read_name(cursor, "tensor", at, Self::MAX_NAME_LENGTH)?;
        let dimensions = cursor.u32()?;
        if dimensions > Self::MAX_DIMENSIONS {
            let rule = format!("has {dimensions} dimensions; the maximum is 4");
            return Err(HeaderError::of_tensor(HeaderErrorKind::Other, name, rule).into());
        }
        // The file lists the fastest-varying dimension first.
        let mut shape = (0..dimensions).map(|_| cursor.u64()).collect::<Result<Vec<_>, _>>()?;
        shape.reverse();
        let dtype = Dtype::from_ggml(cursor.u32()?);
        let offset = cursor.u64()?;
        self.end_last(offset);
        self.check_offset(name, offset)?;
        let tensor = TensorInfo::new(dtype, shape, (offset, offset));
        let end = end(name, &tensor)?;
        self.next = end.and_then(|end| end.checked_next_multiple_of(self.alignment));
        let data_offsets = (offset, end.unwrap_or(offset));
        self.last = Some((name.to_owned(), TensorInfo { data_offsets, ..tensor }));
        self.remaining -= 1;
        Ok(())
    }

    /// Checks that a tensor's data begins where the data before it ends, because GGML reads the data in the order of
    /// the entries. The table detects overlaps, too, but an empty tensor overlaps nothing.
    fn check_offset(&self, name: &str, begin: u64) -> Result<(), HeaderError> {
        let expected = match self.next {
            Some(expected) => expected,
            // The size of the previous tensor is unknown.
            None => begin.checked_next_multiple_of(self.alignment).unwrap_or(u64::MAX),
        };
        if begin == expected { Ok(()) } else { Err(HeaderError::misplaced(name, begin, expected)) }
    }

    /// Adds the last tensor to the table. If its size is unknown, `limit` is the end of its data.
    fn end_last(&mut self, limit: u64) {
        let Some((name, mut tensor)) = self.last.take() else { return };
        if tensor.dtype.block().is_none() {
            tensor.data_offsets.1 = limit;
        }
        self.builder.push(&name, &tensor);
    }

    /// Returns the table. `data_size` is the number of bytes after the header, if known.
    pub(super) fn finish(mut self, data_size: Option<u64>) -> Result<TensorTable, HeaderError> {
        let smallest = self.last.as_ref().map_or(0, |(_, tensor)| {
            let elements = tensor.elements().unwrap_or_default();
            tensor.data_offsets.0.saturating_add(elements.div_ceil(8))
        });
        self.end_last(data_size.unwrap_or(smallest));
        self.builder.finish()
    }
}

/// Returns the end of a tensor's data; `None` if its type is unknown.
fn end(name: &str, tensor: &TensorInfo) -> Result<Option<u64>, HeaderError> {
    let overflow = || HeaderError::overflow(name);
    // GGML uses signed element counts.
    let elements = tensor.elements().filter(|elements| i64::try_from(*elements).is_ok());
    let elements = elements.ok_or_else(overflow)?;
    let Some(block) = tensor.dtype.block() else { return Ok(None) };
    let row = tensor.shape.last().copied().unwrap_or(1);
    if !row.is_multiple_of(block.elements) {
        let block = block.elements;
        let rule = format!(
            "has rows of {row} elements, which is not a multiple of the block size {block}"
        );
        return Err(HeaderError::of_tensor(HeaderErrorKind::PartialBlock, name, rule));
    }
    let end = tensor
        .dtype
        .byte_length(elements)
        .and_then(|bytes| tensor.data_offsets.0.checked_add(bytes));
    end.map(Some).ok_or_else(overflow)
}

/// The quantizations of whole files, by their `llama.cpp` number. Dots are removed numbers.
const FILE_TYPES: &str = "F32 F16 Q4_0 Q4_1 . . . Q8_0 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S \
    Q5_K_M Q6_K IQ2_XXS IQ2_XS Q2_K_S IQ3_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ3_M IQ2_S IQ2_M IQ4_XS IQ1_M BF16 . . . \
    TQ1_0 TQ2_0 MXFP4_MOE NVFP4 Q1_0 Q2_0";

/// The flag for a file type that the writer guessed.
const GUESSED_FLAG: u64 = 1024;

/// Returns the quantization of a file; `None` for an unknown number.
pub(super) fn file_type(number: u64) -> Option<&'static str> {
    if number == GUESSED_FLAG {
        return Some("guessed");
    }
    let at = usize::try_from(number & !GUESSED_FLAG).ok()?;
    FILE_TYPES.split_whitespace().nth(at).filter(|name| *name != ".")
}

/// Returns whether a name is the quantization of a whole file.
pub(crate) fn is_file_type(name: &str) -> bool {
    name != "." && FILE_TYPES.split_whitespace().any(|known| known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `gguf` package 0.19, which writes the fixtures, does not know this type.
    #[test]
    fn q2_0_is_known() {
        let dtype = Dtype::from_ggml(42);
        let block = dtype.block().map(|block| (block.elements, block.bytes));
        assert_eq!((dtype, block, file_type(41)), (Dtype::Q2_0, Some((64, 18)), Some("Q2_0")));
    }
}
