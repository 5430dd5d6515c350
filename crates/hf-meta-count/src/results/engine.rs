//! The answer to the question whether an engine loads a model.

use serde::Serialize;

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
    /// The memory of the model, on each GPU; `None` if a file is missing.
    pub memory: Option<Box<Memory>>,
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
            Self::Parallelism => "parallelism",
            Self::Context => "context",
            Self::Weights => "weights",
            Self::Cache => "cache",
        }
    }
}
