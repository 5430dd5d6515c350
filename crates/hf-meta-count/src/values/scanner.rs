//! Classifies the values of a tensor as they arrive, and concludes what is wrong with them.

use hf_meta_format::Dtype;
use hf_meta_format::formats::clip;

use super::number_format::{Class, NumberFormat};
use crate::results::Finding;

/// The number of values in a block that is reported if all of them are zero. Trained weights contain no such block.
const BLOCK: u64 = 1_024;

/// The minimum number of values from which a constant matrix is reported.
const MIN_MATRIX: u64 = 256;

/// The ends of names of scales. A `scale` alone may be the weight of a norm, and `logit_scale` may be negative.
const SCALES: [&str; 11] = [
    "weight_scale",
    "weight_scale_inv",
    "weight_scale_2",
    "input_scale",
    "input_scale_2",
    "scales",
    "_scales",
    "q_scale",
    "k_scale",
    "v_scale",
    "output_scale",
];

/// Words in the names of matrices with rows for tokens that never occur, which stay zero.
const LOOKUP_TABLES: [&str; 8] =
    ["embed", "lm_head", "wte", "wpe", "token", "vocab", "output.weight", "pos"];

/// Words in the names of matrices that are zero before a training, such as those of a new adapter.
const ZERO_AT_START: [&str; 6] =
    ["lora_b", "lora_up", "lora.up", "zero_conv", "zero_module", "proj_out"];

/// Words in the names of tensors that contain infinite numbers on purpose.
const MASKS: [&str; 2] = ["mask", "attn.bias"];

/// Returns whether the values of a tensor can be checked. Packed words are checked by their scales.
pub fn is_scannable(dtype: &Dtype) -> bool {
    NumberFormat::new(dtype).is_some_and(|format| !format.is_integer())
}

/// The number of values of a class, and the index of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ClassCount {
    count: u64,
    first: u64,
}

impl ClassCount {
    fn add(&mut self, at: u64) {
        if self.count == 0 {
            self.first = at;
        }
        self.count += 1;
    }
}

/// A check of the values of one tensor, which are fed in the order of the tensor.
#[derive(Clone, Debug)]
pub struct ValueScanner {
    format: NumberFormat,
    /// The position after the last byte, and the bytes of a value that has begun.
    end: u64,
    partial: Vec<u8>,
    read: u64,
    nan: ClassCount,
    infinite: ClassCount,
    negative: ClassCount,
    zero: ClassCount,
    /// The bits of the first value, and false once another one was found.
    constant: Option<(u64, bool)>,
    blocks: u64,
    zero_blocks: ClassCount,
}

impl ValueScanner {
    /// Starts the check of a tensor; `None` if its values cannot be checked.
    pub fn new(dtype: &Dtype) -> Option<Self> {
        let format = NumberFormat::new(dtype).filter(|format| !format.is_integer())?;
        let none = ClassCount::default();
        Some(Self {
            format,
            end: 0,
            partial: Vec::new(),
            read: 0,
            nan: none,
            infinite: none,
            negative: none,
            zero: none,
            constant: None,
            blocks: 0,
            zero_blocks: none,
        })
    }

    /// Returns the number of values that were read.
    pub fn values_read(&self) -> u64 {
        self.read
    }

    /// Adds bytes at a position of the tensor's data. A value may begin in the bytes before, if they were added last.
    pub fn add(&mut self, offset: u64, mut bytes: &[u8]) {
        let size = self.format.bytes;
        if offset != self.end {
            self.partial.clear();
        }
        self.end = offset.saturating_add(bytes.len() as u64);
        let mut at = offset / size as u64;
        if !self.partial.is_empty() {
            let missing = (size - self.partial.len()).min(bytes.len());
            let (start, rest) = bytes.split_at(missing);
            self.partial.extend_from_slice(start);
            bytes = rest;
            if self.partial.len() < size {
                return;
            }
            let value = std::mem::take(&mut self.partial);
            self.scan(at, &value);
            at += 1;
        }
        let whole = bytes.len() - bytes.len() % size;
        let (values, rest) = bytes.split_at(whole);
        for block in values.chunks(usize::try_from(BLOCK).unwrap_or(1) * size) {
            let zeros = self.zero.count;
            self.scan(at, block);
            let length = (block.len() / size) as u64;
            if length == BLOCK {
                self.blocks += 1;
                if self.zero.count - zeros == BLOCK {
                    self.zero_blocks.add(at);
                }
            }
            at += length;
        }
        self.partial.extend_from_slice(rest);
    }

    fn scan(&mut self, at: u64, values: &[u8]) {
        match self.format.bytes {
            1 => self.scan_as::<1>(at, values),
            2 => self.scan_as::<2>(at, values),
            4 => self.scan_as::<4>(at, values),
            _ => self.scan_as::<8>(at, values),
        }
    }

    fn scan_as<const N: usize>(&mut self, at: u64, values: &[u8]) {
        for (value, at) in values.chunks_exact(N).zip(at..) {
            let mut bits = [0; 8];
            bits[..N].copy_from_slice(value);
            let bits = u64::from_le_bytes(bits);
            match self.format.class(bits) {
                Class::Positive => {}
                Class::Nan => self.nan.add(at),
                Class::Infinite => self.infinite.add(at),
                Class::Zero => self.zero.add(at),
                Class::Negative => self.negative.add(at),
            }
            let (first, is_constant) = self.constant.get_or_insert((bits, true));
            *is_constant &= *first == bits;
        }
        self.read += (values.len() / N) as u64;
    }

