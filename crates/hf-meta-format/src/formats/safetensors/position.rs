//! Lines and columns in a text.

use memchr::{memchr_iter, memrchr};

/// A line and a column in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextPosition {
    /// The number of the line, counted from 1.
    pub(super) line: usize,
    /// The number of bytes before the position in its line.
    pub(super) column: usize,
}

impl Default for TextPosition {
    fn default() -> Self {
        Self { line: 1, column: 0 }
    }
}

impl TextPosition {
    /// Returns the position after a text that starts at this one.
    pub(super) fn after(self, text: &[u8]) -> Self {
        match memrchr(b'\n', text) {
            None => Self { column: self.column + text.len(), ..self },
            Some(end) => Self {
                line: self.line + memchr_iter(b'\n', text).count(),
                column: text.len() - end - 1,
            },
        }
    }

    /// Appends this position to a message, with the column counted from 1.
    pub(super) fn describe(self, message: &str) -> String {
        format!("{message} at line {} column {}", self.line, self.column + 1)
    }
}
