//! Counting, with checked arithmetic.

use std::collections::BTreeMap;

use super::Dtype;
use super::tensor::Entry;

/// What the tensors of one dtype amount to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DtypeCount {
    /// Tensors, scalars among them.
    pub tensors: u64,
    /// Elements as stored, scalars left out.
    pub parameters: u64,
    /// Tensors of shape `[]`. One is a stored constant, not a weight: only when it is not counted do
    /// the 44 `masked_bias` of EleutherAI/gpt-neox-20b leave the count that the safetensors
    /// documentation gives. To count it as one parameter, add this figure to `parameters`.
    pub scalars: u64,
    /// Bytes between the data offsets, those of scalars among them.
    pub bytes: u64,
}

impl DtypeCount {
    fn of(tensor: &Entry<'_>) -> Option<Self> {
        let elements = tensor.elements()?;
        let scalars = u64::from(tensor.shape.is_empty());
        Some(Self {
            tensors: 1,
            parameters: elements - scalars,
            scalars,
            bytes: tensor.byte_length(),
        })
    }

    fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            tensors: self.tensors.checked_add(other.tensors)?,
            parameters: self.parameters.checked_add(other.parameters)?,
            scalars: self.scalars.checked_add(other.scalars)?,
            bytes: self.bytes.checked_add(other.bytes)?,
        })
    }
}

/// Parameters per dtype, of a file or of all files of a repo.
///
/// A parameter is a stored element: the product of the shape. (Weights that were packed several to
/// an element are not unpacked.) Every sum was checked when it was made, so no figure here has
/// wrapped around.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterCount {
    by_dtype: BTreeMap<Dtype, DtypeCount>,
    total: DtypeCount,
}

impl ParameterCount {
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

    /// Every dtype that a tensor with dimensions has, with its parameters, in the order of
    /// [`Dtype::KNOWN`].
    pub fn iter(&self) -> impl Iterator<Item = (&Dtype, u64)> {
        self.rows()
            .filter(|(_, count)| count.tensors > count.scalars)
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

    /// Adds a tensor; `None`, and nothing changed, when a sum leaves 64 bits.
    pub(super) fn add(&mut self, tensor: &Entry<'_>) -> Option<()> {
        self.add_row(tensor.dtype, DtypeCount::of(tensor)?)
    }

    /// Adds another count; `None` when a sum leaves 64 bits.
    pub(crate) fn merge(&mut self, other: &Self) -> Option<()> {
        other.rows().try_for_each(|(dtype, count)| self.add_row(dtype, *count))
    }

    fn add_row(&mut self, dtype: &Dtype, count: DtypeCount) -> Option<()> {
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
            count.add(&Entry { dtype: &dtype.into(), shape, data_offsets: (0, bytes) })?;
        }
        Some(count)
    }

    #[test]
    fn scalars_stand_apart() {
        let found = count(&[("F16", &[], 2), ("F16", &[3, 4], 24), ("I64", &[], 8)]).unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), [(&Dtype::F16, 12)]);
        assert_eq!(
            *found.totals(),
            DtypeCount { tensors: 3, parameters: 12, scalars: 2, bytes: 34 }
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
