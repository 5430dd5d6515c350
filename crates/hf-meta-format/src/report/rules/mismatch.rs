//! Contradictions between tensors and the files that describe them.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::formats::clip;
use crate::report::text::thousands;
use crate::report::{Finding, Severity, bounded};

/// A contradiction between tensors and a file that describes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Mismatch {
    /// The violated rule.
    pub kind: MismatchKind,
    /// The first tensor, module or list of modules with this contradiction.
    pub module: String,
    /// The number of tensors, modules or lists with this contradiction.
    pub modules: u64,
    /// The keys that imply the expected value, joined by commas.
    pub key: String,
    /// The value that the keys imply.
    pub expected: String,
    /// The value of the tensors, or of the key itself.
    pub found: String,
}

/// A rule that tensors and the files that describe them can violate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum MismatchKind {
    /// The value of a key has a wrong type or is out of range.
    InvalidConfigValue,
    /// The configuration implies another shape of a tensor.
    ShapeMismatch,
    /// A numbered list, of layers or experts, has gaps or ends early.
    MissingBlocks,
    /// A layer or expert lacks a module that the others have.
    MissingModule,
    /// The recipe implies another shape of a part of a packed module.
    PartShapeMismatch,
    /// A packed module lacks a part that the recipe implies.
    MissingPart,
    /// A module is packed that the recipe excludes.
    PackedIgnored,
    /// A numbered list has more layers or experts than the configuration.
    SpareBlocks,
    /// A module is stored plain that the recipe quantizes.
    UnquantizedModule,
    /// A packed module has a part that the recipe excludes.
    SparePart,
    /// The embeddings are tied, but stored with different numbers of rows.
    TiedShapeMismatch,
    /// The configuration describes a vision tower, but only the language model is stored.
    MissingVisionTower,
    /// A vision tower is stored, but the configuration describes only a language model.
    SpareVisionTower,
    /// All names have the prefix of a wrapper, which training programs add and loaders do not expect.
    WrappedNames,
    /// The configuration describes layers that draft tokens, but none are stored.
    MissingDraftLayers,
    /// An adapter has no tensors.
    EmptyAdapter,
    /// An adapted module has another rank than its configuration states.
    RankMismatch,
    /// An adapter belongs to a module that the base model lacks, although other layers have it.
    MissingBaseModule,
    /// The numerator of the scaling factor is missing, so that loaders assume one.
    MissingAlpha,
    /// The configuration does not select an adapted module, so that loaders ignore it.
    UntargetedModule,
    /// The configuration selects modules that the adapter does not have.
    UnmatchedTarget,
    /// The configuration of an adapter does not name the repository of its base model.
    UnnamedBaseModel,
    /// The names of an adapter's modules are unknown in the base model, so that shapes were not compared.
    UnmatchedBase,
}

