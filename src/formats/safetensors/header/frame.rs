//! What a header says beside its tensors.

use std::collections::BTreeMap;

use crate::formats::safetensors::PREFIX_LENGTH;

/// A header less its tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) metadata: Option<BTreeMap<String, String>>,
    /// The length of the header in bytes.
    pub(super) length: u64,
    /// The length of the data in bytes.
    pub(super) data_length: u64,
}

impl Frame {
    /// The size in bytes of a file with this header: prefix, header and data.
    pub(super) fn file_size(&self) -> u64 {
        PREFIX_LENGTH.saturating_add(self.length).saturating_add(self.data_length)
    }

    /// The total that the file claims of itself.
    pub(super) fn declared_total(&self) -> Option<u64> {
        self.metadata.as_ref()?.get("total_parameters")?.parse().ok()
    }
}
