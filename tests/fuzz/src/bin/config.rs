//! Configurations: with any content, the groups add up to the count, and tensors that need no configuration count
//! alike with any.

#![no_main]

use hf_meta_count::ParameterCount;
use hf_meta_format::SafetensorsFileHeader;
use hf_meta_count::count::{Configs, CountBreakdown, Counter};
use hf_meta_fuzz::check_messages;
use libfuzzer_sys::fuzz_target;

/// Parts of quantized modules, some of which only a configuration can solve.
const PACKED: [&str; 15] = [
    "lm_head.weight U8 8,16",
    "a.qweight I32 8,16",
    "a.scales F16 1,16",
    "b.weight_packed I32 16,8",
    "b.weight_scale BF16 16,1",
    "h.0.mlp.experts.0.weight U8 8,16",
    "h.0.mlp.experts.0.weight_scale F32 8,1",
    "h.0.mlp.experts.1.weight U8 8,16",
    "h.0.mlp.experts.1.weight_scale F32 8,1",
    "h.0.mlp.down_proj_blocks U8 2,16",
    "h.0.mlp.down_proj_scales U8 2,1",
    "m.weight U32 4,16",
    "m.scales BF16 4,2",
    "c.indices I32 1,64,96",
    "c.centroids.weight BF16 1,24576",
];

/// Tensors that no method classifies.
const PLAIN: [&str; 4] =
    ["w.weight BF16 4", "w.bias F32 4", "h.0.attn.weight F8_E4M3 4", "ids I64 4"];

fuzz_target!(|json: &[u8]| {
    let config = match Configs::from_config_json(json) {
        Ok(config) => config,
        Err(error) => return check_messages(&error),
    };
    check_sums(&config, &header(&PACKED));
    let plain = header(&PLAIN);
    let mut counter = Counter::new();
    counter.add_file(&plain).expect("small numbers");
    assert!(!counter.needs_config());
    assert_eq!(count(&config, &plain).0, count(&Configs::default(), &plain).0);
});

fn header(tensors: &[&str]) -> SafetensorsFileHeader {
    let mut end = 0;
    let entries: Vec<_> = tensors
        .iter()
        .map(|tensor| {
            let mut fields = tensor.split(' ');
            let mut field = || fields.next().expect("a name, a dtype and a shape");
            let (name, dtype, shape) = (field(), field(), field());
            let begin = end;
            let elements: u64 =
                shape.split(',').map(|side| side.parse::<u64>().expect("a number")).product();
            end += elements * hf_meta_format::Dtype::from(dtype).bits().expect("a known dtype") / 8;
            format!(
                r#""{name}":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{begin},{end}]}}"#
            )
        })
        .collect();
    let json = format!("{{{}}}", entries.join(","));
    SafetensorsFileHeader::from_json(json.as_bytes()).expect("the header is valid")
}

fn count(config: &Configs, header: &SafetensorsFileHeader) -> (ParameterCount, CountBreakdown) {
    let mut counter = Counter::new();
    counter.add_file(&header).expect("small numbers");
    counter.set_configs(config.clone());
    counter.finish().expect("small numbers")
}

/// Checks that groups add up to the count, that no byte holds more than 32 parameters, and that experts
/// are part of the total.
fn check_sums(config: &Configs, header: &SafetensorsFileHeader) {
    let (count, breakdown) = count(config, header);
    let totals = count.totals();
    let parameters: u64 = breakdown.groups.iter().map(|group| group.count.parameters).sum();
    let elements: u64 = breakdown.groups.iter().map(|group| group.count.elements).sum();
    assert_eq!((parameters, elements), (totals.parameters, totals.elements));
    assert!(parameters <= 32 * totals.bytes);
    if let Some(moe) = breakdown.moe {
        assert!(moe.active() <= moe.total() && moe.total() == totals.parameters);
    }
    assert!(breakdown.method.is_none_or(|method| method.chars().count() <= 201));
}
