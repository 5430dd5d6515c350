//! Splits tensor names into parts at their dots, which separate the modules of a model.

use std::cmp::Ordering;
use std::collections::BTreeSet;

/// The maximum number of parts of a name, which limits the depth of a tree. The rest of a longer name is one part. No
/// known model has names with more than a dozen parts.
const MAX_PARTS: usize = 24;

/// The maximum number of runs in a formatted list of numbers.
const MAX_RUNS: usize = 4;

/// Splits a name at its dots.
pub(crate) fn parts(name: &str) -> Vec<&str> {
    name.splitn(MAX_PARTS, '.').collect()
}

/// Parses a part that is a number, without sign and leading zeros.
pub(crate) fn number(part: &str) -> Option<u64> {
    let is_plain = part == "0" || part.starts_with(|c: char| matches!(c, '1'..='9'));
    part.parse().ok().filter(|_| is_plain)
}

/// Compares names part by part. Numbers compare by value and sort before text.
pub(crate) fn compare_parts(a: &[&str], b: &[&str]) -> Ordering {
    let key = |part: &&str| number(part).unwrap_or(u64::MAX);
    a.iter().map(key).zip(a).cmp(b.iter().map(key).zip(b))
}

/// Formats numbers as runs, such as `[0-2,5]`, and a single number as `7`.
pub(crate) fn ranges(numbers: &BTreeSet<u64>) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let write = |&(first, last): &(u64, u64)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    let mut written: Vec<_> = runs.iter().take(MAX_RUNS).map(write).collect();
    let more: u64 = runs.iter().skip(MAX_RUNS).map(|(first, last)| last - first + 1).sum();
    if more > 0 {
        written.push(format!("+{more}"));
    }
    match numbers.len() {
        1 => written.concat(),
        _ => format!("[{}]", written.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_numbers_are_numbers() {
        for (part, value) in [("0", 0), ("7", 7), ("61", 61)] {
            assert_eq!(number(part), Some(value));
        }
        for part in ["", "00", "07", "+7", "-7", "7b", "ln_1", "99999999999999999999"] {
            assert_eq!(number(part), None, "{part}");
        }
    }

    #[test]
    fn numbers_are_sorted_by_value() {
        let mut names = ["h.10.b", "h.2.c", "h", "a.z", "h.x", "h.2"].map(parts);
        names.sort_by(|a, b| compare_parts(a, b));
        assert_eq!(
            names.map(|parts| parts.join(".")),
            ["a.z", "h", "h.2", "h.2.c", "h.10.b", "h.x"]
        );
    }

    #[test]
    fn the_number_of_parts_is_bounded() {
        let name = ".".repeat(1_000_000);
        assert_eq!(parts(&name).len(), MAX_PARTS);
        assert_eq!(parts(&name).join("."), name);
    }

    #[test]
    fn runs_of_numbers_are_abbreviated() {
        let cases: [(&[u64], &str); 5] = [
            (&[7], "7"),
            (&[0, 1], "[0-1]"),
            (&[0, 1, 2, 5, 7, 8], "[0-2,5,7-8]"),
            (&[0, 2, 4, 6, 8, 10], "[0,2,4,6,+2]"),
            (&[u64::MAX - 1, u64::MAX], "[18446744073709551614-18446744073709551615]"),
        ];
        for (numbers, shown) in cases {
            assert_eq!(ranges(&numbers.iter().copied().collect()), shown);
        }
    }
}
