//! The local headers of ZIP archives, behind which the storages of PyTorch files begin.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::error::PlanError;
use super::plan::ReadPlan;
use super::selection::TensorSelection;
use super::storages::StorageStarts;
use super::tensor::PlannedFile;
use crate::formats::pytorch::StoragePlace;
use crate::formats::{FileHeader, RepoPath};

/// The length of a local header without its name and padding. Source: section 4.3.7 of APPNOTE.TXT 6.3.10.
const LOCAL_HEADER: usize = 30;

/// The reason for a malformed local header.
const MALFORMED: &str = "the ZIP archive states no data where a storage begins";

/// The header in front of a storage in a ZIP archive. It states where the storage begins.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalHeader {
    /// The file.
    pub file: Arc<PlannedFile>,
    /// The bytes to read.
    pub range: Range<u64>,
    /// The size of the storage in bytes.
    size: u64,
}

crate::serialize_as_objects! {
    LocalHeader, header {
        "file": &header.file.path,
        "start": header.range.start,
        "end": header.range.end,
    }
}

impl ReadPlan {
    /// Returns the headers that are needed to plan the ranges of selected tensors of PyTorch files. Read them,
    /// [add](StorageStarts::new) their bytes, and set [`PlanOptions::storage_starts`](super::PlanOptions::storage_starts).
    ///
    /// # Errors
    ///
    /// Returns an error if the selection has too many patterns, or selects rows that do not exist.
    pub fn local_headers<'a>(
        files: impl IntoIterator<Item = (RepoPath, &'a FileHeader)>,
        selection: &TensorSelection,
    ) -> Result<Vec<LocalHeader>, PlanError> {
        let (mut matcher, mut needed) = (selection.matcher()?, Vec::new());
        for (path, header) in files {
            let Some(pickle) = &header.pickle else { continue };
            let mut found = BTreeSet::new();
            header.tensors().try_for_each(|name, tensor| {
                if let Ok(Some((StoragePlace::Behind { local_header, size }, _))) =
                    pickle.places.of(tensor)
                    && matcher.select(name, tensor)?.is_some()
                {
                    found.insert((local_header, size));
                }
                Ok(())
            })?;
            let file = Arc::new(PlannedFile { path, size: header.file_size() });
            needed.extend(found.into_iter().map(|(at, size)| {
                let range = at..at.saturating_add(LOCAL_HEADER as u64);
                LocalHeader { file: Arc::clone(&file), range, size }
            }));
        }
        Ok(needed)
    }
}

impl StorageStarts {
    /// Reads the positions of storages in the bytes of their headers.
    ///
    /// # Errors
    ///
    /// Returns an error if bytes are not those of a header of uncompressed data inside the file.
    pub fn new(
        headers: impl IntoIterator<Item = (LocalHeader, Vec<u8>)>,
    ) -> Result<Self, PlanError> {
        let mut starts = HashMap::new();
        for (LocalHeader { file, range, size }, bytes) in headers {
            let start = data_start(&bytes).and_then(|length| range.start.checked_add(length));
            let is_inside =
                |start: &u64| start.checked_add(size).is_some_and(|end| end <= file.size);
            let start = start.filter(is_inside).ok_or_else(|| PlanError::UnsupportedFile {
                file: file.path.to_string(),
                reason: MALFORMED,
            })?;
            starts.insert((file.path.clone(), range.start), start);
        }
        Ok(Self::from_positions(starts))
    }
}

/// Returns the length of a local header with its name and padding; `None` if the data are compressed.
fn data_start(header: &[u8]) -> Option<u64> {
    let header: &[u8; LOCAL_HEADER] = header.try_into().ok()?;
    let number = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let is_stored = header.starts_with(b"PK\x03\x04") && number(8) == 0;
    is_stored.then(|| LOCAL_HEADER as u64 + number(26) + number(28))
}
