//! The check for holes and overlaps in the data of the tensors.

use std::cmp::Ordering;

/// A tensor whose data does not begin at the end of the data before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanError {
    /// Bytes before the tensor with the index `at` belong to no tensor.
    Hole { at: usize, begin: u64, expected: u64 },
    /// The tensor with the index `at` begins inside another.
    Overlap { at: usize, begin: u64, expected: u64 },
}

/// Returns the length of the data in bytes. `spans` has the begin and the end of each tensor, in any order. Each begins
/// at the first multiple of `alignment` after the end of the one before it.
///
/// # Errors
///
/// Returns the first hole or overlap.
pub(super) fn data_length(spans: &[(u64, u64)], alignment: u64) -> Result<u64, SpanError> {
    #[expect(clippy::cast_possible_truncation, reason = "fewer spans than bytes of names")]
    let mut order: Vec<u32> = (0..spans.len() as u32).collect();
    order.sort_by_key(|&at| spans[at as usize]);
    order.into_iter().try_fold(0_u64, |expected, at| {
        let at = at as usize;
        let (begin, end) = spans[at];
        let expected = expected.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        match begin.cmp(&expected) {
            Ordering::Equal => Ok(end),
            Ordering::Greater => Err(SpanError::Hole { at, begin, expected }),
            Ordering::Less => Err(SpanError::Overlap { at, begin, expected }),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_follow_each_other_in_any_order() {
        let cases: [(&[(u64, u64)], u64); 6] = [
            (&[], 0),
            (&[(0, 0)], 0),
            (&[(0, 4), (4, 6)], 6),
            (&[(4, 6), (0, 4)], 6),
            // Tensors without data can be anywhere in the list.
            (&[(0, 4), (4, 6), (4, 4), (0, 0), (6, 6)], 6),
            (&[(4, 4), (0, 4)], 4),
        ];
        for (spans, end) in cases {
            assert_eq!(data_length(spans, 1), Ok(end), "{spans:?}");
        }
    }

    #[test]
    fn holes_and_overlaps_are_errors() {
        assert_eq!(
            data_length(&[(1, 2)], 1),
            Err(SpanError::Hole { at: 0, begin: 1, expected: 0 })
        );
        assert_eq!(
            data_length(&[(5, 6), (0, 4)], 1),
            Err(SpanError::Hole { at: 0, begin: 5, expected: 4 })
        );
        assert_eq!(
            data_length(&[(0, 4), (3, 6)], 1),
            Err(SpanError::Overlap { at: 1, begin: 3, expected: 4 })
        );
        assert_eq!(
            data_length(&[(0, 4), (2, 2)], 1),
            Err(SpanError::Overlap { at: 1, begin: 2, expected: 4 })
        );
    }
    #[test]
    fn each_span_begins_at_a_multiple_of_the_alignment() {
        assert_eq!(data_length(&[(32, 40), (0, 4)], 32), Ok(40));
        let hole = SpanError::Hole { at: 1, begin: 64, expected: 32 };
        assert_eq!(data_length(&[(0, 4), (64, 65)], 32), Err(hole));
        let overlap = SpanError::Overlap { at: 1, begin: 16, expected: 32 };
        assert_eq!(data_length(&[(0, 4), (16, 20)], 32), Err(overlap));
    }
}
