//! Contradictions between tensors and the files that describe them.

use std::fmt;

use serde::Serialize;

use crate::results::severity::{FindingKind, Severity};
use crate::results::text::thousands;

/// Declares the rules that tensors and the files that describe them can violate: the severity, the sentence, and after
/// `=>` what to do.
macro_rules! mismatches {
    (($module:ident, $key:ident, $expected:ident, $found:ident) $(
        $(#[doc = $documentation:literal])* $severity:ident $kind:ident
        $sentence:literal $(=> $help:literal)?;
    )+) => {
        /// A rule that tensors and the files that describe them can violate.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "camelCase")]
        #[non_exhaustive]
        pub enum MismatchKind {
            $(
                $(#[doc = $documentation])*
                ///
                #[doc = concat!("> ", $sentence)]
                $kind,
            )+
        }

        impl MismatchKind {
            pub(crate) fn rule(self) -> FindingKind {
                match self {
                    $(Self::$kind => FindingKind {
                        severity: Severity::$severity,
                        documentation: concat!($($documentation),*),
                        help: <[&str]>::first(&[$($help)?]).copied(),
                    },)+
                }
            }
        }

        impl fmt::Display for Mismatch {
            #[allow(unused_variables, reason = "not all fields are in each sentence")]
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Self { modules, key: $key, expected: $expected, found: $found, .. } = self;
                let $module = match modules {
                    0 | 1 => format!("`{}`", self.module),
                    more => format!("`{}` (and {} more)", self.module, thousands(more - 1)),
                };
                match self.kind {
                    $(MismatchKind::$kind => write!(f, $sentence),)+
                }
            }
        }
    };
}

mismatches! {
    (module, key, expected, found)

    /// The value of a key has a wrong type or is out of range.
    Error InvalidConfigValue "the configured value of `{key}` is invalid: {found}"
    => "correct the value, or save the configuration again";
    /// The configuration implies another shape of a tensor.
    Error ShapeMismatch "the shape of {module} is {found}, but `{key}` implies {expected}"
    => "replace the weights or the configuration: they belong to different models, or only one of them was changed";
    /// The base model of an adapter implies another shape of a tensor.
    Error BaseShapeMismatch "the shape of {module} is {found}, but the base model implies {expected}"
    => "check that this is the base model of the adapter";
    /// A numbered list, of layers or experts, has gaps or ends early.
    Error MissingBlocks "{found} of {module} is missing (`{key}` is {expected})"
    => "add what is missing, or correct the key: a loader would fill the gap with random values";
    /// A numbered list ends earlier than in every model of this kind.
    Error MissingLayers "{found} of {module} is missing: `{key}` has {expected}"
    => "add what is missing, or correct the configuration: a loader would fill the gap with random values";
    /// A module of the architecture is not stored.
    Error MissingModule "{module} is missing"
    => "add what is missing, or save the model again: a loader would fill the gap with random values";
    /// A module of the architecture is not stored, but next to it an unknown one with its shape.
    Error RenamedModule "{module} is missing, and {found} has its shape: renamed?"
    => "give the tensor its name again: a loader would ignore it";
    /// A list of layers has a gap.
    Error MissingNumber "{found} of {module} is missing, although later ones are stored"
    => "add what is missing, or save the model again: a loader would fill the gap with random values";
    /// One layer lacks an expert that all other layers have.
    Error MissingExpert "{found} of {module} is missing, unlike in other layers"
    => "add the expert, or save the model again: a loader would fill the gap with random values";
    /// A tensor of one layer has another shape than in all other layers.
    Error OddShape "the shape of {module} is {found}, but {expected} in the other layers"
    => "replace the tensor with the right one for this layer";
    /// A language model has no tensor with as many rows as its vocabulary has tokens.
    Error MissingEmbedding "no tensor has the {expected} rows of an input embedding (`{key}`)"
    => "save the model with its embedding, or correct the key";
    /// No name is one of the architecture that the configuration states, so that transformers loads nothing.
    Error OtherNames "the names, such as {module}, are not those of `{expected}` (`{key}`): transformers loads none of them"
    => "replace the weights or the configuration: they belong to different architectures";
    /// All names have a prefix that transformers does not expect, so that it loads nothing.
    Error OtherPrefix "names begin with {module}, but the loader expects {expected}, and loads none of them"
    => "save the model itself, not the module that wraps it";
    /// A model class that assigns labels has no tensor with as many rows as there are labels.
    Error MissingHead "no tensor has the {expected} rows of the head of {module} (`{key}`)"
    => "save the model with its head, or state the class of its base model in `architectures`";
    /// A model class has a head, and all tensors are those of its base model.
    Error NoHead "the head of {module} is missing: all tensors belong to its base model"
    => "save the model with its head, or state the class of its base model in `architectures`";
    /// All modules with the same start of their names are missing.
    Error MissingModules "{module} is missing, with its {found}"
    => "add what is missing, or save the model again: a loader would fill the gap with random values";
    /// No tensor has a name of the class that the configuration states, so that its loader loads none.
    Error ForeignNames "no tensor has a name of `{expected}` (`{key}`); the first one is {module}"
    => "replace the weights or the configuration: they belong to different classes";
    /// A module of a model of timm has another size than timm builds for the architecture.
    Error OtherSize "{module} has {found}, but timm builds {expected} for `{key}`"
    => "state the architecture of the weights, or its arguments in `model_args`";
    /// The files contain another model of timm than the configuration states.
    Error OtherArchitecture "the sizes of all modules are those of {module}, but `{key}` is `{expected}`"
    => "state the architecture of the weights";
    /// The recipe implies another shape of a part of a packed module.
    Error PartShapeMismatch "the shape of {module} is {found}, but `{key}` implies {expected}"
    => "replace the recipe or the weights: they belong to different quantizations";
    /// A packed module lacks a part that the recipe implies.
    Error MissingPart "{module} is missing (`{key}`)"
    => "add the part, or quantize the model again";
    /// Parts of a packed weight are stored without the weight itself.
    Error MissingWeight "{module} is missing, although its `{found}` is stored"
    => "add the weight, or quantize the model again";
    /// A packed module lacks a part that other modules with such a weight have.
    Error MissingSibling "{module} is missing, unlike in other modules"
    => "add the part, or quantize the model again";
    /// A module is packed that the recipe excludes.
    Error PackedIgnored "{module} is packed, but `{key}` excludes it"
    => "correct the key: a loader would build a plain module";
    /// A numbered list has more layers or experts than the configuration.
    Warning SpareBlocks "{module} has {found}, but `{key}` implies {expected}"
    => "correct the key, or remove the extra ones, which loaders ignore";
    /// The configuration states an architecture that timm does not have. It may be of a newer version.
    Warning UnknownArchitecture "`{key}` is {module}, which timm {expected} does not have";
    /// A module is stored plain that the recipe quantizes.
    Warning UnquantizedModule "{module} is stored plain, but `{key}` does not exclude it"
    => "add the module to the key: a loader would build a packed module";
    /// A packed or adapted module has a part that the recipe or the configuration excludes.
    Warning SparePart "{module} is stored, but `{key}` excludes it";
    /// All names have a prefix that loaders do not expect, such as that of a training program.
    Warning WrappedNames "names begin with {module}, but loaders expect {expected}"
    => "save the model itself, not the module that wraps it";
    /// The configuration describes layers that draft tokens, but none are stored.
    Note MissingDraftLayers "`{key}` implies {expected} layers that draft tokens, but none is stored";
    /// The files have tensors that the architecture does not have. Loaders ignore them, except for `llama.cpp`.
    Note UnknownTensor "unknown to the architecture: {found}, such as {module}";
    /// An adapter has no tensors.
    Error EmptyAdapter "{module} contains no tensors"
    => "save the adapter again with `save_pretrained`";
    /// An adapted module has another rank than its configuration states.
    Error RankMismatch "{module} has rank {found}, but `{key}` states {expected}"
    => "correct the key, or state the rank of this module in `rank_pattern`";
    /// An adapter lacks the tensors of a module of the base model that its targets select. PEFT initializes them.
    Error MissingAdapterPart
    "the adapter does not store {module}, which `{key}` selects in the base model, so PEFT initializes it"
    => "save the adapter again with all its layers, or correct the key";
    /// The targets select none of the modules that an adapter stores.
    Error NoTarget "`{key}` selects none of the stored modules, such as {module}, so PEFT loads none"
    => "correct the key, so that it selects the modules of the adapter";
    /// The tensors of an adapter belong to another method than its configuration states.
    Error OtherMethod "`{key}` is {expected}, but {module} is adapted by {found}"
    => "correct the key, or replace the weights";
    /// The configuration of an adapter lacks a key without which PEFT does not load it.
    Error MissingConfigKey "`{key}` is missing in the configuration, without which PEFT does not load the adapter"
    => "add the key: `save_pretrained` writes it";
    /// The names of an adapter's tensors contain the name of the adapter.
    Error NamedAdapter "the names of {module} end with the adapter's name `{found}`, so PEFT loads none of its tensors"
    => "remove the adapter's name from the tensor names, as `save_pretrained` does";
    /// The names of an adapter begin with a prefix that PEFT does not read.
    Error IgnoredNames "names begin with {module} instead of {expected}, so PEFT loads no tensor"
    => "rename the tensors, or save the adapter again with `save_pretrained`";
    /// An adapter belongs to a module that the base model lacks, although other layers have it.
    Error MissingBaseModule "the base model has no module {module}, unlike in other layers"
    => "check that this is the base model of the adapter, and correct its targets";
    /// An adapter without configuration contains its name in the names of its tensors.
    Warning NamedParts "the names of {module} end with the adapter's name `{found}`, so PEFT and ComfyUI load none of its tensors"
    => "remove the adapter's name from the tensor names, as `save_pretrained` does";
    /// The numerator of the scaling factor is missing, so that loaders assume one.
    Warning MissingAlpha "{module} is missing, so loaders assume {found}"
    => "add the tensor if training used a different value";
    /// The configuration does not select an adapted module, so that loaders ignore it.
    Warning UntargetedModule "`{key}` does not select {module}, so PEFT ignores its tensors"
    => "add the module to the key";
    /// The configuration selects modules that the adapter does not have.
    Note UnmatchedTarget "`{key}` lists {module}, but the adapter has no tensors for it";
    /// The configuration of an adapter does not name the repository of its base model.
    Note UnnamedBaseModel "`{key}` does not name the repository of the base model: `{found}`";
    /// The base model has no module of an adapter with the names of PEFT, which loads only modules with equal names.
    Error MissingBase "the base model has none of the adapter's modules, such as {module}"
    => "check that this is the base model of the adapter";
    /// The names of an adapter's modules are unknown in the base model, so that shapes were not compared.
    Note UnmatchedBase
    "the base model has no module with a name such as {module}, so shapes were not compared";
}

/// A contradiction between tensors and a file that describes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
