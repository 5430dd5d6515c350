//! The parts of a model that represent it.

use std::cmp::Reverse;
use std::ops::Range;

use hf_meta_format::read_plan::PlannedTensor;

use super::role::is_influential;

/// The limits of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleLimits {
    /// The maximum number of bytes of values. Tensors that are read whole have at most two thirds of them.
    pub bytes: u64,
    /// The number of ranges, each of which is a request. A few more are possible where neighbors form a long range.
    pub ranges: u64,
}

impl Default for SampleLimits {
    /// At most 24 MB; the rest of 32 MB is for gaps between neighbors. A thousand requests take half a minute.
    fn default() -> Self {
        Self { bytes: 24_000_000, ranges: 1_000 }
    }
}

impl SampleLimits {
    /// The maximum gap between parts of a range in bytes. A longer one is not read.
    pub const MAX_GAP: u64 = 8 << 10;

    /// The maximum length of a range in bytes. A longer one would leave memory for few others in flight.
    pub const MAX_RANGE: u64 = 1 << 20;

    /// Returns half of the limits, for two models that are read together.
    #[must_use]
    pub fn halved(self) -> Self {
        Self { bytes: self.bytes / 2, ranges: self.ranges / 2 }
    }
}

/// The maximum size of a tensor that is read whole, in bytes. Vectors, scales and routers may be larger.
const MAX_WHOLE: u64 = 1 << 20;

/// The maximum and the minimum size of a block in bytes. It contains whole blocks of values.
const MAX_BLOCK: u64 = 16 << 10;
const MIN_BLOCK: u64 = 8 << 10;

/// The maximum number of blocks of a tensor.
const MAX_BLOCKS_PER_TENSOR: u64 = 8;

/// Chooses the parts of tensors to read: vectors, scales, routers and small matrices whole, and blocks at random positions
/// of the others. Returns the index of the tensor and the range of its data for each part, sorted. The same seed chooses
/// the same parts. Tensors for which `is_read` is false are left out.
pub fn sample_blocks(
    tensors: &[PlannedTensor],
    is_read: impl Fn(usize, &PlannedTensor) -> bool,
    seed: u64,
    limits: &SampleLimits,
) -> Vec<(usize, Range<u64>)> {
    let mut random = Random(seed);
    let chosen = (0..tensors.len()).filter(|at| is_read(*at, &tensors[*at]));
    let (mut whole, mut large, mut left) = (Vec::new(), Vec::new(), limits.bytes / 3 * 2);
    // First the tensors of which a value concerns a whole row or expert.
    let mut ranked: Vec<_> = chosen.map(|at| (rank(&tensors[at]), at)).collect();
    ranked.sort_unstable();
    for ((is_other, length), at) in ranked {
        if (is_other && length > MAX_WHOLE) || length > left {
            large.push(at);
        } else if length > 0 {
            left -= length;
            whole.push(at);
        }
    }
    whole.sort_unstable();
    // Blocks of matrices have half of the ranges, if they need them.
    let room = limits.ranges.saturating_sub((large.len() as u64).min(limits.ranges / 2));
    let (chosen, ranges) = limit_ranges(tensors, &whole, room, &mut random);
    let is_chosen = |at: &usize| chosen.binary_search(at).is_ok();
    large.extend(whole.iter().filter(|at| !is_chosen(at) && rank(&tensors[**at]).0));
    large.sort_unstable();
    let bytes = chosen.iter().map(|at| tensors[*at].byte_length()).sum::<u64>();
    let rest = (limits.bytes.saturating_sub(bytes), limits.ranges.saturating_sub(ranges));
    let whole = chosen.iter().map(|at| (*at, 0..tensors[*at].byte_length()));
    let mut parts: Vec<_> = whole.collect();
    parts.extend(blocks(tensors, large, rest, &mut random));
    parts.sort_by_key(|(at, range)| (*at, range.start));
    parts
}

/// Returns whether a tensor is a matrix of many values that concern little each, and its size.
fn rank(tensor: &PlannedTensor) -> (bool, u64) {
    let is_matrix = tensor.shape.iter().filter(|length| **length > 1).count() > 1;
    (is_matrix && !is_influential(&tensor.name, &tensor.shape), tensor.byte_length())
}

