//! FP8, one value to a byte, but for routed experts that are stored narrower, in integers.

use super::Tensor;
use crate::count::experts;
use crate::count::json_object::Object;
use crate::count::packing::bits_of_format;
use crate::count::patterns::Exclusions;
use crate::count::{CountedAs, Packing};

/// The width of a format that the configuration names; `None` for one that is not packed.
#[derive(Clone, Copy, Debug)]
pub(in crate::count) struct Format(Option<u32>);

impl Format {
    /// The format under a key. A value that is no text is a format, too, and not a packed one.
    pub(in crate::count) fn get(config: &Object<'_>, key: &str) -> Option<Self> {
        let text = config.has(key).then(|| config.get::<String>(key))?;
        Some(Self(text.and_then(|format| bits_of_format(&format))))
    }
}

/// `expert_dtype` is what DeepSeek-V4 says of its experts, inside the quantization or beside it;
/// `store_dtype` is what MiMo-V2.6 says.
#[derive(Clone, Debug)]
pub(in crate::count) struct Fp8 {
    experts: Option<u32>,
}

impl Fp8 {
    pub(super) fn new(config: &Object<'_>, outside: Option<Format>) -> Self {
        let format = Format::get(config, "expert_dtype")
            .or(outside)
            .or_else(|| Format::get(config, "store_dtype"));
        Self { experts: format.and_then(|Format(bits)| bits) }
    }

    /// Only routed experts are packed: other integers of such a model are tables.
    pub(super) fn judge(&self, tensor: Tensor<'_>, exclusions: &Exclusions) -> Option<CountedAs> {
        let packing = Packing::dense(tensor.dtype, self.experts?)?;
        let is_packed = experts::is_routed(tensor.name) && !exclusions.contain(tensor.name);
        is_packed.then_some(CountedAs::Unpacked(packing))
    }
}

#[cfg(test)]
mod tests {
    use crate::count::methods::cases::check;
    use crate::formats::Dtype;

    const EXPERT: &str = "h.0.ffn.experts.3.w1.weight";

    #[test]
    fn experts_alone_are_packed() {
        let config = r#"{"expert_dtype":"fp4","quantization_config":{"quant_method":"fp8"}}"#;
        check(
            config,
            &[
                (EXPERT, Dtype::I8, "unpacked ×2"),
                (EXPERT, Dtype::U8, "unpacked ×2"),
                (EXPERT, Dtype::I32, "unpacked ×8"),
                (EXPERT, Dtype::F8_E4M3, "as stored"),
                ("h.0.ffn.shared_experts.w1.weight", Dtype::I8, "as stored"),
                ("h.0.ffn.experts.shared_experts.w1", Dtype::I8, "as stored"),
                ("h.0.ffn.gate.tid2eid", Dtype::I32, "as stored"),
                ("h.0.attn.wkv.weight", Dtype::I8, "as stored"),
                ("h.0.attn.wkv.weight_scale_inv", Dtype::F32, "scale, not counted"),
                ("h.0.attn.wkv.scale", Dtype::F8_E8M0, "scale, not counted"),
                ("h.0.attn.wkv.scale", Dtype::F32, "as stored"),
            ],
        );
    }

    #[test]
    fn where_the_width_of_the_experts_stands() {
        let fp8 = |inside: &str, outside: &str| {
            format!(r#"{{{outside}"quantization_config":{{"quant_method":"fp8"{inside}}}}}"#)
        };
        let cases = [
            ("", "", "as stored"),
            (r#","expert_dtype":"fp4""#, "", "unpacked ×2"),
            (r#","expert_dtype":"fp8""#, r#""expert_dtype":"fp4","#, "as stored"),
            (r#","expert_dtype":4"#, r#""expert_dtype":"fp4","#, "as stored"),
            (r#","expert_dtype":null"#, r#""expert_dtype":"fp4","#, "unpacked ×2"),
            ("", r#""text_config":{"expert_dtype":"fp4"},"#, "unpacked ×2"),
            (r#","store_dtype":"mxfp4""#, "", "unpacked ×2"),
            (r#","store_dtype":"mxfp4""#, r#""expert_dtype":"fp8","#, "as stored"),
            (r#","store_dtype":"fp6""#, "", "as stored"),
            (r#","store_dtype":{}"#, "", "as stored"),
        ];
        for (inside, outside, expected) in cases {
            check(&fp8(inside, outside), &[(EXPERT, Dtype::U8, expected)]);
        }
        let nested = r#"{"text_config":{"quantization_config":{"quant_method":"fp8",
            "expert_dtype":"fp4"}}}"#;
        check(nested, &[(EXPERT, Dtype::I8, "unpacked ×2")]);
    }
}
