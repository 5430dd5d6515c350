//! The exit status of the command.

use std::io;

use hf_meta::Error;
#[cfg(feature = "census")]
use hf_meta::census::CensusError;
use thiserror::Error as ThisError;

/// An error that ends the command before or between its sources.
#[derive(Debug, ThisError)]
pub(crate) enum CommandError {
    /// The client cannot be set up.
    #[error(transparent)]
    Client(#[from] Error),
    /// `serve` in a build without the server.
    #[cfg(not(feature = "server"))]
    #[error("this `hf-meta` was built without its server")]
    NoServer,
    /// Options that do not go together, or a list without repositories.
    #[error("{0}")]
    Usage(&'static str),
    /// `--from` names a CSV file without the names.
    #[error("the list `{file}` {reason}")]
    List {
        /// The file.
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

/// A failure of local input or output, with the action that failed.
#[derive(Debug, ThisError)]
#[error("failed to {action}")]
struct FailedAction {
    action: String,
    source: io::Error,
}

/// Returns a function that adds the failed action to an error, as in `write to stdout`. An error that has an
/// action keeps it.
pub(crate) fn failed_to(action: impl Into<String>) -> impl FnOnce(io::Error) -> io::Error {
    |source| match source.get_ref() {
        Some(_) => source,
        None => io::Error::new(source.kind(), FailedAction { action: action.into(), source }),
    }
}

/// The exit status of a subcommand. The highest status of several sources wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ExitStatus {
    /// Everything was read, and nothing is wrong.
    Success = 0,
    /// There are no valid weights or several sets of them, or `verify` found an error, or `diff` a
    /// difference.
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
            Error::NoSafetensors { .. } | Error::FileNotFound { .. } | Error::SeveralSets { .. }
        );
        if error.is_usage() {
            Self::Usage
        } else if error.is_malformed() || has_no_model {
            Self::Negative
        } else if matches!(error, Error::Read { .. }) {
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
                CensusError::Client(error) => Self::from(error),
                CensusError::Listing { .. } => Self::Remote,
                CensusError::Incomplete { .. } => Self::Negative,
                CensusError::Manifest { .. }
                | CensusError::OtherManifest { .. }
                | CensusError::NoCensus { .. } => Self::Usage,
                _ => Self::LocalIo,
            },
            CommandError::Io(_) => Self::LocalIo,
        }
    }
}