/// Chooses tensors that some ranges contain, and returns them, sorted, with the number of ranges. Neighbors share a range.
/// Ranges with vectors, scales and routers are preferred, then longer ones, and at random among ranges of similar length.
fn limit_ranges(
    tensors: &[PlannedTensor],
    whole: &[usize],
    limit: u64,
    random: &mut Random,
) -> (Vec<usize>, u64) {
    let is_near = |one: &usize, other: &usize| {
        let (one, other) = (&tensors[*one], &tensors[*other]);
        let gap = other.start.checked_sub(one.end);
        *one.file == *other.file && gap.is_some_and(|gap| gap <= SampleLimits::MAX_GAP)
    };
    let mut groups: Vec<_> = whole
        .chunk_by(is_near)
        .map(|group| {
            let (first, last) = (&tensors[group[0]], &tensors[group[group.len() - 1]]);
            let length = last.end.saturating_sub(first.start).max(1);
            let is_other = group.iter().all(|at| rank(&tensors[*at]).0);
            ((is_other, Reverse(length.ilog2()), random.next()), length, group)
        })
        .collect();
    groups.sort_unstable();
    let (mut chosen, mut ranges) = (Vec::with_capacity(whole.len()), 0);
    for (_, length, group) in groups {
        let cost = length.div_ceil(SampleLimits::MAX_RANGE);
        if ranges + cost <= limit {
            ranges += cost;
            chosen.extend_from_slice(group);
        }
    }
    chosen.sort_unstable();
    (chosen, ranges)
}

/// Chooses blocks of large tensors, at most some bytes in some ranges.
fn blocks(
    tensors: &[PlannedTensor],
    mut large: Vec<usize>,
    (bytes, ranges): (u64, u64),
    random: &mut Random,
) -> Vec<(usize, Range<u64>)> {
    // Of more tensors than blocks, some are chosen at random.
    while large.len() as u64 > ranges.max(1) {
        let at = random.below(large.len() as u64);
        large.swap_remove(usize::try_from(at).unwrap_or_default());
    }
    let count = large.len().max(1) as u64;
    let blocks = (ranges / count).clamp(1, MAX_BLOCKS_PER_TENSOR);
    let length = (bytes / (count * blocks)).clamp(MIN_BLOCK, MAX_BLOCK);
    let length = length / MIN_BLOCK * MIN_BLOCK;
    let mut parts = Vec::new();
    for at in large {
        let size = tensors[at].byte_length();
        // One block in each equal part, so that blocks are spread. They begin where a block of values may.
        let blocks = blocks.min(size / length).max(1);
        let part = size / blocks / MIN_BLOCK * MIN_BLOCK;
        for number in 0..blocks {
            let (start, is_last) = (part * number, number + 1 == blocks);
            let end = if is_last { size } else { start + part };
            let room = (end - start).saturating_sub(length);
            let start = start + random.below(room + 1) / MIN_BLOCK * MIN_BLOCK;
            parts.push((at, start..start.saturating_add(length).min(size)));
        }
    }
    parts
}

