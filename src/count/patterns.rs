//! Names and patterns of modules in a configuration, matched without regular expressions.

use std::borrow::Cow;

use aho_corasick::AhoCorasick;

use super::ConfigError;

/// The largest number of wildcard patterns in a configuration. Each is compared with every packed tensor.
/// Published lists have a few dozen; the number of plain names is not limited.
pub(super) const MOST_WILDCARDS: usize = 256;

/// The largest length of all names in `modules_to_not_convert` together, in bytes.
const MOST_BYTES: usize = 500_000;

/// A list of modules as compressed-tensors writes it: exact names, and regular expressions after `re:`.
///
/// Expressions of plain text, `.*`, `\.` and anchors are supported, which are nearly all that are published.
/// Any other expression matches nothing, as in huggingface.js. So no expression from the network is compiled.
#[derive(Clone, Debug, Default)]
pub(super) struct ModulePatterns {
    exact: Vec<Box<str>>,
    wildcards: Vec<Box<str>>,
}

impl ModulePatterns {
    pub(super) fn new(texts: Vec<Cow<'_, str>>) -> Result<Self, ConfigError> {
        let mut patterns = Self::default();
        for text in texts {
            match text.strip_prefix("re:") {
                Some(expression) => patterns.wildcards.extend(wildcard(expression)),
                None => patterns.exact.push(text.into()),
            }
        }
        check_number(&patterns.wildcards)?;
        patterns.exact.sort_unstable();
        Ok(patterns)
    }

    /// Returns the number of wildcard patterns.
    pub(super) fn wildcards(&self) -> usize {
        self.wildcards.len()
    }

    pub(super) fn match_module(&self, module: &str) -> bool {
        self.exact.binary_search_by(|exact| (**exact).cmp(module)).is_ok()
            || self.wildcards.iter().any(|pattern| matches(pattern, module))
    }
}

/// The modules that a quantizer did not convert.
#[derive(Clone, Debug, Default)]
pub(super) struct UnconvertedModules {
    ignored: ModulePatterns,
    /// The texts of `modules_to_not_convert`, which transformers searches anywhere in a name. One search finds
    /// them all, because lists with hundreds of them are common.
    anywhere: Option<AhoCorasick>,
    wildcards: Vec<Box<str>>,
}

impl UnconvertedModules {
    pub(super) fn new(
        ignored: Vec<Cow<'_, str>>,
        not_converted: Vec<Cow<'_, str>>,
    ) -> Result<Self, ConfigError> {
        let (wildcards, plain): (Vec<_>, Vec<_>) =
            not_converted.into_iter().partition(|text| text.contains('*'));
        let wildcards: Vec<Box<str>> = wildcards.into_iter().map(Into::into).collect();
        check_number(&wildcards)?;
        if plain.iter().map(|text| text.len()).sum::<usize>() > MOST_BYTES {
            return Err(ConfigError::TooManyNames { limit: MOST_BYTES });
        }
        let too_many = |_| ConfigError::TooManyNames { limit: MOST_BYTES };
        let search =
            || AhoCorasick::new(plain.iter().map(|text| text.as_bytes())).map_err(too_many);
        let anywhere = if plain.is_empty() { None } else { Some(search()?) };
        Ok(Self { ignored: ModulePatterns::new(ignored)?, anywhere, wildcards })
    }

    /// Returns whether a tensor belongs to a module that was not converted.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.ignored.match_module(weight_module(name))
            || self.anywhere.as_ref().is_some_and(|texts| texts.is_match(name))
            || self.wildcards.iter().any(|pattern| matches(pattern, name))
    }
}

/// Returns the module of a weight, the name before the last `.weight`: `x` for `x.weight_packed`.
pub(super) fn weight_module(name: &str) -> &str {
    name.rfind(".weight").map_or(name, |end| &name[..end])
}

fn check_number(wildcards: &[Box<str>]) -> Result<(), ConfigError> {
    if wildcards.len() > MOST_WILDCARDS {
        return Err(ConfigError::TooManyPatterns { limit: MOST_WILDCARDS });
    }
    Ok(())
}

