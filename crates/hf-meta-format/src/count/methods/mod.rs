//! Quantization methods: how each packs the weights of a module into parts.
//!
//! Each method is one file with the names of its parts and a solver, which derives the number of weights from the
//! shapes of two or more parts. To add a method, write the file and add its definition to [`METHODS`].

mod aqlm;
mod awq;
mod bitblas;
mod bitnet;
mod bitsandbytes;
mod byte_weights;
mod compressed_tensors;
mod dfloat11;
mod exllama;
mod fp4;
mod fp_quant;
mod gemma;
mod gguf;
mod gptq;
mod higgs;
mod hqq;
mod marlin;
mod mlx;
mod modelopt;
mod mxfp4;
mod nunchaku;
mod quanto;
mod quark;
mod quip;
mod sdnq;
mod sinq;
mod sparse;
mod spqr;
mod torchao;
mod vptq;

use std::sync::LazyLock;

pub(super) use self::gguf::block_of_type;

pub(super) use super::auxiliary::AuxiliaryTensor;
pub(super) use super::counted_as::Packing;
pub(super) use super::hints::Hints;
pub(super) use super::module::{Matrix, Module, Solution, Solved, divide, padded, product};
pub(super) use super::part::PartName;
use super::part::{PartId, PartRole};
pub(super) use super::unresolved::UnresolvedReason;

/// All methods. The methods that the configuration names are tried first, then all others in this order.
pub(super) const METHODS: &[MethodDefinition] = &[
    gptq::METHOD,
    awq::METHOD,
    marlin::METHOD,
    compressed_tensors::METHOD,
    fp4::METHOD,
    mxfp4::METHOD,
    mlx::METHOD,
    bitsandbytes::METHOD,
    byte_weights::METHOD,
    modelopt::METHOD,
    quark::METHOD,
    bitnet::METHOD,
    aqlm::METHOD,
    exllama::METHOD,
    hqq::METHOD,
    quanto::METHOD,
    vptq::METHOD,
    nunchaku::METHOD,
    sparse::METHOD,
    dfloat11::METHOD,
    bitblas::METHOD,
    gguf::METHOD,
    fp_quant::METHOD,
    gemma::METHOD,
    higgs::METHOD,
    spqr::METHOD,
    quip::METHOD,
    torchao::METHOD,
    sdnq::METHOD,
    sinq::METHOD,
];

/// Parts that are auxiliary in every quantized model, even in modules without packed weights.
pub(super) const AUXILIARY_ANYWHERE: &[PartName] = &[
    PartName::anywhere("weight_scale", AuxiliaryTensor::Scale),
    PartName::anywhere("weight_scale_2", AuxiliaryTensor::Scale),
    PartName::anywhere("weight_scale_inv", AuxiliaryTensor::Scale),
    PartName::anywhere("weight_global_scale", AuxiliaryTensor::Scale),
    PartName::anywhere("weight_scale_second", AuxiliaryTensor::Scale),
    PartName::anywhere("weight_zero_point", AuxiliaryTensor::ZeroPoint),
    PartName::anywhere("weight_offset", AuxiliaryTensor::ZeroPoint),
    PartName::anywhere("weight_offset_second", AuxiliaryTensor::ZeroPoint),
    PartName::anywhere("weight_shape", AuxiliaryTensor::Shape),
    PartName::anywhere("weight_g_idx", AuxiliaryTensor::ColumnOrder),
    PartName::anywhere("input_scale", AuxiliaryTensor::Scale),
    PartName::anywhere("input_scale_ub", AuxiliaryTensor::Scale),
    PartName::anywhere("input_global_scale", AuxiliaryTensor::Scale),
    PartName::anywhere("input_zero_point", AuxiliaryTensor::ZeroPoint),
    PartName::anywhere("input_offset", AuxiliaryTensor::ZeroPoint),
    PartName::anywhere("quant_bias", AuxiliaryTensor::ZeroPoint),
    PartName::anywhere("scale_bias", AuxiliaryTensor::ZeroPoint),
    PartName::anywhere("deq_scale", AuxiliaryTensor::Scale),
    PartName::anywhere("output_scale", AuxiliaryTensor::Scale),
    PartName::anywhere("input_activation_scale", AuxiliaryTensor::Scale),
    PartName::anywhere("output_activation_scale", AuxiliaryTensor::Scale),
    PartName::anywhere("pre_quant_scale", AuxiliaryTensor::Scale),
    PartName::anywhere("q_scale", AuxiliaryTensor::Scale),
    PartName::anywhere("k_scale", AuxiliaryTensor::Scale),
    PartName::anywhere("v_scale", AuxiliaryTensor::Scale),
    PartName::anywhere("kv_scale", AuxiliaryTensor::Scale),
    PartName::anywhere("act_scale", AuxiliaryTensor::Scale),
    PartName::anywhere("*_input_scale", AuxiliaryTensor::Scale),
    PartName::anywhere("qscale_weight", AuxiliaryTensor::Scale),
    PartName::anywhere("qscale_act", AuxiliaryTensor::Scale),
    PartName::anywhere("scale_input", AuxiliaryTensor::Scale),
    PartName::anywhere("scaled_fp8", AuxiliaryTensor::State),
];

