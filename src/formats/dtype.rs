//! The element types of tensors, by the names the format gives them.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// One row per known dtype: the name on the wire and its width in bits.
macro_rules! dtypes {
    ($($(#[$doc:meta])+ $name:ident = $bits:literal,)+) => {
        /// The type of a tensor's elements.
        ///
        /// Known are the 22 names of `safetensors` 0.8 and three that published models use beside
        /// them: `E8M0`, `UE8` and `FP4` (huggingface.js counts those too). Any other name is kept
        /// as [`Dtype::Other`]: a new dtype must not make a repo unreadable.
        ///
        /// ```
        /// use hf_meta::Dtype;
        ///
        /// assert_eq!(Dtype::from("BF16"), Dtype::BF16);
        /// assert_eq!(Dtype::BF16.bits(), Some(16));
        /// assert_eq!(Dtype::from("F3").to_string(), "F3");
        /// ```
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(non_camel_case_types, reason = "the names are those of the format")]
        #[non_exhaustive]
        pub enum Dtype {
            $($(#[$doc])+ $name,)+
            /// A name this version does not know, kept as it stands in the file.
            Other(UnknownDtype),
        }

        impl Dtype {
            /// Every dtype whose width is known, in the order of the format's own list.
            pub const KNOWN: &'static [Self] = &[$(Self::$name),+];

            /// The name in the header, such as `BF16`.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => stringify!($name),)+
                    Self::Other(UnknownDtype(name)) => name,
                }
            }

            /// The width of one element in bits; `None` for a dtype this version does not know.
            #[must_use]
            pub fn bits(&self) -> Option<u64> {
                match self {
                    $(Self::$name => Some($bits),)+
                    Self::Other(_) => None,
                }
            }
        }

        /// The known dtypes alone, for their places in the list.
        #[expect(non_camel_case_types, reason = "the names are those of the format")]
        #[expect(clippy::upper_case_acronyms, reason = "the names are those of the format")]
        enum Known {
            $($name,)+
        }

        impl Dtype {
            /// The place in [`Dtype::KNOWN`].
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

/// The name of a dtype that is not among [`Dtype::KNOWN`]; made by `Dtype::from` alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnknownDtype(Box<str>);

dtypes! {
    /// Boolean, one byte each.
    BOOL = 8,
    /// 4-bit float (MX), two to a byte.
    F4 = 4,
    /// The same width under the name some exporters write.
    FP4 = 4,
    /// 6-bit float: 2 exponent bits, 3 of mantissa.
    F6_E2M3 = 6,
    /// 6-bit float: 3 exponent bits, 2 of mantissa.
    F6_E3M2 = 6,
    /// Unsigned byte; also the container of many packed 4-bit formats.
    U8 = 8,
    /// Signed byte.
    I8 = 8,
    /// 8-bit float: 5 exponent bits, 2 of mantissa.
    F8_E5M2 = 8,
    /// 8-bit float: 4 exponent bits, 3 of mantissa.
    F8_E4M3 = 8,
    /// 8-bit exponent without mantissa: the scales of MX formats.
    F8_E8M0 = 8,
    /// The same as `F8_E8M0` under an older name.
    E8M0 = 8,
    /// The same as `F8_E8M0` under another name.
    UE8 = 8,
    /// 8-bit float, finite and without negative zero: 4 exponent bits, 3 of mantissa.
    F8_E4M3FNUZ = 8,
    /// 8-bit float, finite and without negative zero: 5 exponent bits, 2 of mantissa.
    F8_E5M2FNUZ = 8,
    /// Signed 16-bit integer.
    I16 = 16,
    /// Unsigned 16-bit integer.
    U16 = 16,
    /// Half precision float.
    F16 = 16,
    /// Brain float.
    BF16 = 16,
    /// Signed 32-bit integer.
    I32 = 32,
    /// Unsigned 32-bit integer.
    U32 = 32,
    /// Single precision float.
    F32 = 32,
    /// Complex number of two 32-bit floats.
    C64 = 64,
    /// Double precision float.
    F64 = 64,
    /// Signed 64-bit integer.
    I64 = 64,
    /// Unsigned 64-bit integer.
    U64 = 64,
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Dtype {
    type Err = Infallible;

    fn from_str(name: &str) -> Result<Self, Infallible> {
        Ok(name.into())
    }
}

impl Serialize for Dtype {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Dtype {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl Visitor<'_> for Name {
            type Value = Dtype;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a dtype")
            }

            fn visit_str<E>(self, name: &str) -> Result<Dtype, E> {
                Ok(name.into())
            }
        }

        deserializer.deserialize_str(Name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_round_trip() {
        for (rank, dtype) in Dtype::KNOWN.iter().enumerate() {
            assert_eq!(dtype.rank().map(usize::from), Some(rank));
            assert_eq!(&Dtype::from(dtype.as_str()), dtype);
            assert!(dtype.bits().is_some(), "{dtype}");
        }
        assert!(matches!(Dtype::from("bf16"), Dtype::Other(_)), "names are case-sensitive");
        assert_eq!(Dtype::from("F3").bits(), None);
    }

    /// The reference implementation is the authority on every name it knows.
    #[test]
    fn widths_are_those_of_the_safetensors_crate() {
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
