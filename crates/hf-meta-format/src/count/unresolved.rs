//! Modules whose size cannot be derived from their components.

use std::fmt;

use serde::Serialize;

/// The reason why the number of parameters in a module could not be derived from its components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum UnresolvedReason {
    /// The components match no known method.
    UnknownComponents,
    /// Two components imply different sizes.
    ConflictingComponents,
    /// The shapes allow several sizes, and the configuration does not select one.
    AmbiguousScheme,
    /// Choosing among the schemes in the configuration would take more work than any known model needs.
    TooComplex,
    /// The weights are packed, but the tensors that determine their size are missing.
    MissingComponents,
    /// The weights would have less than a quarter of a bit each, or their number overflows 64 bits.
    ImplausibleSize,
    /// The weights are padded by an unknown amount. The module is counted including its padding.
    Padded,
    /// An integer tensor looks like packed weights, but the model has no quantization configuration.
    SuspectedPacking,
}

impl fmt::Display for UnresolvedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownComponents => "no known quantization method uses these components",
            Self::ConflictingComponents => "the components imply different sizes",
            Self::AmbiguousScheme => {
                "the shapes allow several sizes, and the configuration does not select one"
            }
            Self::TooComplex => "the configuration lists too many schemes and patterns",
            Self::MissingComponents => "the components that determine the size are missing",
            Self::ImplausibleSize => "the components imply an implausible size",
            Self::Padded => "the weights may be padded by an unknown amount",
            Self::SuspectedPacking => {
                "the integers look like packed weights, but no configuration specifies a quantization method"
            }
        })
    }
}

/// Modules that could not be resolved for a common reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
}
