//! The differences between the values of two checkpoints.

use serde::Serialize;

use super::ValueCheck;

/// The differences between the values of two tensors of the same name, dtype and shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TensorDifference {
    /// The name.
    pub tensor: String,
    /// The number of values that were compared.
    pub compared: u64,
    /// The number of them that differ.
    pub differing: u64,
    /// The largest difference between two numbers; `None` for packed words, and if a number is not finite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest: Option<f64>,
    /// The mean of the absolute differences of all compared numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
}

/// The comparison of the values of two checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ValueDiff {
    /// The part of the values that was compared.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub check: ValueCheck,
    /// The number of tensors whose files are known to have the same content, so that nothing was read.
    pub identical: u64,
    /// The number of tensors of which no compared value differs.
    pub same: u64,
    /// The tensors with values that differ.
    pub differing: Vec<TensorDifference>,
    /// The number of tensors of the same name that a sample left out, or that cannot be read by range.
    pub unchecked: u64,
    /// The number of tensors of another dtype or shape.
    pub other_shape: u64,
    /// The number of tensors that only one of the checkpoints has.
    pub unmatched: u64,
    /// The number of bytes of each checkpoint that were compared.
    pub bytes_compared: u64,
    /// The size of the tensors of both checkpoints in bytes, without those with equal hashes.
    pub bytes_total: u64,
}

impl ValueDiff {
    /// Creates a comparison without tensors.
    pub fn new(check: ValueCheck) -> Self {
        Self {
            check,
            identical: 0,
            same: 0,
            differing: Vec::new(),
            unchecked: 0,
            other_shape: 0,
            unmatched: 0,
            bytes_compared: 0,
            bytes_total: 0,
        }
    }

    /// Returns whether no difference was found.
    pub fn is_empty(&self) -> bool {
        self.differing.is_empty() && self.other_shape == 0 && self.unmatched == 0
    }
}
