//! Element types of tensors.

use std::convert::Infallible;
use std::str::FromStr;

/// Defines one known dtype per row: its name in headers, the elements and bytes of its smallest block, and its number in
/// GGUF files.
macro_rules! dtypes {
    ($($(#[$doc:meta])+ $name:ident = $elements:literal in $bytes:literal $(as $number:literal)?,)+) => {
        /// The element type of a tensor.
        ///
        /// The known types are the 22 names in `safetensors` 0.8; `E8M0`, `UE8` and `FP4`, which occur in published
        /// models and are known to huggingface.js; and the quantized GGML types used in GGUF files. Any other name is
        /// kept in [`Dtype::Other`], so that a new dtype does not make a repository unreadable.
        ///
        /// ```
        /// use hf_meta_format::Dtype;
        ///
        /// assert_eq!(Dtype::from("BF16"), Dtype::BF16);
        /// assert_eq!(Dtype::BF16.bits(), Some(16));
        /// assert_eq!(Dtype::F4.block().unwrap().elements, 2);
        /// assert_eq!(Dtype::from("F3").to_string(), "F3");
        /// ```
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(non_camel_case_types, reason = "the format defines the names")]
        #[non_exhaustive]
        pub enum Dtype {
            $($(#[$doc])+ $name,)+
            /// An unknown dtype, with the name that the file gives it.
            Other(UnknownDtype),
        }

        impl Dtype {
            /// All known dtypes: first in the order of the safetensors specification, then by GGML type number.
            pub const KNOWN: &'static [Self] = &[$(Self::$name),+];

            /// Returns the name in the header, such as `BF16`.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => stringify!($name),)+
                    Self::Other(UnknownDtype(name)) => name,
                }
            }

            /// Returns the smallest block of elements that occupies whole bytes, or `None` for an unknown dtype.
            pub fn block(&self) -> Option<BlockSize> {
                match self {
                    $(Self::$name => Some(BlockSize { elements: $elements, bytes: $bytes }),)+
                    Self::Other(_) => None,
                }
            }

            /// Returns the index in [`Dtype::KNOWN`]; `None` for an unknown dtype.
            pub(super) fn rank(&self) -> Option<u8> {
                match self {
                    $(Self::$name => Some(KnownDtype::$name as u8),)+
                    Self::Other(_) => None,
                }
            }

            /// Returns the dtype with a GGML type number. Unknown types are named after their number.
            pub(super) fn from_ggml(number: u64) -> Self {
                match number {
                    $($($number => Self::$name,)?)+
                    _ => Self::from(&*format!("GGML type {number}")),
                }
            }
        }

        /// The known dtypes without [`Dtype::Other`], numbered by their position in the table.
        #[expect(non_camel_case_types, reason = "the format defines the names")]
        #[expect(clippy::upper_case_acronyms, reason = "the format defines the names")]
        enum KnownDtype {
            $($name,)+
        }

        impl From<&str> for Dtype {
            fn from(name: &str) -> Self {
                match name {
                    $(stringify!($name) => Self::$name,)+
                    _ => Self::Other(UnknownDtype(name.into())),
                }
            }
        }
    };
}

/// The maximum number of elements in a block without a scale: eight elements always fill whole bytes.
const MAX_UNSCALED_BLOCK: u64 = 8;

/// The smallest block of elements that occupies whole bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockSize {
    /// The number of elements per block.
    pub elements: u64,
    /// The number of bytes per block.
    pub bytes: u64,
}

/// The name of a dtype that is not in [`Dtype::KNOWN`]. It can only be created with `Dtype::from`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnknownDtype(Box<str>);

