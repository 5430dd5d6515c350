//! One entry of a header: what a tensor is and where its bytes are.

use std::fmt;

use serde::Serialize;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};

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
    /// A place to read entries into.
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

impl<'de> Deserialize<'de> for TensorInfo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut tensor = Self::EMPTY;
        deserializer.deserialize_map(Entry(&mut tensor))?;
        Ok(tensor)
    }
}

/// Reads an entry into the place of another, whose memory it takes over.
pub(super) struct Entry<'a>(pub(super) &'a mut TensorInfo);

impl<'de> DeserializeSeed<'de> for Entry<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entry<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `dtype`, `shape` and `data_offsets`")
    }

    /// An array in place of the object, which a derived implementation would take, is refused.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (mut dtype, mut shape, mut data_offsets) = (None, None, None);
        while let Some(field) = map.next_key()? {
            match field {
                Field::Dtype => set(&mut dtype, "dtype", map.next_value()?)?,
                Field::Shape => {
                    set(&mut shape, "shape", map.next_value_seed(Shape(&mut self.0.shape))?)?;
                }
                Field::DataOffsets => set(&mut data_offsets, "data_offsets", map.next_value()?)?,
                Field::Unknown => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let () = shape.ok_or_else(|| A::Error::missing_field("shape"))?;
        self.0.dtype = dtype.ok_or_else(|| A::Error::missing_field("dtype"))?;
        self.0.data_offsets =
            data_offsets.ok_or_else(|| A::Error::missing_field("data_offsets"))?;
        Ok(())
    }
}

struct Shape<'a>(&'a mut Vec<u64>);

impl<'de> DeserializeSeed<'de> for Shape<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Shape<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lengths of the dimensions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.0.clear();
        while let Some(length) = seq.next_element()? {
            self.0.push(length);
        }
        Ok(())
    }
}

fn set<T, E: serde::de::Error>(
    slot: &mut Option<T>,
    field: &'static str,
    value: T,
) -> Result<(), E> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::duplicate_field(field)),
    }
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Field {
    Dtype,
    Shape,
    DataOffsets,
    #[serde(other)]
    Unknown,
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
