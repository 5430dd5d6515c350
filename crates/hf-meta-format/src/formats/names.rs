//! Tensor names.

use std::ops::Range;

use super::HeaderError;

/// Distinct names in file order, stored in one string, because a file may contain half a million.
///
/// The names are also sorted, to detect duplicates and for lookups. A binary search, unlike a hash table, cannot be
/// slowed down by hostile names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) list: NameList,
    sorted: Box<[u32]>,
}

/// Names that may contain duplicates. Small functions are marked `inline`, because `hf-meta-count` calls them for every name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList {
    text: String,
    ends: Vec<u32>,
}

/// The maximum total length of names in bytes, because offsets have 32 bits.
pub(super) const MAX_TOTAL_BYTES: usize = u32::MAX as usize;

impl NameList {
    /// Creates an empty list with capacity for `names` names of `bytes` bytes in total.
    pub(super) fn with_capacity(names: usize, bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes), ends: Vec::with_capacity(names) }
    }

    /// Adds a name. The total length must not exceed [`MAX_TOTAL_BYTES`].
    #[doc(hidden)]
    #[inline]
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
    }

    /// Returns whether a name of `length` bytes can be added.
    #[doc(hidden)]
    #[inline]
    pub fn has_room_for(&self, length: usize) -> bool {
        // The number of names counts, too, so that empty names are limited.
        self.text.len() + self.len() + length < MAX_TOTAL_BYTES
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    #[doc(hidden)]
    #[inline]
    pub fn get(&self, at: usize) -> &str {
        &self.text[self.range(at)]
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Returns the indices of all names.
    #[doc(hidden)]
    pub fn indices(&self) -> Range<u32> {
        0..u32::try_from(self.len()).unwrap_or(u32::MAX)
    }

    /// Releases unused capacity.
    #[doc(hidden)]
    pub fn shrink_to_fit(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Sorts the names of tensors for lookups.
    ///
    /// # Errors
    ///
    /// Returns the error for a duplicate name in a `place`, which is the header or the index.
    pub(super) fn into_names(mut self, place: &str) -> Result<Names, HeaderError> {
        self.shrink_to_fit();
        let mut sorted: Box<[u32]> = self.indices().collect();
        // Sorting compares all pairs that end up adjacent, so it finds every duplicate.
        let mut has_duplicate = false;
        // The stable sort is fast on sorted runs, which most files have.
        sorted.sort_by(|&a, &b| {
            let order = self.bytes(a).cmp(self.bytes(b));
            has_duplicate |= order.is_eq();
            order
        });
        let is_twice = |pair: &&[u32]| self.bytes(pair[0]) == self.bytes(pair[1]);
        let duplicate = if has_duplicate { sorted.windows(2).find(is_twice) } else { None };
        match duplicate {
            Some(pair) => Err(HeaderError::duplicate(self.get(pair[0] as usize), place)),
            None => Ok(Names { list: self, sorted }),
        }
    }

    /// Returns the bytes of a name. They sort like the text and need no check for character boundaries.
    #[doc(hidden)]
    #[inline]
    pub fn bytes(&self, at: u32) -> &[u8] {
        &self.text.as_bytes()[self.range(at as usize)]
    }

    #[inline]
    fn range(&self, at: usize) -> Range<usize> {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        start as usize..self.ends[at] as usize
    }
}

impl Names {
    /// Returns the index of a name in file order.
    pub(super) fn index_of(&self, name: &str) -> Option<u32> {
        let found = self.sorted.binary_search_by(|&at| self.list.get(at as usize).cmp(name));
        found.ok().map(|rank| self.sorted[rank])
    }

    /// Returns the memory use of the names in bytes.
    pub(super) fn memory(&self) -> usize {
        self.list.text.len() + (self.list.ends.len() + self.sorted.len()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Result<Names, String> {
        let mut list = NameList::default();
        for name in names {
            list.push(name);
        }
        list.into_names("header").map_err(|error| error.tensor.unwrap())
    }

    #[test]
    fn names_keep_their_order_and_are_found() {
        let listed = ["wte", "h.10", "h.2", ""];
        let names = names(&listed).unwrap();
        assert_eq!(names.list.iter().collect::<Vec<_>>(), listed);
        for (at, name) in (0..).zip(listed) {
            assert_eq!(names.index_of(name), Some(at));
        }
        assert_eq!(names.index_of("h.1"), None);
        // The text, and two 32-bit numbers per name.
        assert_eq!(names.memory(), "wteh.10h.2".len() + 4 * 2 * 4);
    }

    /// A parser knows the maximum number of names from the header's length, and so reallocates at most once.
    #[test]
    fn capacity_is_reserved_up_front() {
        let list = NameList::with_capacity(1_000, 30_000);
        assert!(list.ends.capacity() >= 1_000 && list.text.capacity() >= 30_000);
    }

    #[test]
    fn names_are_found_in_any_order() {
        let listed = ["a", "b", "c", "d", "e", "f", "g"];
        let names = names(&listed).unwrap();
        for order in [[0, 1, 2, 3, 4, 5, 6], [0, 3, 6, 1, 4, 2, 5], [6, 5, 4, 3, 3, 0, 6]] {
            for at in order {
                assert_eq!(names.index_of("x"), None);
                assert_eq!(names.index_of(listed[at as usize]), Some(at), "{order:?}");
            }
        }
        assert_eq!(super::tests::names(&[]).unwrap().index_of("a"), None);
    }

    /// Offsets have 32 bits. Each name counts as at least one byte, even an empty one.
    #[test]
    fn names_are_limited_to_four_gibibytes() {
        let mut list = NameList::default();
        assert_eq!(
            [MAX_TOTAL_BYTES - 1, MAX_TOTAL_BYTES].map(|length| list.has_room_for(length)),
            [true, false]
        );
        for name in ["ab", "", "c"] {
            list.push(name);
        }
        let rest = MAX_TOTAL_BYTES - 3 - 3;
        assert_eq!([rest - 1, rest].map(|length| list.has_room_for(length)), [true, false]);
    }

    #[test]
    fn the_error_has_the_duplicate_name() {
        assert_eq!(names(&["b", "a", "b"]), Err("b".to_owned()));
        assert_eq!(names(&["", "a", ""]), Err(String::new()));
    }
}
