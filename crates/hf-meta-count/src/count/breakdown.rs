//! The breakdown of a count.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

use super::{Buffer, CountedAs, DtypeCount, Evidence, MixtureOfExperts, Packing, UnknownActive};
use hf_meta_format::formats::{Dtype, clip};

/// The breakdown of a count: the rules that were applied, and the tensors grouped by how they were counted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CountBreakdown {
    /// The counting rules.
    pub rules: RuleSet,
    /// The quantization method, in lowercase: the one specified by the configuration, or else the layout of the
    /// packed modules. `None` if the model is not quantized.
    pub method: Option<String>,
    /// The method specified by the configuration, if this version does not know it. Modules are still counted by
    /// their components.
    pub unknown_method: Option<String>,
    /// All tensors, grouped by dtype and by how they were counted, ordered by dtype.
    pub groups: Vec<TensorGroup>,
    /// The quantized modules, grouped by packing and components; at most 200 kinds.
    pub module_kinds: Vec<ModuleKind>,
    /// The modules whose number of weights is uncertain. The count is exact if there are none.
    pub unresolved: Vec<UnresolvedModules>,
    /// The active parameters, or `None` if the model has no routed experts or they could not be determined.
    pub moe: Option<MixtureOfExperts>,
    /// The reason why the active parameters of a model with routed experts could not be determined.
    pub moe_unknown: Option<UnknownActive>,
    /// The output embedding, if it is stored although the configuration ties it to the input embedding.
    pub tied_output: Option<TiedOutput>,
    /// True if the weights have the sizes that `config.json` implies, so that an unknown method packs none.
    pub(super) is_confirmed: bool,
}

/// An output embedding that is stored although it is tied to the input embedding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TiedOutput {
    /// The name of the output embedding.
    pub tensor: String,
    /// The name of the input embedding.
    pub input: String,
    /// The parameters of the output embedding, if it was left out of the count. They are counted if the two embeddings
    /// differ in size, or if the count does not depend on the configuration.
    pub left_out: Option<u64>,
}

impl CountBreakdown {
    /// The maximum number of module kinds. A model has a dozen, and a hostile file must not create millions.
    pub(super) const MAX_MODULE_KINDS: usize = 200;

    /// Returns whether the count is exact.
    ///
    /// An unknown method makes it inexact if no known one explains the tensors, and the configuration does not imply
    /// their sizes.
    pub fn is_exact(&self) -> bool {
        let is_unknown =
            self.unknown_method.is_some() && self.module_kinds.is_empty() && !self.is_confirmed;
        self.unresolved.is_empty() && !is_unknown
    }

    /// Returns the bytes of the model: of all tensors but the state of a training run and copies of counted weights.
    pub fn model_bytes(&self) -> u64 {
        let bytes = self.model_groups().map(|group| group.count.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns the bytes of the model's weights, including everything that is needed to unpack them, but without scalars.
    pub fn weight_bytes(&self) -> u64 {
        let groups = self.model_groups().filter(|group| group.counted_as != CountedAs::Scalar);
        groups.map(|group| group.count.bytes).fold(0, u64::saturating_add)
    }

    /// Returns the groups of tensors that belong to the model.
    fn model_groups(&self) -> impl Iterator<Item = &TensorGroup> {
        self.groups.iter().filter(|group| match group.buffer {
            Some(Buffer::OptimizerState | Buffer::TrainingValue) => false,
            Some(Buffer::EmaCopy) => group.count.counted > 0,
            _ => true,
        })
    }
}

/// Quantized modules with the same packing and components.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModuleKind {
    /// The packing of the weights.
    pub packing: Packing,
    /// The components from which the size of the first module was derived.
    pub evidence: Evidence,
    /// The names and dtypes of the components, sorted. A module that consists of one tensor has an unnamed component.
    pub components: Vec<(&'static str, Dtype)>,
    /// The number of modules.
    pub modules: u64,
    /// The number of elements stored for the weights, excluding the other components.
    pub elements: u64,
    /// The number of weights.
    pub parameters: u64,
}

/// Tensors of one dtype that were counted in the same way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct TensorGroup {
    /// The dtype of the tensors.
    pub dtype: Dtype,
    /// The way in which the tensors were counted.
    pub counted_as: CountedAs,
    /// The kind of buffer, or `None` if the tensors are not buffers.
    pub buffer: Option<Buffer>,
    /// The totals over the tensors.
    pub count: DtypeCount,
}

impl TensorGroup {
    /// Returns whether the tensors of another group belong to this one.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.dtype == other.dtype
            && self.counted_as == other.counted_as
            && self.buffer == other.buffer
    }
}

