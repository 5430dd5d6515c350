//! The difference between the metadata of a file before and after an edit.

use std::collections::BTreeMap;
use std::io;

use hf_meta::SafetensorsFileHeader;
use hf_meta_count::results::text::{escape, thousands};

use crate::output::{Page, shortened};
use crate::terminal::{DIM, GREEN, RED, width};

/// The entries before and after an edit.
#[derive(Debug, Default)]
pub(super) struct Changes {
    before: BTreeMap<String, String>,
    after: BTreeMap<String, String>,
}

impl Changes {
    pub(super) fn new(before: &SafetensorsFileHeader, after: &SafetensorsFileHeader) -> Self {
        let [before, after] = [before, after].map(|header| header.metadata().cloned());
        Self { before: before.unwrap_or_default(), after: after.unwrap_or_default() }
    }

    /// Returns the keys before the edit.
    pub(super) fn old_keys(&self) -> impl Iterator<Item = &str> {
        self.before.keys().map(String::as_str)
    }

    /// Returns whether the file has metadata without `format` now, and loaders accepted it before.
    pub(super) fn lose_format(&self) -> bool {
        let is_rejected = |entries: &BTreeMap<String, String>| {
            !entries.is_empty() && !entries.contains_key("format")
        };
        is_rejected(&self.after) && !is_rejected(&self.before)
    }

    /// Returns the changed keys with their values before and after.
    fn entries(&self) -> impl Iterator<Item = (&str, Option<&String>, Option<&String>)> {
        let old = self.before.iter().map(|(key, value)| (&**key, Some(value), self.after.get(key)));
        let is_new = |(key, _): &(&String, &String)| !self.before.contains_key(*key);
        let new = self.after.iter().filter(is_new).map(|(key, value)| (&**key, None, Some(value)));
        old.chain(new).filter(|(_, before, after)| before != after)
    }

    /// Describes the number of changed entries, such as `2 added, 14 deleted`.
    pub(super) fn summary(&self) -> String {
        let count = |is_counted: fn(bool, bool) -> bool| {
            let entries = self.entries();
            let counted = entries.filter(|(_, old, new)| is_counted(old.is_some(), new.is_some()));
            counted.count() as u64
        };
        let counts = [
            (count(|old, _| !old), "added"),
            (count(|old, new| old && new), "changed"),
            (count(|_, new| !new), "deleted"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<_> =
            counts.map(|(count, kind)| format!("{} {kind}", thousands(*count))).collect();
        if counts.is_empty() { "same metadata".to_owned() } else { counts.join(", ") }
    }

    /// Writes a line per value that is removed or added. Long values are shortened on a terminal.
    pub(super) fn write(&self, page: &mut Page<'_>) -> io::Result<()> {
        let max_width = page.terminal.map_or(usize::MAX, |size| size.width);
        for (key, before, after) in self.entries() {
            for (sign, style, value) in [("-", RED, before), ("+", GREEN, after)] {
                let Some(value) = value else { continue };
                let key = escape(key);
                let (text, size) = shortened(value, max_width.saturating_sub(width(&key) + 5));
                write!(page.out, "{style}{sign} {key}{style:#} = {text}")?;
                writeln!(page.out, "{DIM}{size}{DIM:#}")?;
            }
        }
        Ok(())
    }
}
