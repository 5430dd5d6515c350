//! Patterns of module names in configurations.

use std::sync::OnceLock;

use regex_lite::{Regex, RegexBuilder};

/// A regular expression that a configuration lists, compiled when a choice needs it.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: Box<str>,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// The largest length in bytes. Longer ones match nothing.
    const LONGEST: usize = 500;

    /// Returns the pattern that a name stands for; `None` if it is an exact name.
    ///
    /// compressed-tensors writes `re:` and GPTQModel `+:`, and both match from the start of a module's name. Others
    /// search.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let text = if let Some(text) = name.strip_prefix("re:").or_else(|| name.strip_prefix("+:"))
        {
            format!("^(?:{text})")
        } else if name.starts_with('*') {
            // Quark writes shell patterns, in which a star stands for any text.
            format!("{}$", name.replace('.', "\\.").replace('*', ".*"))
        } else if name.contains(['*', '\\', '[', '(', '^', '$', '|']) {
            name.to_owned()
        } else {
            return None;
        };
        Some(Self { text: text.into(), compiled: OnceLock::new() })
    }

    /// Returns the text of a pattern that matches a module with a name as any of its components.
    pub(super) fn any_component(name: &str) -> String {
        let escaped = regex_lite::escape(name);
        format!("re:(?:.*\\.)?{escaped}(?:\\.|$)")
    }

    /// Returns whether the pattern can be used. One that is too long or that looks around matches nothing.
    pub(super) fn is_readable(&self) -> bool {
        self.compiled.get_or_init(|| self.compile()).is_some()
    }

    /// Returns the steps that a comparison takes at most, some 2 ns each: for each byte of the name, every repetition and
    /// alternative may lead to every other one.
    pub(super) fn steps(&self, name: &str) -> u64 {
        /// The steps of a comparison that ends at the first byte.
        const START: usize = 150;

        let operators = self.text.bytes().map(|byte| match byte {
            b'*' | b'+' | b'?' | b'|' => 1,
            // Up to some dozen of them; more are over the limit of the size.
            b'{' => 10,
            _ => 0,
        });
        let operators = operators.sum::<usize>();
        let per_byte = operators.saturating_mul(operators + 1) + 8;
        let steps = per_byte.saturating_mul(name.len()).saturating_add(START);
        u64::try_from(steps).unwrap_or(u64::MAX)
    }

    /// Returns whether a name matches. An expression that is too long or that looks around matches nothing.
    pub(super) fn matches(&self, name: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| self.compile());
        compiled.as_ref().is_some_and(|regex| regex.is_match(name))
    }

    /// Compiles the expression. Its size is limited by its length, so that repetitions such as `a{1000}` cannot
    /// multiply its states.
    fn compile(&self) -> Option<Regex> {
        const BYTES_PER_CHARACTER: usize = 32;
        const LEAST_BYTES: usize = 2_000;

        let length = self.text.len();
        let limit = length.checked_mul(BYTES_PER_CHARACTER)?.checked_add(LEAST_BYTES)?;
        let regex = || RegexBuilder::new(&self.text).size_limit(limit).build().ok();
        (length <= Self::LONGEST).then(regex).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each operator may lead to every other one, for each byte of the name.
    #[test]
    fn operators_and_long_names_take_more_steps() {
        let steps = |pattern: &str, name: &str| Pattern::from_name(pattern).unwrap().steps(name);
        let increasing = ["re:ab", "re:a+b", "re:a+b|c", "re:a{9}b"].map(|text| steps(text, "ab"));
        assert!(increasing.is_sorted_by(|one, other| one < other), "{increasing:?}");
        assert!(steps("re:a+", "ab") < steps("re:a+", "abc"));
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
            assert_eq!(pattern.map(|pattern| pattern.matches("h.0.q_proj")), expected, "{name}");
        }
        let long = Pattern::from_name(&format!("re:{}", "h?".repeat(300))).unwrap();
        assert!(!long.matches("h"));
    }
}
