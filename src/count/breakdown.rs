//! The explanation of a count.

use std::fmt;

use serde::Serialize;

use super::{
    Buffer, CountedAs, DtypeCount, MixtureOfExperts, Packing, UnknownActive, UnresolvedModules,
};
use crate::formats::Dtype;

/// The explanation of a count: the rules, and the tensors in groups that were counted alike.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CountBreakdown {
    /// The rules that were applied.
    pub rules: RuleSet,
    /// The quantization method, in lower case: the one that the configuration names, or else the layout of the
    /// packed modules. `None` for a model that is not quantized.
    pub method: Option<String>,
    /// The method that the configuration names, if this version does not know it. Modules are counted by their
    /// parts all the same.
    pub unknown_method: Option<String>,
    /// All tensors, in groups that were counted alike, ordered by dtype.
    pub groups: Vec<TensorGroup>,
    /// The quantized modules, in kinds that have the same packing and parts; at most 200 kinds.
    pub module_kinds: Vec<ModuleKind>,
    /// The modules whose number of weights is not certain. The count is exact if there are none.
    pub unresolved: Vec<UnresolvedModules>,
    /// The active parameters; `None` for a model without routed experts, and where they are not known.
    pub moe: Option<MixtureOfExperts>,
    /// The reason why the active parameters of a model with routed experts are not known.
    pub moe_unknown: Option<UnknownActive>,
}

impl CountBreakdown {
    /// The largest number of kinds of modules. A model has a dozen, and a hostile file must not cause millions.
    pub(super) const MOST_KINDS: usize = 200;

    /// Returns whether the number of parameters is certain.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.unresolved.is_empty()
    }

    /// Returns the number of parameters that huggingface.js, and with it the Hub, counts for the model. `total` is the
    /// counted number. `None` if the figure of some modules is not known.
    #[must_use]
    pub fn huggingface_js_total(&self, total: u64) -> Option<u64> {
        if self.module_kinds.len() >= Self::MOST_KINDS {
            return None;
        }
        self.module_kinds.iter().try_fold(total, |total, kind| {
            total.checked_sub(kind.parameters)?.checked_add(kind.huggingface_js?)
        })
    }
}

/// Quantized modules with the same packing and the same parts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModuleKind {
    /// The packing of the weights.
    pub packing: Packing,
    /// The names and dtypes of the parts, sorted. A module that is one tensor has a part without a name.
    pub parts: Vec<(&'static str, Dtype)>,
    /// The number of modules.
    pub modules: u64,
    /// The stored elements of the weights, without the other parts.
    pub elements: u64,
    /// The number of weights.
    pub parameters: u64,
    /// The number of parameters that huggingface.js, and with it the Hub, counts for all parts of the modules; `None` if
    /// the configuration mixes widths in a way that it resolves by names.
    pub huggingface_js: Option<u64>,
}

/// Tensors of one dtype that were counted alike.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorGroup {
    /// The dtype of the tensors.
    pub dtype: Dtype,
    /// The class of the tensors.
    pub counted_as: CountedAs,
    /// The kind of buffer; `None` if the tensors are weights.
    pub buffer: Option<Buffer>,
    /// The sums over the tensors.
    pub count: DtypeCount,
}

/// The name and the version of counting rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RuleSet {
    /// The project that defined the rules.
    pub name: &'static str,
    /// The version of the rules, which grows with every change that changes a count.
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
