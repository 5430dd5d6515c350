//! The reasons why a file is not edited.

use std::io;
use std::path::Path;

use hf_meta_format::formats::safetensors::{EditError, HeaderError};
use thiserror::Error;

use crate::exit::{CommandError, ExitStatus};

/// The error of a file that was not edited. The file is unchanged, unless the variant states otherwise.
#[derive(Debug, Error)]
pub(crate) enum MetadataError {
    #[error("`{path}` is a symbolic link to `{target}`: copy the file, and edit the copy")]
    SymbolicLink { path: String, target: String },
    #[error(
        "`{path}` has {links} hard links, which share its content: copy the file, and edit the copy"
    )]
    HardLink { path: String, links: u64 },
    #[error(
        "`{path}` belongs to a download cache, which is shared: copy the file, and edit the copy"
    )]
    InCache { path: String },
    #[error("`{path}` is not a regular file")]
    NotAFile { path: String },
    #[error("another program is editing `{path}`")]
    Locked { path: String },
    #[error("`{path}` was changed by another program during the edit")]
    Changed { path: String },
    #[error("`{path}` is not a valid safetensors file")]
    InvalidHeader { path: String, source: HeaderError },
    #[error("the metadata of `{path}` cannot be edited")]
    Edit { path: String, source: EditError },
    #[error("failed to {action} `{path}`; the file is unchanged")]
    Io { action: &'static str, path: String, source: io::Error },
    #[error(
        "failed to write the header of `{path}`: the next `hf-meta` command that reads it completes the edit"
    )]
    Interrupted { path: String, source: io::Error },
}

impl MetadataError {
    /// Returns a function that adds the failed action and the file to an I/O error.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io { action, path, source }
    }
}

impl From<MetadataError> for CommandError {
    fn from(error: MetadataError) -> Self {
        let status = match &error {
            MetadataError::InvalidHeader { .. } => ExitStatus::CheckFailed,
            MetadataError::Edit { .. } => ExitStatus::Usage,
            _ => ExitStatus::LocalIo,
        };
        Self::new(status, error)
    }
}
