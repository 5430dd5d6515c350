//! The severity of findings, and what all findings of one kind share.

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

/// What all findings of one kind share.
pub(crate) struct Rule {
    pub(crate) severity: Severity,
    /// The documentation of the kind in Markdown.
    pub(crate) documentation: &'static str,
    /// What the author of the files can do.
    pub(crate) help: Option<&'static str>,
}
