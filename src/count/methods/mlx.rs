//! MLX: weights in `U32`, with `scales` and `biases` beside them, which tell that a module is packed.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};

use serde_json::value::RawValue;

use super::Tensor;
use crate::count::json_object::{Object, read};
use crate::count::{AuxiliaryTensor, CountedAs, Packing, module, suffix};
use crate::formats::{Dtype, TensorInfo};

/// What MLX does to the weights of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::count) struct Parameters {
    bits: u32,
    /// Only this mode stores zero points, under the name `biases`.
    is_affine: bool,
}

/// Parameters for all modules, and for some of them their own, `None` where a module is not quantized.
#[derive(Clone, Debug)]
pub(in crate::count) struct Mlx {
    everywhere: Option<Parameters>,
    modules: BTreeMap<Box<str>, Option<Parameters>>,
}

impl Mlx {
    /// MLX does not name itself: it is known by parameters that it accepts, for all or for one module.
    pub(in crate::count) fn recognize(config: &Object<'_>) -> Option<Self> {
        let is_accepted = |config: &Object<'_>| {
            let keys = ["bits", "group_size", "mode"];
            keys.iter().any(|key| config.raw(key).is_some())
                && Parameters::read(config, Null::IsWrong).is_some()
        };
        let mut modules = config.entries().filter_map(|(_, module)| read::<Object>(module));
        if !is_accepted(config) && !modules.any(|module| is_accepted(&module)) {
            return None;
        }
        let everywhere = Parameters::read(config, Null::IsDefault);
        Some(Self { everywhere, modules: config.entries().filter_map(of_module).collect() })
    }

    fn parameters(&self, module: &str) -> Option<Parameters> {
        self.modules.get(module).copied().unwrap_or(self.everywhere)
    }

    /// The modules that are packed: whose weight is in `U32` and has its scales beside it, in whichever
    /// file, and its zero points where the mode has any.
    pub(in crate::count) fn survey<'a, T: Borrow<TensorInfo>>(
        &self,
        tensors: impl Iterator<Item = (&'a str, T)>,
    ) -> HashMap<Box<str>, Parameters> {
        let mut modules = HashMap::<&str, Seen>::new();
        for (name, info) in tensors {
            let seen = match suffix(name) {
                "weight" if info.borrow().dtype == Dtype::U32 => {
                    Seen { weight: true, ..Seen::default() }
                }
                "scales" => Seen { scales: true, ..Seen::default() },
                "biases" => Seen { biases: true, ..Seen::default() },
                _ => continue,
            };
            modules.entry(module(name)).or_default().add(seen);
        }
        let packed = modules.into_iter().filter(|(_, seen)| seen.weight && seen.scales);
        packed
            .filter_map(|(module, seen)| Some((module, seen, self.parameters(module)?)))
            .filter(|(_, seen, parameters)| seen.biases || !parameters.is_affine)
            .map(|(module, _, parameters)| (module.into(), parameters))
            .collect()
    }
}

/// Which tensors a module has.
#[derive(Clone, Copy, Default)]
struct Seen {
    weight: bool,
    scales: bool,
    biases: bool,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.weight |= other.weight;
        self.scales |= other.scales;
        self.biases |= other.biases;
    }
}

impl Parameters {
    /// The parameters that an object gives, if MLX accepts them.
    fn read(config: &Object<'_>, null: Null) -> Option<Self> {
        let mode = match config.raw("mode") {
            Some(mode) if null == Null::IsWrong || config.has("mode") => read::<String>(mode)?,
            _ => "affine".to_owned(),
        };
        let mode = mode.to_lowercase();
        let (bits, group_size) = match mode.as_str() {
            "affine" => (4, 64),
            "mxfp4" => (4, 32),
            "nvfp4" => (4, 16),
            "mxfp8" => (8, 32),
            _ => return None,
        };
        let is_affine = mode == "affine";
        let given =
            |key, default: u32| if config.has(key) { config.get(key) } else { Some(default) };
        let found = (given("bits", bits)?, given("group_size", group_size)?);
        let is_accepted = match found {
            (2..=6 | 8, 32 | 64 | 128) if is_affine => true,
            _ => !is_affine && found == (bits, group_size),
        };
        is_accepted.then_some(Self { bits: found.0, is_affine })
    }

    /// What a tensor of a packed module is.
    pub(in crate::count) fn judge(self, tensor: Tensor<'_>) -> Option<CountedAs> {
        match tensor.suffix {
            "weight" if *tensor.dtype == Dtype::U32 => {
                Packing::dense(tensor.dtype, self.bits).map(CountedAs::Unpacked)
            }
            "scales" => Some(CountedAs::AuxiliaryTensor(AuxiliaryTensor::Scale)),
            "biases" if self.is_affine => {
                Some(CountedAs::AuxiliaryTensor(AuxiliaryTensor::ZeroPoint))
            }
            _ => None,
        }
    }
}

/// What a `mode` of `null` is: no mode of MLX, but its default once it is recognized by something else.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Null {
    IsWrong,
    IsDefault,
}

/// What the configuration says of one module: `false`, or parameters of its own.
fn of_module((module, value): (&str, &RawValue)) -> Option<(Box<str>, Option<Parameters>)> {
    if value.get() == "false" {
        return Some((module.into(), None));
    }
    let parameters = Parameters::read(&read(value)?, Null::IsWrong);
    Some((module.into(), parameters))
}

