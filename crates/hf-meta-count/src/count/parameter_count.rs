//! Parameter counts per dtype.

use std::collections::BTreeMap;
use std::iter::Sum;

use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

use hf_meta_format::formats::{Dtype, clip};

/// Totals over the tensors of one dtype.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[non_exhaustive]
pub struct DtypeCount {
    /// The number of tensors, including scalars.
    pub tensors: u64,
    /// The number of tensors that contain parameters: all except scalars and auxiliary tensors.
    pub counted: u64,
    /// The number of parameters. Equals the number of elements unless the model is quantized.
    pub parameters: u64,
    /// The number of stored elements, excluding scalars.
    pub elements: u64,
    /// The number of tensors with shape `[]`. These are constants, not weights: the safetensors documentation, too,
    /// omits the 44 `masked_bias` tensors of EleutherAI/gpt-neox-20b from its count. To count each scalar as one
    /// element, add this number to `elements`.
    pub scalars: u64,
    /// The size of all tensors in bytes, including scalars.
    pub bytes: u64,
}

impl DtypeCount {
    /// Adds every field. Returns `None` if a sum of parameters, elements or bytes does not fit in 64 bits.
    pub(super) fn checked_add(&self, other: &Self) -> Option<Self> {
        Some(Self {
            parameters: self.parameters.checked_add(other.parameters)?,
            elements: self.elements.checked_add(other.elements)?,
            bytes: self.bytes.checked_add(other.bytes)?,
            ..self.saturating_add(other)
        })
    }

    /// Adds every field, saturating at the numeric bounds.
    pub(super) fn saturating_add(&self, other: &Self) -> Self {
        Self {
            tensors: self.tensors.saturating_add(other.tensors),
            counted: self.counted.saturating_add(other.counted),
            parameters: self.parameters.saturating_add(other.parameters),
            elements: self.elements.saturating_add(other.elements),
            scalars: self.scalars.saturating_add(other.scalars),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// Parameter counts per dtype.
///
/// Elements are what is stored: the product of a tensor's dimensions. Parameters are the weights of the model before
/// quantization, counted by the rules in [`count`](crate::count). A count from a single model never overflows: a
/// [`Counter`](crate::count::Counter) returns an error instead.
///
/// Serializes to the parameters per dtype, such as `{"BF16": 176247271424}`, like `parameterCount` in a
/// [`CountReport`](crate::CountReport).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterCount {
    by_dtype: BTreeMap<Dtype, DtypeCount>,
    total: DtypeCount,
}

impl ParameterCount {
    /// Creates a count from parts of rows.
    pub(super) fn new<'a>(rows: impl Iterator<Item = (&'a Dtype, &'a DtypeCount)>) -> Self {
        let mut by_dtype = BTreeMap::<Dtype, DtypeCount>::new();
        for (dtype, count) in rows {
            let row = by_dtype.entry(dtype.clone()).or_default();
            *row = row.saturating_add(count);
        }
        let total = by_dtype.values().copied().sum();
        Self { by_dtype, total }
    }

    /// Returns the number of parameters of one dtype, or 0 if no tensor has this dtype.
    pub fn get(&self, dtype: &Dtype) -> u64 {
        self.by_dtype.get(dtype).map_or(0, |count| count.parameters)
    }

    /// Returns the total number of parameters.
    pub fn total(&self) -> u64 {
        self.total.parameters
    }

    /// Returns the dtypes of all counted tensors with their number of parameters, in the order of [`Dtype::KNOWN`].
    pub fn iter(&self) -> impl Iterator<Item = (&Dtype, u64)> {
        self.rows()
            .filter(|(_, count)| count.counted > 0)
            .map(|(dtype, count)| (dtype, count.parameters))
    }

    /// Returns every dtype with its totals, including dtypes that occur only in uncounted tensors.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (&Dtype, &DtypeCount)> {
        self.by_dtype.iter()
    }

    /// Returns the totals over all dtypes.
    pub fn totals(&self) -> &DtypeCount {
        &self.total
    }
}

