//! The hash of the data of a file, compared with the one that its metadata state.

use std::fmt::Write;
use std::sync::Arc;

use hf_meta_count::results::Finding;
use hf_meta_format::formats::clip;
use hf_meta_format::read_plan::{PlannedFile, PlannedTensor};
use sha2::{Digest, Sha256};

/// The hash of the data of a file that is being read in the order of its bytes.
#[derive(Debug)]
pub(super) struct DataHash {
    pub(super) file: Arc<PlannedFile>,
    /// The index of the first tensor of the file.
    pub(super) first_tensor: usize,
    stated: String,
    hasher: Sha256,
    /// The position after the last byte; `None` after a gap.
    end: Option<u64>,
}

impl DataHash {
    /// Starts the hash at the first tensor of a file.
    pub(super) fn new(first_tensor: usize, tensor: &PlannedTensor, stated: String) -> Self {
        let (file, end) = (Arc::clone(&tensor.file), Some(tensor.start));
        Self { file, first_tensor, stated, hasher: Sha256::new(), end }
    }

    /// Adds bytes at a position of the file.
    pub(super) fn add(&mut self, start: u64, bytes: &[u8]) {
        self.end = self.end.filter(|end| *end == start);
        self.end = self.end.and_then(|end| end.checked_add(bytes.len() as u64));
        self.hasher.update(bytes);
    }

    /// Returns an error if the data have another hash. Data that were not read completely have none.
    pub(super) fn finish(self) -> Option<Finding> {
        if self.end != Some(self.file.size) {
            return None;
        }
        let found = self.hasher.finalize().iter().fold(String::new(), |mut text, byte| {
            // Writing to a text cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        let file = clip(self.file.path.as_str());
        (found != self.stated).then_some(Finding::WrongDataHash { file, found })
    }
}
