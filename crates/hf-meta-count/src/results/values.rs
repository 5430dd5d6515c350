//! The result of a check of values.

use hf_meta_format::base::text::named_enum;
use serde::{Serialize, Serializer};

use super::Finding;

named_enum! {
    /// The part of a model whose values are checked.
    pub ValueCheck {
        /// Small tensors, and blocks of the others: at most 32 MB.
        Sample "sample",
        /// All tensors.
        All "all",
    }
}

impl Serialize for ValueCheck {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The result of a check of values.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ValueReport {
    /// The part of the model that was checked.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub check: ValueCheck,
    /// The number of tensors of which values were checked.
    pub tensors: u64,
    /// The number of tensors that were not checked: packed words and quantized types, files that cannot be read by range,
    /// and tensors that a sample left out.
    pub unchecked: u64,
    /// The number of bytes of values that were checked.
    pub bytes_checked: u64,
    /// The size of all tensors in bytes.
    pub bytes_total: u64,
    /// The number of ranges that were read.
    pub ranges: u64,
    /// The reason why no values were checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The findings; empty in a `VerifyReport`, whose sets have them.
    #[serde(skip)]
    pub findings: Vec<Finding>,
}

impl ValueReport {
    /// Creates a report without findings.
    pub fn new(check: ValueCheck, bytes_total: u64) -> Self {
        let (tensors, unchecked, bytes_checked, ranges) = (0, 0, 0, 0);
        let (reason, findings) = (None, Vec::new());
        Self { check, tensors, unchecked, bytes_checked, bytes_total, ranges, reason, findings }
    }

    /// Creates the report of a check that was not possible, with the reason.
    pub fn skipped(check: ValueCheck, reason: String) -> Self {
        Self { reason: Some(reason), ..Self::new(check, 0) }
    }
}
