//! What one tensor counts as.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;

use serde::Serialize;

use super::config::Quantization;
use super::experts::ExpertCounts;
use super::methods::mlx::Parameters;
use super::methods::{Method, Tensor};
use super::waiting::WaitingModule;
use super::{AuxiliaryTensor, Buffer, Configs, CountedAs, module, suffix};
use crate::formats::TensorInfo;

/// The rules that a count went by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RuleSet {
    /// Whose rules they are.
    pub name: &'static str,
    /// The version of the package `@huggingface/hub` that applies the same.
    pub version: &'static str,
}

impl RuleSet {
    /// The rules of this version of the library.
    pub const CURRENT: Self = Self { name: "huggingface.js", version: "2.17.5" };
}

impl fmt::Display for RuleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// What follows for each tensor from the configuration of its model.
///
/// A tensor is judged by itself, so a count can run while headers are read. MLX is the exception, which
/// packs a module where certain tensors are in the same set of weights, and therefore sees all of them
/// first.
#[derive(Clone, Debug)]
pub struct Classifier<'a> {
    quantization: Option<&'a Quantization>,
    experts: Option<ExpertCounts>,
    packed_by_mlx: HashMap<Box<str>, Parameters>,
}

impl<'a> Classifier<'a> {
    /// The rules for a model. `tensors` are all that the model has; they are gone through only if it was
    /// made with MLX.
    pub fn new<'t, T: Borrow<TensorInfo>>(
        config: Option<&'a Configs>,
        tensors: impl Iterator<Item = (&'t str, T)>,
    ) -> Self {
        let quantization = config.and_then(|config| config.quantization.as_ref());
        let packed_by_mlx = match quantization.map(|quantization| &quantization.method) {
            Some(Method::Mlx(mlx)) => mlx.survey(tensors),
            _ => HashMap::new(),
        };
        let experts = config.and_then(|config| config.experts);
        Self { quantization, experts, packed_by_mlx }
    }

    /// The rules for tensors one by one, if the configuration does not take all of them at once.
    pub(crate) fn by(config: Option<&'a Configs>) -> Self {
        Self::new(config, std::iter::empty::<(&str, TensorInfo)>())
    }

    /// The name of the quantization method, in lower case, as far as the configuration names one.
    #[must_use]
    pub fn method(&self) -> Option<&'a str> {
        self.quantization?.name.as_deref()
    }

    /// The numbers of experts, as far as the configuration gives them.
    pub(super) fn experts(&self) -> Option<ExpertCounts> {
        self.experts
    }

    /// How the elements of a tensor are counted, and why.
    #[must_use]
    pub fn judge(&self, name: &str, info: &TensorInfo) -> CountedAs {
        let packed_by_mlx = |module: &str| self.packed_by_mlx.get(module).copied();
        classify(self.quantization, name, info, packed_by_mlx)
    }
}

impl Configs {
    /// Returns the name of the quantization method, in lower case, if the configuration gives one.
    pub(super) fn method(&self) -> Option<&str> {
        self.quantization.as_ref()?.name.as_deref()
    }

    /// Returns whether the method must see a whole module before it can classify this tensor of it.
    pub(super) fn needs_module(&self, name: &str) -> bool {
        self.takes_all_tensors() && matches!(suffix(name), "weight" | "scales" | "biases")
    }

    /// Classifies a tensor by itself.
    pub(super) fn classify(&self, name: &str, tensor: &TensorInfo) -> CountedAs {
        classify(self.quantization.as_ref(), name, tensor, |_| None)
    }

    /// Classifies a tensor of a module.
    pub(super) fn classify_in_module(
        &self,
        name: &str,
        tensor: &TensorInfo,
        parts: &WaitingModule,
    ) -> CountedAs {
        let parts = || parts.parts.iter().map(|(name, tensor)| (&**name, tensor));
        classify(self.quantization.as_ref(), name, tensor, |module| {
            let Method::Mlx(mlx) = &self.quantization.as_ref()?.method else { return None };
            mlx.survey(parts()).get(module).copied()
        })
    }
}

fn classify(
    quantization: Option<&Quantization>,
    name: &str,
    info: &TensorInfo,
    packed_by_mlx: impl Fn(&str) -> Option<Parameters>,
) -> CountedAs {
    if let Some(kind) = AuxiliaryTensor::of_dtype(&info.dtype) {
        return CountedAs::AuxiliaryTensor(kind);
    }
    let tensor = Tensor { name, suffix: suffix(name), dtype: &info.dtype };
    match classify_quantized(quantization, tensor, packed_by_mlx) {
        Some(CountedAs::Unpacked(_)) | None if info.is_scalar() => CountedAs::Scalar,
        // Nobody packs a mask or position ids, whatever the configuration says of integers.
        Some(CountedAs::Unpacked(_)) if Buffer::from_tensor(name, info).is_some() => {
            CountedAs::AsStored
        }
        reason => reason.unwrap_or(CountedAs::AsStored),
    }
}

fn classify_quantized(
    quantization: Option<&Quantization>,
    tensor: Tensor<'_>,
    packed_by_mlx: impl Fn(&str) -> Option<Parameters>,
) -> Option<CountedAs> {
    let Quantization { method, exclusions, .. } = quantization?;
    if let Some(kind) = AuxiliaryTensor::of_suffix(tensor.suffix) {
        return Some(CountedAs::AuxiliaryTensor(kind));
    }
    match method {
        Method::Mlx(_) => packed_by_mlx(module(tensor.name))?.judge(tensor),
        method => method.judge(tensor, exclusions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Dtype;

    fn judge(config: &str, name: &str, dtype: Dtype, shape: &[u64]) -> String {
        let config = Configs::from_config_json(config.as_bytes()).unwrap();
        let info = TensorInfo { dtype, shape: shape.to_vec(), data_offsets: (0, 0) };
        let rules = Classifier::new(Some(&config), std::iter::empty::<(&str, TensorInfo)>());
        rules.judge(name, &info).to_string()
    }

    #[test]
    fn without_quantization_only_exponents_are_no_parameters() {
        for dtype in [Dtype::F8_E8M0, Dtype::E8M0, Dtype::UE8] {
            assert_eq!(judge("{}", "w", dtype, &[4]), "scale, not counted");
        }
        for dtype in [Dtype::F4, Dtype::F6_E2M3, Dtype::U8, Dtype::I32, Dtype::from("NEW3")] {
            assert_eq!(judge("{}", "m.weight_scale", dtype, &[4]), "as stored");
        }
        assert_eq!(judge("{}", "w", Dtype::F32, &[]), "scalar, not counted");
    }

    #[test]
    fn scalars_of_a_quantized_model() {
        let gptq = r#"{"quantization_config":{"quant_method":"gptq"}}"#;
        assert_eq!(judge(gptq, "m.qweight", Dtype::I32, &[]), "scalar, not counted");
        assert_eq!(judge(gptq, "m.input_scale", Dtype::F32, &[]), "scale, not counted");
        assert_eq!(judge(gptq, "m.qweight", Dtype::I32, &[0, 3]), "unpacked ×8");
    }
}
