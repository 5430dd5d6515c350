//! Tensor entries of a header.

use super::cursor::{Cursor, Stop};
use super::error::GgufError;
use super::keys::read_name;
use super::types;
use crate::formats::{HeaderError, TensorInfo, TensorTable, TensorTableBuilder, clip};

/// The tensors read so far.
#[derive(Debug)]
pub(super) struct TensorEntries {
    /// The number of tensors.
    pub(super) total: u64,
    /// The number of unread tensors.
    pub(super) left: u64,
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
    const LONGEST_NAME: u64 = 63;

    /// The maximum number of dimensions in GGML.
    const MOST_DIMENSIONS: u32 = 4;

    /// The minimum size of an entry in bytes: name, number of dimensions, type and offset.
    pub(super) const SMALLEST_SIZE: u64 = 8 + 1 + 4 + 4 + 8;

    pub(super) fn new(tensors: u64, alignment: u64) -> Self {
        let builder = TensorTableBuilder::new().with_alignment(alignment);
        Self { total: tensors, left: tensors, alignment, builder, last: None, next: Some(0) }
    }

    /// Sets the alignment of the data in bytes, before the first tensor is read.
    pub(super) fn set_alignment(&mut self, alignment: u64) {
        *self = Self::new(self.total, alignment);
    }

    /// Reads a tensor entry.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        let at = self.total - self.left;
        let name = read_name(cursor, "tensor", at, Self::LONGEST_NAME)?;
        let dimensions = cursor.u32()?;
        if dimensions > Self::MOST_DIMENSIONS {
            return Err(GgufError::TooManyDimensions { tensor: clip(name), dimensions }.into());
        }
        // The file lists the fastest-varying dimension first.
        let mut shape = (0..dimensions).map(|_| cursor.u64()).collect::<Result<Vec<_>, _>>()?;
        shape.reverse();
        let dtype = types::dtype(cursor.u32()?);
        let offset = cursor.u64()?;
        self.end_last(offset);
        self.check_offset(name, offset)?;
        let tensor = TensorInfo::new(dtype, shape, (offset, offset));
        let end = end(name, &tensor)?;
        self.next = end.and_then(|end| end.checked_next_multiple_of(self.alignment));
        let data_offsets = (offset, end.unwrap_or(offset));
        self.last = Some((name.to_owned(), TensorInfo { data_offsets, ..tensor }));
        self.left -= 1;
        Ok(())
    }

    /// Checks that a tensor's data begins where the data before it ends, because GGML reads the data in the order of
    /// the entries. The table detects overlaps, too, but an empty tensor overlaps nothing.
    fn check_offset(&self, name: &str, begin: u64) -> Result<(), HeaderError> {
        let tensor = || clip(name);
        let expected = match self.next {
            Some(expected) => expected,
            // The size of the previous tensor is unknown.
            None => begin.checked_next_multiple_of(self.alignment).unwrap_or(u64::MAX),
        };
        match begin {
            _ if begin > expected => Err(HeaderError::Gap { tensor: tensor(), begin, expected }),
            _ if begin < expected => {
                Err(HeaderError::Overlap { tensor: tensor(), begin, expected })
            }
            _ => Ok(()),
        }
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
        let tensor = clip(name);
        return Err(GgufError::PartialBlock { tensor, row, block: block.elements }.into());
    }
    let bytes = (elements / block.elements).checked_mul(block.bytes);
    let end = bytes.and_then(|bytes| tensor.data_offsets.0.checked_add(bytes));
    end.map(Some).ok_or_else(overflow)
}
