//! Census errors.

use std::io;
use std::path::Path;

use thiserror::Error as ThisError;

use hf_meta::Error;

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
    /// Some parts of the census are missing.
    #[error("{missing} of {parts} parts are missing from `{target}`; run `census read` again")]
    Incomplete {
        /// The folder or URL.
        target: String,
        /// The number of missing parts.
        missing: usize,
        /// The total number of parts.
        parts: usize,
    },
    /// The target cannot be opened, listed, read or written.
    #[error("failed to {action} `{target}`")]
    Storage {
        /// The action, such as `write`.
        action: &'static str,
        /// The folder, URL or file.
        target: String,
        /// The underlying error.
        source: object_store::Error,
    },
    /// A local file cannot be read or written.
    #[error("failed to {action} `{file}`")]
    File {
        /// The action, such as `read`.
        action: &'static str,
        /// The file.
        file: String,
        /// The underlying error.
        source: io::Error,
    },
    /// The table in a file cannot be read.
    #[error("failed to read the table `{file}`")]
    TableFile {
        /// The file, or its path in the target.
        file: String,
        /// The underlying error: [`Table`](Self::Table) or [`Parquet`](Self::Parquet).
        source: Box<CensusError>,
    },
    /// A table has unexpected columns or is corrupt.
    #[error("the table has unexpected columns or is corrupt")]
    Table(#[from] serde_arrow::Error),
    /// A Parquet file cannot be read or written.
    #[error("failed to read or write a Parquet file")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// A page of the Hub's model listing is invalid.
    #[error("the Hub's model listing is invalid: {reason}")]
    InvalidListing {
        /// The reason.
        reason: String,
    },
}

/// Returns a function that adds the failed action and the file name to an error.
pub(super) fn failed_to(
    action: &'static str,
    file: impl AsRef<Path>,
) -> impl Fn(io::Error) -> CensusError {
    let file = file.as_ref().display().to_string();
    move |source| CensusError::File { action, file: file.clone(), source }
}

impl CensusError {
    /// Adds the name of the table file to an error.
    pub(super) fn in_table(self, file: &str) -> Self {
        Self::TableFile { file: file.to_owned(), source: Box::new(self) }
    }
}