/// Converts a regular expression to a wildcard pattern; `None` if that is not possible. Python's `re.match`
/// starts at the start of the text and, without `$`, ends anywhere.
fn wildcard(expression: &str) -> Option<Box<str>> {
    let pattern = expression.strip_prefix('^').unwrap_or(expression);
    let (pattern, end) = pattern.strip_suffix('$').map_or((pattern, "*"), |pattern| (pattern, ""));
    let pattern = pattern.replace(".*", "*").replace("\\.", ".") + end;
    let is_plain = !pattern.contains(['\\', '+', '?', '(', ')', '[', ']', '{', '}', '|', '^', '$']);
    is_plain.then(|| pattern.into())
}

/// Returns whether a text matches a pattern, in which each `*` matches any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, last) = rest.rsplit_once('*').map_or((None, rest), |(m, last)| (Some(m), last));
    let inner = text.strip_prefix(first).and_then(|text| text.strip_suffix(last));
    let Some(mut inner) = inner else { return false };
    middle.into_iter().flat_map(|middle| middle.split('*')).all(|part| {
        let found = inner.find(part);
        found.map(|at| inner = &inner[at + part.len()..]).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<'a>(texts: &[&'a str]) -> Vec<Cow<'a, str>> {
        texts.iter().map(|text| Cow::Borrowed(*text)).collect()
    }

    #[test]
    fn wildcards_match_any_text() {
        let cases = [
            ("foo", "foo", true),
            ("foo", "foobar", false),
            ("*.b", "a.b", true),
            ("*.b", ".b", true),
            ("*.b", "a.b.c", false),
            ("a.*", "a.", true),
            ("a.*", "b.a.c", false),
            ("*mid*", "x.mid.y", true),
            ("*mid*", "mid", true),
            ("*mid*", "mi.d", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXcYb", false),
            ("a*b*b", "ab", false),
            ("aba*aba", "aba", false),
            ("*", "", true),
            ("**", "x", true),
            ("ß*ß", "ßß", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn patterns_match_modules() {
        let cases = [
            ("model.lm_head", "model.lm_head", true),
            ("model.lm_head", "model.lm_head_2", false),
            ("Linear", "model.layers.0.mlp.down_proj", false),
            (r"re:.*lm_head$", "model.lm_head", true),
            (r"re:.*lm_head$", "model.lm_head.x", false),
            (r"re:model\.layers.*", "model.layers.0", true),
            (r"re:model\.layers.*", "lm.model.layers.0", false),
            (r"re:^model\.layers", "model.layers.0", true),
            (r"re:.*mlp\.(gate|up)_proj.*", "model.mlp.gate_proj", false),
            (r"re:(a+)+$", "aaaa", false),
            (r"re:", "anything", true),
        ];
        for (target, module, expected) in cases {
            let targets = ModulePatterns::new(texts(&[target])).unwrap();
            assert_eq!(targets.match_module(module), expected, "{target} {module}");
        }
    }

    #[test]
    fn unconverted_modules_are_recognized() {
        let cases: [(&[&str], &[&str], &str, bool); 8] = [
            (&[], &[], "model.lm_head.weight", false),
            (&[], &["lm_head"], "model.lm_head.weight", true),
            (&[], &["lm_head", "visual"], "model.mlp.weight", false),
            (&[], &[""], "x", true),
            (&[], &["*.lm_head.*"], "model.lm_head.weight", true),
            (&[], &["lm_head*"], "model.lm_head.weight", false),
            (&["model.lm_head"], &[], "model.lm_head.weight_packed", true),
            (&["re:.*self_attn.*"], &[], "model.layers.0.self_attn.q_proj.weight", true),
        ];
        for (ignored, not_converted, name, expected) in cases {
            let modules = UnconvertedModules::new(texts(ignored), texts(not_converted)).unwrap();
            assert_eq!(modules.contains(name), expected, "{ignored:?} {not_converted:?} {name}");
        }
    }

    #[test]
    fn long_lists_are_an_error() {
        let wildcards = vec![Cow::Borrowed("re:a.*"); MOST_WILDCARDS + 1];
        let error = ConfigError::TooManyPatterns { limit: MOST_WILDCARDS };
        assert_eq!(ModulePatterns::new(wildcards).unwrap_err(), error);
        let globs = vec![Cow::Borrowed("a*"); MOST_WILDCARDS + 1];
        assert_eq!(UnconvertedModules::new(vec![], globs).unwrap_err(), error);
        let names = vec![Cow::Owned("x".repeat(1_000)); MOST_BYTES / 1_000 + 1];
        let error = ConfigError::TooManyNames { limit: MOST_BYTES };
        assert_eq!(UnconvertedModules::new(vec![], names).unwrap_err(), error);
    }
}
