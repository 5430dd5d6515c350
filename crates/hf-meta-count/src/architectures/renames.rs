//! The renaming of tensors by a loader, from `renames.txt`.
//!
//! transformers does not compare the stored names with the model: it first applies rules to each name, in their order
//! (`get_model_conversion_mapping` and `rename_source_key` in `core_model_loading.py`). A checkpoint of 2018 stores
//! `bert.embeddings.LayerNorm.gamma`, and the rule `LayerNorm.gamma -> LayerNorm.weight` makes it a name of the model. A
//! tensor is the one of the layout if both names become the same one.

use std::borrow::Cow;

use regex_lite::{Captures, Regex, RegexBuilder};

use super::architecture::text_of;
use hf_meta_format::base::json_object::JsonObject;

/// The rules of a loader for the names of a model, in their order.
#[derive(Debug, Default)]
pub(crate) struct Renames {
    rules: Vec<Rule>,
    /// The tensors that may be missing.
    spare: Vec<NameMatcher>,
    /// The ends of names that only a model in memory has, with `#` for numbers.
    memory: Vec<&'static str>,
}

/// The names below a path: the prefix of the base model, and the path inside of it.
#[derive(Clone, Debug)]
struct RulePath {
    base: &'static str,
    path: String,
}

#[derive(Debug)]
struct Rule {
    scope: Option<RulePath>,
    pattern: NameMatcher,
    replacement: &'static str,
    /// The expressions that must not match directly before the place, and after it.
    not_after: Vec<Regex>,
    not_before: Vec<Regex>,
}

#[derive(Debug)]
enum NameMatcher {
    /// A text, anywhere or at the start of a name. A letter or a digit at its end must end a word.
    Text(&'static str, bool),
    Regex(Regex),
}

impl Renames {
    /// Returns the rules for a class, or else for an architecture, with the rules for its nested models.
    pub(crate) fn new(class: Option<&str>, architecture: &str, object: &JsonObject<'_>) -> Self {
        let mut renames = Self::default();
        // Other loaders than transformers have no such rules.
        if architecture.contains(':') {
            return renames;
        }
        let of_class = class.and_then(|class| text_of("loader", class));
        if let Some(text) = of_class.or_else(|| text_of("loader", architecture)) {
            renames.add(text, object, None, 0);
        }
        if let Some(text) = text_of("loader", "legacy") {
            renames.add(text, object, None, 0);
        }
        renames
    }

    /// Adds the lines of a block, below a path if they are for a nested model.
    fn add(
        &mut self,
        text: &'static str,
        object: &JsonObject<'_>,
        outer: Option<&RulePath>,
        depth: u32,
    ) {
        /// The depth of nested models, because a configuration could nest any number.
        const MAX_DEPTH: u32 = 3;

        for line in text.split('\t') {
            if let Some(line) = line.strip_prefix("nested ") {
                let Some((scope, key)) = line.split_once(' ') else { continue };
                let nested = object.get::<JsonObject<'_>>(key).unwrap_or_default();
                let kind =
                    if depth < MAX_DEPTH { nested.get::<String>("model_type") } else { None };
                if let Some(text) = kind.and_then(|kind| text_of("loader", &kind)) {
                    self.add(text, &nested, Some(&RulePath::new(scope, outer)), depth + 1);
                }
            } else if let Some(pattern) = line.strip_prefix("spare ") {
                if outer.is_none() {
                    self.spare.extend(NameMatcher::new(pattern));
                }
            } else if let Some(end) = line.strip_prefix("memory ") {
                self.memory.push(end);
            } else {
                self.rules.extend(Rule::new(line, outer));
            }
        }
    }

    /// Returns the name that the loader looks for in the model.
    pub(crate) fn apply<'n>(&self, name: &'n str) -> Cow<'n, str> {
        let mut name = Cow::Borrowed(name);
        for rule in &self.rules {
            if let Some(renamed) = rule.apply(&name) {
                name = Cow::Owned(renamed);
            }
        }
        name
    }

    /// Returns whether only a model in memory has a name, as training programs store it. The name has `#` for its numbers.
    pub(crate) fn is_in_memory(&self, name: &str) -> bool {
        let mut rests = self.memory.iter().filter_map(|end| name.strip_suffix(*end));
        rests.any(|rest| rest.is_empty() || rest.ends_with('.'))
    }

    /// Returns whether there are tensors that the class does not miss.
    pub(crate) fn has_spare(&self) -> bool {
        !self.spare.is_empty()
    }

    /// Returns whether the class does not miss a tensor.
    pub(crate) fn is_spare(&self, name: &str) -> bool {
        self.spare.iter().any(|pattern| pattern.find(name, &|_, _| true).is_some())
    }
}

