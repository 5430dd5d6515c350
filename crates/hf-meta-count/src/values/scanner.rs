//! Classifies the values of a tensor as they arrive, and concludes what is wrong with them.

use std::ops::Range;

use hf_meta_format::Dtype;
use hf_meta_format::formats::clip;

use super::number_format::{Class, NumberFormat};
use super::role::{ValueRole, is_signed_scale};
use crate::results::Finding;

/// The number of values in a block that is reported if all of them are zero. Trained weights contain no such block.
const BLOCK: u64 = 1_024;

/// The minimum number of values from which a constant matrix is reported.
const MIN_MATRIX: u64 = 256;

/// Returns whether the values of a tensor can be checked. Packed words are checked by their scales.
pub fn is_scannable(name: &str, dtype: &Dtype, shape: &[u64]) -> bool {
    ValueScanner::new(name, dtype, shape).is_some()
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

/// The zeros of a block of values, from its first value on.
#[derive(Clone, Copy, Debug)]
struct BlockZeros {
    /// The index of the next value; none if values of the block were not read.
    next: Option<u64>,
    zeros: u64,
}

/// A check of the values of one tensor, which are fed in the order of the tensor.
#[derive(Clone, Debug)]
pub struct ValueScanner {
    format: NumberFormat,
    role: ValueRole,
    is_matrix: bool,
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
    block: BlockZeros,
    zero_blocks: ClassCount,
}

impl ValueScanner {
    /// Starts the check of a tensor; `None` if its values cannot be checked. Of integers, the ones in a matrix of a layer
    /// are checked, unless they may be packed words, which have 32 bits.
    pub fn new(name: &str, dtype: &Dtype, shape: &[u64]) -> Option<Self> {
        let format = NumberFormat::new(dtype)?;
        let role = ValueRole::new(name, shape);
        let is_matrix = shape.iter().filter(|length| **length > 1).count() > 1;
        if format.is_integer() && (!is_matrix || !role.varies() || format.bytes == 4) {
            return None;
        }
        let none = ClassCount::default();
        Some(Self {
            format,
            role,
            is_matrix,
            end: 0,
            partial: Vec::new(),
            read: 0,
            nan: none,
            infinite: none,
            negative: none,
            zero: none,
            constant: None,
            block: BlockZeros { next: None, zeros: 0 },
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
        self.scan(at, values);
        self.partial.extend_from_slice(rest);
    }

    /// Scans values in blocks that begin at multiples of [`BLOCK`] of the index in the tensor.
    fn scan(&mut self, mut at: u64, mut values: &[u8]) {
        let size = self.format.bytes;
        while !values.is_empty() {
            let room = usize::try_from(BLOCK - at % BLOCK).unwrap_or(1);
            let (part, rest) = values.split_at(values.len().min(room * size));
            let zeros = self.zero.count;
            match size {
                1 => self.scan_as::<1>(at, part),
                2 => self.scan_as::<2>(at, part),
                4 => self.scan_as::<4>(at, part),
                _ => self.scan_as::<8>(at, part),
            }
            let end = at + (part.len() / size) as u64;
            self.add_to_block(at..end, self.zero.count - zeros);
            (at, values) = (end, rest);
        }
    }

    /// Adds values of one block.
    fn add_to_block(&mut self, values: Range<u64>, zeros: u64) {
        if values.start.is_multiple_of(BLOCK) {
            self.block = BlockZeros { next: Some(values.start), zeros: 0 };
        }
        if self.block.next != Some(values.start) {
            self.block.next = None;
            return;
        }
        self.block = BlockZeros { next: Some(values.end), zeros: self.block.zeros + zeros };
        if self.block.zeros == BLOCK {
            self.zero_blocks.add(values.end - BLOCK);
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

    /// Returns what is wrong with the values. The scales of integers may be negative.
    pub fn findings(&self, tensor: &str, has_integer_weights: bool) -> Vec<Finding> {
        let mut found = Vec::new();
        let clipped = clip(tensor);
        let invalid = |value, ClassCount { count, first }| Finding::InvalidValues {
            tensor: clipped.clone(),
            value,
            found: count,
            read: self.read,
            first,
        };
        let suspicious = |reason, ClassCount { count, first }| Finding::SuspiciousValues {
            tensor: clipped.clone(),
            reason,
            found: count,
            read: self.read,
            first,
        };
        if self.nan.count > 0 {
            found.push(invalid("NaN", self.nan));
        }
        if self.infinite.count > 0 {
            match self.role {
                ValueRole::Bound => {}
                ValueRole::Unknown => found.push(suspicious("infinite values", self.infinite)),
                _ => found.push(invalid("infinite", self.infinite)),
            }
        }
        if self.role == ValueRole::Scale {
            if self.negative.count > 0 && !is_signed_scale(tensor, has_integer_weights) {
                found.push(suspicious("negative scales", self.negative));
            }
            // Small scales of NVFP4 are rounded to zero (`get_weights_scaling_factor` in `nvfp4_tensor.py` of ModelOpt).
            let may_be_zero = self.format.bytes == 1 && self.zero.count < self.read;
            if self.zero.count > 0 && !may_be_zero {
                found.push(suspicious("scales of zero", self.zero));
            }
        }
        if let Some((reason, values)) = self.lost_values() {
            found.push(suspicious(reason, values));
        }
        found
    }

    /// Returns the values of a matrix that contain no information.
    fn lost_values(&self) -> Option<(&'static str, ClassCount)> {
        if !self.is_matrix || self.read < MIN_MATRIX || !self.role.varies() {
            return None;
        }
        let all = ClassCount { count: self.read, first: 0 };
        if self.zero.count == self.read {
            return Some(("only zeros", all));
        }
        if self.constant.is_some_and(|(_, is_constant)| is_constant) && self.nan.count == 0 {
            return Some(("only one number", all));
        }
        // Rows of integers may be zero: their scale is the one of another row.
        let has_block = self.zero_blocks.count > 0 && self.role == ValueRole::Layer;
        let count = self.zero_blocks.count.saturating_mul(BLOCK);
        (has_block && !self.format.is_integer())
            .then_some(("blocks of zeros", ClassCount { count, ..self.zero_blocks }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds numbers of 32 bits in parts of some bytes.
    fn scan(values: &[f32], part: usize, name: &str, shape: &[u64]) -> ValueScanner {
        let bytes: Vec<_> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut scanner = ValueScanner::new(name, &Dtype::F32, shape).unwrap();
        let mut at = 0;
        for part in bytes.chunks(part) {
            scanner.add(at, part);
            at += part.len() as u64;
        }
        assert_eq!(scanner.values_read(), values.len() as u64);
        scanner
    }

    fn texts(values: &[f32], part: usize, name: &str, shape: &[u64]) -> Vec<String> {
        let found = scan(values, part, name, shape).findings(name, false);
        found.iter().map(ToString::to_string).collect()
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

    /// Returns the reason of the only finding.
    fn reason(values: &[f32], name: &str, shape: &[u64]) -> String {
        let found = texts(values, 1 << 20, name, shape);
        assert!(found.len() < 2, "{found:?}");
        found.into_iter().next().unwrap_or_default()
    }

    /// Returns numbers that are zero in a range.
    fn with_zeros(range: Range<usize>) -> Vec<f32> {
        let mut values: Vec<_> = (0..4_096_u16).map(|number| f32::from(number) - 2_000.5).collect();
        values[range].fill(0.0);
        values
    }

    #[test]
    fn matrices_without_information_are_suspicious() {
        let shape = &[64, 64][..];
        for name in [
            "w.weight",
            "m.layers.0.self_attn.q_proj.weight",
            "m.layers.0.mlp.experts.gate_up_proj",
            "m.layers.0.attn.in_proj_weight",
            "m.layers.0.mlp.gate.weight",
            "m.layers.0.block_sparse_moe.experts.3.w2.weight",
            "m.layers.0.mlp.shared_experts.up_proj.weight",
            "bert.encoder.layer.0.attention.output.dense.weight",
            "conv.parametrizations.weight.original1",
            "params.dense.kernel",
            "params/dense/kernel",
            "decoder/linear/w",
        ] {
            assert_eq!(reason(&with_zeros(0..0), name, shape), "", "{name}");
            assert!(reason(&[0.0; 4_096], name, shape).contains("only zeros: 4,096 of 4,096"));
            assert!(reason(&[0.5; 4_096], name, shape).contains("only one number"), "{name}");
            let block = reason(&with_zeros(1_024..2_048), name, shape);
            assert!(
                block.contains("blocks of zeros: 1,024 of 4,096") && block.ends_with("index 1024"),
                "{name}: {block}"
            );
            assert_eq!(reason(&with_zeros(1_000..2_000), name, shape), "", "no whole block");
        }
    }

    /// Rows of tokens that do not occur, and kernels of independent channels. The whole matrix is not zero.
    #[test]
    fn rows_of_tokens_may_be_zero() {
        for name in [
            "model.embed_tokens.weight",
            "model.shared.weight",
            "lm_head.weight",
            "transformer.output_layer.weight",
            "transformer.wte.weight",
            "token_embd.weight",
            "output.weight",
            "quantizer.codebook.weight",
            "m.layers.0.q_proj.lora_A.weight",
            "upscore.weight",
        ] {
            assert_eq!(reason(&with_zeros(0..2_048), name, &[64, 64]), "", "{name}");
            assert!(reason(&[0.0; 4_096], name, &[64, 64]).contains("only zeros"), "{name}");
        }
    }

    /// Each is zero in a sound file: in a new model of its class, in a new adapter, or as a bias.
    #[test]
    fn parameters_that_begin_with_zeros_are_not_suspicious() {
        for name in [
            "bias",
            "m.layers.0.mlp.experts.down_proj_bias",
            "m.layers.0.mlp.experts.gate_up_proj_bias",
            "attn.relative_position_bias_table",
            "attn.attention_biases",
            "m.lora_B.weight",
            "m.embed_tokens.lora_embedding_A",
            "m.q_proj.hada_w2_b",
            "m.q_proj.oft_R.weight",
            "m.embed_tokens.oft_embedding_R.weight",
            "m.q_proj.lily_B.weight",
            "m.q_proj.peanut_B.weight",
            "backbone.blocks.0.mlstm_layer.igate_preact.weight",
            "m.q_proj.boft_R",
            "m.q_proj.miss_block",
            "randlora_gamma",
            "controlnet_down_blocks.0.weight",
            "controlnet_mid_block.weight",
            "controlnet_cond_embedding.conv_out.weight",
            "down_blocks.0.base_to_ctrl.0.weight",
            "control_to_base_for_conv_in.weight",
            "input_block.weight",
            "final_linear.weight",
            "head.weight",
            "head.fc.weight",
            "vit.embeddings.position_embeddings",
            "vit.embeddings.register_tokens",
            "pos_embed",
            "attn.rel_pos_h",
            "embeddings.time_embeddings",
            "mask_tokens",
            "decoder.layers.0.encoder_attn.sampling_offsets.weight",
            "decoder.layers.0.encoder_attn.attention_weights.weight",
            "bbox_embed.0.layers.2.weight",
            "bbox_predictor.layers.2.weight",
            "embeddings.word_embeddings.weight_integer",
            "quantizer.layers.0.codebook.embed",
            "h.0.attn.bias",
            "layers.0.attn_mask",
            "decoder.mask",
            "m.layers.0.mlp.router.gate.weight",
            "m.layers.0.norm.weight",
        ] {
            for values in [vec![0.0; 4_096], with_zeros(0..2_048)] {
                assert_eq!(reason(&values, name, &[64, 64]), "", "{name}");
            }
        }
        assert_eq!(reason(&[0.0; 4_096], "w.weight", &[1, 4_096]), "", "a vector");
    }

    /// No trained parameter is infinite. Bounds and masks are, and the rest is a warning.
    #[test]
    fn infinite_values_are_errors_in_parameters_only() {
        let (shape, mut values) = (&[64, 64][..], vec![0.5; 4_096]);
        values[9..200].fill(1.5);
        (values[7], values[8]) = (f32::INFINITY, f32::NEG_INFINITY);
        let is_error = |name: &str| match &scan(&values, 100, name, shape).findings(name, false)[..]
        {
            [] => None,
            [Finding::SuspiciousValues { reason: "infinite values", found: 2, .. }] => Some(false),
            [Finding::InvalidValues { value: "infinite", found: 2, .. }] => Some(true),
            found => panic!("{name}: {found:?}"),
        };
        for name in [
            "m.q_proj.weight",
            "m.embed_tokens.weight",
            "m.norm.weight",
            "m.q_proj.bias.bias_bias",
            "m.experts.down_proj_bias",
            "m.experts.down_proj",
            "m.attn.relative_attention_bias.weight",
            "m.lora_B.weight",
            "m.lora_embedding_A",
            "m.q_proj.weight_scale",
            "m.mixer.A_log",
            "cls_token",
            "mask_token",
        ] {
            assert_eq!(is_error(name), Some(true), "{name}");
        }
        for name in [
            "m.q_proj.input_min",
            "m.q_proj.input_max",
            "m.q_proj.output_min",
            "m.q_proj.output_max",
            "activation_post_process.min_val",
            "alibi",
            "attn.causal_bias",
            "attn.attention_bias",
            "triu",
            "causal_mask",
            "h.0.attn.bias",
            "attn.masked_bias",
        ] {
            assert_eq!(is_error(name), None, "{name}");
        }
        assert_eq!(is_error("m.table"), Some(false));
    }

    /// Blocks begin at multiples of 1,024 of the index, wherever a part ends.
    #[test]
    fn blocks_follow_the_index_in_the_tensor() {
        let mut values: Vec<_> = (0..8_192_u16).map(|number| f32::from(number) + 0.5).collect();
        values[2_048..3_072].fill(0.0);
        values[5_000..6_900].fill(0.0);
        let expected = "tensor `w.weight` has blocks of zeros: 2,048 of 8,192 values read, the first at index 2048";
        for part in [1, 3, 4, 1_000, 4_004, 4_096, 10_007, 1 << 20] {
            assert_eq!(texts(&values, part, "w.weight", &[64, 128]), [expected], "{part}");
        }
        // Half a block is not a block, even if the other half is zero elsewhere.
        let bytes = |values: usize| vec![0; 4 * values];
        let mut scanner = ValueScanner::new("w.weight", &Dtype::F32, &[64, 128]).unwrap();
        scanner.add(0, &1.0_f32.to_le_bytes());
        scanner.add(4 * 1_024, &bytes(512));
        scanner.add(4 * 2_560, &bytes(512));
        scanner.add(4 * 5_000, &bytes(1_100));
        assert_eq!(scanner.findings("w.weight", false), []);
    }

    /// The writers of `scales` choose the sign.
    #[test]
    fn scales_are_positive_unless_their_writer_chooses_the_sign() {
        let values = [1.0, -2.0, 0.0];
        let found = |name: &str, has_integer_weights| {
            let found = scan(&values, 100, name, &[3, 1]).findings(name, has_integer_weights);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let zero = |name: &str| {
            format!("tensor `{name}` has scales of zero: 1 of 3 values read, the first at index 2")
        };
        for name in ["m.q_proj.weight_scale", "m.weight_scale_inv", "k_scale", "m.input_scale"] {
            let negative = format!(
                "tensor `{name}` has negative scales: 1 of 3 values read, the first at index 1"
            );
            assert_eq!(found(name, false), [negative, zero(name)]);
        }
        for (name, has_integer_weights) in [
            ("m.q_proj.scales", false),
            ("m.down_proj_scales", false),
            ("m.q_proj.weight_scale", true),
        ] {
            assert_eq!(found(name, has_integer_weights), [zero(name)]);
        }
        for name in ["m.norm.scale", "logit_scale", "m.layer_scale"] {
            assert_eq!(found(name, false), [""; 0], "{name}");
        }
    }

    #[test]
    fn scales_of_eight_bits_may_be_rounded_to_zero() {
        let found = |bytes: [u8; 4]| {
            let name = "m.q_proj.weight_scale";
            let mut scanner = ValueScanner::new(name, &Dtype::F8_E4M3, &[2, 2]).unwrap();
            scanner.add(0, &bytes);
            scanner.findings(name, false).len()
        };
        assert_eq!(
            (found([0x38, 0, 0x7e, 1]), found([0; 4]), found([0x38, 0xb8, 1, 1])),
            (0, 1, 1)
        );
    }

    /// Packed words mean nothing alone.
    #[test]
    fn integers_are_checked_in_matrices_of_layers() {
        let shape = &[64, 64][..];
        for (name, dtype, is_checked) in [
            ("q_proj.weight", Dtype::I8, true),
            ("q_proj.weight", Dtype::U8, true),
            ("q_proj.weight", Dtype::I16, true),
            ("q_proj.weight", Dtype::U64, true),
            ("q_proj.weight", Dtype::U32, false),
            ("q_proj.qweight", Dtype::I32, false),
            ("q_proj.weight_packed", Dtype::I32, false),
            ("q_proj.qzeros", Dtype::I32, false),
            ("embeddings.position_ids", Dtype::I64, false),
            ("mask.weight", Dtype::BOOL, true),
        ] {
            assert_eq!(is_scannable(name, &dtype, shape), is_checked, "{name} {dtype}");
        }
        assert!(!is_scannable("q_proj.weight", &Dtype::U8, &[4_096, 1]));
        let found = |bytes: &[u8]| {
            let mut scanner = ValueScanner::new("q_proj.weight", &Dtype::I8, shape).unwrap();
            scanner.add(0, bytes);
            scanner.findings("q_proj.weight", true).iter().map(ToString::to_string).collect()
        };
        let texts: [Vec<String>; 3] = [&[0_u8; 4_096], &[7; 4_096], &{
            let mut bytes = [0; 4_096];
            bytes[1] = 1;
            bytes
        }]
        .map(|bytes| found(bytes));
        let expected = |reason: &str| {
            vec![format!(
                "tensor `q_proj.weight` has {reason}: 4,096 of 4,096 values read, the first at index 0"
            )]
        };
        assert_eq!(texts, [expected("only zeros"), expected("only one number"), vec![]]);
    }
}
