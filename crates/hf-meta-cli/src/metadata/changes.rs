//! Descriptions of changes, for people.

use std::io;

use hf_meta_count::results::text::{bytes, escape, thousands};
use hf_meta_edit::{Changes, FileEdit};

use crate::output::{Page, shortened};
use crate::terminal::{DIM, GREEN, RED, width};

/// Describes what is, was or would be done with a file.
pub(super) fn describe(edit: &FileEdit) -> String {
    if !edit.is_change() {
        return "no change".to_owned();
    }
    let way = if edit.is_new_file() { "new file" } else { "in place" };
    let space = bytes(edit.free_bytes() as u64);
    format!("{}; {way}, {space} free in the header", summary(edit.changes()))
}

/// Describes the number of changed entries, such as `2 added, 14 deleted`.
fn summary(changes: &Changes) -> String {
    let counts = changes.counts();
    let counts =
        [(counts.added, "added"), (counts.changed, "changed"), (counts.deleted, "deleted")];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<_> =
        counts.map(|(count, kind)| format!("{} {kind}", thousands(*count as u64))).collect();
    if counts.is_empty() { "same metadata".to_owned() } else { counts.join(", ") }
}

/// Writes a line per value that is removed or added. Long values are shortened on a terminal.
pub(super) fn write(page: &mut Page<'_>, changes: &Changes) -> io::Result<()> {
    let max_width = page.terminal.map_or(usize::MAX, |size| size.width);
    for entry in changes.entries() {
        for (sign, style, value) in [("-", RED, entry.before), ("+", GREEN, entry.after)] {
            let Some(value) = value else { continue };
            let key = escape(entry.key);
            let (text, size) = shortened(value, max_width.saturating_sub(width(&key) + 5));
            write!(page.out, "{style}{sign} {key}{style:#} = {text}")?;
            writeln!(page.out, "{DIM}{size}{DIM:#}")?;
        }
    }
    Ok(())
}