impl<'a> IntoIterator for &'a ParameterCount {
    type Item = (&'a Dtype, u64);
    type IntoIter = Box<dyn Iterator<Item = Self::Item> + 'a>;

    /// Iterates over the same items as [`ParameterCount::iter`].
    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

/// Adds up the counts of several models. Sums saturate at [`u64::MAX`].
///
/// ```
/// use hf_meta_count::ParameterCount;
///
/// let counts: [ParameterCount; 2] = Default::default();
/// let sum: ParameterCount = counts.iter().sum();
/// assert_eq!(sum.total(), 0);
/// ```
impl<'a> Sum<&'a Self> for ParameterCount {
    fn sum<I: Iterator<Item = &'a Self>>(counts: I) -> Self {
        Self::new(counts.flat_map(Self::rows))
    }
}

/// Adds every field. Sums saturate at [`u64::MAX`].
impl Sum for DtypeCount {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, count| sum.saturating_add(&count))
    }
}

impl Serialize for ParameterCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// The error returned when a sum or product overflows 64 bits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the parameter count overflows 64 bits at tensor `{tensor}`")]
#[must_use]
pub struct CountOverflow {
    /// The name of the tensor that caused the overflow, truncated to 200 characters.
    pub tensor: String,
}

/// A result of counting.
pub(super) type CountResult<T = ()> = Result<T, CountOverflow>;

impl CountOverflow {
    pub(super) fn new(tensor: &str) -> Self {
        Self { tensor: clip(tensor) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Counter;
    use hf_meta_format::formats::TensorInfo;

    fn count(tensors: &[(&str, &[u64], u64)]) -> Option<ParameterCount> {
        let mut counter = Counter::new();
        for &(dtype, shape, bytes) in tensors {
            let (dtype, shape) = (dtype.into(), shape.to_vec());
            counter.add("w", &TensorInfo::new(dtype, shape, (0, bytes))).ok()?;
        }
        Some(counter.finish().ok()?.0)
    }

    #[test]
    fn scalars_are_counted_separately() {
        let found = count(&[("F16", &[], 2), ("F16", &[3, 4], 24), ("I64", &[], 8)]).unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), [(&Dtype::F16, 12)]);
        assert_eq!(
            *found.totals(),
            DtypeCount {
                tensors: 3,
                counted: 1,
                parameters: 12,
                elements: 12,
                scalars: 2,
                bytes: 34
            }
        );
        assert_eq!(found.rows().len(), 2);
        assert_eq!(found.get(&Dtype::F32), 0);
        assert_eq!((&found).into_iter().map(|(_, count)| count).sum::<u64>(), found.total());
        assert_eq!(serde_json::to_string(&found).unwrap(), r#"{"F16":12}"#);
    }

    #[test]
    fn an_empty_tensor_is_listed_with_no_parameters() {
        let found = count(&[("F32", &[0, 5], 0)]).unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), [(&Dtype::F32, 0)]);
    }

    #[test]
    fn counts_of_several_models_are_added_by_dtype() {
        let one = count(&[("F16", &[3, 4], 24), ("F32", &[], 4)]).unwrap();
        let other = count(&[("F16", &[1 << 40], 2), ("BF16", &[5], 10)]).unwrap();
        let sum: ParameterCount = [&one, &other].into_iter().sum();
        let parameters: Vec<_> = sum.iter().map(|(dtype, found)| (dtype.as_str(), found)).collect();
        assert_eq!(parameters, [("F16", 12 + (1 << 40)), ("BF16", 5)]);
        let rows: DtypeCount = sum.rows().map(|(_, row)| *row).sum();
        assert_eq!((rows, rows.scalars), (*sum.totals(), 1));
        let totals = [*one.totals(), *other.totals()];
        assert_eq!(totals.into_iter().sum::<DtypeCount>(), *sum.totals());
        let large = count(&[("?", &[u64::MAX], 0)]).unwrap();
        let sum: ParameterCount = [&large, &large].into_iter().sum();
        assert_eq!((sum.total(), sum.get(&"?".into())), (u64::MAX, u64::MAX));
    }

    #[test]
    fn sums_do_not_wrap() {
        let half: (&str, &[u64], u64) = ("?", &[1 << 63], 0);
        assert_eq!(count(&[half, half]), None);
        assert!(count(&[half]).is_some());
        // Scales contain no parameters, but their elements and bytes are added, too.
        let scales: (&str, &[u64], u64) = ("F8_E8M0", &[1 << 63], 0);
        assert_eq!(count(&[scales, scales]), None);
        assert_eq!(count(&[scales]).map(|count| count.total()), Some(0));
        let bytes: (&str, &[u64], u64) = ("?", &[1], 1 << 63);
        assert_eq!(count(&[bytes, bytes]), None);
    }
}