/// The generator `SplitMix64`, which is enough to spread positions.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hf_meta_format::read_plan::{PlanOptions, ReadPlan, TensorSelection};
    use hf_meta_format::{Dtype, RepoPath, SafetensorsFileHeader};

    /// The number of samples, each with another seed and another position of the fault.
    const SAMPLES: u64 = 1_000;

    /// Returns a plan of tensors in files, each with a name, dtype, shape and number of bytes.
    fn plan(files: &[Vec<(String, Dtype, Vec<u64>)>]) -> ReadPlan {
        let headers = files.iter().enumerate().map(|(number, tensors)| {
            let mut start = 0;
            let infos = tensors.iter().map(|(name, dtype, shape)| {
                let bits = dtype.bits().unwrap();
                let end = start + shape.iter().product::<u64>() * bits / 8;
                let info = format!(
                    r#"{name:?}:{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#
                );
                start = end;
                info
            });
            let json = format!("{{{}}}", infos.collect::<Vec<_>>().join(","));
            let header = SafetensorsFileHeader::from_json(json.as_bytes()).unwrap();
            (format!("{number:05}.safetensors").parse().unwrap(), header)
        });
        let headers: Vec<_> = headers.collect();
        let files = headers.iter().map(|(path, header): &(RepoPath, _)| (path.clone(), &**header));
        ReadPlan::new(files, &TensorSelection::all(), &PlanOptions::default()).unwrap()
    }

    /// Returns the tensors of a file with a matrix of BF16 numbers.
    fn matrix(values: u64) -> Vec<PlannedTensor> {
        plan(&[vec![("w".to_owned(), Dtype::BF16, vec![values / 1_024, 1_024])]]).tensors
    }

    /// A scale for each of many experts, a norm in each of many shards, many small matrices, and a few large scales.
    #[test]
    fn samples_have_a_limited_number_of_ranges_and_bytes() {
        let limits = SampleLimits::default();
        let scalars = (0..20_000).flat_map(|number| {
            let name = |end: &str| format!("model.layers.0.mlp.experts.{number}.up_proj.{end}");
            [
                (name("weight"), Dtype::F8_E4M3, vec![256, 256]),
                (name("weight_scale"), Dtype::F32, vec![]),
            ]
        });
        let shards = (0..200).map(|shard| {
            let matrix = |at| (format!("l.{shard}.m{at}.weight"), Dtype::BF16, vec![8_192, 1_024]);
            let norm = (format!("l.{shard}.norm"), Dtype::BF16, vec![8_192]);
            (0..20).map(matrix).chain([norm]).collect::<Vec<_>>()
        });
        let small = (0..3_000).map(|number| {
            let shape = if number % 2 == 0 { vec![64, 64] } else { vec![1_024, 1_024] };
            vec![(format!("l.{number}.weight"), Dtype::BF16, shape)]
        });
        let cases: [(&str, Vec<Vec<_>>, usize, usize); 3] = [
            ("scalars", vec![scalars.collect()], 500, 500),
            ("shards", shards.collect(), 200, 800),
            ("small", small.collect(), 500, 300),
        ];
        for (name, files, least_whole, least_blocks) in cases {
            let plan = plan(&files);
            let parts = sample_blocks(&plan.tensors, |_, _| true, 0, &limits);
            let options = PlanOptions::default()
                .max_gap(SampleLimits::MAX_GAP)
                .max_range(SampleLimits::MAX_RANGE);
            let ranges = plan.parts(&parts, &options).unwrap();
            let found = (ranges.ranges.len(), ranges.bytes_to_read());
            assert!((900..=1_000).contains(&found.0) && found.1 <= 32_000_000, "{name}: {found:?}");
            let is_whole = |(at, part): &&(usize, Range<u64>)| {
                part.end - part.start == plan.tensors[*at].byte_length()
            };
            let whole = parts.iter().filter(is_whole).count();
            let found = (whole, parts.len() - whole);
            assert!(found.0 >= least_whole && found.1 + 50 >= least_blocks, "{name}: {found:?}");
        }
    }

    /// A scale concerns a group of weights, and a router all experts.
    #[test]
    fn scales_and_routers_are_read_whole() {
        let tensors = [
            ("model.layers.0.mlp.gate.weight", Dtype::F32, [256, 7_168], true),
            ("model.layers.0.q.scales", Dtype::F16, [128, 28_672], true),
            ("model.layers.0.mlp.gate_proj.weight", Dtype::BF16, [8_192, 8_192], false),
            ("model.layers.1.mlp.gate.weight", Dtype::BF16, [8_192, 8_192], false),
            ("model.layers.1.q.scales", Dtype::F16, [128, 28_672], false),
        ];
        let named = tensors
            .each_ref()
            .map(|(name, dtype, shape, _)| ((*name).to_owned(), dtype.clone(), shape.to_vec()));
        let plan = plan(&[named.to_vec()]);
        let parts = sample_blocks(&plan.tensors, |_, _| true, 0, &SampleLimits::default());
        for tensor in &plan.tensors {
            let at = plan.tensors.iter().position(|other| other.name == tensor.name).unwrap();
            let (.., is_whole) = tensors.iter().find(|(name, ..)| **name == *tensor.name).unwrap();
            let of_tensor = parts.iter().filter(|(of, _)| *of == at).count();
            assert_eq!(of_tensor, if *is_whole { 1 } else { 8 }, "{}", tensor.name);
        }
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
