//! Errors of a census.

use std::io;
use std::path::Path;

use thiserror::Error as ThisError;

use crate::error::Error;

/// The error that ends a census. A repository that cannot be read is a row, and no error.
///
/// No message repeats the message of its [source](std::error::Error::source): print the whole chain.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum CensusError {
    /// The client cannot be set up, or the Hub does not answer a listing.
    #[error(transparent)]
    Client(#[from] Error),
    /// The manifest cannot be used.
    #[error("the list `{name}` {reason}")]
    Manifest {
        /// The file.
        name: String,
        /// The rule that it breaks, as the end of a sentence.
        reason: String,
    },
    /// The target holds a census of another list.
    #[error("`{target}` holds the census of another list; choose another target")]
    OtherManifest {
        /// The folder or URL.
        target: String,
    },
    /// The folder or URL holds no census.
    #[error("`{target}` holds no census")]
    NoCensus {
        /// The folder or URL.
        target: String,
    },
    /// Some parts of the census are missing.
    #[error("{missing} of {parts} parts are missing in `{target}`; run `census read` again")]
    Incomplete {
        /// The folder or URL.
        target: String,
        /// The number of missing parts.
        missing: usize,
        /// The number of parts.
        parts: usize,
    },
    /// The target cannot be opened, read or written.
    #[error("failed to {action} `{target}`")]
    Storage {
        /// The action, such as `write`.
        action: &'static str,
        /// The folder, URL or file.
        target: String,
        /// The reason.
        source: object_store::Error,
    },
    /// A local file cannot be read or written.
    #[error("failed to {action} `{file}`")]
    File {
        /// The action, such as `read`.
        action: &'static str,
        /// The file.
        file: String,
        /// The reason.
        source: io::Error,
    },
    /// The table in a file cannot be read.
    #[error("failed to read the table `{file}`")]
    TableFile {
        /// The file, or its path in the target.
        file: String,
        /// The reason: [`Table`](Self::Table) or [`Parquet`](Self::Parquet).
        source: Box<CensusError>,
    },
    /// A table has other columns, or is broken.
    #[error("a table has other columns, or is broken")]
    Table(#[from] serde_arrow::Error),
    /// A Parquet file cannot be read or written.
    #[error("failed to read or write a Parquet file")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// A page of the Hub's listing is not valid.
    #[error("the listing of the Hub is not valid: {reason}")]
    Listing {
        /// The reason.
        reason: String,
    },
}

/// Returns a function that adds the failed action and the file to an error.
pub(super) fn failed_to(
    action: &'static str,
    file: impl AsRef<Path>,
) -> impl Fn(io::Error) -> CensusError {
    let file = file.as_ref().display().to_string();
    move |source| CensusError::File { action, file: file.clone(), source }
}

impl CensusError {
    /// Adds the name of the file whose table cannot be read.
    pub(super) fn in_table(self, file: &str) -> Self {
        Self::TableFile { file: file.to_owned(), source: Box::new(self) }
    }
}
