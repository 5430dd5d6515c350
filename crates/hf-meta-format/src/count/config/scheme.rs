//! The scheme of a packing: bits, group sizes and block sizes, from the keys of all libraries.

use crate::base::json_object::{JsonObject, number};
use crate::formats::{BlockSize, Dtype};

/// The parameters of a packing; `None` if the configuration does not specify them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scheme {
    /// The bits per weight, from 1 to 32.
    pub(crate) bits: Option<u64>,
    /// True if all weights of a row share a scale.
    pub(super) has_row_scales: bool,
    /// The number of weights that share a scale.
    pub(crate) group_size: Option<u64>,
    /// The number of weights that a code represents.
    pub(crate) vector_length: Option<u64>,
    pub(crate) in_features: Option<u64>,
    pub(crate) out_features: Option<u64>,
    /// The block size of a GGUF type.
    pub(crate) block: Option<BlockSize>,
}

impl Scheme {
    const BITS: [&str; 8] =
        ["bits", "num_bits", "w_bit", "wbits", "weight_bits", "nbits", "w_bits", "quant_bits"];
    const GROUP_SIZE: [&str; 4] = ["group_size", "q_group_size", "groupsize", "block_size"];
    const FORMATS: [&str; 7] = [
        "dtype",
        "weights_dtype",
        "weight_dtype",
        "expert_dtype",
        "store_dtype",
        "quant_algo",
        "weights",
    ];

    pub(super) fn from_object(object: &JsonObject<'_>) -> Self {
        let find = |keys: &[&str]| keys.iter().find_map(|key| object.number(key));
        let bits = find(&Self::BITS).filter(|bits| (1..=32).contains(bits));
        let formats = || Self::FORMATS.iter().filter_map(|key| object.get::<String>(key));
        let lengths = object.get::<Vec<&serde_json::value::RawValue>>("vector_lens");
        Self {
            bits: bits.or_else(|| formats().find_map(|format| bits_of_format(&format))),
            has_row_scales: object.get::<&str>("strategy") == Some("channel"),
            group_size: find(&Self::GROUP_SIZE).filter(|&size| size > 0),
            vector_length: lengths
                .and_then(|lengths| lengths.into_iter().filter_map(number).find(|&n| n > 0)),
            in_features: object.number("in_features"),
            out_features: object.number("out_features"),
            block: object.get::<String>("bits").and_then(|name| block_of_type(&name)),
        }
    }

    /// Returns the number under a key.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        match key {
            "group_size" => self.group_size,
            "in_features" => self.in_features,
            "out_features" => self.out_features,
            "vector_length" => self.vector_length,
            "block bytes" => self.block.map(|block| block.bytes),
            "block elements" => self.block.map(|block| block.elements),
            _ => None,
        }
    }
}

/// Returns the bits per weight stated in a format name, such as `int4`, `mxfp4` or `W4A16`.
pub(super) fn bits_of_format(format: &str) -> Option<u64> {
    let format = format.to_ascii_lowercase();
    let bits = |after: &str| {
        let end = after.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(after.len());
        after[..end].parse().ok()
    };
    let names = ["int", "float", "fp", "nf"];
    let width = names.iter().find_map(|name| bits(&format[format.find(name)? + name.len()..]));
    // Weights and activations, as in `W4A16_AWQ`.
    width.or_else(|| bits(format.strip_prefix('w')?)).filter(|bits| (1..=32).contains(bits))
}

/// Returns the block size of a GGUF type, such as `q4_0` or `q4_k_m`.
fn block_of_type(name: &str) -> Option<BlockSize> {
    /// The number of weights in the smallest block of a quantized type.
    const MIN_BLOCK: u64 = 32;

    let name = name.to_ascii_uppercase();
    let name = ["_S", "_M", "_L"].iter().find_map(|size| name.strip_suffix(size)).unwrap_or(&name);
    Dtype::from(name).block().filter(|block| block.elements >= MIN_BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_vectors_have_at_least_one_weight() {
        let json = r#"{"bits":4,"group_size":0,"vector_lens":[0,8]}"#;
        let scheme = Scheme::from_object(&serde_json::from_str(json).unwrap());
        assert_eq!((scheme.group_size, scheme.vector_length), (None, Some(8)));
    }

    /// The suffix of a mix, as in `q4_k_m`, does not change the block.
    #[test]
    fn gguf_types_have_block_sizes() {
        let cases = [
            ("q4_0", Some((32, 18))),
            ("Q5_1", Some((32, 24))),
            ("iq4_nl", Some((32, 18))),
            ("q4_k_m", Some((256, 144))),
            ("q3_k_l", Some((256, 110))),
            ("q6_k", Some((256, 210))),
            ("4", None),
            ("f16", None),
            ("f4", None),
        ];
        for (name, expected) in cases {
            let found = block_of_type(name).map(|block| (block.elements, block.bytes));
            assert_eq!(found, expected, "{name}");
        }
    }
}