/// Returns the part names of all methods.
pub(super) fn part_names() -> impl Iterator<Item = &'static PartName> {
    METHODS.iter().flat_map(|method| method.parts).chain(AUXILIARY_ANYWHERE)
}

/// Returns whether a method with this lower-case name exists.
pub(super) fn is_known(name: &str) -> bool {
    METHODS.iter().any(|method| method.names.contains(&name))
}

/// Returns whether a part may contain the weights of the method that the configuration names.
pub(super) fn is_of_named_method(part: PartId, hints: &Hints<'_>) -> bool {
    BY_WEIGHTS[part.index()].iter().any(|method| hints.names(method.names))
}

/// A quantization method.
pub(super) struct MethodDefinition {
    /// The values of `quant_method` that select this method.
    pub(super) names: &'static [&'static str],
    /// The parts of the method's modules. The parts in [`AUXILIARY_ANYWHERE`], `weight` and the bare module name need
    /// no entry.
    pub(super) parts: &'static [PartName],
    /// True if the weights may be in `weight` or in a tensor with the bare module name.
    pub(super) has_plain_weight: bool,
    /// Derives the number of weights of a module.
    pub(super) solve: fn(&Module<'_>, &Hints<'_>) -> Solution,
}

impl MethodDefinition {
    /// Returns the role of a part in this method.
    fn role(&self, name: &str) -> Option<PartRole> {
        self.parts.iter().find(|part| part.text() == name).map(PartName::role)
    }

    /// Returns whether the weights of a module may be in a part.
    fn has_weights_in(&self, part: PartId) -> bool {
        if part.is_plain() {
            self.has_plain_weight
        } else {
            self.role(part.name()) == Some(PartRole::Weights)
        }
    }
}

/// A solved module and its method.
#[derive(Clone, Copy)]
pub(super) struct SolvedModule {
    pub(super) solved: Solved,
    method: &'static MethodDefinition,
}

/// The result of trying all methods: `Ok(None)` if none recognizes the parts.
pub(super) type ModuleSolution = Result<Option<SolvedModule>, UnresolvedReason>;

impl SolvedModule {
    /// Returns the kind of auxiliary tensor that a part is; `None` if it contains weights.
    pub(super) fn auxiliary(&self, part: PartId) -> Option<AuxiliaryTensor> {
        match part.role() {
            PartRole::AuxiliaryAnywhere(tensor) => Some(tensor),
            PartRole::Auxiliary(tensor) => self.method.role(part.name()).map(|_| tensor),
            PartRole::Weights => None,
        }
    }
}

/// For each part, by index, the methods whose weights may be in it.
static BY_WEIGHTS: LazyLock<Vec<Vec<&'static MethodDefinition>>> = LazyLock::new(|| {
    let methods = |part| METHODS.iter().filter(move |method| method.has_weights_in(part)).collect();
    PartId::all().map(methods).collect()
});

/// Derives the number of weights of a module with the first method that recognizes its parts.
///
/// # Errors
///
/// Returns the reason from the first method that recognizes the parts but cannot derive the size.
pub(super) fn solve(module: &Module<'_>, hints: &Hints<'_>) -> ModuleSolution {
    let is_named = |method: &&&MethodDefinition| hints.names(method.names);
    let candidates = || module.parts.iter().flat_map(|(part, _)| &BY_WEIGHTS[part.index()]);
    let methods =
        candidates().filter(is_named).chain(candidates().filter(|method| !is_named(method)));
    let mut failed = None;
    for &method in methods {
        match (method.solve)(module, hints) {
            Ok(Some(solved)) if solved.is_plausible(module) => {
                return Ok(Some(SolvedModule { solved, method }));
            }
            Ok(Some(_)) => failed = failed.or(Some(UnresolvedReason::ImplausibleSize)),
            Ok(None) => {}
            Err(reason) => failed = failed.or(Some(reason)),
        }
    }
    failed.map_or(Ok(None), Err)
}
