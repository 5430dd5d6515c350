//! The ratio of packed values to elements.

use std::fmt;

use crate::formats::Dtype;

/// The ratio of packed values to elements, in lowest terms: 8 to 1 for 4 bits in `I32`, 32 to 3 for 3 bits
/// in `I32`, where values cross the borders of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packing {
    values: u32,
    elements: u32,
}

impl Packing {
    /// Creates the ratio for a number of values in every element; `None` for one value, which is not packed.
    pub(super) fn times(values: u32) -> Option<Self> {
        (values > 1).then_some(Self { values, elements: 1 })
    }

    /// Creates the ratio for values of some bits without gaps in elements of a dtype; `None` if nothing is
    /// packed into the dtype, or if an element holds at most one value.
    pub(super) fn dense(dtype: &Dtype, bits: u32) -> Option<Self> {
        let container = container_bits(dtype)?;
        if bits == 0 || bits >= container {
            return None;
        }
        let common = greatest_common_divisor(container, bits);
        Some(Self { values: container / common, elements: bits / common })
    }

    /// Returns the number of values in a number of elements, rounded; `None` if it does not fit in 64 bits.
    ///
    /// Rows are padded to whole elements, and padding looks like values. For a width that does not divide the
    /// width of the element, the result is therefore an upper bound.
    #[must_use]
    pub fn unpack(self, elements: u64) -> Option<u64> {
        let (values, per) = (u128::from(self.values), u128::from(self.elements));
        let unpacked = (2 * u128::from(elements) * values + per) / (2 * per);
        unpacked.try_into().ok()
    }
}

/// Formats the ratio as a factor, `×8` or `×32/3`.
impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.elements {
            1 => write!(f, "×{}", self.values),
            elements => write!(f, "×{}/{elements}", self.values),
        }
    }
}

/// Returns the width in bits of a dtype that smaller values are packed into; `None` for any other dtype.
pub(super) fn container_bits(dtype: &Dtype) -> Option<u32> {
    match dtype {
        Dtype::U8 | Dtype::I8 => Some(8),
        Dtype::U16 | Dtype::I16 => Some(16),
        Dtype::U32 | Dtype::I32 => Some(32),
        _ => None,
    }
}

/// Returns the width in bits that the name of a format contains, such as `mxfp4` or
/// `nvfp4-pack-quantized`; `None` for a format that is not packed into integers.
pub(super) fn bits_of_format(format: &str) -> Option<u32> {
    let format = format.to_lowercase();
    if ["fp4", "int4", "nf4"].iter().any(|name| format.contains(name)) {
        return Some(4);
    }
    format.contains("int2").then_some(2)
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_packed_without_gaps() {
        let cases = [
            (Dtype::I32, 4, 12, 96, "×8"),
            (Dtype::U8, 4, 12, 24, "×2"),
            (Dtype::I16, 4, 12, 48, "×4"),
            (Dtype::I32, 2, 12, 192, "×16"),
            (Dtype::U32, 3, 3, 32, "×32/3"),
            (Dtype::U32, 3, 4, 43, "×32/3"),
            (Dtype::U32, 6, 18, 96, "×16/3"),
            (Dtype::I32, 5, 7, 45, "×32/5"),
            (Dtype::I32, 24, 3, 4, "×4/3"),
        ];
        for (dtype, bits, elements, values, shown) in cases {
            let packing = Packing::dense(&dtype, bits).unwrap();
            assert_eq!(packing.unpack(elements), Some(values), "{bits} bits in {dtype}");
            assert_eq!(packing.to_string(), shown);
        }
    }

    #[test]
    fn one_value_in_an_element_is_not_packed() {
        let cases = [
            (Dtype::I8, 8),
            (Dtype::U8, 16),
            (Dtype::I32, 0),
            (Dtype::F8_E4M3, 4),
            (Dtype::I64, 4),
        ];
        for (dtype, bits) in cases {
            assert_eq!(Packing::dense(&dtype, bits), None, "{bits} bits in {dtype}");
        }
        assert_eq!(Packing::times(1), None);
    }

    #[test]
    fn products_do_not_wrap() {
        let packing = Packing::times(16).unwrap();
        assert_eq!(packing.unpack(u64::MAX / 16), Some(u64::MAX - 15));
        assert_eq!(packing.unpack(u64::MAX / 16 + 1), None);
        assert_eq!(Packing::dense(&Dtype::I32, 31).unwrap().unpack(u64::MAX), None);
    }

    #[test]
    fn formats_contain_a_width() {
        for format in ["mxfp4-pack-quantized", "NVFP4", "fp4", "uint4", "int4", "nf4"] {
            assert_eq!(bits_of_format(format), Some(4), "{format}");
        }
        assert_eq!(bits_of_format("int2"), Some(2));
        for format in ["fp8", "mxfp6", "int8", "bf16", ""] {
            assert_eq!(bits_of_format(format), None, "{format}");
        }
    }
}
