//! The bits of numbers.

use hf_meta_format::Dtype;

/// The layout of the numbers of a dtype, of at most eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NumberFormat {
    /// The size of a number in bytes.
    pub(super) bytes: usize,
    sign: u64,
    exponent: u64,
    mantissa: u64,
    kind: Kind,
}

/// The meaning of the largest exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Infinite, or NaN, as in IEEE 754.
    Ieee,
    /// A number, except with a mantissa of ones, which is NaN (`fn`).
    Finite,
    /// A number; only the sign without other bits is NaN (`fnuz`).
    UnsignedZero,
    /// NaN; all other exponents are positive numbers.
    Exponent,
    /// An integer.
    Integer,
}

/// A class of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Nan,
    Infinite,
    Zero,
    Negative,
    Positive,
}

impl NumberFormat {
    /// Returns the layout of a dtype; `None` for complex numbers, numbers of less than a byte, and blocks with scales.
    pub(super) fn new(dtype: &Dtype) -> Option<Self> {
        use Kind::{Exponent, Finite, Ieee, Integer, UnsignedZero};

        let float = |bytes, exponent, kind| {
            let bits = 8 * u64::from(bytes);
            let mantissa = bits - 1 - exponent;
            Self {
                bytes: bytes as usize,
                sign: 1_u64 << (bits - 1),
                exponent: ((1_u64 << exponent) - 1) << mantissa,
                mantissa: (1_u64 << mantissa) - 1,
                kind,
            }
        };
        let integer = |bytes: u8, sign| Self {
            bytes: usize::from(bytes),
            sign,
            exponent: 0,
            mantissa: 0,
            kind: Integer,
        };
        Some(match dtype {
            Dtype::F64 => float(8_u8, 11, Ieee),
            Dtype::F32 => float(4, 8, Ieee),
            Dtype::BF16 => float(2, 8, Ieee),
            Dtype::F16 => float(2, 5, Ieee),
            Dtype::F8_E5M2 => float(1, 5, Ieee),
            Dtype::F8_E4M3 => float(1, 4, Finite),
            Dtype::F8_E4M3FNUZ => float(1, 4, UnsignedZero),
            Dtype::F8_E5M2FNUZ => float(1, 5, UnsignedZero),
            exponent if exponent.is_exponent() => Self { kind: Exponent, ..integer(1, 0) },
            Dtype::BOOL | Dtype::U8 => integer(1, 0),
            Dtype::I8 => integer(1, 1 << 7),
            Dtype::U16 => integer(2, 0),
            Dtype::I16 => integer(2, 1 << 15),
            Dtype::U32 => integer(4, 0),
            Dtype::I32 => integer(4, 1 << 31),
            Dtype::U64 => integer(8, 0),
            Dtype::I64 => integer(8, 1 << 63),
            _ => return None,
        })
    }

    /// Returns whether the numbers are integers, such as packed words, whose values mean nothing alone.
    pub(super) fn is_integer(self) -> bool {
        self.kind == Kind::Integer
    }

    /// Returns the class of a number.
    #[inline]
    pub(super) fn class(self, bits: u64) -> Class {
        let is_largest = bits & self.exponent == self.exponent;
        let is_negative = bits & self.sign != 0;
        match self.kind {
            Kind::Ieee if is_largest && bits & self.mantissa != 0 => return Class::Nan,
            Kind::Ieee if is_largest => return Class::Infinite,
            Kind::Finite if is_largest && bits & self.mantissa == self.mantissa => {
                return Class::Nan;
            }
            Kind::UnsignedZero if bits == self.sign => return Class::Nan,
            Kind::Exponent if bits == 0xff => return Class::Nan,
            Kind::Exponent => return Class::Positive,
            Kind::Integer if bits == 0 => return Class::Zero,
            Kind::Integer => {}
            _ if bits & !self.sign == 0 => return Class::Zero,
            _ => {}
        }
        if is_negative { Class::Negative } else { Class::Positive }
    }
}

