//! Tensor entries of a header, and their types.

use super::values::{Cursor, CursorStop, read_name};
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

    /// Sets the alignment of the data in bytes, before the first tensor is read.
    pub(super) fn set_alignment(&mut self, alignment: u64) {
        *self = Self::new(self.total, alignment);
    }

    /// Reads a tensor entry.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), CursorStop> {
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
        let dtype = dtype(cursor.u32()?);
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

/// Tensor types by GGML number. Missing numbers are removed types.
const TENSOR_TYPES: [(u32, Dtype); 35] = [
    (0, Dtype::F32),
    (1, Dtype::F16),
    (2, Dtype::Q4_0),
    (3, Dtype::Q4_1),
    (6, Dtype::Q5_0),
    (7, Dtype::Q5_1),
    (8, Dtype::Q8_0),
    (9, Dtype::Q8_1),
    (10, Dtype::Q2_K),
    (11, Dtype::Q3_K),
    (12, Dtype::Q4_K),
    (13, Dtype::Q5_K),
    (14, Dtype::Q6_K),
    (15, Dtype::Q8_K),
    (16, Dtype::IQ2_XXS),
    (17, Dtype::IQ2_XS),
    (18, Dtype::IQ3_XXS),
    (19, Dtype::IQ1_S),
    (20, Dtype::IQ4_NL),
    (21, Dtype::IQ3_S),
    (22, Dtype::IQ2_S),
    (23, Dtype::IQ4_XS),
    (24, Dtype::I8),
    (25, Dtype::I16),
    (26, Dtype::I32),
    (27, Dtype::I64),
    (28, Dtype::F64),
    (29, Dtype::IQ1_M),
    (30, Dtype::BF16),
    (34, Dtype::TQ1_0),
    (35, Dtype::TQ2_0),
    (39, Dtype::MXFP4),
    (40, Dtype::NVFP4),
    (41, Dtype::Q1_0),
    (42, Dtype::Q2_0),
];

/// Quantizations of whole files by their `llama.cpp` number.
const FILE_TYPES: [(u64, &str); 37] = [
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (7, "Q8_0"),
    (8, "Q5_0"),
    (9, "Q5_1"),
    (10, "Q2_K"),
    (11, "Q3_K_S"),
    (12, "Q3_K_M"),
    (13, "Q3_K_L"),
    (14, "Q4_K_S"),
    (15, "Q4_K_M"),
    (16, "Q5_K_S"),
    (17, "Q5_K_M"),
    (18, "Q6_K"),
    (19, "IQ2_XXS"),
    (20, "IQ2_XS"),
    (21, "Q2_K_S"),
    (22, "IQ3_XS"),
    (23, "IQ3_XXS"),
    (24, "IQ1_S"),
    (25, "IQ4_NL"),
    (26, "IQ3_S"),
    (27, "IQ3_M"),
    (28, "IQ2_S"),
    (29, "IQ2_M"),
    (30, "IQ4_XS"),
    (31, "IQ1_M"),
    (32, "BF16"),
    (36, "TQ1_0"),
    (37, "TQ2_0"),
    (38, "MXFP4_MOE"),
    (39, "NVFP4"),
    (40, "Q1_0"),
    (41, "Q2_0"),
    (1024, "guessed"),
];

/// The flag for a file type that the writer guessed.
const GUESSED_FLAG: u64 = 1024;

/// Returns the dtype for a type number. Unknown types are named after their number.
fn dtype(number: u32) -> Dtype {
    let found = TENSOR_TYPES.iter().find(|(known, _)| *known == number);
    found.map_or_else(|| format!("GGML type {number}").as_str().into(), |(_, dtype)| dtype.clone())
}

/// Returns the quantization of a file; `None` for an unknown number.
pub(super) fn file_type(number: u64) -> Option<&'static str> {
    let number = if number == GUESSED_FLAG { number } else { number & !GUESSED_FLAG };
    FILE_TYPES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// Returns whether a name is the quantization of a whole file.
pub(crate) fn is_file_type(name: &str) -> bool {
    FILE_TYPES.iter().any(|(number, known)| *known == name && *number != GUESSED_FLAG)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `gguf` package 0.19, which writes the fixtures, does not know this type.
    #[test]
    fn q2_0_is_known() {
        let block = dtype(42).block().map(|block| (block.elements, block.bytes));
        assert_eq!((dtype(42), block, file_type(41)), (Dtype::Q2_0, Some((64, 18)), Some("Q2_0")));
    }
}
