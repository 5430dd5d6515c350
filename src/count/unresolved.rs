//! Modules whose size does not follow from their parts.

use std::fmt;

use serde::Serialize;

/// The reason why the parameters of a module could not be derived from its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum UnresolvedReason {
    /// The parts are not those of any known method.
    UnknownParts,
    /// Two parts give different sizes.
    ConflictingParts,
    /// The shapes allow several sizes, and the configuration does not choose one of them.
    SeveralSchemes,
    /// The choices among the schemes of the configuration took more work than any known model needs.
    TooManyChoices,
    /// Packed weights are there without the tensors that show their size.
    MissingParts,
    /// The weights would be smaller than a quarter of a bit, or their number does not fit in 64 bits.
    TooLarge,
    /// The packer pads the weights, and nothing shows by how much. The module is counted with its padding.
    Padded,
    /// An integer tensor looks like packed weights, in a model without a quantization configuration.
    SuspectedPacking,
}

impl fmt::Display for UnresolvedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownParts => "no known quantization method writes these parts",
            Self::ConflictingParts => "its parts give different sizes",
            Self::SeveralSchemes => {
                "its shapes allow several sizes, and the configuration does not choose one"
            }
            Self::TooManyChoices => "the configuration lists too many schemes and patterns",
            Self::MissingParts => "the parts that show its size are missing",
            Self::TooLarge => "its parts give an absurd size",
            Self::Padded => "its weights may be padded, and nothing shows by how much",
            Self::SuspectedPacking => {
                "its integers look like packed weights, but no configuration names a quantization"
            }
        })
    }
}

/// Modules that could not be solved, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct UnresolvedModules {
    /// The reason.
    pub reason: UnresolvedReason,
    /// The number of modules.
    pub modules: u64,
    /// The names of the first modules, sorted, each cut to 200 characters.
    pub examples: Vec<String>,
    /// The stored elements of their weights.
    pub elements: u64,
}

impl UnresolvedModules {
    /// The largest number of examples.
    pub const MOST_EXAMPLES: usize = 10;

    pub(super) fn new(reason: UnresolvedReason) -> Self {
        Self { reason, modules: 0, examples: Vec::new(), elements: 0 }
    }
}