impl NumberFormat {
    /// Returns the value of a number as a 64-bit float. Integers of 64 bits are rounded.
    pub(super) fn value(self, bits: u64) -> f64 {
        let magnitude = bits & (self.exponent | self.mantissa);
        match self.kind {
            Kind::Exponent => return 2_f64.powi(i32::try_from(bits).unwrap_or(0) - 127),
            #[expect(clippy::cast_precision_loss, reason = "an approximate value")]
            Kind::Integer if bits & self.sign == 0 => return bits as f64,
            #[expect(clippy::cast_precision_loss, reason = "an approximate value")]
            Kind::Integer => return (bits as f64) - 2.0 * (self.sign as f64),
            _ => {}
        }
        match self.class(bits) {
            Class::Nan => return f64::NAN,
            Class::Infinite => {
                return f64::INFINITY * if bits & self.sign == 0 { 1.0 } else { -1.0 };
            }
            _ => {}
        }
        let digits = self.mantissa.trailing_ones();
        let exponent = i32::try_from(magnitude >> digits).unwrap_or(0);
        // The `fnuz` types have one more in their bias.
        let offset = i32::try_from((self.exponent >> digits) >> 1).unwrap_or(0);
        let offset = if self.kind == Kind::UnsignedZero { offset + 1 } else { offset };
        #[expect(clippy::cast_precision_loss, reason = "a mantissa has at most 52 bits")]
        let fraction = (magnitude & self.mantissa) as f64 / (self.mantissa as f64 + 1.0);
        let value = if exponent == 0 {
            fraction * 2_f64.powi(1 - offset)
        } else {
            (1.0 + fraction) * 2_f64.powi(exponent - offset)
        };
        if bits & self.sign == 0 { value } else { -value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(dtype: &Dtype, bits: u64) -> Class {
        NumberFormat::new(dtype).unwrap().class(bits)
    }

    /// Floats of Rust are those of IEEE 754.
    #[test]
    fn wide_floats_are_classified_as_by_rust() {
        let expected = |number: f64| match number {
            number if number.is_nan() => Class::Nan,
            number if number.is_infinite() => Class::Infinite,
            0.0 => Class::Zero,
            number if number < 0.0 => Class::Negative,
            _ => Class::Positive,
        };
        let interesting = [0_u8, 1, 0x7f, 0x80, 0xff];
        for high in 0..=u8::MAX {
            for low in interesting {
                let (next, rest) = (low, low);
                let bits = u32::from_be_bytes([high, next, rest, rest]);
                let found = class(&Dtype::F32, bits.into());
                assert_eq!(found, expected(f32::from_bits(bits).into()), "{bits:x}");
                let bits64 = u64::from_be_bytes([high, next, rest, rest, rest, rest, rest, rest]);
                assert_eq!(
                    class(&Dtype::F64, bits64),
                    expected(f64::from_bits(bits64)),
                    "{bits64:x}"
                );
                // BF16 is the upper half of F32.
                let upper = bits >> 16;
                let number = f32::from_bits(upper << 16);
                assert_eq!(class(&Dtype::BF16, upper.into()), expected(number.into()), "{upper:x}");
            }
        }
    }

    #[expect(clippy::float_cmp, reason = "the values are exact")]
    #[test]
    fn numbers_have_the_values_of_their_specifications() {
        let value = |dtype: &Dtype, bits: u64| NumberFormat::new(dtype).unwrap().value(bits);
        for number in [0.0_f32, -1.5, 3.25e-40, f32::MAX, f32::MIN_POSITIVE, -0.1] {
            let bits = number.to_bits();
            assert_eq!(value(&Dtype::F32, bits.into()), f64::from(number));
            let wide = f64::from(number) / 3.0;
            assert_eq!(value(&Dtype::F64, wide.to_bits()), wide);
            let short = f64::from(f32::from_bits(bits & 0xffff_0000));
            assert_eq!(value(&Dtype::BF16, (bits >> 16).into()), short);
        }
        let cases = [
            (Dtype::F16, 0x3555, 0.333_251_953_125),
            (Dtype::F16, 0x0001, 5.960_464_477_539_063e-8),
            (Dtype::F8_E4M3, 0x7e, 448.0),
            (Dtype::F8_E4M3, 0x01, 0.001_953_125),
            (Dtype::F8_E5M2, 0x7b, 57_344.0),
            (Dtype::F8_E4M3FNUZ, 0x7f, 240.0),
            (Dtype::F8_E5M2FNUZ, 0x7f, 57_344.0),
            (Dtype::F8_E8M0, 0x80, 2.0),
            (Dtype::I8, 0xff, -1.0),
            (Dtype::U8, 0xff, 255.0),
        ];
        for (dtype, bits, expected) in cases {
            assert_eq!(value(&dtype, bits), expected, "{dtype} {bits:x}");
        }
    }

    /// From the specifications: OCP 8-bit floats, and those of Graphcore, AMD and Qualcomm (`fnuz`).
    #[test]
    fn narrow_numbers_are_classified_by_their_specifications() {
        use Class::{Infinite, Nan, Negative, Positive, Zero};

        let cases = [
            (
                Dtype::F16,
                vec![
                    (0x7c00, Infinite),
                    (0xfc00, Infinite),
                    (0x7c01, Nan),
                    (0x7bff, Positive),
                    (0x8000, Zero),
                ],
            ),
            (
                Dtype::F8_E5M2,
                vec![
                    (0x7c, Infinite),
                    (0xfc, Infinite),
                    (0x7d, Nan),
                    (0xff, Nan),
                    (0x80, Zero),
                    (0x81, Negative),
                ],
            ),
            (
                Dtype::F8_E4M3,
                vec![
                    (0x7f, Nan),
                    (0xff, Nan),
                    (0x7e, Positive),
                    (0x78, Positive),
                    (0x80, Zero),
                    (0xfe, Negative),
                ],
            ),
            (Dtype::F8_E4M3FNUZ, vec![(0x80, Nan), (0x7f, Positive), (0xff, Negative), (0, Zero)]),
            (Dtype::F8_E5M2FNUZ, vec![(0x80, Nan), (0x7f, Positive), (0x7c, Positive), (0, Zero)]),
            (Dtype::F8_E8M0, vec![(0xff, Nan), (0, Positive), (0xfe, Positive)]),
            (Dtype::I8, vec![(0x80, Negative), (0x7f, Positive), (0, Zero)]),
            (Dtype::U8, vec![(0x80, Positive), (0xff, Positive), (0, Zero)]),
            (Dtype::I64, vec![(1 << 63, Negative), (u64::MAX, Negative), (1, Positive)]),
        ];
        for (dtype, values) in cases {
            for (bits, expected) in values {
                assert_eq!(class(&dtype, bits), expected, "{dtype} {bits:x}");
            }
        }
        assert_eq!(NumberFormat::new(&Dtype::Q4_K), None);
        assert_eq!(NumberFormat::new(&Dtype::F4), None);
    }
}
