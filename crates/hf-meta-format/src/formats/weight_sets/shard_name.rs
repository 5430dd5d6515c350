//! Parses numbered shard names, such as `model-00001-of-00072.fp16.safetensors`.

/// A name split at the `-of-` between two numbers. Both consist of any number of digits, possibly none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberedName<'a> {
    /// The text before the numbers, `model-`.
    pub(crate) stem: &'a str,
    /// The digits of the shard number, `00001`.
    pub(crate) number: &'a str,
    /// The digits of the number of shards, `00072`.
    pub(crate) total: &'a str,
    /// The text after the numbers, `.fp16.safetensors`.
    pub(crate) end: &'a str,
}

impl<'a> NumberedName<'a> {
    /// Splits a name at each `-of-` in it.
    pub(crate) fn split(name: &'a str) -> impl Iterator<Item = Self> {
        let is_digit = |c: char| c.is_ascii_digit();
        name.match_indices("-of-").map(move |(at, separator)| {
            let (before, after) = (&name[..at], &name[at + separator.len()..]);
            let stem = before.trim_end_matches(is_digit);
            let end = after.trim_start_matches(is_digit);
            let (number, total) = (&before[stem.len()..], &after[..after.len() - end.len()]);
            Self { stem, number, total, end }
        })
    }
}
