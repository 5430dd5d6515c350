//! The error of a plan.

use thiserror::Error;

/// The error of a selection that cannot be read. Names are truncated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No tensor has this name or matches this pattern.
    #[error("no tensor matches `{pattern}`{hint}")]
    NoMatch {
        /// The pattern.
        pattern: String,
        /// Advice as the end of the sentence; empty if there is none.
        hint: String,
    },
    /// No tensor is selected.
    #[error("the selection contains no tensors")]
    Empty,
    /// The pattern contains a slice that is not a range of bytes.
    #[error("`{pattern}` is not a range of rows: {reason}")]
    UnsupportedSlice {
        /// The pattern.
        pattern: String,
        /// The violated rule.
        reason: &'static str,
    },
    /// A tensor does not have the selected rows.
    #[error("tensor `{tensor}` {reason}")]
    NoSuchRows {
        /// The name of the tensor.
        tensor: String,
        /// The reason, phrased to follow the name.
        reason: String,
    },
    /// Two patterns select different rows of one tensor.
    #[error("`{tensor}` is selected by two patterns that select different rows")]
    SelectedTwice {
        /// The name of the tensor.
        tensor: String,
    },
    /// Two files contain a tensor of this name.
    #[error("tensor `{tensor}` is in several files: `{first}` and `{second}`")]
    Duplicate {
        /// The name of the tensor.
        tensor: String,
        /// The first file.
        first: String,
        /// The second file.
        second: String,
    },
    /// The data of two tensors of a file overlap.
    #[error("the data of tensor `{tensor}` in `{file}` overlaps the data of another one")]
    Overlap {
        /// The name of the tensor.
        tensor: String,
        /// The file.
        file: String,
    },
    /// The tensors of a file cannot be read by range.
    #[error("tensors of `{file}` cannot be read by range: {reason}")]
    UnsupportedFile {
        /// The file.
        file: String,
        /// The reason.
        reason: &'static str,
    },
    /// A tensor cannot be read by range.
    #[error("tensor `{tensor}` of `{file}` cannot be read by range: {reason}")]
    UnsupportedTensor {
        /// The name of the tensor.
        tensor: String,
        /// The file.
        file: String,
        /// The reason.
        reason: &'static str,
    },
    /// The offsets of a tensor overflow 64 bits, or are beyond the end of its file.
    #[error("the data of tensor `{tensor}` is not inside its file")]
    OutsideFile {
        /// The name of the tensor.
        tensor: String,
    },
    /// The plan exceeds a limit.
    #[error("the plan has more than {limit} {items}")]
    TooMany {
        /// The maximum number.
        limit: usize,
        /// The items, in plural.
        items: &'static str,
    },
    /// A safetensors file cannot contain a tensor.
    #[error("a safetensors file cannot contain tensor `{tensor}`: {reason}")]
    NotSafetensors {
        /// The name of the tensor.
        tensor: String,
        /// The reason.
        reason: &'static str,
    },
}

impl PlanError {
    /// Returns whether other tensors can be read.
    pub(super) fn is_about_one_tensor(&self) -> bool {
        matches!(self, Self::UnsupportedTensor { .. } | Self::UnsupportedFile { .. })
    }
}
