//! Configurations: whatever they say, counts add up, and what calls for no configuration needs none.

#![no_main]

use hf_meta::count::{Configs, Classifier, Counter, needs_config};
use hf_meta::{SafetensorsFileHeader, TensorInfo};
use hf_meta_fuzz::check_messages;
use libfuzzer_sys::fuzz_target;

/// Tensors that every method does something to, four elements each.
const PACKED: [&str; 9] = [
    "lm_head.weight U8",
    "a.qweight I32",
    "a.scales F16",
    "h.0.mlp.experts.0.weight I8",
    "h.0.mlp.experts.1.weight_packed I32",
    "h.0.mlp.down_proj_blocks U8",
    "m.weight U32",
    "m.scales BF16",
    "m.biases BF16",
];

/// Tensors that nothing is done to.
const PLAIN: [&str; 4] = ["w.weight BF16", "w.bias F32", "h.0.attn.weight F8_E4M3", "ids I64"];

fuzz_target!(|json: &[u8]| {
    let config = match Configs::from_config_json(json) {
        Ok(config) => config,
        Err(error) => return check_messages(&error),
    };
    check_sums(&config, &header(&PACKED));
    let plain = header(&PLAIN);
    assert!(!tensors(&plain).any(|(name, info)| needs_config(name, &info)));
    assert_eq!(count(Some(&config), &plain), count(None, &plain));
});

fn header(tensors: &[&str]) -> SafetensorsFileHeader {
    let mut end = 0;
    let entries: Vec<_> = tensors
        .iter()
        .map(|tensor| {
            let (name, dtype) = tensor.split_once(' ').expect("a name and a dtype");
            let begin = end;
            end += 4 * hf_meta::Dtype::from(dtype).bits().expect("a known dtype") / 8;
            format!(r#""{name}":{{"dtype":"{dtype}","shape":[4],"data_offsets":[{begin},{end}]}}"#)
        })
        .collect();
    let json = format!("{{{}}}", entries.join(","));
    SafetensorsFileHeader::from_json(json.as_bytes()).expect("the header is valid")
}

fn tensors(header: &SafetensorsFileHeader) -> impl Iterator<Item = (&str, TensorInfo)> {
    header.tensors()
}

fn count(config: Option<&Configs>, header: &SafetensorsFileHeader) -> u64 {
    let rules = Classifier::new(config, tensors(header));
    let mut tally = Counter::default();
    for (name, info) in tensors(header) {
        tally.add(&rules, name, &info).expect("small numbers");
    }
    tally.finish(&rules).0.total()
}

/// Groups add up to the count, no element holds more than 32 parameters, and experts are a part.
fn check_sums(config: &Configs, header: &SafetensorsFileHeader) {
    let rules = Classifier::new(Some(config), tensors(header));
    let mut tally = Counter::default();
    for (name, info) in tensors(header) {
        tally.add(&rules, name, &info).expect("small numbers");
    }
    let (count, counting) = tally.finish(&rules);
    let totals = count.totals();
    let parameters: u64 = counting.groups.iter().map(|group| group.count.parameters).sum();
    let elements: u64 = counting.groups.iter().map(|group| group.count.elements).sum();
    assert_eq!((parameters, elements), (totals.parameters, totals.elements));
    assert!(parameters <= 32 * elements);
    if let Some(moe) = counting.moe {
        assert!(moe.active() <= moe.total() && moe.total() == totals.parameters);
    }
    assert!(counting.method.is_none_or(|method| method.chars().count() <= 201));
}
