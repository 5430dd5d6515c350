//! The element types of tensors.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// One row per known dtype: its name in headers, and the elements and bytes of its smallest block.
macro_rules! dtypes {
    ($($(#[$doc:meta])+ $name:ident = $elements:literal in $bytes:literal,)+) => {
        /// The type of a tensor's elements.
        ///
        /// Known are the 22 names of `safetensors` 0.8, `E8M0`, `UE8` and `FP4`, which are in published models and
        /// known to huggingface.js, and the quantized types of GGML, which GGUF files have. Any other name is stored
        /// in [`Dtype::Other`], so that a new dtype does not make a repository unreadable.
        ///
        /// ```
        /// use hf_meta::Dtype;
        ///
        /// assert_eq!(Dtype::from("BF16"), Dtype::BF16);
        /// assert_eq!(Dtype::BF16.bits(), Some(16));
        /// assert_eq!(Dtype::F4.block().unwrap().elements, 2);
        /// assert_eq!(Dtype::Q4_K.block().unwrap().bits_per_element(), 4.5);
        /// assert_eq!(Dtype::from("F3").to_string(), "F3");
        /// ```
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(non_camel_case_types, reason = "the names are those of the format")]
        #[non_exhaustive]
        pub enum Dtype {
            $($(#[$doc])+ $name,)+
            /// An unknown dtype, with its name in the file.
            Other(UnknownDtype),
        }

        impl Dtype {
            /// All known dtypes: in the order of the specification of safetensors, then of the numbers of GGML.
            pub const KNOWN: &'static [Self] = &[$(Self::$name),+];

            /// Returns the name in the header, such as `BF16`.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => stringify!($name),)+
                    Self::Other(UnknownDtype(name)) => name,
                }
            }

            /// Returns the smallest block of elements that fills whole bytes; `None` for an unknown dtype.
            #[must_use]
            pub fn block(&self) -> Option<BlockSize> {
                match self {
                    $(Self::$name => Some(BlockSize { elements: $elements, bytes: $bytes }),)+
                    Self::Other(_) => None,
                }
            }

            /// Returns the width of one element in bits; `None` for an unknown dtype, and for a quantized type of
            /// GGML, where all elements of a block share a scale.
            #[must_use]
            pub fn bits(&self) -> Option<u64> {
                match self {
                    $(Self::$name => ($elements <= MOST_WITHOUT_SCALE).then_some($bytes * 8 / $elements),)+
                    Self::Other(_) => None,
                }
            }
        }

        /// The known dtypes alone, for their positions in the table.
        #[expect(non_camel_case_types, reason = "the names are those of the format")]
        #[expect(clippy::upper_case_acronyms, reason = "the names are those of the format")]
        enum Known {
            $($name,)+
        }

        impl Dtype {
            /// Returns the position in [`Dtype::KNOWN`]; `None` for an unknown dtype.
            pub(super) fn rank(&self) -> Option<u8> {
                match self {
                    $(Self::$name => Some(Known::$name as u8),)+
                    Self::Other(_) => None,
                }
            }
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

/// The most elements in a block that has no scale: eight elements of any whole number of bits fill whole bytes.
const MOST_WITHOUT_SCALE: u64 = 8;

/// The smallest block of elements that fills whole bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockSize {
    /// The number of elements in a block.
    pub elements: u64,
    /// The number of bytes of a block.
    pub bytes: u64,
}

impl BlockSize {
    /// Returns the bits of a block per element, such as 4.5 for `Q4_K`.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "blocks have at most a few hundred elements")]
    pub fn bits_per_element(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.elements as f64
    }
}

/// The name of a dtype that is not in [`Dtype::KNOWN`]. Only `Dtype::from` creates it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnknownDtype(Box<str>);

dtypes! {
    /// Boolean, one byte each.
    BOOL = 1 in 1,
    /// 4-bit float (MX), two to a byte.
    F4 = 2 in 1,
    /// 4-bit float (MX), under the name that some exporters write.
    FP4 = 2 in 1,
    /// 6-bit float: 2 exponent bits, 3 of mantissa.
    F6_E2M3 = 4 in 3,
    /// 6-bit float: 3 exponent bits, 2 of mantissa.
    F6_E3M2 = 4 in 3,
    /// Unsigned byte; also the container of many packed 4-bit formats.
    U8 = 1 in 1,
    /// Signed byte.
    I8 = 1 in 1,
    /// 8-bit float: 5 exponent bits, 2 of mantissa.
    F8_E5M2 = 1 in 1,
    /// 8-bit float: 4 exponent bits, 3 of mantissa.
    F8_E4M3 = 1 in 1,
    /// 8-bit exponent without mantissa: the scales of MX formats.
    F8_E8M0 = 1 in 1,
    /// 8-bit exponent without mantissa, under an older name.
    E8M0 = 1 in 1,
    /// 8-bit exponent without mantissa, under another name.
    UE8 = 1 in 1,
    /// 8-bit float, finite and without negative zero: 4 exponent bits, 3 of mantissa.
    F8_E4M3FNUZ = 1 in 1,
    /// 8-bit float, finite and without negative zero: 5 exponent bits, 2 of mantissa.
    F8_E5M2FNUZ = 1 in 1,
    /// Signed 16-bit integer.
    I16 = 1 in 2,
    /// Unsigned 16-bit integer.
    U16 = 1 in 2,
    /// Half precision float.
    F16 = 1 in 2,
    /// Brain float.
    BF16 = 1 in 2,
    /// Signed 32-bit integer.
    I32 = 1 in 4,
    /// Unsigned 32-bit integer.
    U32 = 1 in 4,
    /// Single precision float.
    F32 = 1 in 4,
    /// Complex number of two 32-bit floats.
    C64 = 1 in 8,
    /// Double precision float.
    F64 = 1 in 8,
    /// Signed 64-bit integer.
    I64 = 1 in 8,
    /// Unsigned 64-bit integer.
    U64 = 1 in 8,
    /// Quantized by GGML: 4 bits, one scale per 32 weights.
    Q4_0 = 32 in 18,
    /// Quantized by GGML: 4 bits, scale and minimum per 32 weights.
    Q4_1 = 32 in 20,
    /// Quantized by GGML: 5 bits, one scale per 32 weights.
    Q5_0 = 32 in 22,
    /// Quantized by GGML: 5 bits, scale and minimum per 32 weights.
    Q5_1 = 32 in 24,
    /// Quantized by GGML: 8 bits, one scale per 32 weights.
    Q8_0 = 32 in 34,
    /// Quantized by GGML: 8 bits, scale and sum per 32 weights.
    Q8_1 = 32 in 40,
    /// Quantized by GGML: 2 bits in a superblock of 256 weights.
    Q2_K = 256 in 84,
    /// Quantized by GGML: 3 bits in a superblock of 256 weights.
    Q3_K = 256 in 110,
    /// Quantized by GGML: 4 bits in a superblock of 256 weights.
    Q4_K = 256 in 144,
    /// Quantized by GGML: 5 bits in a superblock of 256 weights.
    Q5_K = 256 in 176,
    /// Quantized by GGML: 6 bits in a superblock of 256 weights.
    Q6_K = 256 in 210,
    /// Quantized by GGML: 8 bits in a superblock of 256 weights.
    Q8_K = 256 in 292,
    /// Quantized by GGML: 2 bits by codebook, smallest.
    IQ2_XXS = 256 in 66,
    /// Quantized by GGML: 2 bits by codebook, small.
    IQ2_XS = 256 in 74,
    /// Quantized by GGML: 3 bits by codebook, smallest.
    IQ3_XXS = 256 in 98,
    /// Quantized by GGML: 1 bit by codebook, small.
    IQ1_S = 256 in 50,
    /// Quantized by GGML: 4 bits on a non-linear scale, per 32 weights.
    IQ4_NL = 32 in 18,
    /// Quantized by GGML: 3 bits by codebook, small.
    IQ3_S = 256 in 110,
    /// Quantized by GGML: 2 bits by codebook, medium.
    IQ2_S = 256 in 82,
    /// Quantized by GGML: 4 bits on a non-linear scale, per 256 weights.
    IQ4_XS = 256 in 136,
    /// Quantized by GGML: 1 bit by codebook, medium.
    IQ1_M = 256 in 56,
    /// Quantized by GGML: Ternary, five weights in a byte.
    TQ1_0 = 256 in 54,
    /// Quantized by GGML: Ternary, four weights in a byte.
    TQ2_0 = 256 in 66,
    /// Quantized by GGML: 4-bit floats with one exponent per 32 weights.
    MXFP4 = 32 in 17,
    /// Quantized by GGML: 4-bit floats with one 8-bit float per 16 weights.
    NVFP4 = 64 in 36,
    /// Quantized by GGML: 1 bit, one scale per 128 weights.
    Q1_0 = 128 in 18,
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl AsRef<str> for Dtype {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl FromStr for Dtype {
    type Err = Infallible;

    fn from_str(name: &str) -> Result<Self, Infallible> {
        Ok(name.into())
    }
}

super::serde_as_text!(Dtype);

impl Dtype {
    /// Returns whether the elements are floats of 8 bits with a mantissa.
    pub(crate) fn is_float8(&self) -> bool {
        matches!(self, Self::F8_E4M3 | Self::F8_E5M2 | Self::F8_E4M3FNUZ | Self::F8_E5M2FNUZ)
    }

    /// Returns whether the elements are exponents without a mantissa, which only scales are.
    pub(crate) fn is_exponent(&self) -> bool {
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
        assert_eq!(Dtype::Q6_K.block().unwrap().bits_per_element().to_string(), "6.5625");
    }

    /// The reference implementation decides for every dtype that it knows.
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
