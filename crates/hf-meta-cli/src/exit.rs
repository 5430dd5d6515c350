//! The exit status of the command.

use std::io;

use hf_meta::Error;
#[cfg(feature = "census")]
use hf_meta_census::CensusError;
use thiserror::Error as ThisError;

/// An error that ends the command, as opposed to the error of one source.
#[derive(Debug, ThisError)]
pub(crate) enum CommandError {
    /// The client cannot be set up.
    #[error(transparent)]
    Client(#[from] Error),
    /// `serve` was called in a build without the server.
    #[cfg(not(feature = "server"))]
    #[error("this build of `hf-meta` does not include the server")]
    NoServer,
    /// Conflicting options, or an empty list of repositories.
    #[error("{0}")]
    Usage(&'static str),
    /// The list in `--from` is unusable, for example because it has no column of names.
    #[error("the list `{file}` {reason}")]
    List {
        file: String,
        /// The rule that it breaks, as the end of a sentence.
        reason: String,
    },
    /// The census failed.
    #[cfg(feature = "census")]
    #[error(transparent)]
    Census(#[from] CensusError),
    /// Local input or output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A local I/O error with the action that failed.
#[derive(Debug, ThisError)]
#[error("failed to {action}")]
struct FailedAction {
    action: String,
    source: io::Error,
}

/// Returns a function that adds the failed action to an error, such as `write to stdout`. An error that already has
/// an action keeps it.
pub(crate) fn failed_to(action: impl Into<String>) -> impl FnOnce(io::Error) -> io::Error {
    |source| match source.get_ref() {
        Some(_) => source,
        None => io::Error::new(source.kind(), FailedAction { action: action.into(), source }),
    }
}

/// The exit status of a subcommand. The highest status of several sources wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ExitStatus {
    /// Everything was read without errors.
    Success = 0,
    /// There are no valid weights or several sets of them, `verify` found an error, or `diff` found a difference.
    Negative = 1,
    /// The arguments or the environment are wrong.
    Usage = 2,
    /// The repository or revision was not found, access was denied, or the Hub or the network failed.
    Remote = 3,
    /// A local file could not be read or written.
    LocalIo = 4,
}

impl From<&Error> for ExitStatus {
    fn from(error: &Error) -> Self {
        let has_no_model = matches!(
            error,
            Error::NoWeights { .. } | Error::FileNotFound { .. } | Error::SeveralSets { .. }
        );
        if error.is_usage() {
            Self::Usage
        } else if error.is_malformed() || has_no_model {
            Self::Negative
        } else if matches!(error, Error::Io { .. }) {
            Self::LocalIo
        } else {
            Self::Remote
        }
    }
}

impl From<&CommandError> for ExitStatus {
    fn from(error: &CommandError) -> Self {
        match error {
            CommandError::Client(error) => Self::from(error),
            CommandError::Usage(_) | CommandError::List { .. } => Self::Usage,
            #[cfg(not(feature = "server"))]
            CommandError::NoServer => Self::Usage,
            #[cfg(feature = "census")]
            CommandError::Census(error) => match error {
                CensusError::Hub(error) => Self::from(error),
                CensusError::InvalidListing { .. } => Self::Remote,
                CensusError::Incomplete { .. } => Self::Negative,
                CensusError::Manifest { .. }
                | CensusError::ManifestMismatch { .. }
                | CensusError::NoCensus { .. } => Self::Usage,
                _ => Self::LocalIo,
            },
            CommandError::Io(_) => Self::LocalIo,
        }
    }
}
