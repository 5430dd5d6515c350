//! The spans of the tensors' data, which must cover it without hole or overlap.

use std::cmp::Ordering;

/// The begin and end of each tensor's data, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Spans {
    spans: Vec<(u64, u64)>,
    /// Where the data ends if every span so far begins where the one before it ends, as most writers
    /// have it; nothing is left to check then.
    end: Option<u64>,
}

/// What is wrong at a tensor: its place in the file, where its data begins, and where it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    Hole { at: usize, begin: u64, expected: u64 },
    Overlap { at: usize, begin: u64, expected: u64 },
}

impl Spans {
    pub(super) fn push(&mut self, span: (u64, u64)) {
        let expected = if self.spans.is_empty() { Some(0) } else { self.end };
        self.end = (expected == Some(span.0)).then_some(span.1);
        self.spans.push(span);
    }

    /// The length of the data, if the spans follow each other.
    pub(super) fn length(self) -> Result<u64, Gap> {
        match self.end {
            Some(end) => Ok(end),
            None => self.length_in_data_order(),
        }
    }

    fn length_in_data_order(self) -> Result<u64, Gap> {
        #[expect(clippy::cast_possible_truncation, reason = "fewer spans than bytes of JSON")]
        let mut order: Vec<u32> = (0..self.spans.len() as u32).collect();
        order.sort_by_key(|&at| self.spans[at as usize]);
        order.into_iter().try_fold(0, |expected, at| {
            let at = at as usize;
            let (begin, end) = self.spans[at];
            match begin.cmp(&expected) {
                Ordering::Equal => Ok(end),
                Ordering::Greater => Err(Gap::Hole { at, begin, expected }),
                Ordering::Less => Err(Gap::Overlap { at, begin, expected }),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(spans: &[(u64, u64)]) -> Result<u64, Gap> {
        let mut all = Spans::default();
        for &span in spans {
            all.push(span);
        }
        all.length()
    }

    #[test]
    fn spans_follow_each_other_in_any_order() {
        let cases: [(&[(u64, u64)], u64); 6] = [
            (&[], 0),
            (&[(0, 0)], 0),
            (&[(0, 4), (4, 6)], 6),
            (&[(4, 6), (0, 4)], 6),
            // Tensors without data lie between others, wherever they are listed.
            (&[(0, 4), (4, 6), (4, 4), (0, 0), (6, 6)], 6),
            (&[(4, 4), (0, 4)], 4),
        ];
        for (spans, end) in cases {
            assert_eq!(length(spans), Ok(end), "{spans:?}");
        }
    }

    #[test]
    fn holes_and_overlaps() {
        assert_eq!(length(&[(1, 2)]), Err(Gap::Hole { at: 0, begin: 1, expected: 0 }));
        assert_eq!(length(&[(5, 6), (0, 4)]), Err(Gap::Hole { at: 0, begin: 5, expected: 4 }));
        assert_eq!(length(&[(0, 4), (3, 6)]), Err(Gap::Overlap { at: 1, begin: 3, expected: 4 }));
        assert_eq!(length(&[(0, 4), (2, 2)]), Err(Gap::Overlap { at: 1, begin: 2, expected: 4 }));
    }
}
