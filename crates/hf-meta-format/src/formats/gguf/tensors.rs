//! Tensor entries of a header, and their types.

use super::values::Cursor;
use crate::formats::buffer::Stop;
use crate::formats::{
    Dtype, HeaderError, HeaderErrorKind, TensorInfo, TensorTable, TensorTableBuilder,
};

/// The tensors read so far.
#[derive(Debug)]
pub(super) struct TensorEntries {
    /// The alignment of the data, in bytes.
    alignment: u64,
    builder: TensorTableBuilder,
    /// The last tensor. If its size is unknown, its data ends where the next tensor's begins.
    last: Option<(String, TensorInfo)>,
}

impl TensorEntries {
    /// The maximum length of a name in bytes. GGML stores names in 64 bytes, including a NUL.
    const MAX_NAME_LENGTH: u64 = 63;

    /// The maximum number of dimensions in GGML.
    const MAX_DIMENSIONS: u64 = 4;

    /// The minimum size of an entry in bytes: name, number of dimensions, type and offset.
    pub(super) const MIN_SIZE: u64 = 8 + 1 + 4 + 4 + 8;

    pub(super) fn new(alignment: u64) -> Self {
        Self { alignment, builder: TensorTableBuilder::in_data_order(alignment), last: None }
    }

    /// Reads the tensor entry at an index.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>, at: u64) -> Result<(), Stop> {
        let name = cursor.name("tensor", at, Self::MAX_NAME_LENGTH)?;
        let dimensions = cursor.number(4)?;
        if dimensions > Self::MAX_DIMENSIONS {
            let rule = format!("has {dimensions} dimensions; the maximum is 4");
            return Err(HeaderError::of_tensor(HeaderErrorKind::Other, name, rule).into());
        }
        // The file lists the fastest-varying dimension first.
        let mut shape = (0..dimensions).map(|_| cursor.number(8)).collect::<Result<Vec<_>, _>>()?;
        shape.reverse();
        let dtype = Dtype::from_ggml(cursor.number(4)?);
        let offset = cursor.number(8)?;
        self.end_last(offset);
        let mut tensor = TensorInfo::new(dtype, shape, (offset, offset));
        tensor.data_offsets.1 = end(name, &tensor)?;
        self.last = Some((name.to_owned(), tensor));
        Ok(())
    }

    /// Adds the last tensor to the table. If its size is unknown, its data ends at `limit`.
    fn end_last(&mut self, limit: u64) {
        let Some((name, mut tensor)) = self.last.take() else { return };
        if tensor.dtype.block().is_none() {
            tensor.data_offsets.1 = limit;
        }
        self.builder.push(&name, &tensor);
    }

    /// Returns the start of the data if the entries end at byte `end`. A header without tensors is not padded.
    pub(super) fn data_start(&self, end: u64) -> u64 {
        let alignment = if self.last.is_some() { self.alignment } else { 1 };
        end.checked_next_multiple_of(alignment).unwrap_or(u64::MAX)
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

/// Returns the end of a tensor's data, which is its start if the type is unknown.
fn end(name: &str, tensor: &TensorInfo) -> Result<u64, HeaderError> {
    let overflow = || HeaderError::overflow(name);
    // GGML uses signed element counts.
    let elements = tensor.elements().filter(|elements| i64::try_from(*elements).is_ok());
    let elements = elements.ok_or_else(overflow)?;
    let start = tensor.data_offsets.0;
    let Some(block) = tensor.dtype.block() else { return Ok(start) };
    let row = tensor.shape.last().copied().unwrap_or(1);
    if !row.is_multiple_of(block.elements) {
        let block = block.elements;
        let rule = format!(
            "has rows of {row} elements, which is not a multiple of the block size {block}"
        );
        return Err(HeaderError::of_tensor(HeaderErrorKind::PartialBlock, name, rule));
    }
    let bytes = tensor.dtype.byte_length(elements);
    bytes.and_then(|bytes| start.checked_add(bytes)).ok_or_else(overflow)
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
pub fn is_file_type(name: &str) -> bool {
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