impl RulePath {
    fn new(text: &'static str, outer: Option<&Self>) -> Self {
        let (base, path) = text.split_once(':').unwrap_or(("", text));
        match outer {
            None => Self { base, path: path.to_owned() },
            Some(outer) => {
                let dot = if path.is_empty() || outer.path.is_empty() { "" } else { "." };
                Self { base: outer.base, path: format!("{}{dot}{path}", outer.path) }
            }
        }
    }

    /// Returns the part of a name before the path and in it, and the rest. Files may lack the prefix of the base model.
    fn split<'n>(&self, name: &'n str) -> Option<(&'n str, &'n str)> {
        let after = |prefix: &str, name: &'n str| -> Option<&'n str> {
            if prefix.is_empty() {
                Some(name)
            } else {
                name.strip_prefix(prefix)?.strip_prefix('.')
            }
        };
        let inside = after(self.base, name).and_then(|name| after(&self.path, name));
        let inside = inside.or_else(|| after(&self.path, name))?;
        Some(name.split_at(name.len() - inside.len()))
    }
}

impl Rule {
    fn new(line: &'static str, outer: Option<&RulePath>) -> Option<Self> {
        let (pattern, rest) = line.split_once(" -> ")?;
        let (rest, scope) = match rest.split_once(" in ") {
            Some((rest, scope)) => (rest, Some(RulePath::new(scope, outer))),
            None => (rest, outer.cloned()),
        };
        let mut words = rest.split(' ');
        let replacement = words.next().filter(|word| *word != "none").unwrap_or_default();
        let (mut not_after, mut not_before) = (Vec::new(), Vec::new());
        while let [Some(_), Some(side), Some(text)] = [words.next(), words.next(), words.next()] {
            if side == "after" {
                not_after.push(regex(&format!("(?:{text})$"))?);
            } else {
                not_before.push(regex(&format!("^(?:{text})"))?);
            }
        }
        Some(Self {
            scope,
            pattern: NameMatcher::new(pattern)?,
            replacement,
            not_after,
            not_before,
        })
    }

    /// Returns the new name; `None` if the rule does not match.
    fn apply(&self, name: &str) -> Option<String> {
        let (outer, name) = match &self.scope {
            Some(scope) => scope.split(name)?,
            None => ("", name),
        };
        let is_allowed = |before: &str, after: &str| {
            !self.not_after.iter().any(|text| text.is_match(before))
                && !self.not_before.iter().any(|text| text.is_match(after))
        };
        let (found, group) = self.pattern.find(name, &is_allowed)?;
        let replacement = self.replacement.replace("\\1", group);
        // Like Python's `str.replace`, the loader replaces the first equal text, wherever the match is.
        Some(format!("{outer}{}", name.replacen(found, &replacement, 1)))
    }
}

impl NameMatcher {
    fn new(text: &'static str) -> Option<Self> {
        if let Some(text) = text.strip_prefix('/').and_then(|text| text.strip_suffix('/')) {
            return regex(text).map(Self::Regex);
        }
        let plain = text.strip_prefix('^');
        Some(Self::Text(plain.unwrap_or(text), plain.is_some()))
    }

    /// Returns the first match whose surroundings are allowed, and its first group.
    fn find<'n>(
        &self,
        name: &'n str,
        is_allowed: &dyn Fn(&str, &str) -> bool,
    ) -> Option<(&'n str, &'n str)> {
        match self {
            Self::Text(text, is_start) => {
                let is_word = |byte: Option<&u8>| {
                    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
                };
                let ends_word = text.as_bytes().last().is_some_and(u8::is_ascii_alphanumeric);
                let mut found = name.match_indices(text).filter(|(at, _)| !is_start || *at == 0);
                let found = found.find(|(at, _)| {
                    let after = &name[at + text.len()..];
                    !(ends_word && is_word(after.as_bytes().first()))
                        && is_allowed(&name[..*at], after)
                });
                found.map(|(_, found)| (found, ""))
            }
            Self::Regex(regex) => {
                let mut start = 0;
                let captures: Captures<'n> = loop {
                    let captures = regex.captures_at(name, start)?;
                    let found = captures.get(0)?;
                    if is_allowed(&name[..found.start()], &name[found.end()..]) {
                        break captures;
                    }
                    let next = name[found.start()..].chars().next()?;
                    start = found.start() + next.len_utf8();
                };
                let group = captures.get(1).map_or("", |group| group.as_str());
                Some((captures.get(0)?.as_str(), group))
            }
        }
    }
}

