//! Finds the entries of a quantization section that select no stored module.
//!
//! Such an entry is often a name of another version of the model, or of a syntax that this library does not know.

use std::collections::HashSet;

use super::pattern::Pattern;
use super::scheme::Scheme;
use super::schemes::QuantizationConfig;

/// The entries with a scheme for packed weights that no module has matched so far.
pub(crate) struct UnusedEntries<'a> {
    /// The last segments of exact names, because the weights may omit the model around the language model.
    names: HashSet<&'a str>,
    patterns: Vec<&'a Pattern>,
    steps_left: u64,
}

/// The maximum number of steps of all matches, about 0.2 seconds of work. An entry usually matches one of the first
/// modules.
const MAX_STEPS: u64 = 100_000_000;

impl<'a> UnusedEntries<'a> {
    pub(crate) fn new(config: &'a QuantizationConfig) -> Self {
        // Modules with more bits are not packed, so they are not among the modules that are matched.
        let is_packed = |scheme: &Scheme| scheme.bits.is_some_and(|bits| bits <= 8);
        // A name without a dot may be a class of layers or a setting.
        let names = config.names().filter(|(name, scheme)| is_packed(scheme) && name.contains('.'));
        let patterns = config
            .patterns()
            .filter(|(pattern, scheme)| is_packed(scheme) && pattern.is_supported());
        Self {
            names: names.map(|(name, _)| last_segments(name)).collect(),
            patterns: patterns.map(|(pattern, _)| pattern).collect(),
            steps_left: MAX_STEPS,
        }
    }

    /// Removes the entries that match a module, and all patterns if they take too much work.
    pub(crate) fn remove_matching(&mut self, module: &str) {
        if self.names.is_empty() && self.patterns.is_empty() {
            return;
        }
        self.names.remove(last_segments(module));
        let steps_left = &mut self.steps_left;
        self.patterns.retain(|pattern| {
            *steps_left = steps_left.saturating_sub(pattern.steps(module));
            *steps_left > 0 && pattern.matches(module).is_none()
        });
    }

    /// Returns the texts of the remaining entries, sorted.
    pub(crate) fn into_texts(self) -> Vec<&'a str> {
        let patterns = self.patterns.into_iter().map(Pattern::text);
        let mut texts: Vec<_> = self.names.into_iter().chain(patterns).collect();
        texts.sort_unstable();
        texts
    }
}

/// Returns the last three segments of a name, such as `0.self_attn.q_proj`.
fn last_segments(name: &str) -> &str {
    name.rmatch_indices('.').nth(2).map_or(name, |(at, _)| &name[at + 1..])
}
