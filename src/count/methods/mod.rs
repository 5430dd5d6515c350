//! Quantization methods, by the `quant_method` of the configuration.

pub(super) mod bitsandbytes;
pub(super) mod compressed_tensors;
pub(super) mod fp8;
pub(super) mod gptq;
pub(super) mod mlx;
pub(super) mod mxfp4;

use self::bitsandbytes::{Bitsandbytes, Unnamed};
use self::compressed_tensors::CompressedTensors;
use self::fp8::Fp8;
use self::gptq::Gptq;
use self::mlx::Mlx;
use super::json_object::Object;
use super::patterns::Exclusions;
use super::{ConfigError, CountedAs};
use crate::formats::Dtype;

/// What the rules of a method look at.
#[derive(Clone, Copy)]
pub(super) struct Tensor<'a> {
    pub(super) name: &'a str,
    /// The name after its last dot.
    pub(super) suffix: &'a str,
    pub(super) dtype: &'a Dtype,
}

#[derive(Clone, Debug)]
pub(super) enum Method {
    Bitsandbytes(Bitsandbytes),
    CompressedTensors(CompressedTensors),
    Fp8(Fp8),
    Gptq(Gptq),
    Mlx(Mlx),
    Mxfp4,
    Unnamed(Unnamed),
}

impl Method {
    /// The method of that name, with what its part of the configuration says. `experts` is the format of
    /// the experts that the configuration names outside that part.
    pub(super) fn new(
        name: Option<&str>,
        config: &Object<'_>,
        experts: Option<fp8::Format>,
    ) -> Result<Self, ConfigError> {
        Ok(match name {
            Some("bitsandbytes") => Self::Bitsandbytes(Bitsandbytes::new(config)),
            Some("compressed-tensors") => Self::CompressedTensors(CompressedTensors::new(config)?),
            Some("fp8") => Self::Fp8(Fp8::new(config, experts)),
            Some("gptq" | "awq") => Self::Gptq(Gptq::new(config)),
            Some("mxfp4") => Self::Mxfp4,
            _ => Self::Unnamed(Unnamed::new(config)),
        })
    }

    /// What a tensor is, if it is anything special. MLX must see all tensors before it can tell, and is
    /// asked elsewhere.
    pub(super) fn judge(&self, tensor: Tensor<'_>, exclusions: &Exclusions) -> Option<CountedAs> {
        match self {
            Self::Bitsandbytes(method) => method.judge(tensor, exclusions),
            Self::CompressedTensors(method) => method.judge(tensor, exclusions),
            Self::Fp8(method) => method.judge(tensor, exclusions),
            Self::Gptq(method) => method.judge(tensor, exclusions),
            Self::Mxfp4 => mxfp4::judge(tensor, exclusions),
            Self::Unnamed(method) => method.judge(tensor, exclusions),
            Self::Mlx(_) => None,
        }
    }
}

/// What rules are tried out with: a configuration, a tensor, what it is.
#[cfg(test)]
pub(super) mod cases {
    use crate::count::{Classifier, Configs};
    use crate::formats::{Dtype, TensorInfo};

    /// Name, dtype, and the reason in words.
    pub(in crate::count) type Case<'a> = (&'a str, Dtype, &'a str);

    pub(in crate::count) fn check(config: &str, cases: &[Case<'_>]) {
        let tensors: Vec<_> = cases
            .iter()
            .map(|(name, dtype, _)| {
                let shape = vec![12];
                (*name, TensorInfo { dtype: dtype.clone(), shape, data_offsets: (0, 0) })
            })
            .collect();
        let config = Configs::from_config_json(config.as_bytes()).unwrap();
        let rules =
            Classifier::new(Some(&config), tensors.iter().map(|(name, info)| (*name, info)));
        for ((name, info), (_, dtype, expected)) in tensors.iter().zip(cases) {
            assert_eq!(rules.judge(name, info).to_string(), *expected, "{name} {dtype}");
        }
    }
}
