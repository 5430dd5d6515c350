//! The errors of edits.

use std::io;
use std::path::Path;

use hf_meta_format::formats::safetensors::{EditError, HeaderError};
use thiserror::Error;

/// The error of a file that was not edited. The file is unchanged, unless the variant states otherwise.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileEditError {
    /// The file is a symbolic link. The edit would replace it, or change a file that others use.
    #[error("`{path}` is a symbolic link to `{target}`: copy the file, and edit the copy")]
    SymbolicLink {
        /// The file.
        path: String,
        /// The target of the link.
        target: String,
    },
    /// The file has several names.
    #[error(
        "`{path}` has {links} hard links, which share its content: copy the file, and edit the copy"
    )]
    HardLink {
        /// The file.
        path: String,
        /// The number of its names.
        links: u64,
    },
    /// The file is in the cache of `huggingface_hub`.
    #[error(
        "`{path}` belongs to a download cache, which is shared: copy the file, and edit the copy"
    )]
    InCache {
        /// The file.
        path: String,
    },
    /// The path is a folder, a pipe or a device.
    #[error("`{path}` is not a regular file")]
    NotAFile {
        /// The path.
        path: String,
    },
    /// Another process has locked the file.
    #[error("another program is editing `{path}`")]
    Locked {
        /// The file.
        path: String,
    },
    /// The file changed after it was opened.
    #[error("`{path}` was changed by another program during the edit")]
    Changed {
        /// The file.
        path: String,
    },
    /// The file is not a valid safetensors file.
    #[error("`{path}` is not a valid safetensors file")]
    InvalidHeader {
        /// The file.
        path: String,
        /// The violated rule.
        source: HeaderError,
    },
    /// The edit exceeds a limit.
    #[error("the metadata of `{path}` cannot be edited")]
    Edit {
        /// The file.
        path: String,
        /// The limit.
        source: EditError,
    },
    /// The data do not have the hash that the metadata state.
    #[error(
        "the data of `{path}` do not have the SHA-256 in `modelspec.hash_sha256`, but 0x{found}: \
         download the file again, or delete the key if it is out of date; the file is unchanged"
    )]
    WrongHash {
        /// The file.
        path: String,
        /// The hash of the data in hexadecimal.
        found: String,
    },
    /// The caller stopped the edit.
    #[error("the edit of `{path}` was stopped; the file is unchanged")]
    Stopped {
        /// The file.
        path: String,
    },
    /// The file, or a file next to it, cannot be read or written.
    #[error("failed to {action} `{path}`; the file is unchanged")]
    Io {
        /// The failed action, such as `open`.
        action: &'static str,
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The header could not be written completely. The journal next to the file has both headers.
    #[error(
        "failed to write the header of `{path}`: the next `hf-meta` command that reads it completes the edit"
    )]
    Interrupted {
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
}

impl FileEditError {
    /// Returns a function that adds the failed action and the file to an I/O error.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io { action, path, source }
    }
}

/// The cause of the error of a copy that the caller stopped.
#[derive(Debug, Error)]
#[error("stopped")]
pub(crate) struct Stopped;