#[cfg(test)]
mod tests {
    use crate::count::methods::cases::{Case, check};
    use crate::formats::Dtype;

    /// A packed module with all that can be beside it.
    fn module(weight: &'static str, biases: &'static str) -> [Case<'static>; 4] {
        [
            ("m.weight", Dtype::U32, weight),
            ("m.scales", Dtype::BF16, "scale, not counted"),
            ("m.biases", Dtype::BF16, biases),
            ("m.bias", Dtype::BF16, "as stored"),
        ]
    }

    const ZERO: &str = "zero point, not counted";

    #[test]
    fn modes_and_widths() {
        let cases = [
            (r#"{"bits":4,"group_size":64}"#, "unpacked ×8", ZERO),
            (r#"{"bits":2,"group_size":32}"#, "unpacked ×16", ZERO),
            (r#"{"bits":3}"#, "unpacked ×32/3", ZERO),
            (r#"{"bits":6}"#, "unpacked ×16/3", ZERO),
            (r#"{"bits":8,"mode":"Affine"}"#, "unpacked ×4", ZERO),
            (r#"{"mode":"mxfp4"}"#, "unpacked ×8", "as stored"),
            (r#"{"mode":"nvfp4","group_size":16}"#, "unpacked ×8", "as stored"),
            (r#"{"mode":"mxfp8","bits":8}"#, "unpacked ×4", "as stored"),
        ];
        for (parameters, weight, biases) in cases {
            for key in ["quantization", "quantization_config"] {
                check(&format!(r#"{{"{key}":{parameters}}}"#), &module(weight, biases));
                let nested = format!(r#"{{"text_config":{{"{key}":{parameters}}}}}"#);
                check(&nested, &module(weight, biases));
            }
        }
    }

    #[test]
    fn parameters_that_mlx_does_not_accept() {
        for parameters in [
            r#"{"bits":1}"#,
            r#"{"bits":7}"#,
            r#"{"bits":4,"group_size":16}"#,
            r#"{"bits":4,"mode":1}"#,
            r#"{"bits":4,"mode":"none"}"#,
            r#"{"bits":8,"mode":"mxfp4"}"#,
            r#"{"bits":"4"}"#,
            r#"{"bits":4,"mode":null}"#,
            r#"{"m":{}}"#,
            "{}",
        ] {
            check(
                &format!(r#"{{"quantization":{parameters}}}"#),
                &[
                    ("m.weight", Dtype::U32, "as stored"),
                    ("m.scales", Dtype::BF16, "as stored"),
                    ("m.biases", Dtype::BF16, "as stored"),
                ],
            );
        }
    }

    #[test]
    fn only_complete_modules_are_packed() {
        let affine = r#"{"quantization":{"bits":4,"group_size":64}}"#;
        check(
            affine,
            &[
                ("a.weight", Dtype::U32, "as stored"),
                ("a.scales", Dtype::BF16, "as stored"),
                ("b.weight", Dtype::I32, "as stored"),
                ("b.scales", Dtype::BF16, "as stored"),
                ("b.biases", Dtype::BF16, "as stored"),
                ("c.weight", Dtype::U32, "unpacked ×8"),
                ("c.scales", Dtype::BF16, "scale, not counted"),
                ("c.biases", Dtype::BF16, "zero point, not counted"),
                ("c.lora.weight", Dtype::U32, "as stored"),
                ("weight", Dtype::U32, "as stored"),
            ],
        );
    }

    #[test]
    fn modules_of_their_own() {
        let config = r#"{"quantization":{"bits":4,"group_size":16,"mode":"affine","dense":false,
            "wide":{"bits":8,"group_size":64},"other":{"mode":"nvfp4"},"wrong":{"bits":9},"odd":true,"empty":{}}}"#;
        let mut cases = Vec::new();
        let modules = [
            ("dense", "as stored", "as stored", "as stored"),
            ("wide", "unpacked ×4", "scale, not counted", ZERO),
            ("other", "unpacked ×8", "scale, not counted", "as stored"),
            ("wrong", "as stored", "as stored", "as stored"),
            ("odd", "as stored", "as stored", "as stored"),
            ("empty", "unpacked ×8", "scale, not counted", ZERO),
            ("unlisted", "as stored", "as stored", "as stored"),
        ];
        let names = modules.map(|(module, ..)| {
            ["weight", "scales", "biases"].map(|suffix| format!("{module}.{suffix}"))
        });
        for (names, (_, weight, scales, biases)) in names.iter().zip(modules) {
            let [weights, scale, bias] = names;
            cases.push((weights.as_str(), Dtype::U32, weight));
            cases.push((scale.as_str(), Dtype::BF16, scales));
            cases.push((bias.as_str(), Dtype::BF16, biases));
        }
        check(config, &cases);
    }

    #[test]
    fn another_quantizer_is_not_taken_for_it() {
        let config = r#"{"quantization":{"quant_method":"gptq","bits":2,"group_size":64},
            "quantization_config":{"quant_method":"gptq","bits":4}}"#;
        check(
            config,
            &[("m.qweight", Dtype::I32, "unpacked ×8"), ("m.weight", Dtype::U32, "as stored")],
        );
    }
}
