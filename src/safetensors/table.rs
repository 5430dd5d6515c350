//! Names and values in the order of the file, found by name.

use super::clip;

/// A list of named values. Kept in the order they were listed in; the sort that proves the names
/// distinct is also what finds them, so that no hasher stands between hostile names and their lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table<T> {
    entries: Vec<(String, T)>,
    by_name: Box<[usize]>,
}

impl<T> Table<T> {
    /// The table, or the first name that occurs twice.
    pub(super) fn new(entries: Vec<(String, T)>) -> Result<Self, String> {
        let mut by_name: Box<[usize]> = (0..entries.len()).collect();
        by_name.sort_unstable_by_key(|&at| &entries[at].0);
        match by_name.windows(2).find(|pair| entries[pair[0]].0 == entries[pair[1]].0) {
            Some(pair) => Err(clip(&entries[pair[0]].0)),
            None => Ok(Self { entries, by_name }),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&T> {
        let found = self.by_name.binary_search_by_key(&name, |&at| &self.entries[at].0);
        found.ok().map(|rank| &self.entries[self.by_name[rank]].1)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &T)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_order_and_finds_by_name() {
        let names = ["wte", "h.10", "h.2", ""];
        let table = Table::new(names.map(|name| (name.to_owned(), name.len())).into()).unwrap();
        assert_eq!(table.iter().map(|(name, _)| name).collect::<Vec<_>>(), names);
        assert!(names.iter().all(|name| table.get(name) == Some(&name.len())));
        assert_eq!(table.get("h.1"), None);
    }

    #[test]
    fn names_the_duplicate() {
        let entries = ["b", "a", "b"].map(|name| (name.to_owned(), ())).into();
        assert_eq!(Table::new(entries), Err("b".to_owned()));
    }
}
