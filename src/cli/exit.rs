//! The exit status of the command.

use std::io;

use hf_meta::Error;
use thiserror::Error as ThisError;

/// An error that ends the command before or between its sources.
#[derive(Debug, ThisError)]
pub(crate) enum CommandError {
    /// The client cannot be set up.
    #[error(transparent)]
    Client(#[from] Error),
    /// Local input or output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
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
            CommandError::Io(_) => Self::LocalIo,
        }
    }
}

impl From<ExitStatus> for std::process::ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status as u8)
    }
}
