//! The answer to the question whether an engine loads a model.

use serde::Serialize;

use super::{Finding, Severity};
use crate::memory::{GpuSet, Memory};

/// The answer to the question whether an engine loads a model, on certain GPUs. Created by
/// [`EngineModel::answer`](crate::engines::EngineModel::answer).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineReport {
    /// The name of the engine.
    pub name: &'static str,
    /// The version whose sources the table of engines describes.
    pub version: &'static str,
    /// The date of its release, as `2026-11-01`.
    pub date: &'static str,
    /// The GPUs, if they are known.
    pub gpus: Option<GpuSet>,
    /// `true` if the engine loads the model, as far as files without their values can show; `None` if it is unknown.
    pub loads: Option<bool>,
    /// The reasons for another answer than `true`, worst first.
    pub reasons: Vec<EngineReason>,
    /// The files that are loaded together with the model.
    pub pairs: Vec<EnginePair>,
    /// The memory of the model and of the pairs, on each GPU; `None` if a file is missing.
    pub memory: Option<Box<Memory>>,
}

/// A file that is loaded together with a model.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct EnginePair {
    /// The kind of file.
    pub kind: EnginePairKind,
    /// The repository, URL or path.
    pub source: String,
    /// The bytes of its weights on a GPU; `None` if they are unknown.
    pub weight_bytes: Option<u64>,
    /// The bytes of its cache; `None` if they are unknown.
    pub cache_bytes: Option<u64>,
}

/// The kind of an [`EnginePair`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum EnginePairKind {
    /// A model that drafts tokens.
    Draft,
    /// An adapter.
    Adapter,
    /// A projector of images or sound.
    Projector,
}

impl EnginePairKind {
    /// Returns the word in texts.
    pub fn label(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Adapter => "adapter",
            Self::Projector => "projector",
        }
    }
}

/// A reason why an engine does not load a model, or may not load it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EngineReason {
    /// The kind of reason.
    pub code: EngineReasonCode,
    /// `false` if the engine does not load the model, and `None` if that is unknown.
    pub loads: Option<bool>,
    /// A sentence. Text from a file may contain control characters.
    pub message: String,
}

impl EngineReason {
    /// Creates the reason why an engine does not load a model.
    pub(crate) fn excluded(code: EngineReasonCode, message: String) -> Self {
        Self { code, loads: Some(false), message }
    }

    /// Creates the reason why it is unknown.
    pub(crate) fn unknown(code: EngineReasonCode, message: String) -> Self {
        Self { code, loads: None, message }
    }

    /// Returns the reason in findings: the first error, or a file that could not be read.
    pub(crate) fn of_findings(findings: &[Finding]) -> Option<Self> {
        let is_unread = |finding: &&Finding| matches!(finding, Finding::Unreadable { .. });
        let is_error =
            |finding: &&Finding| finding.severity() == Severity::Error && !is_unread(finding);
        let error = findings.iter().find(is_error);
        let error = error.map(|first| Self::excluded(EngineReasonCode::Files, first.to_string()));
        error.or_else(|| {
            let unread = findings.iter().find(is_unread)?;
            Some(Self::unknown(EngineReasonCode::Files, unread.to_string()))
        })
    }
}

impl EngineReport {
    /// Adds a reason. Those that exclude the model come first.
    pub(crate) fn add(&mut self, reason: EngineReason) {
        if reason.loads.is_none() {
            self.reasons.push(reason);
            self.loads = self.loads.filter(|loads| !loads);
        } else {
            let unknown = self.reasons.iter().position(|reason| reason.loads.is_none());
            self.reasons.insert(unknown.unwrap_or(self.reasons.len()), reason);
            self.loads = Some(false);
        }
    }

    /// Adds the memory of a pair; `None` makes the whole unknown.
    pub(crate) fn add_memory(&mut self, other: Option<Memory>) {
        match (&mut self.memory, other) {
            (Some(memory), Some(other)) => memory.add(other),
            _ => self.memory = None,
        }
    }

    /// Adds the reason in findings that were made later, such as those about values, unless a file was a reason before.
    pub(crate) fn add_findings(&mut self, findings: &[Finding]) {
        let has_files =
            |found: &EngineReason| found.code == EngineReasonCode::Files && found.loads.is_some();
        if self.reasons.iter().any(has_files) {
            return;
        }
        let Some(reason) =
            EngineReason::of_findings(findings).filter(|found| found.loads.is_some())
        else {
            return;
        };
        // An engine reads all files before anything else can go wrong.
        self.reasons.insert(0, reason);
        self.loads = Some(false);
    }
}

/// The kind of an [`EngineReason`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum EngineReasonCode {
    /// The repository cannot be read: it is missing, gated or private, or the revision is missing.
    Access,
    /// A file is missing or invalid: the first error of the verification.
    Files,
    /// The engine does not read weights in this format, or only together with others.
    Format,
    /// The engine does not register the architecture.
    Architecture,
    /// The repository contains the code of the model, which was not read.
    RemoteCode,
    /// The engine does not register the quantization method.
    Method,
    /// The GPU is too old for the quantization method, or of another maker.
    Gpu,
    /// The draft model does not match.
    Draft,
    /// The engine does not load the adapter.
    Adapter,
    /// The projector does not match.
    Projector,
    /// The heads cannot be divided among the GPUs.
    Parallelism,
    /// The requested context is longer than the model supports.
    Context,
    /// The weights do not fit.
    Weights,
    /// The cache does not fit, or its size is unknown.
    Cache,
}

impl EngineReasonCode {
    /// Returns the word in front of a reason in texts.
    pub fn label(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Files => "files",
            Self::Format => "format",
            Self::Architecture => "architecture",
            Self::RemoteCode => "remote code",
            Self::Method => "method",
            Self::Gpu => "gpu",
            Self::Draft => "draft",
            Self::Adapter => "adapter",
            Self::Projector => "projector",
            Self::Parallelism => "parallelism",
            Self::Context => "context",
            Self::Weights => "weights",
            Self::Cache => "cache",
        }
    }
}
