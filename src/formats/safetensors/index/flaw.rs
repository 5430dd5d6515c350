//! Saying where an index is not what it should be, and whether a merge conflict is the cause.

use memchr::{memchr_iter, memrchr};

use crate::formats::safetensors::IndexError;

use crate::formats::clip;

/// A place in a text, as people are told of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    /// Counted from 1.
    line: usize,
    /// Bytes of the line before the place.
    column: usize,
}

impl Default for Position {
    fn default() -> Self {
        Self { line: 1, column: 0 }
    }
}

impl Position {
    /// The place behind a text that starts at this one.
    pub(super) fn behind(self, text: &[u8]) -> Self {
        match memrchr(b'\n', text) {
            None => Self { column: self.column + text.len(), ..self },
            Some(end) => Self {
                line: self.line + memchr_iter(b'\n', text).count(),
                column: text.len() - end - 1,
            },
        }
    }
}

/// What git puts before the first version of lines that it could not merge.
const CONFLICT: &[u8] = b"<<<<<<< ";

/// A flaw that was found, and the search for a better reason in what comes after it.
#[derive(Debug)]
pub(super) struct Flaw {
    message: String,
    line: usize,
    /// How much of the conflict's mark the line starts with; `None` if it starts otherwise.
    matched: Option<usize>,
}

impl Flaw {
    /// A flaw at a place, and a place at or before it from which on the search goes.
    pub(super) fn new(message: &str, at: Position, from: Position) -> Self {
        Self {
            message: format!("{} at line {} column {}", clip(message), at.line, at.column + 1),
            line: from.line,
            matched: (from.column == 0).then_some(0),
        }
    }

    /// Searches the next piece of the text.
    ///
    /// # Errors
    ///
    /// [`IndexError::MergeConflict`], if one starts there.
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
        IndexError::Json { message: self.message }
    }
}
