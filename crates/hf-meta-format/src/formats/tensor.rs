//! The header entry of one tensor.

use serde::Serialize;

use super::{Dtype, HeaderError, HeaderErrorKind};

/// The dtype, shape and data offsets of one tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    #[must_use]
    pub fn new(dtype: Dtype, shape: Vec<u64>, data_offsets: (u64, u64)) -> Self {
        Self { dtype, shape, data_offsets }
    }

    /// A placeholder that parsers overwrite, to reuse its memory.
    pub(crate) const EMPTY: Self =
        Self { dtype: Dtype::U8, shape: Vec::new(), data_offsets: (0, 0) };

    /// Returns the number of elements: 1 for a scalar, 0 if a dimension is 0, or `None` if it overflows 64 bits.
    #[must_use]
    pub fn elements(&self) -> Option<u64> {
        let product =
            self.shape.iter().try_fold(1_u64, |product, length| product.checked_mul(*length));
        // With a dimension of 0 the product is 0, even if other dimensions overflow.
        product.or_else(|| self.shape.contains(&0).then_some(0))
    }

    /// Returns the size of the tensor's data in bytes, according to its offsets.
    #[must_use]
    pub fn byte_length(&self) -> u64 {
        self.data_offsets.1.saturating_sub(self.data_offsets.0)
    }

    /// Returns whether the tensor is a scalar, with shape `[]`.
    #[must_use]
    pub fn is_scalar(&self) -> bool {
        self.shape.is_empty()
    }

    /// Checks that shape and dtype agree with the data offsets.
    ///
    /// The width of an unknown dtype is unknown, too. Each element must have at least one bit, so that no count is
    /// larger than its file allows.
    pub(super) fn check(&self, name: &str) -> Result<(), HeaderError> {
        let (begin, end) = self.data_offsets;
        if end < begin {
            let rule = format!("ends at byte {end}, before it begins at byte {begin}");
            return Err(HeaderError::of_tensor(HeaderErrorKind::ReversedOffsets, name, rule));
        }
        let overflow = || HeaderError::overflow(name);
        let elements = self.elements().ok_or_else(overflow)?;
        let Some(block) = self.dtype.block() else {
            return self.check_plausible(name, elements, end - begin);
        };
        let bits = (elements / block.elements).checked_mul(block.bytes * 8);
        let bytes = bits.ok_or_else(overflow)? / 8;
        if !elements.is_multiple_of(block.elements) {
            let rule = format!(
                "has {elements} elements of {}, which is not a whole number of bytes",
                self.dtype
            );
            return Err(HeaderError::of_tensor(HeaderErrorKind::PartialBlock, name, rule));
        }
        if bytes != end - begin {
            let rule = format!(
                "has {elements} elements of {}, which is {bytes} bytes, but spans {} bytes",
                self.dtype,
                end - begin
            );
            return Err(HeaderError::of_tensor(HeaderErrorKind::SizeMismatch, name, rule));
        }
        Ok(())
    }

    /// Checks that a tensor of an unknown dtype occupies at least one bit per element.
    fn check_plausible(&self, name: &str, elements: u64, found: u64) -> Result<(), HeaderError> {
        if elements.div_ceil(8) <= found {
            return Ok(());
        }
        let rule =
            format!("has {elements} elements of {}, too many for its {found} bytes", self.dtype);
        Err(HeaderError::of_tensor(HeaderErrorKind::TooManyElements, name, rule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
