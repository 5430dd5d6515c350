//! Tensor names with their numbers folded.

use hf_meta_format::base::sort::Ordered;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// The maximum number of parts of a name, which limits the depth of a tree and the ancestors of a tensor. The rest of a
/// longer name is one part. No known model has names with more than a dozen parts.
pub(in crate::count) const MAX_PARTS: usize = 24;

/// The maximum number of runs in a formatted list of numbers.
const MAX_RUNS: usize = 4;

/// A name with `#` in place of each segment that is a number: `h.3.mlp.experts.7.up` is `h.#.mlp.experts.#.up` with 3
/// and 7. The thousands of names in a large model have a few dozen patterns.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamePattern {
    pub(crate) text: String,
    pub(crate) numbers: Vec<NameNumber>,
}

/// A number in a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameNumber {
    pub(crate) value: u64,
    /// The start of the number in the name.
    pub(crate) start: usize,
    /// The end of the number in the name.
    pub(crate) end: usize,
    /// The end of its `#` in the pattern.
    pub(crate) pattern_end: usize,
}

impl NamePattern {
    pub(crate) fn new(name: &str) -> Self {
        let mut pattern = Self { text: String::with_capacity(name.len()), numbers: Vec::new() };
        let (mut start, mut copied) = (0, 0);
        loop {
            let rest = &name.as_bytes()[start..];
            if let Some((value, length)) = leading_number(rest) {
                pattern.text.push_str(&name[copied..start]);
                pattern.text.push('#');
                copied = start + length;
                let pattern_end = pattern.text.len();
                pattern.numbers.push(NameNumber { value, start, end: copied, pattern_end });
            }
            let Some(dot) = rest.iter().position(|byte| *byte == b'.') else { break };
            start += dot + 1;
        }
        pattern.text.push_str(&name[copied..]);
        pattern
    }

    /// Returns whether a name has this pattern, and if so, replaces `numbers` with its numbers.
    // Every tensor calls it.
    #[inline]
    pub(in crate::count) fn matches(&self, name: &str, numbers: &mut Vec<NameNumber>) -> bool {
        numbers.clear();
        // Every tensor is compared, and bytes need no check for character boundaries.
        let (name, text) = (name.as_bytes(), self.text.as_bytes());
        let (mut end, mut copied) = (0, 0);
        for &NameNumber { pattern_end, .. } in &self.numbers {
            let between = &text[copied..pattern_end - 1];
            if !name[end..].starts_with(between) {
                return false;
            }
            let start = end + between.len();
            let Some((value, length)) = leading_number(&name[start..]) else { return false };
            (end, copied) = (start + length, pattern_end);
            numbers.push(NameNumber { value, start, end, pattern_end });
        }
        name[end..] == text[copied..]
    }
}

/// Returns the offset in a name that corresponds to an offset in its pattern.
pub(in crate::count) fn name_offset(numbers: &[NameNumber], pattern_offset: usize) -> usize {
    let number = numbers.iter().rev().find(|number| number.pattern_end <= pattern_offset);
    number.map_or(pattern_offset, |number| number.end + (pattern_offset - number.pattern_end))
}

/// Returns the common name of several names with one pattern, with their numbers as [`ranges`].
pub(crate) fn common_name(names: &[&str]) -> String {
    let patterns: Vec<_> = names.iter().map(|name| NamePattern::new(name)).collect();
    let (Some(name), Some(first)) = (names.first(), patterns.first()) else { return String::new() };
    let (mut common, mut copied) = (String::new(), 0);
    for (at, number) in first.numbers.iter().enumerate() {
        let values = patterns.iter().filter_map(|name| Some(name.numbers.get(at)?.value));
        let values: BTreeSet<_> = values.ordered();
        common.push_str(&name[copied..number.start]);
        copied = number.end;
        if values.len() == 1 {
            common.push_str(&name[number.start..number.end]);
        } else {
            common.push_str(&ranges(&values));
        }
    }
    common + &name[copied..]
}

/// Splits a name at its dots.
pub(crate) fn parts(name: &str) -> Vec<&str> {
    name.splitn(MAX_PARTS, '.').collect()
}

/// Parses a part that is a number, without sign and leading zeros.
pub(crate) fn number(part: &str) -> Option<u64> {
    if part == "0" || !part.starts_with('0') { digits(part) } else { None }
}

/// Parses a text that consists of digits.
pub(in crate::count) fn digits(text: &str) -> Option<u64> {
    let (value, length) = leading_number(text.as_bytes())?;
    (length == text.len()).then_some(value)
}

/// Returns the number that is the first segment of a name, and its length.
fn leading_number(name: &[u8]) -> Option<(u64, usize)> {
    let (mut value, mut length) = (0_u64, 0);
    for byte in name {
        match byte {
            b'0'..=b'9' => value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?,
            b'.' => break,
            _ => return None,
        }
        length += 1;
    }
    (length > 0).then_some((value, length))
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
    fn numbers_are_folded_and_located() {
        let cases: [(&str, &str, &[u64]); 8] = [
            ("h.3.mlp.experts.71.up", "h.#.mlp.experts.#.up", &[3, 71]),
            ("12", "#", &[12]),
            ("12.w", "#.w", &[12]),
            ("w.0", "w.#", &[0]),
            ("a.07.b", "a.#.b", &[7]),
            ("a.7b.c_3.+7", "a.7b.c_3.+7", &[]),
            ("a.99999999999999999999.5", "a.99999999999999999999.#", &[5]),
            ("..1..", "..#..", &[1]),
        ];
        for (name, text, values) in cases {
            let pattern = NamePattern::new(name);
            let found: Vec<_> = pattern.numbers.iter().map(|number| number.value).collect();
            assert_eq!((&*pattern.text, &*found), (text, values), "{name}");
            for number in &pattern.numbers {
                assert_eq!(name[number.start..number.end].parse(), Ok(number.value), "{name}");
                assert_eq!(name_offset(&pattern.numbers, number.pattern_end), number.end, "{name}");
            }
            assert_eq!(name_offset(&pattern.numbers, text.len()), name.len(), "{name}");
            assert_eq!(common_name(&[name]), name);
        }
        assert_eq!(name_offset(&NamePattern::new("h.12.mlp.w").numbers, 7), 8);
    }

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

    #[test]
    fn names_with_one_pattern_have_a_common_name() {
        assert_eq!(common_name(&["h.0.experts.3.w", "h.1.experts.3.w"]), "h.[0-1].experts.3.w");
        assert_eq!(common_name(&["h.07.w", "h.07.w"]), "h.07.w");
        // A literal `#` has no number.
        let names = ["h.#.experts.3.w", "h.1.experts.3.w"];
        assert_eq!(common_name(&names), "h.#.experts.[1,3].w");
    }
}
