//! Searches an index that is not valid JSON for a merge conflict.

use crate::formats::clip;
use crate::formats::safetensors::IndexError;
use crate::formats::safetensors::position::TextPosition;

/// The marker that git puts before the first version of conflicting lines.
const CONFLICT: &[u8] = b"<<<<<<< ";

/// A JSON error of an index, and the search for a merge conflict that explains it.
#[derive(Debug)]
pub(super) struct InvalidIndex {
    message: String,
    line: usize,
    /// The number of bytes of the marker that match the start of the line; `None` after a mismatch.
    matched: Option<usize>,
}

impl InvalidIndex {
    /// Creates the error at position `at`. The search starts at `from`, which is not after `at`.
    pub(super) fn new(message: &str, at: TextPosition, from: TextPosition) -> Self {
        Self {
            message: at.describe(&clip(message)),
            line: from.line,
            matched: (from.column == 0).then_some(0),
        }
    }

    /// Searches the next chunk of text.
    ///
    /// # Errors
    ///
    /// Returns [`IndexError::MergeConflict`] if a conflict starts in the piece.
    pub(super) fn search(&mut self, piece: &[u8]) -> Result<(), IndexError> {
        for (at, rest) in piece.split(|&byte| byte == b'\n').enumerate() {
            if at > 0 {
                self.line += 1;
                self.matched = Some(0);
            }
            let Some(matched) = self.matched else { continue };
            let mark = &CONFLICT[matched..];
            let length = mark.len().min(rest.len());
            self.matched = (mark[..length] == rest[..length]).then_some(matched + length);
            if self.matched == Some(CONFLICT.len()) {
                return Err(IndexError::MergeConflict { line: self.line });
            }
        }
        Ok(())
    }

    pub(super) fn into_error(self) -> IndexError {
        IndexError::InvalidJson { message: self.message }
    }
}
