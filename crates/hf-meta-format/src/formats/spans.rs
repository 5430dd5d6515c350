//! Checks the tensors' data for holes and overlaps.

use std::cmp::Ordering;

use super::HeaderError;

/// Returns the length of the data in bytes. `spans` contains the start and end of each tensor, in any order. Each
/// must start at the first multiple of `alignment` after the end of the previous one.
///
/// # Errors
///
/// Returns the first hole or overlap.
pub(super) fn data_length(
    spans: &[(u64, u64)],
    alignment: u64,
    name: impl Fn(usize) -> String,
) -> Result<u64, HeaderError> {
    #[expect(clippy::cast_possible_truncation, reason = "fewer spans than bytes of names")]
    let mut order: Vec<u32> = (0..spans.len() as u32).collect();
    order.sort_by_key(|&at| spans[at as usize]);
    order.into_iter().try_fold(0_u64, |expected, at| {
        let at = at as usize;
        let (begin, end) = spans[at];
        let expected = expected.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        match begin.cmp(&expected) {
            Ordering::Equal => Ok(end),
            Ordering::Greater => Err(HeaderError::Gap { tensor: name(at), begin, expected }),
            Ordering::Less => Err(HeaderError::Overlap { tensor: name(at), begin, expected }),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(spans: &[(u64, u64)], alignment: u64) -> Result<u64, HeaderError> {
        data_length(spans, alignment, |at| at.to_string())
    }

    #[test]
    fn spans_follow_each_other_in_any_order() {
        let cases: [(&[(u64, u64)], u64); 6] = [
            (&[], 0),
            (&[(0, 0)], 0),
            (&[(0, 4), (4, 6)], 6),
            (&[(4, 6), (0, 4)], 6),
            // Empty tensors can be anywhere in the list.
            (&[(0, 4), (4, 6), (4, 4), (0, 0), (6, 6)], 6),
            (&[(4, 4), (0, 4)], 4),
        ];
        for (spans, end) in cases {
            assert_eq!(length(spans, 1), Ok(end), "{spans:?}");
        }
    }

    #[test]
    fn holes_and_overlaps_are_errors() {
        assert_eq!(
            length(&[(1, 2)], 1),
            Err(HeaderError::Gap { tensor: "0".to_owned(), begin: 1, expected: 0 })
        );
        assert_eq!(
            length(&[(5, 6), (0, 4)], 1),
            Err(HeaderError::Gap { tensor: "0".to_owned(), begin: 5, expected: 4 })
        );
        assert_eq!(
            length(&[(0, 4), (3, 6)], 1),
            Err(HeaderError::Overlap { tensor: "1".to_owned(), begin: 3, expected: 4 })
        );
        assert_eq!(
            length(&[(0, 4), (2, 2)], 1),
            Err(HeaderError::Overlap { tensor: "1".to_owned(), begin: 2, expected: 4 })
        );
    }

    #[test]
    fn each_span_begins_at_a_multiple_of_the_alignment() {
        assert_eq!(length(&[(32, 40), (0, 4)], 32), Ok(40));
        let hole = HeaderError::Gap { tensor: "1".to_owned(), begin: 64, expected: 32 };
        assert_eq!(length(&[(0, 4), (64, 65)], 32), Err(hole));
        let overlap = HeaderError::Overlap { tensor: "1".to_owned(), begin: 16, expected: 32 };
        assert_eq!(length(&[(0, 4), (16, 20)], 32), Err(overlap));
    }
}