dtypes! {
    /// Boolean, one byte per element.
    BOOL = 1 in 1,
    /// 4-bit float (MX), two per byte.
    F4 = 2 in 1,
    /// 4-bit float (MX), under the name used by some exporters.
    FP4 = 2 in 1,
    /// 6-bit float: 2 exponent bits, 3 mantissa bits.
    F6_E2M3 = 4 in 3,
    /// 6-bit float: 3 exponent bits, 2 mantissa bits.
    F6_E3M2 = 4 in 3,
    /// Unsigned 8-bit integer; also the container for many packed 4-bit formats.
    U8 = 1 in 1,
    /// Signed 8-bit integer.
    I8 = 1 in 1 as 24,
    /// 8-bit float: 5 exponent bits, 2 mantissa bits.
    F8_E5M2 = 1 in 1,
    /// 8-bit float: 4 exponent bits, 3 mantissa bits.
    F8_E4M3 = 1 in 1,
    /// 8-bit exponent without mantissa, used for the scales of MX formats.
    F8_E8M0 = 1 in 1,
    /// 8-bit exponent without mantissa, under an older name.
    E8M0 = 1 in 1,
    /// 8-bit exponent without mantissa, under another name.
    UE8 = 1 in 1,
    /// 8-bit float: 4 exponent bits, 3 mantissa bits, no infinities and no negative zero.
    F8_E4M3FNUZ = 1 in 1,
    /// 8-bit float: 5 exponent bits, 2 mantissa bits, no infinities and no negative zero.
    F8_E5M2FNUZ = 1 in 1,
    /// Signed 16-bit integer.
    I16 = 1 in 2 as 25,
    /// Unsigned 16-bit integer.
    U16 = 1 in 2,
    /// Half-precision (16-bit) float.
    F16 = 1 in 2 as 1,
    /// Brain float (16-bit).
    BF16 = 1 in 2 as 30,
    /// Signed 32-bit integer.
    I32 = 1 in 4 as 26,
    /// Unsigned 32-bit integer.
    U32 = 1 in 4,
    /// Single-precision (32-bit) float.
    F32 = 1 in 4 as 0,
    /// Complex number made of two 32-bit floats.
    C64 = 1 in 8,
    /// Double-precision (64-bit) float.
    F64 = 1 in 8 as 28,
    /// Signed 64-bit integer.
    I64 = 1 in 8 as 27,
    /// Unsigned 64-bit integer.
    U64 = 1 in 8,
    /// GGML quantization: 4 bits, one scale per 32 weights.
    Q4_0 = 32 in 18 as 2,
    /// GGML quantization: 4 bits, one scale and one minimum per 32 weights.
    Q4_1 = 32 in 20 as 3,
    /// GGML quantization: 5 bits, one scale per 32 weights.
    Q5_0 = 32 in 22 as 6,
    /// GGML quantization: 5 bits, one scale and one minimum per 32 weights.
    Q5_1 = 32 in 24 as 7,
    /// GGML quantization: 8 bits, one scale per 32 weights.
    Q8_0 = 32 in 34 as 8,
    /// GGML quantization: 8 bits, one scale and one sum per 32 weights.
    Q8_1 = 32 in 40 as 9,
    /// GGML quantization: 2 bits, in superblocks of 256 weights.
    Q2_K = 256 in 84 as 10,
    /// GGML quantization: 3 bits, in superblocks of 256 weights.
    Q3_K = 256 in 110 as 11,
    /// GGML quantization: 4 bits, in superblocks of 256 weights.
    Q4_K = 256 in 144 as 12,
    /// GGML quantization: 5 bits, in superblocks of 256 weights.
    Q5_K = 256 in 176 as 13,
    /// GGML quantization: 6 bits, in superblocks of 256 weights.
    Q6_K = 256 in 210 as 14,
    /// GGML quantization: 8 bits, in superblocks of 256 weights.
    Q8_K = 256 in 292 as 15,
    /// GGML quantization: 2 bits with a codebook, extra-extra-small.
    IQ2_XXS = 256 in 66 as 16,
    /// GGML quantization: 2 bits with a codebook, extra-small.
    IQ2_XS = 256 in 74 as 17,
    /// GGML quantization: 3 bits with a codebook, extra-extra-small.
    IQ3_XXS = 256 in 98 as 18,
    /// GGML quantization: 1 bit with a codebook, small.
    IQ1_S = 256 in 50 as 19,
    /// GGML quantization: 4 bits on a nonlinear scale, in blocks of 32 weights.
    IQ4_NL = 32 in 18 as 20,
    /// GGML quantization: 3 bits with a codebook, small.
    IQ3_S = 256 in 110 as 21,
    /// GGML quantization: 2 bits with a codebook, small.
    IQ2_S = 256 in 82 as 22,
    /// GGML quantization: 4 bits on a nonlinear scale, in blocks of 256 weights.
    IQ4_XS = 256 in 136 as 23,
    /// GGML quantization: 1 bit with a codebook, medium.
    IQ1_M = 256 in 56 as 29,
    /// GGML quantization: ternary, five weights per byte.
    TQ1_0 = 256 in 54 as 34,
    /// GGML quantization: ternary, four weights per byte.
    TQ2_0 = 256 in 66 as 35,
    /// GGML quantization: 4-bit floats, one exponent per 32 weights.
    MXFP4 = 32 in 17 as 39,
    /// GGML quantization: 4-bit floats, one 8-bit float scale per 16 weights.
    NVFP4 = 64 in 36 as 40,
    /// GGML quantization: 1 bit, one scale per 128 weights.
    Q1_0 = 128 in 18 as 41,
    /// GGML quantization: 2 bits, one scale per 64 weights.
    Q2_0 = 64 in 18 as 42,
}

