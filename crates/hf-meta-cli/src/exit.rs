//! The exit status of the command, and the errors that end it.

use std::error::Error as StdError;
use std::io;

use hf_meta::{Error, ErrorKind};
use thiserror::Error as ThisError;

type BoxError = Box<dyn StdError + Send + Sync>;

/// An error that ends the command, as opposed to the error of one source.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) status: ExitStatus,
    pub(crate) error: BoxError,
}

/// The exit status of a subcommand, or another value that a command needs.
pub(crate) type CommandResult<T = ExitStatus> = Result<T, CommandError>;

impl CommandError {
    pub(crate) fn new(status: ExitStatus, error: impl Into<BoxError>) -> Self {
        Self { status, error: error.into() }
    }

    /// Creates the error of options that contradict each other or of an unusable list.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitStatus::Usage, message.into())
    }

    /// Returns whether the reader of stdout has closed the pipe, as in `hf-meta … | head`.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        let error = self.error.downcast_ref::<io::Error>();
        error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        Self::new(ExitStatus::from(&error), error)
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::new(ExitStatus::LocalIo, error)
    }
}

/// A local I/O error with the action that failed.
#[derive(Debug, ThisError)]
#[error("failed to {action}")]
struct FailedAction {
    action: String,
    source: io::Error,
}

/// Returns a function that adds the failed action to an error, such as `write to stdout`.
pub(crate) fn failed_to(action: impl Into<String>) -> impl FnOnce(io::Error) -> io::Error {
    |source| io::Error::new(source.kind(), FailedAction { action: action.into(), source })
}

/// The exit status of a subcommand. The highest status of several sources wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ExitStatus {
    /// Everything was read without errors.
    Success = 0,
    /// No valid weights or several weight sets were found, `verify` found an error, or `diff` found a difference.
    CheckFailed = 1,
    /// The arguments or the environment are wrong.
    Usage = 2,
    /// The repository or revision was not found, access was denied, or the Hub or the network failed.
    Remote = 3,
    /// A local file could not be read or written.
    LocalIo = 4,
}

impl From<&Error> for ExitStatus {
    fn from(error: &Error) -> Self {
        use ErrorKind::{FileNotFound, LocalIo, NoWeights, SeveralSets};
        match error.kind() {
            FileNotFound | NoWeights | SeveralSets => Self::CheckFailed,
            LocalIo => Self::LocalIo,
            _ if error.is_malformed() => Self::CheckFailed,
            _ if error.is_usage() => Self::Usage,
            _ => Self::Remote,
        }
    }
}
