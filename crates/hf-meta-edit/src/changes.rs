//! The difference between the metadata of a file before and after an edit.

use std::collections::{BTreeMap, HashSet};

use hf_meta_format::SafetensorsFileHeader;
use hf_meta_format::formats::safetensors::MetadataEdit;

/// The entries before and after an edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    before: BTreeMap<String, String>,
    after: BTreeMap<String, String>,
}

/// An entry that an edit adds, changes or deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedEntry<'a> {
    /// The key.
    pub key: &'a str,
    /// The value before the edit; `None` if the entry is added.
    pub before: Option<&'a str>,
    /// The value after the edit; `None` if the entry is deleted.
    pub after: Option<&'a str>,
}

/// The numbers of changed entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeCounts {
    /// The number of added entries.
    pub added: usize,
    /// The number of entries with another value.
    pub changed: usize,
    /// The number of deleted entries.
    pub deleted: usize,
}

impl Changes {
    pub(crate) fn new(before: &SafetensorsFileHeader, after: &SafetensorsFileHeader) -> Self {
        let [before, after] = [before, after].map(|header| header.metadata().cloned());
        Self { before: before.unwrap_or_default(), after: after.unwrap_or_default() }
    }

    /// Returns the metadata after the edit.
    pub(crate) fn after(&self) -> &BTreeMap<String, String> {
        &self.after
    }

    /// Returns whether the file has metadata without `format` now, and loaders accepted it before: `load_state_dict` of
    /// accelerate and of transformers 4 reject metadata without `format`, and accept a file without metadata.
    pub fn lose_format(&self) -> bool {
        let is_rejected = |entries: &BTreeMap<String, String>| {
            !entries.is_empty() && !entries.contains_key("format")
        };
        is_rejected(&self.after) && !is_rejected(&self.before)
    }

    /// Returns the changed entries: those that the file had, then the new ones, both sorted by their keys.
    pub fn entries(&self) -> impl Iterator<Item = ChangedEntry<'_>> {
        let old = self.before.iter().map(|(key, value)| ChangedEntry {
            key,
            before: Some(value),
            after: self.after.get(key).map(String::as_str),
        });
        let is_new = |(key, _): &(&String, &String)| !self.before.contains_key(*key);
        let new = self.after.iter().filter(is_new);
        let new = new.map(|(key, value)| ChangedEntry { key, before: None, after: Some(value) });
        old.chain(new).filter(|entry| entry.before != entry.after)
    }

    /// Counts the changed entries.
    pub fn counts(&self) -> ChangeCounts {
        self.entries().fold(ChangeCounts::default(), |mut counts, entry| {
            match (entry.before, entry.after) {
                (None, _) => counts.added += 1,
                (_, None) => counts.deleted += 1,
                _ => counts.changed += 1,
            }
            counts
        })
    }
}

/// Returns the patterns that delete nothing in any file.
pub fn unmatched_patterns<'a, 'c>(
    edits: &'a [MetadataEdit],
    files: impl IntoIterator<Item = &'c Changes>,
) -> Vec<&'a str> {
    let keys: HashSet<&str> =
        files.into_iter().flat_map(|changes| changes.before.keys()).map(String::as_str).collect();
    let deletes_nothing = |edit: &'a MetadataEdit| {
        let MetadataEdit::Delete(pattern) = edit else { return None };
        // A header can have 100,000 keys, and an edit can list them all.
        let is_found = match edit.exact_key() {
            Some(key) => keys.contains(key),
            None => keys.iter().any(|key| edit.deletes(key)),
        };
        (!is_found).then_some(&**pattern)
    };
    edits.iter().filter_map(deletes_nothing).collect()
}
