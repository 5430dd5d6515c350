//! The differences between the values of two tensors.

use hf_meta_format::Dtype;

use super::number_format::NumberFormat;
use crate::results::TensorDifference;

/// A comparison of two tensors, whose bytes arrive in order.
#[derive(Clone, Debug)]
pub struct DifferenceScanner {
    format: Option<NumberFormat>,
    /// The size of a value in bytes.
    size: usize,
    compared: u64,
    differing: u64,
    largest: f64,
    sum: f64,
}

impl DifferenceScanner {
    /// The number of bytes that whole values of every dtype fill.
    pub const UNIT: usize = 8;

    /// Starts a comparison.
    pub fn new(dtype: &Dtype) -> Self {
        let format = NumberFormat::new(dtype);
        let size = format.map_or(1, |format| format.bytes);
        let format = format.filter(|format| !format.is_integer());
        Self { format, size, compared: 0, differing: 0, largest: 0.0, sum: 0.0 }
    }

    /// Adds the next bytes of both tensors, in equal number. They contain whole values.
    pub fn add(&mut self, before: &[u8], after: &[u8]) {
        self.compared += (before.len() / self.size) as u64;
        if before == after {
            return;
        }
        for (before, after) in before.chunks_exact(self.size).zip(after.chunks_exact(self.size)) {
            if before == after {
                continue;
            }
            self.differing += 1;
            if let Some(format) = self.format {
                let [before, after] = [before, after].map(|bytes| {
                    let mut bits = [0; 8];
                    bits[..bytes.len()].copy_from_slice(bytes);
                    format.value(u64::from_le_bytes(bits))
                });
                let difference = (after - before).abs();
                self.sum += difference;
                // A NaN stays.
                if difference.is_nan() || difference > self.largest {
                    self.largest = difference;
                }
            }
        }
    }

    /// Returns the differences.
    pub fn finish(self, tensor: &str) -> TensorDifference {
        let Self { format, compared, differing, largest, sum, .. } = self;
        #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
        let mean = sum / compared.max(1) as f64;
        let is_number = format.is_some() && sum.is_finite();
        TensorDifference {
            tensor: tensor.to_owned(),
            compared,
            differing,
            largest: is_number.then_some(largest),
            mean: is_number.then_some(mean),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(dtype: &Dtype, before: &[u8], after: &[u8]) -> TensorDifference {
        let mut scanner = DifferenceScanner::new(dtype);
        for (before, after) in before.chunks(8).zip(after.chunks(8)) {
            scanner.add(before, after);
        }
        scanner.finish("w")
    }

    #[test]
    fn differences_are_those_of_the_numbers() {
        let bytes = |values: [f32; 4]| values.map(f32::to_le_bytes).concat();
        let found =
            compare(&Dtype::F32, &bytes([1.0, 2.0, 3.0, 4.0]), &bytes([1.0, 2.5, 3.0, 2.0]));
        assert_eq!((found.compared, found.differing), (4, 2));
        assert_eq!((found.largest, found.mean), (Some(2.0), Some(0.625)));
        let nan = compare(&Dtype::F32, &bytes([1.0; 4]), &bytes([1.0, f32::NAN, 1.0, 1.0]));
        assert_eq!((nan.differing, nan.largest, nan.mean), (1, None, None));
        let packed = compare(&Dtype::I32, &[1; 8], &[1, 1, 1, 1, 1, 1, 1, 2]);
        assert_eq!((packed.compared, packed.differing, packed.largest), (2, 1, None));
        let half_bytes = compare(&Dtype::F4, &[1, 2, 3], &[1, 2, 4]);
        assert_eq!((half_bytes.compared, half_bytes.differing), (3, 1));
    }
}
