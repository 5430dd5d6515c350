//! The completion of interrupted edits, by every command that reads a local file.

use std::path::Path;

use hf_meta_edit::complete_interrupted;

use crate::error_report::{print_note, print_warning};
use crate::output::causes;
use crate::stderr::ProgressLine;

/// Completes or undoes interrupted edits of a file, or of the files in a folder. A failure is a warning: the file may be
/// readable nevertheless.
pub(crate) fn complete_pending(path: &Path, line: &ProgressLine) {
    for (file, completed) in complete_interrupted(path) {
        match completed {
            Ok(_) if line.is_quiet => {}
            Ok(recovery) => {
                let text = format!("{} `{}`", recovery.describe(), file.display());
                line.hidden_while(|| print_note(&text));
            }
            Err(error) => {
                let message = [vec![error.to_string()], causes(&error)].concat().join(": ");
                let message = format!("an edit was interrupted: {message}");
                line.hidden_while(|| print_warning(&message));
            }
        }
    }
}
