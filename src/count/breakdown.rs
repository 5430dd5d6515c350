//! The explanation of a count.

use std::fmt;

use serde::Serialize;

use super::{Buffer, CountedAs, DtypeCount, MixtureOfExperts};
use crate::formats::Dtype;

/// The explanation of a count: the rules, and the tensors in groups that were counted alike.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CountBreakdown {
    /// The rules that were applied.
    pub rules: RuleSet,
    /// The quantization method, in lower case; `None` if the configuration was not needed or names none.
    pub method: Option<String>,
    /// All tensors, in groups that were counted alike, ordered by dtype.
    pub groups: Vec<TensorGroup>,
    /// The active parameters; `None` for a model without routed experts, and where the configuration and the
    /// tensors disagree.
    pub moe: Option<MixtureOfExperts>,
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
    /// The version of its package that applies the same rules.
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