impl MismatchKind {
    /// Returns the severity of a violation.
    #[must_use]
    pub fn severity(self) -> Severity {
        match self {
            Self::InvalidConfigValue
            | Self::ShapeMismatch
            | Self::MissingBlocks
            | Self::MissingModule
            | Self::PartShapeMismatch
            | Self::MissingPart
            | Self::PackedIgnored
            | Self::EmptyAdapter
            | Self::RankMismatch
            | Self::MissingBaseModule => Severity::Error,
            Self::SpareBlocks
            | Self::UnquantizedModule
            | Self::SparePart
            | Self::TiedShapeMismatch
            | Self::MissingVisionTower
            | Self::SpareVisionTower
            | Self::WrappedNames
            | Self::MissingAlpha
            | Self::UntargetedModule => Severity::Warning,
            Self::MissingDraftLayers
            | Self::UnmatchedTarget
            | Self::UnnamedBaseModel
            | Self::UnmatchedBase => Severity::Note,
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use MismatchKind as Kind;

        let Self { kind, module, modules, key, expected, found } = self;
        let module = match modules {
            0 | 1 => format!("`{module}`"),
            modules => format!("`{module}` (and {} more)", thousands(modules - 1)),
        };
        match kind {
            Kind::InvalidConfigValue => {
                write!(f, "the configured value of `{key}` is invalid: {found}")
            }
            Kind::ShapeMismatch | Kind::PartShapeMismatch => {
                write!(f, "the shape of {module} is {found}, but `{key}` implies {expected}")
            }
            Kind::MissingModule => write!(f, "{module} is not stored, unlike in its siblings"),
            Kind::MissingBlocks | Kind::SpareBlocks => {
                write!(f, "{module} has {found}, but `{key}` implies {expected}")
            }
            Kind::MissingPart => write!(f, "{module} is missing (`{key}`)"),
            Kind::SparePart => write!(f, "{module} is stored, but `{key}` excludes it"),
            Kind::PackedIgnored => write!(f, "{module} is packed, but `{key}` excludes it"),
            Kind::UnquantizedModule => {
                write!(f, "{module} is stored plain, but `{key}` does not exclude it")
            }
            Kind::TiedShapeMismatch => {
                write!(f, "{module} has {found} rows, but is tied to {expected} rows (`{key}`)")
            }
            Kind::MissingVisionTower => {
                write!(f, "`{key}` describes a vision tower, but only a language model is stored")
            }
            Kind::SpareVisionTower => {
                write!(f, "{module} of a vision tower is stored, but `{key}` is a language model")
            }
            Kind::WrappedNames => {
                write!(f, "names begin with `{found}`, but loaders expect them without {module}")
            }
            Kind::MissingDraftLayers => {
                write!(f, "`{key}` implies {expected} layers that draft tokens, but none is stored")
            }
            Kind::EmptyAdapter => write!(f, "{module} contains no tensors"),
            Kind::RankMismatch => {
                write!(f, "{module} has rank {found}, but `{key}` states {expected}")
            }
            Kind::MissingBaseModule => {
                write!(f, "the base model has no module {module}, unlike in other layers")
            }
            Kind::MissingAlpha => write!(f, "{module} is missing, so loaders assume {found}"),
            Kind::UntargetedModule => {
                write!(f, "`{key}` does not select {module}, so PEFT ignores its tensors")
            }
            Kind::UnmatchedTarget => {
                write!(f, "`{key}` lists {module}, but the adapter has no tensors for it")
            }
            Kind::UnnamedBaseModel => {
                write!(f, "`{key}` does not name the repository of the base model: `{found}`")
            }
            Kind::UnmatchedBase => {
                write!(
                    f,
                    "the base model has no module with a name such as {module}, so shapes were not compared"
                )
            }
        }
    }
}

/// The mismatches found so far, with equal ones folded into one.
#[derive(Debug, Default)]
pub(super) struct Mismatches {
    found: BTreeMap<(MismatchKind, String, MismatchValues), (String, u64)>,
}

/// The key, the expected value and the found value.
type MismatchValues = [String; 3];

impl Mismatches {
    /// Adds a mismatch. Mismatches with the same `group`, such as the name of a tensor without numbers, are folded if
    /// they have equal values.
    pub(super) fn add(
        &mut self,
        kind: MismatchKind,
        (module, group): (&str, &str),
        key: &str,
        (expected, found): (impl fmt::Display, impl fmt::Display),
    ) {
        /// The maximum number of different mismatches. A hostile file can cause one per tensor.
        const MAX_MISMATCHES: usize = 10_000;

        let values = [clip(key), clip(&expected.to_string()), clip(&found.to_string())];
        let entry = (kind, clip(group), values);
        if self.found.len() < MAX_MISMATCHES || self.found.contains_key(&entry) {
            self.found.entry(entry).or_insert_with(|| (clip(module), 0)).1 += 1;
        }
    }

    /// Returns the findings, errors first.
    pub(super) fn into_findings(self) -> Vec<Finding> {
        let mut kinds = BTreeMap::<_, Vec<_>>::new();
        for ((kind, _, [key, expected, found]), (module, modules)) in self.found {
            let found = Mismatch { kind, module, modules, key, expected, found };
            kinds.entry(kind).or_default().push(Finding::Mismatch(found));
        }
        kinds.into_values().flat_map(|found| bounded(found.into_iter())).collect()
    }
}