/// The name and version of a set of counting rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RuleSet {
    /// The project that defined the rules.
    pub name: &'static str,
    /// The version of the rules. It is incremented whenever a change affects a count.
    pub version: &'static str,
}

impl RuleSet {
    /// The rules of this version of the library.
    pub const CURRENT: Self = Self { name: "hf-meta", version: "1" };
}

impl fmt::Display for RuleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// The reason why the number of parameters in a module could not be derived from its components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum UnresolvedReason {
    /// The components match no known method.
    #[error("no known quantization method uses these components")]
    UnknownComponents,
    /// Two components imply different sizes.
    #[error("the components imply different sizes")]
    ConflictingComponents,
    /// The shapes allow several sizes, and the configuration does not select one.
    #[error("the shapes allow several sizes, and the configuration does not select one")]
    AmbiguousScheme,
    /// Choosing among the schemes in the configuration would take more work than any known model needs.
    #[error("the configuration lists too many schemes and patterns")]
    TooComplex,
    /// The weights are packed, but the tensors that determine their size are missing.
    #[error("the components that determine the size are missing")]
    MissingComponents,
    /// The weights would have less than a quarter of a bit each, or their number overflows 64 bits.
    #[error("the components imply an implausible size")]
    ImplausibleSize,
    /// A tensor next to or below the weights has a name that neither quantizers nor unquantized models use. The module
    /// is counted without regard to it.
    #[error("a tensor next to the weights belongs to no known quantization method")]
    UnknownTensors,
    /// The configuration implies a different number of weights.
    #[error("the configuration implies a different number of weights")]
    ContradictsConfig,
    /// The weights are padded by an unknown amount. The module is counted including its padding.
    #[error("the weights may be padded by an unknown amount")]
    Padded,
    /// Weights may be packed: integers are in `weight` of an unquantized model or in many large tensors under unknown
    /// names, or the shapes of floats do not fit the vectors of the model.
    #[error("the weights may be packed, but no known quantization method explains them")]
    SuspectedPacking,
    /// The configuration ties the output embedding, so it is not counted, but some models store their own nevertheless,
    /// which only a known architecture shows.
    #[error("it is unknown whether the model ties it to the input embedding")]
    UnknownHead,
    /// Only packed modules have a bias, and all of them, so that the packer may have added zeros. The biases are counted.
    #[error("its bias may be zeros that the packer added")]
    UnknownBias,
}

/// Modules that could not be resolved for a common reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct UnresolvedModules {
    /// The reason.
    pub reason: UnresolvedReason,
    /// The number of modules.
    pub modules: u64,
    /// The names of up to [`MAX_EXAMPLES`](Self::MAX_EXAMPLES) of the modules, sorted, each truncated to 200
    /// characters.
    pub examples: Vec<String>,
    /// The number of elements stored for their weights.
    pub elements: u64,
}

impl UnresolvedModules {
    /// The maximum number of examples.
    pub const MAX_EXAMPLES: usize = 10;

    pub(super) fn new(reason: UnresolvedReason) -> Self {
        Self { reason, modules: 0, examples: Vec::new(), elements: 0 }
    }

    /// Adds a module. The order of the modules makes no difference.
    pub(super) fn add(&mut self, module: &str, elements: u64) {
        self.modules += 1;
        self.elements = self.elements.saturating_add(elements);
        let example = clip(module);
        let at = self.examples.partition_point(|other| *other <= example);
        if at < Self::MAX_EXAMPLES {
            self.examples.insert(at, example);
            self.examples.truncate(Self::MAX_EXAMPLES);
        }
    }
}
