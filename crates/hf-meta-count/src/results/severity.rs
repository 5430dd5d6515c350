//! The severity of findings, and their kinds.

use serde::Serialize;

/// The severity of a finding, in ascending order.
// Exhaustive, because callers map each severity to something else, such as a SARIF level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Informational. Not a defect.
    Note,
    /// A defect or uncertainty, but no weights are missing, duplicated or unreadable.
    Warning,
    /// Weights are invalid, missing or duplicated, or could not be checked.
    Error,
}

/// The properties of all findings of one kind.
pub(crate) struct FindingKind {
    pub(crate) severity: Severity,
    /// The documentation of the kind in Markdown.
    pub(crate) documentation: &'static str,
    /// Advice for the author of the files.
    pub(crate) help: Option<&'static str>,
}
