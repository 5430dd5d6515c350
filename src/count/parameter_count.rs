//! Counting, with checked arithmetic.

use std::collections::BTreeMap;

use crate::formats::{Dtype, TensorInfo};

/// What the tensors of one dtype amount to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DtypeCount {
    /// Tensors, scalars among them.
    pub tensors: u64,
    /// Tensors whose elements hold parameters: neither scalars nor what belongs to a quantization.
    pub counted: u64,
    /// The parameters that the elements hold. As many as there are elements, unless the model is
    /// quantized.
    pub parameters: u64,
    /// Elements as stored, scalars left out.
    pub elements: u64,
    /// Tensors of shape `[]`. One is a stored constant, not a weight: only when it is not counted do
    /// the 44 `masked_bias` of EleutherAI/gpt-neox-20b leave the count that the safetensors
    /// documentation gives. To count it as one element, add this figure to `elements`.
    pub scalars: u64,
    /// Bytes between the data offsets, those of scalars among them.
    pub bytes: u64,
}

impl DtypeCount {
    /// What a tensor amounts to that holds so many parameters, or none that count. `None` when its
    /// elements do not fit in 64 bits.
    pub(crate) fn of(tensor: &TensorInfo, parameters: Option<u64>) -> Option<Self> {
        let scalars = u64::from(tensor.is_scalar());
        Some(Self {
            tensors: 1,
            counted: u64::from(parameters.is_some()),
            parameters: parameters.unwrap_or(0),
            elements: tensor.elements()? - scalars,
            scalars,
            bytes: tensor.byte_length(),
        })
    }

    pub(crate) fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            tensors: self.tensors.checked_add(other.tensors)?,
            counted: self.counted.checked_add(other.counted)?,
            parameters: self.parameters.checked_add(other.parameters)?,
            elements: self.elements.checked_add(other.elements)?,
            scalars: self.scalars.checked_add(other.scalars)?,
            bytes: self.bytes.checked_add(other.bytes)?,
        })
    }
}

/// Parameters per dtype, of a file or of all files of a repo.
///
/// An element is what is stored: the product of the shape counts them. A parameter is what the elements
/// of a quantized model stand for, as the rules of `quantization` have it; the count of a header by
/// itself takes each element for one. Every sum was checked when it was made, so no figure here has
/// wrapped around.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterCount {
    by_dtype: BTreeMap<Dtype, DtypeCount>,
    total: DtypeCount,
}

impl ParameterCount {
    /// Creates a count from rows and their sum. A dtype may have several rows.
    pub(super) fn from_rows<'a>(
        rows: impl Iterator<Item = (&'a Dtype, DtypeCount)>,
        total: DtypeCount,
    ) -> Self {
        let mut by_dtype = BTreeMap::<Dtype, DtypeCount>::new();
        for (dtype, count) in rows {
            let row = by_dtype.entry(dtype.clone()).or_default();
            // No sum can overflow, because the total is larger and did not.
            *row = row.checked_add(count).unwrap_or(*row);
        }
        Self { by_dtype, total }
    }

    /// The parameters of one dtype; 0 where there are none.
    #[must_use]
    pub fn get(&self, dtype: &Dtype) -> u64 {
        self.by_dtype.get(dtype).map_or(0, |count| count.parameters)
    }

    /// The parameters of all dtypes together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.parameters
    }

    /// Every dtype that a counted tensor has, with its parameters, in the order of [`Dtype::KNOWN`].
    pub fn iter(&self) -> impl Iterator<Item = (&Dtype, u64)> {
        self.rows()
            .filter(|(_, count)| count.counted > 0)
            .map(|(dtype, count)| (dtype, count.parameters))
    }

    /// Every dtype with all of its figures.
    #[must_use]
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (&Dtype, &DtypeCount)> {
        self.by_dtype.iter()
    }

    /// All figures, summed over the dtypes.
    #[must_use]
    pub fn totals(&self) -> &DtypeCount {
        &self.total
    }

    /// Adds a tensor of which each element is a parameter; `None`, and nothing changed, when a sum
    /// leaves 64 bits.
    pub(crate) fn add(&mut self, tensor: &TensorInfo) -> Option<()> {
        let parameters = if tensor.is_scalar() { None } else { Some(tensor.elements()?) };
        self.add_row(&tensor.dtype, DtypeCount::of(tensor, parameters)?)
    }

    /// Adds another count; `None` when a sum leaves 64 bits.
    pub(crate) fn merge(&mut self, other: &Self) -> Option<()> {
        other.rows().try_for_each(|(dtype, count)| self.add_row(dtype, *count))
    }

    /// Adds to the figures of a dtype; `None`, and nothing changed, when a sum leaves 64 bits.
    pub(crate) fn add_row(&mut self, dtype: &Dtype, count: DtypeCount) -> Option<()> {
        // The total bounds every row, so the check on it is the check on all.
        self.total = self.total.checked_add(count)?;
        match self.by_dtype.get_mut(dtype) {
            Some(row) => *row = row.checked_add(count)?,
            None => drop(self.by_dtype.insert(dtype.clone(), count)),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(tensors: &[(&str, &[u64], u64)]) -> Option<ParameterCount> {
        let mut count = ParameterCount::default();
        for &(dtype, shape, bytes) in tensors {
            let (dtype, shape) = (dtype.into(), shape.to_vec());
            count.add(&TensorInfo { dtype, shape, data_offsets: (0, bytes) })?;
        }
        Some(count)
    }

    #[test]
    fn scalars_stand_apart() {
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
    }

    #[test]
    fn an_empty_tensor_is_listed_with_nothing() {
        let found = count(&[("F32", &[0, 5], 0)]).unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), [(&Dtype::F32, 0)]);
    }

    #[test]
    fn sums_do_not_wrap() {
        let half: (&str, &[u64], u64) = ("?", &[1 << 63], 0);
        assert_eq!(count(&[half, half]), None);
        let one = count(&[half]).unwrap();
        assert_eq!(one.clone().merge(&one), None);
    }
}