    /// Returns what is wrong with the values.
    pub fn findings(&self, tensor: &str, shape: &[u64]) -> Vec<Finding> {
        let name = tensor.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        let mut found = Vec::new();
        let clipped = clip(tensor);
        let invalid = |value, ClassCount { count, first }| Finding::InvalidValues {
            tensor: clipped.clone(),
            value,
            found: count,
            read: self.read,
            first,
        };
        if self.nan.count > 0 {
            found.push(invalid("NaN", self.nan));
        }
        if self.infinite.count > 0 && !has(&MASKS) {
            found.push(invalid("infinite", self.infinite));
        }
        let suspicious = |reason, ClassCount { count, first }| Finding::SuspiciousValues {
            tensor: clipped.clone(),
            reason,
            found: count,
            read: self.read,
            first,
        };
        if is_scale(&name) {
            if self.negative.count > 0 {
                found.push(suspicious("negative scales", self.negative));
            }
            if self.zero.count > 0 {
                found.push(suspicious("scales of zero", self.zero));
            }
            return found;
        }
        let is_matrix = shape.iter().filter(|length| **length > 1).count() > 1;
        if !is_matrix || self.read < MIN_MATRIX || has(&ZERO_AT_START) {
            return found;
        }
        let all = ClassCount { count: self.read, first: 0 };
        if self.zero.count == self.read {
            found.push(suspicious("only zeros", all));
        } else if self.constant.is_some_and(|(_, is_constant)| is_constant) && self.nan.count == 0 {
            found.push(suspicious("only one number", all));
        } else if self.zero_blocks.count > 0 && !has(&LOOKUP_TABLES) {
            let count = self.zero_blocks.count.saturating_mul(BLOCK);
            found.push(suspicious("blocks of zeros", ClassCount { count, ..self.zero_blocks }));
        }
        found
    }
}

/// Returns whether a lower-case name is the one of a scale.
pub(super) fn is_scale(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    SCALES.iter().any(|scale| {
        if let Some(end) = scale.strip_prefix('_') {
            last.strip_suffix(end).is_some_and(|rest| rest.ends_with('_'))
        } else {
            last == *scale
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds numbers of 32 bits in parts of some bytes.
    fn scan(values: &[f32], part: usize) -> ValueScanner {
        let bytes: Vec<_> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut scanner = ValueScanner::new(&Dtype::F32).unwrap();
        let mut at = 0;
        for part in bytes.chunks(part) {
            scanner.add(at, part);
            at += part.len() as u64;
        }
        assert_eq!(scanner.values_read(), values.len() as u64);
        scanner
    }

    fn texts(values: &[f32], part: usize, name: &str, shape: &[u64]) -> Vec<String> {
        scan(values, part).findings(name, shape).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn values_are_found_wherever_the_parts_end() {
        let mut values = vec![1.0, 2.0, -3.0, 0.0, 5.0];
        (values[1], values[3]) = (f32::NAN, f32::NEG_INFINITY);
        let expected = [
            "tensor `w` has NaN values: 1 of 5 values read, the first at index 1",
            "tensor `w` has infinite values: 1 of 5 values read, the first at index 3",
        ];
        for part in [1, 2, 3, 4, 5, 7, 100] {
            assert_eq!(texts(&values, part, "w", &[5]), expected, "{part}");
        }
    }

    #[test]
    fn matrices_without_information_are_suspicious() {
        let shape = &[64, 64][..];
        let trained: Vec<_> = (0..4_096_u16).map(|number| f32::from(number) - 2_000.5).collect();
        let with_zeros = |range: std::ops::Range<usize>| {
            let mut values = trained.clone();
            values[range].fill(0.0);
            values
        };
        assert_eq!(texts(&trained, 4_096, "w", shape), [""; 0]);
        let reason = |values: &[f32], name: &str, shape: &[u64]| {
            let found = texts(values, 1 << 20, name, shape);
            assert!(found.len() < 2, "{found:?}");
            found.into_iter().next().unwrap_or_default()
        };
        assert!(reason(&vec![0.0; 4_096], "w", shape).contains("only zeros: 4,096 of 4,096"));
        assert!(reason(&vec![0.5; 4_096], "w", shape).contains("only one number"));
        let block = reason(&with_zeros(1_024..2_048), "w", shape);
        assert!(
            block.contains("blocks of zeros: 1,024 of 4,096") && block.ends_with("index 1024"),
            "{block}"
        );
        assert_eq!(reason(&with_zeros(1_000..2_000), "w", shape), "", "no whole block");
        // Zeros are normal in biases, in rows of tokens that do not occur, and in new adapters.
        for (name, shape) in
            [("bias", &[4_096][..]), ("bias", &[1, 4_096]), ("m.lora_B.weight", shape)]
        {
            assert_eq!(reason(&vec![0.0; 4_096], name, shape), "", "{name}");
        }
        assert_eq!(reason(&with_zeros(0..2_048), "model.embed_tokens.weight", shape), "");
    }

    #[test]
    fn scales_are_positive() {
        let found = texts(&[1.0, -2.0, 0.0], 100, "m.q_proj.weight_scale", &[3, 1]);
        assert!(found[0].contains("negative scales: 1 of 3"), "{found:?}");
        assert!(found[1].contains("scales of zero: 1 of 3"), "{found:?}");
        for name in ["m.norm.scale", "logit_scale", "m.layer_scale"] {
            assert_eq!(texts(&[1.0, -2.0, 0.0], 100, name, &[3]), [""; 0], "{name}");
        }
        for name in ["a.scales", "a.weight_scale_inv", "a.down_proj_scales"] {
            assert!(is_scale(name), "{name}");
        }
    }
}
