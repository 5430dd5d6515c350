//! Module name patterns in configurations.

use std::collections::HashMap;
use std::sync::OnceLock;

use regex_lite::{Regex, RegexBuilder};

/// A regular expression from a configuration, compiled on first use.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    text: Box<str>,
    /// True if the position of the match decides among several patterns.
    is_search: bool,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// The prefix of patterns that are searched. The leftmost match of all patterns wins, as in an alternation.
    pub(crate) const SEARCH: &str = "search:";

    /// The maximum length in bytes. Longer patterns match nothing.
    const MAX_LENGTH: usize = 500;

    /// Parses a name as a pattern; `None` if it is an exact name.
    ///
    /// compressed-tensors prefixes patterns with `re:` and GPTQModel with `+:`. Both match from the start of the
    /// module name. Other patterns match anywhere, as does any name after [`SEARCH`](Self::SEARCH).
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let search = name.strip_prefix(Self::SEARCH);
        let from_start = name.strip_prefix("re:").or_else(|| name.strip_prefix("+:"));
        let text = match (search, from_start) {
            (Some(text), _) => text.to_owned(),
            (_, Some(text)) => format!("^(?:{text})"),
            // Quark writes shell patterns, in which a star matches any text.
            _ if name.starts_with('*') => {
                format!("{}$", name.replace('.', "\\.").replace('*', ".*"))
            }
            _ if name.contains(['*', '\\', '[', '(', '^', '$', '|']) => name.to_owned(),
            _ => return None,
        };
        Some(Self { text: text.into(), is_search: search.is_some(), compiled: OnceLock::new() })
    }

    /// Creates the pattern of an entry that excludes modules: a regular expression, or a name.
    pub(crate) fn of_entry(entry: &str) -> Self {
        Self::from_name(entry).unwrap_or_else(|| {
            let text = regex_lite::escape(entry).into();
            Self { text, is_search: true, compiled: OnceLock::new() }
        })
    }

    /// Returns whether every library excludes a module because of this entry: it is the module's whole name, or an
    /// expression that matches from the start to the end.
    pub(crate) fn is_whole(&self, name: &str) -> bool {
        let found = self.compiled().and_then(|compiled| compiled.find(name));
        found.is_some_and(|found| found.range() == (0..name.len()))
    }

    /// Returns the precedence as in [`matches`](Self::matches). An unsupported pattern may match every name.
    pub(crate) fn may_match(&self, name: &str) -> Option<usize> {
        if self.is_supported() { self.matches(name) } else { Some(0) }
    }

    /// Returns the text of a pattern that matches modules with `name` as one of their segments.
    pub(crate) fn any_segment(name: &str) -> String {
        let escaped = regex_lite::escape(name);
        format!("re:(?:.*\\.)?{escaped}(?:\\.|$)")
    }

    /// Returns whether the pattern has the same result for names that differ only in the values of their digits. Only a
    /// digit in the pattern, or a class of characters, tells one digit from another.
    pub(crate) fn treats_digits_alike(&self) -> bool {
        !self.text.contains(|char: char| char == '[' || char.is_ascii_digit())
    }

    /// Returns whether the pattern is supported. Patterns that are too long or use look-around match nothing.
    pub(crate) fn is_supported(&self) -> bool {
        self.compiled().is_some()
    }

    /// Returns the maximum number of steps of a match, at about 2 ns each: for every byte of the name, every
    /// repetition and alternative may lead to every other one.
    pub(crate) fn steps(&self, name: &str) -> usize {
        /// The steps of a match that fails at the first byte.
        const START: usize = 150;

        let operators = self.text.bytes().map(|byte| match byte {
            b'*' | b'+' | b'?' | b'|' => 1,
            // A repetition multiplies the states by a few dozen at most; more would exceed the size limit.
            b'{' => 10,
            _ => 0,
        });
        let operators = operators.sum::<usize>();
        let per_byte = operators.saturating_mul(operators + 1) + 8;
        per_byte.saturating_mul(name.len()).saturating_add(START)
    }

    /// Returns the precedence of a match in a name, the lowest first; `None` if the name does not match. Unsupported
    /// patterns match nothing. Patterns with the same precedence apply in the order of the configuration.
    pub(crate) fn matches(&self, name: &str) -> Option<usize> {
        let found = self.compiled()?.find(name)?;
        Some(if self.is_search { found.start() } else { 0 })
    }

    /// Returns the compiled expression. Its size is limited in proportion to the length, so that repetitions such as
    /// `a{1000}` cannot multiply the states.
    fn compiled(&self) -> Option<&Regex> {
        const BYTES_PER_CHARACTER: usize = 32;
        const MIN_COMPILED_BYTES: usize = 2_000;

        let length = self.text.len();
        let limit = length.saturating_mul(BYTES_PER_CHARACTER).saturating_add(MIN_COMPILED_BYTES);
        let regex = || RegexBuilder::new(&self.text).size_limit(limit).build().ok();
        let compiled = || (length <= Self::MAX_LENGTH).then(regex).flatten();
        self.compiled.get_or_init(compiled).as_ref()
    }
}