/// Compiles an expression of the table.
fn regex(text: &str) -> Option<Regex> {
    RegexBuilder::new(text).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architectures::architecture::PACKED;

    fn renames(class: Option<&str>, config: &str) -> Renames {
        let object: JsonObject<'_> = serde_json::from_str(config).unwrap();
        let architecture: String = object.get("model_type").unwrap();
        Renames::new(class, &architecture, &object)
    }

    /// A rule that is not understood would be ignored.
    #[test]
    fn every_rule_is_understood() {
        let lines = PACKED.lines().filter_map(|line| line.strip_prefix("loader "));
        let mut rules = 0;
        for (names, text) in lines.map(|line| line.split_once(' ').unwrap()) {
            for line in text.split('\t') {
                if let Some(pattern) = line.strip_prefix("spare ") {
                    assert!(NameMatcher::new(pattern).is_some(), "{names}: {line}");
                } else if line.starts_with("memory ") {
                    assert!(!line.contains(" -> "), "{names}: {line}");
                } else if !line.starts_with("nested ") {
                    assert!(Rule::new(line, None).is_some(), "{names}: {line}");
                    rules += 1;
                }
            }
        }
        assert!(rules > 500, "{rules}");
    }

    #[test]
    fn names_of_old_versions_are_renamed() {
        let bert = renames(None, r#"{"model_type":"bert"}"#);
        let cases = [
            ("bert.embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"),
            ("bert.embeddings.LayerNorm.beta", "bert.embeddings.LayerNorm.bias"),
            ("x.LayerNorm.gamma_2", "x.LayerNorm.gamma_2"),
            ("conv.weight_g", "conv.parametrizations.weight.original0"),
            ("conv.weight_v", "conv.parametrizations.weight.original1"),
            ("conv.weight_gate", "conv.weight_gate"),
        ];
        for (name, expected) in cases {
            assert_eq!(bert.apply(name), expected);
        }
    }

    #[test]
    fn rules_of_nested_models_hold_below_their_path() {
        let config = r#"{"model_type":"llava","text_config":{"model_type":"llama"},"vision_config":{"model_type":"clip_vision_model"}}"#;
        let llava = renames(Some("LlavaForConditionalGeneration"), config);
        let cases = [
            ("language_model.model.norm.weight", "model.language_model.norm.weight"),
            ("language_model.lm_head.weight", "lm_head.weight"),
            ("model.language_model.norm.weight", "model.language_model.norm.weight"),
            (
                "vision_tower.vision_model.post_layernorm.weight",
                "model.vision_tower.post_layernorm.weight",
            ),
        ];
        for (name, expected) in cases {
            assert_eq!(llava.apply(name), expected);
        }
    }

    #[test]
    fn names_in_memory_end_at_a_word() {
        let nomic = renames(None, r#"{"model_type":"nomic_bert"}"#);
        let stored = "nomic_bert.encoder.layers.#.attn.Wqkv.weight";
        let in_memory = stored.replace("attn.Wqkv", "self_attn.q_proj");
        assert!(!nomic.is_in_memory(stored) && nomic.is_in_memory(&in_memory));
        assert!(!nomic.is_in_memory(&in_memory.replace(".q_proj", ".other_q_proj")));
    }

    #[test]
    fn a_guard_excludes_matches() {
        let qwen = renames(None, r#"{"model_type":"qwen2_vl"}"#);
        let cases = [
            (
                "model.layers.0.mlp.up_proj.weight",
                "model.language_model.layers.0.mlp.up_proj.weight",
            ),
            ("model.language_model.norm.weight", "model.language_model.norm.weight"),
            ("visual.blocks.0.norm1.weight", "model.visual.blocks.0.norm1.weight"),
        ];
        for (name, expected) in cases {
            assert_eq!(qwen.apply(name), expected);
        }
    }
}
