//! Errors of checkpoints.

use thiserror::Error;

use crate::formats::HeaderError;

/// A rule of PyTorch checkpoints that a file violates.
///
/// Text from the file is truncated but otherwise unchanged. Violations that are not specific to PyTorch are variants
/// of [`HeaderError`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PyTorchError {
    /// The ZIP archive is malformed.
    #[error("the ZIP archive is malformed: {reason}")]
    MalformedArchive {
        /// The violated rule.
        reason: &'static str,
    },
    /// The file contains something other than a checkpoint.
    #[error("the file is {content}, not a checkpoint")]
    NotACheckpoint {
        /// The content.
        content: &'static str,
    },
    /// The pickle is malformed, or larger than any checkpoint.
    #[error("the pickle is malformed at byte {at}: {reason}")]
    MalformedPickle {
        /// The offset of the opcode in the pickle, in bytes.
        at: u64,
        /// The violated rule.
        reason: &'static str,
    },
    /// A file with another error imports functions or classes that `torch.load(weights_only=True)` rejects.
    #[error("{error}; it imports `{}`", imports.join("`, `"))]
    UnsafeImports {
        /// The other error.
        error: Box<HeaderError>,
        /// Up to ten of the imports.
        imports: Vec<String>,
    },
    /// A tensor has a layout without plain storage, such as a sparse tensor.
    #[error("tensor `{tensor}` is built by `{function}`, which is not supported")]
    UnsupportedTensor {
        /// The name of the tensor.
        tensor: String,
        /// The function of torch that builds it.
        function: String,
    },
    /// A tensor has more than 16 dimensions, an invalid shape, or elements past the end of its storage.
    #[error("tensor `{tensor}` does not fit in its storage")]
    OutsideStorage {
        /// The name of the tensor.
        tensor: String,
    },
    /// The file lacks the data of a storage, or contains a different number of bytes.
    #[error(
        "storage `{storage}` has {expected} bytes, but the file contains {}",
        found.map_or_else(|| "no such storage".to_owned(), |bytes| bytes.to_string())
    )]
    StorageMismatch {
        /// The key of the storage.
        storage: String,
        /// The number of bytes according to the pickle.
        expected: u64,
        /// The number of bytes in the file; `None` if it does not contain the storage.
        found: Option<u64>,
    },
}
