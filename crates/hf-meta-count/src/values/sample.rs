//! The parts of a model that represent it.

use std::ops::Range;

use hf_meta_format::read_plan::PlannedTensor;

/// The limits of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleLimits {
    /// The maximum number of bytes of small tensors, which are read whole.
    pub whole_bytes: u64,
    /// The maximum number of bytes of blocks of large tensors.
    pub block_bytes: u64,
    /// The maximum number of blocks. Each is a request.
    pub blocks: u64,
}

impl Default for SampleLimits {
    /// At most 24 MB; the rest of 32 MB is for gaps between neighbors. BLOOM has 283 matrices: three blocks of each.
    fn default() -> Self {
        Self { whole_bytes: 12_000_000, block_bytes: 12_000_000, blocks: 1_000 }
    }
}

impl SampleLimits {
    /// Returns half of the limits, for two models that are read together.
    #[must_use]
    pub fn halved(self) -> Self {
        let Self { whole_bytes, block_bytes, blocks } = self;
        Self { whole_bytes: whole_bytes / 2, block_bytes: block_bytes / 2, blocks: blocks / 2 }
    }
}

/// The maximum size of a tensor that is read whole, in bytes: vectors, scales and routers of small models.
const MAX_WHOLE: u64 = 1 << 20;

/// The maximum and the minimum size of a block in bytes. It contains whole blocks of values.
const MAX_BLOCK: u64 = 16 << 10;
const MIN_BLOCK: u64 = 8 << 10;

/// The maximum number of blocks of a tensor.
const MAX_BLOCKS_PER_TENSOR: u64 = 8;

/// Chooses the parts of tensors to read: small ones whole, and blocks at random positions of the others. Returns the index
/// of the tensor and the range of its data for each part, sorted. The same seed chooses the same parts. Tensors for which
/// `is_read` is false are left out.
pub fn sample_blocks(
    tensors: &[PlannedTensor],
    is_read: impl Fn(usize, &PlannedTensor) -> bool,
    seed: u64,
    limits: &SampleLimits,
) -> Vec<(usize, Range<u64>)> {
    let mut parts = Vec::new();
    // Vectors first: a scale in a vector concerns a whole row.
    let (mut small, mut large): (Vec<_>, Vec<_>) = (0..tensors.len())
        .filter(|at| is_read(*at, &tensors[*at]))
        .partition(|at| tensors[*at].byte_length() <= MAX_WHOLE);
    small.sort_by_key(|at| (is_matrix(&tensors[*at]), tensors[*at].byte_length()));
    let mut left = limits.whole_bytes;
    for at in small {
        let length = tensors[at].byte_length();
        if length > left {
            large.push(at);
        } else if length > 0 {
            left -= length;
            parts.push((at, 0..length));
        }
    }
    large.sort_unstable();
    let mut random = Random(seed);
    // Of more tensors than blocks, some are chosen at random.
    while large.len() as u64 > limits.blocks.max(1) {
        let at = random.below(large.len() as u64);
        large.swap_remove(usize::try_from(at).unwrap_or_default());
    }
    large.sort_unstable();
    let count = large.len().max(1) as u64;
    let blocks = (limits.blocks / count).clamp(1, MAX_BLOCKS_PER_TENSOR);
    let length = (limits.block_bytes / (count * blocks)).clamp(MIN_BLOCK, MAX_BLOCK);
    let length = length / MIN_BLOCK * MIN_BLOCK;
    for at in large {
        let size = tensors[at].byte_length();
        // One block in each equal part, so that blocks are spread.
        let part = size / blocks;
        for number in 0..blocks {
            let room = part.saturating_sub(length);
            let start = part * number + random.below(room + 1) / 8 * 8;
            parts.push((at, start..start.saturating_add(length).min(size)));
        }
    }
    parts.sort_by_key(|(at, range)| (*at, range.start));
    parts
}

fn is_matrix(tensor: &PlannedTensor) -> bool {
    tensor.shape.iter().filter(|length| **length > 1).count() > 1
}

/// The generator `SplitMix64`, which is enough to spread positions.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hf_meta_format::SafetensorsFileHeader;
    use hf_meta_format::read_plan::{PlanOptions, ReadPlan, TensorSelection};

    /// The number of samples, each with another seed and another position of the fault.
    const SAMPLES: u64 = 1_000;

    /// Returns the tensors of a file with a matrix of BF16 numbers.
    fn matrix(values: u64) -> Vec<PlannedTensor> {
        let bytes = 2 * values;
        let json = format!(
            r#"{{"w":{{"dtype":"BF16","shape":[{},1024],"data_offsets":[0,{bytes}]}}}}"#,
            values / 1_024
        );
        let header = SafetensorsFileHeader::from_json(json.as_bytes()).unwrap();
        let files = [("model.safetensors".parse().unwrap(), &*header)];
        let plan = ReadPlan::new(files, &TensorSelection::all(), &PlanOptions::default());
        plan.unwrap().tensors
    }

    /// Returns the number of samples of a matrix that show a fault of some values. Of these, `least` have to be together in
    /// what is read: a block of zeros is one of 1,024 values.
    fn found(matrix_values: u64, fault: u64, least: u64) -> u64 {
        let (tensors, mut random) = (matrix(matrix_values), Random(1));
        let shows = |seed| {
            let start = 2 * random.below(matrix_values - fault + 1);
            let fault = start..start + 2 * fault;
            let parts = sample_blocks(&tensors, |_, _| true, seed, &SampleLimits::default());
            assert_eq!(parts.len(), 8);
            let mut blocks = parts.iter().flat_map(|(_, part)| {
                let length = usize::try_from(2 * least).unwrap();
                part.clone().step_by(length).map(move |at| at..(at + 2 * least).min(part.end))
            });
            blocks.any(|block| fault.start <= block.start && block.end <= fault.end)
        };
        (0..SAMPLES).map(shows).filter(|is_found| *is_found).count() as u64
    }

    /// The numbers of `tensors.md`. Blocks are in equal parts of a matrix, so a lost stretch is found more often than by
    /// blocks at random positions, which find a share `p` with the probability 1 − (1 − p)^8.
    #[test]
    fn faults_are_found_as_often_as_the_page_says() {
        const LARGE: u64 = 32 << 20;

        let faults = [LARGE / 100, LARGE / 10, LARGE / 3, LARGE].map(|fault| (LARGE, fault, 1_024));
        let faults = faults.into_iter().chain([(1 << 20, 1, 1)]);
        for ((matrix, fault, least), expected) in faults.zip([8, 71, 100, 100, 6_u64]) {
            let percent = found(matrix, fault, least) * 100 / SAMPLES;
            assert!(percent.abs_diff(expected) <= 2, "{fault}: {percent} %");
        }
    }
}
