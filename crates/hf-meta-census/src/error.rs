//! Census errors.

use std::path::Path;

use thiserror::Error as ThisError;

use hf_meta::Error;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(super) type Result<T, E = CensusError> = std::result::Result<T, E>;

/// An error that aborts a census. A repository that cannot be read becomes a row, not an error.
///
/// No message repeats the message of its [source](std::error::Error::source), so print the whole chain.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum CensusError {
    /// The client cannot be set up, or a request for the Hub's listing failed.
    #[error(transparent)]
    Hub(#[from] Error),
    /// The manifest cannot be used.
    #[error("the list `{name}` {reason}")]
    Manifest {
        /// The path of the list.
        name: String,
        /// The problem, as the end of a sentence.
        reason: String,
    },
    /// The target contains the census of a different list.
    #[error("`{target}` contains the census of a different list; choose another target")]
    ManifestMismatch {
        /// The folder or URL.
        target: String,
    },
    /// The folder or URL contains no census.
    #[error("`{target}` contains no census")]
    NoCensus {
        /// The folder or URL.
        target: String,
    },
    /// Some parts of the census are missing or incomplete.
    #[error(
        "{missing} of {parts} parts are missing from `{target}` or incomplete; run `census read` again"
    )]
    Incomplete {
        /// The folder or URL.
        target: String,
        /// The number of missing parts.
        missing: usize,
        /// The total number of parts.
        parts: usize,
    },
    /// A [stop handle](crate::Census::stop_handle) ended the run.
    #[error("the run was stopped")]
    Stopped,
    /// The Hub or the network failed for too long. All complete rows are stored.
    #[error("an outage ended the census; run the command again to continue")]
    Outage {
        /// The last failure.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file with headers does not belong to its rows.
    #[error("`{file}` {problem}; `census read` repairs it")]
    Headers {
        /// The file.
        file: String,
        /// The problem, as the end of a sentence.
        problem: &'static str,
    },
    /// A file, folder or URL cannot be opened, listed, read or written.
    #[error("failed to {action} `{target}`")]
    Io {
        /// The action, such as `write`.
        action: &'static str,
        /// The file, folder or URL.
        target: String,
        /// The underlying error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A table has unexpected columns or is corrupt.
    #[error("failed to read the table `{file}`")]
    Table {
        /// The file, or its path in the target.
        file: String,
        /// The underlying error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A page of the Hub's model listing is invalid.
    #[error("the Hub's model listing is invalid: {reason}")]
    InvalidListing {
        /// The reason.
        reason: String,
    },
}

/// Returns a function that adds the failed action and the name of its target to an error.
pub(super) fn failed_to<E: Into<BoxError>>(
    action: &'static str,
    target: impl AsRef<Path>,
) -> impl Fn(E) -> CensusError {
    let target = target.as_ref().display().to_string();
    move |source| CensusError::Io { action, target: target.clone(), source: source.into() }
}

/// Returns the error for a list that cannot be used.
pub(super) fn unusable(name: impl AsRef<Path>, reason: &str) -> CensusError {
    let name = name.as_ref().display().to_string();
    CensusError::Manifest { name, reason: reason.to_owned() }
}
