//! Helpers of the fuzz targets.

use std::error::Error;

/// The longest error message, in characters.
const MAX_MESSAGE_CHARS: usize = 2_000;

/// Checks that an error and its causes have messages, and that a file cannot make them long.
///
/// # Panics
///
/// When one is empty or too long.
pub fn check_messages(error: &dyn Error) {
    for error in std::iter::successors(Some(error), |&error| error.source()) {
        let length = error.to_string().chars().count();
        assert!((1..MAX_MESSAGE_CHARS).contains(&length), "{length} characters: {error}");
    }
}