/// Entries of a configuration that select modules, each with a value.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModuleEntries<T> {
    /// Whole names of modules, or their last segments.
    pub(crate) names: HashMap<Box<str>, T>,
    /// All patterns, in order of precedence.
    pub(crate) patterns: Vec<(Pattern, T)>,
}

impl<T> ModuleEntries<T> {
    /// Returns the values of the names that select a module, the longest name first.
    pub(super) fn named(&self, module: &str) -> impl Iterator<Item = &T> {
        let ends = module.match_indices('.').map(|(at, _)| &module[at + 1..]);
        std::iter::once(module).chain(ends).filter_map(|end| self.names.get(end))
    }

    /// Returns the values of the entries that select a module: names, and then patterns.
    pub(crate) fn matching(&self, module: &str) -> impl Iterator<Item = &T> {
        let patterns = self.patterns.iter().filter(|(entry, _)| entry.matches(module).is_some());
        self.named(module).chain(patterns.map(|(_, value)| value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each byte of the name, every operator may lead to every other one.
    #[test]
    fn operators_and_long_names_take_more_steps() {
        let steps = |pattern: &str, name: &str| Pattern::from_name(pattern).unwrap().steps(name);
        let increasing = ["re:ab", "re:a+b", "re:a+b|c", "re:a{9}b"].map(|text| steps(text, "ab"));
        assert!(increasing.is_sorted_by(|one, other| one < other), "{increasing:?}");
        assert!(steps("re:a+", "ab") < steps("re:a+", "abc"));
    }

    #[test]
    fn most_patterns_treat_digits_alike() {
        let is_alike = |pattern: &str| Pattern::from_name(pattern).unwrap().treats_digits_alike();
        let alike = ["re:.*mlp\\.(gate|up)_proj.*", "re:layers\\.\\d+\\.", "*.experts.*"];
        assert!(alike.into_iter().all(is_alike));
        let unlike = ["re:layers\\.3\\.", "re:layers\\.[0-4]\\.", "re:\\d{2}", "re:\\x31"];
        assert!(!unlike.into_iter().any(is_alike));
    }

    #[test]
    fn entries_select_modules_by_their_last_segments() {
        let mut entries = ModuleEntries::default();
        for (value, name) in ["q_proj", "0.q_proj", "proj", "h", "q_proj"].iter().enumerate() {
            entries.names.insert((*name).into(), value);
        }
        entries.patterns.push((Pattern::of_entry("re:.*q_proj$"), 9));
        let matching = |module: &str| entries.matching(module).copied().collect::<Vec<_>>();
        assert_eq!(matching("h.0.q_proj"), [1, 4, 9]);
        assert_eq!(matching("xh.xq_proj"), [9]);
        assert_eq!(matching("h"), [3]);
    }

    #[test]
    fn names_and_patterns_are_distinguished() {
        let cases = [
            ("h.0.q_proj", None),
            ("lm_head", None),
            ("re:.*q_proj$", Some(true)),
            ("re:q_proj", Some(false)),
            ("+:h\\.[0-9]+\\.q", Some(true)),
            ("*q_proj", Some(true)),
            ("*k_proj", Some(false)),
            (".*0\\.q_.*", Some(true)),
            ("re:(?=h)", Some(false)),
            ("re:(", Some(false)),
            (r"re:h\.([0-9]|1[0-9]|2[0-7])\.(q|k|v|o)_proj", Some(true)),
            (r"re:h\.\d{1,3}\.\w+", Some(true)),
            ("re:.{0,1000}", Some(false)),
        ];
        for (name, expected) in cases {
            let pattern = Pattern::from_name(name);
            let matches = pattern.map(|pattern| pattern.matches("h.0.q_proj").is_some());
            assert_eq!(matches, expected, "{name}");
        }
        let long = Pattern::from_name(&format!("re:{}", "h?".repeat(300))).unwrap();
        assert_eq!(long.matches("h"), None);
        let precedence = ["search:q_proj", "search:h.0", "re:.*q_proj"];
        let precedence =
            precedence.map(|name| Pattern::from_name(name).unwrap().matches("h.0.q_proj"));
        assert_eq!(precedence, [Some(4), Some(0), Some(0)]);
    }
}