impl FromStr for Dtype {
    type Err = Infallible;

    fn from_str(name: &str) -> Result<Self, Infallible> {
        Ok(name.into())
    }
}

super::text_type!(Dtype);

impl Dtype {
    /// Returns the size of `elements` elements in bytes, or `None` if the dtype is unknown, the elements do not fill
    /// whole blocks, or the size overflows.
    pub fn byte_length(&self, elements: u64) -> Option<u64> {
        let block = self.block()?;
        let blocks = elements.is_multiple_of(block.elements).then(|| elements / block.elements)?;
        blocks.checked_mul(block.bytes)
    }

    /// Returns the number of bits per element, or `None` for an unknown dtype or a quantized GGML type, whose elements
    /// share a scale per block.
    pub fn bits(&self) -> Option<u64> {
        let BlockSize { elements, bytes } = self.block()?;
        (elements <= MAX_UNSCALED_BLOCK).then_some(bytes * 8 / elements)
    }

    /// Returns whether the elements are floats of 8 bits or less with a mantissa. Each is one weight.
    #[doc(hidden)]
    pub fn is_narrow_float(&self) -> bool {
        let is_float8 =
            matches!(self, Self::F8_E4M3 | Self::F8_E5M2 | Self::F8_E4M3FNUZ | Self::F8_E5M2FNUZ);
        is_float8 || matches!(self, Self::F4 | Self::F6_E2M3 | Self::F6_E3M2)
    }

    /// Returns whether the elements are exponents without a mantissa. Only scales are.
    #[doc(hidden)]
    pub fn is_exponent(&self) -> bool {
        matches!(self, Self::F8_E8M0 | Self::E8M0 | Self::UE8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_they_are_written() {
        for (rank, dtype) in Dtype::KNOWN.iter().enumerate() {
            assert_eq!(dtype.rank().map(usize::from), Some(rank));
            assert_eq!(&Dtype::from(dtype.as_str()), dtype);
            assert!(dtype.block().is_some(), "{dtype}");
        }
        assert!(matches!(Dtype::from("bf16"), Dtype::Other(_)), "names are case-sensitive");
        assert_eq!(Dtype::from("F3").bits(), None);
        assert_eq!((Dtype::F6_E2M3.bits(), Dtype::F4.bits()), (Some(6), Some(4)));
        assert_eq!((Dtype::Q4_1.bits(), Dtype::Q8_0.bits()), (None, None));
        let lengths = [
            (Dtype::BF16, 3),
            (Dtype::F4, 3),
            (Dtype::F4, 4),
            (Dtype::Q4_K, 256),
            (Dtype::F64, u64::MAX),
        ];
        let lengths = lengths.map(|(dtype, elements)| dtype.byte_length(elements));
        assert_eq!(lengths, [Some(6), None, Some(2), Some(144), None]);
        assert_eq!(Dtype::from("X").byte_length(0), None);
    }

    /// The reference implementation is authoritative for every dtype it knows.
    #[test]
    fn widths_agree_with_the_safetensors_crate() {
        let mut compared = 0;
        for dtype in Dtype::KNOWN {
            let json = serde_json::to_string(dtype).unwrap();
            if let Ok(reference) = serde_json::from_str::<safetensors::Dtype>(&json) {
                assert_eq!(dtype.bits(), Some(reference.bitsize() as u64), "{dtype}");
                compared += 1;
            }
        }
        assert_eq!(compared, 22);
    }
}
