//! One entry of a header: what a tensor is and where its bytes are.

use serde::Serialize;

use super::{Dtype, HeaderError, clip};

/// What a header says of one tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TensorInfo {
    /// The type of the elements.
    pub dtype: Dtype,
    /// The length of each dimension, in elements; empty for a scalar.
    pub shape: Vec<u64>,
    /// The first byte and the byte after the last, counted from the start of the data section
    /// (not of the file).
    pub data_offsets: (u64, u64),
}

impl TensorInfo {
    /// The value that parsers overwrite, so that they reuse its memory.
    pub(super) const EMPTY: Self =
        Self { dtype: Dtype::U8, shape: Vec::new(), data_offsets: (0, 0) };

    /// The number of elements, the product of the shape: 1 for a scalar, 0 where a dimension is 0.
    /// `None` when it does not fit in 64 bits.
    #[must_use]
    pub fn elements(&self) -> Option<u64> {
        let product =
            self.shape.iter().try_fold(1_u64, |product, length| product.checked_mul(*length));
        // A 0 decides whatever stands around it, so that `[0, n]` and `[n, 0]` are the same number.
        product.or_else(|| self.shape.contains(&0).then_some(0))
    }

    /// The number of bytes between the data offsets.
    #[must_use]
    pub fn byte_length(&self) -> u64 {
        self.data_offsets.1.saturating_sub(self.data_offsets.0)
    }

    /// Whether the tensor has no dimensions, shape `[]`.
    #[must_use]
    pub fn is_scalar(&self) -> bool {
        self.shape.is_empty()
    }

    /// Holds shape and dtype against the span of the data offsets.
    ///
    /// Of a dtype of unknown width only its author knows how many bytes it takes, but no element is in
    /// less than a bit, and so no count is larger than its file allows.
    pub(super) fn check(&self, name: &str) -> Result<(), HeaderError> {
        let (begin, end) = self.data_offsets;
        if end < begin {
            return Err(HeaderError::ReversedOffsets { tensor: clip(name), begin, end });
        }
        let overflow = || HeaderError::overflow(name);
        let elements = self.elements().ok_or_else(overflow)?;
        let Some(width) = self.dtype.bits() else {
            return self.check_plausible(name, elements, end - begin);
        };
        let bits = elements.checked_mul(width).ok_or_else(overflow)?;
        if !bits.is_multiple_of(8) {
            return Err(HeaderError::PartialByte {
                tensor: clip(name),
                dtype: self.dtype.clone(),
                elements,
            });
        }
        if bits / 8 != end - begin {
            return Err(HeaderError::Size {
                tensor: clip(name),
                dtype: self.dtype.clone(),
                elements,
                expected: bits / 8,
                found: end - begin,
            });
        }
        Ok(())
    }

    fn check_plausible(&self, name: &str, elements: u64, found: u64) -> Result<(), HeaderError> {
        if elements.div_ceil(8) <= found {
            return Ok(());
        }
        let (tensor, dtype) = (clip(name), self.dtype.clone());
        Err(HeaderError::Implausible { tensor, dtype, elements, found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_a_shape() {
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
