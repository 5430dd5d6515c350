//! Parts of modules: with any parts, dtypes and shapes, the groups add up to the count, no byte holds more than 32
//! parameters, and the order of the tensors does not matter.

#![no_main]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hf_meta_count::count::{Configs, CountBreakdown, Counter};
use hf_meta_count::ParameterCount;
use hf_meta_format::{Dtype, SafetensorsFileHeader};
use libfuzzer_sys::fuzz_target;

/// Names of parts of every method.
const PARTS: &str = "weight qweight qzeros scales g_idx biases qbiases bias weight_packed weight_scale weight_scale_2 \
    weight_scale_inv weight_zero_point weight_g_idx weight.absmax weight.quant_map SCB B s s_channel codes codebooks \
    q_weight q_invperm trellis suh W_q scale zero weight._data weight._data._data weight._scale _weight_qdata \
    _weight_scale _weight_scale_and_zero indices centroids.weight perm wscales compressed bitmask sign_mantissa \
    encoded_exponent dense_weights row_offsets Qidxs SU SV tables embedding_quantized embedding_scale dqweight scale_packed \
    quantized_weight_values quantized_weight_scale_factors x_blocks x_scales x_packed x_scale x";

const METHODS: [&str; 12] = [
    "none",
    "gptq",
    "awq",
    "bitnet",
    "gemma",
    "gguf",
    "hqq",
    "vptq",
    "quark",
    "quanto",
    "compressed-tensors",
    "modelopt",
];

const SIDES: [u64; 16] = [0, 1, 2, 3, 4, 8, 16, 24, 32, 64, 96, 128, 256, 1024, 1 << 31, 1 << 40];

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.iter().copied();
    let mut next = |length: usize| usize::from(bytes.next().unwrap_or_default()) % length;
    let (method, bits) = (METHODS[next(METHODS.len())], next(10));
    let config = format!(
        r#"{{"quantization_config":{{"quant_method":"{method}","bits":{bits},"group_size":32,
            "m":{{"in_features":64,"out_features":64,"vector_lens":[8]}}}},"hidden_size":64}}"#
    );
    let parts: Vec<_> = PARTS.split_whitespace().collect();
    let mut tensors = BTreeMap::new();
    for _ in 0..=next(12) {
        let name = format!("{}.{}", ["m", "n.experts.0"][next(2)], parts[next(parts.len())]);
        let dtype = &Dtype::KNOWN[next(Dtype::KNOWN.len())];
        let shape: Vec<_> = (0..next(5)).map(|_| SIDES[next(SIDES.len())]).collect();
        tensors.insert(name, (dtype, shape));
    }
    let forwards: Vec<_> = tensors.iter().filter_map(header).collect();
    let backwards: Vec<_> = forwards.iter().rev().cloned().collect();
    let configs = Configs::from_config_json(config.as_bytes()).expect("a valid configuration");
    let Some((count, breakdown)) = counted(&forwards, &configs) else { return };
    assert_eq!(counted(&backwards, &configs), Some((count.clone(), breakdown.clone())));
    let totals = count.totals();
    let parameters: u64 = breakdown.groups.iter().map(|group| group.count.parameters).sum();
    assert_eq!(parameters, totals.parameters);
    assert!(u128::from(parameters) <= 32 * u128::from(totals.bytes));
});

/// Returns the header of a file with one tensor, if its size fits.
fn header((name, (dtype, shape)): (&String, &(&Dtype, Vec<u64>))) -> Option<SafetensorsFileHeader> {
    let elements = shape.iter().try_fold(1_u64, |product, side| product.checked_mul(*side))?;
    let length = elements.checked_mul(dtype.bits()?)? / 8;
    let mut json = String::new();
    write!(
        json,
        r#"{{"{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[0,{length}]}}}}"#
    )
    .expect("memory");
    SafetensorsFileHeader::from_json(json.as_bytes()).ok()
}

fn counted(
    headers: &[SafetensorsFileHeader],
    configs: &Configs,
) -> Option<(ParameterCount, CountBreakdown)> {
    let mut counter = Counter::new();
    for header in headers {
        counter.add_file(header).ok()?;
    }
    counter.set_configs(configs.clone());
    counter.finish().ok()
}
