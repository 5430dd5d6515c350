//! Answers questions of solvers from the configuration, with a limit on the total work.

use std::cell::Cell;
use std::ops::RangeInclusive;

use super::metadata::MetadataShapes;
use super::module::UnresolvedReason;
use super::pattern::Pattern;
use super::schemes::{QuantizationConfig, Scheme};

/// The maximum number of steps for all choices of one count, about two seconds of work. Three patterns for each
/// module of Kimi-K2.5 would take a sixth of them.
const MOST_STEPS: u64 = 1_000_000_000;

/// The steps charged for reading a value from a scheme.
const STEPS_OF_SCHEME: u64 = 16;

/// The configuration as seen by solvers, with a limit on the total work.
pub(super) struct Hints<'a> {
    config: &'a QuantizationConfig,
    shapes: &'a MetadataShapes,
    steps_left: Cell<u64>,
    /// True if an answer depended on a module's name.
    depends_on_name: Cell<bool>,
}

impl<'a> Hints<'a> {
    pub(super) fn new(config: &'a QuantizationConfig, shapes: &'a MetadataShapes) -> Self {
        let (steps_left, depends_on_name) = (Cell::new(MOST_STEPS), Cell::new(false));
        Self { config, shapes, steps_left, depends_on_name }
    }

    /// Solves a module. Also returns true if the solution is valid for all modules with parts of the same shapes.
    pub(super) fn solve<T>(&self, solve: impl FnOnce(&Self) -> T) -> (T, bool) {
        self.depends_on_name.set(false);
        let solution = solve(self);
        (solution, !self.depends_on_name.get())
    }

    /// Returns whether the configuration names one of `methods`.
    pub(super) fn names(&self, methods: &[&str]) -> bool {
        self.config.method().is_some_and(|method| methods.contains(&method))
    }

    /// Returns true if the work exceeded the limit. From then on, no answer can be trusted.
    pub(super) fn is_exhausted(&self) -> bool {
        self.steps_left.get() == 0
    }

    /// Uses up all steps.
    #[cfg(test)]
    pub(super) fn exhaust(&self) {
        self.steps_left.set(0);
    }

    /// Returns the bits of a module's weights, if the configuration gives them.
    pub(super) fn bits(&self, module: &str) -> Option<u64> {
        self.choose(module, |scheme| scheme.bits).ok().flatten()
    }

    /// Returns the value that the configuration's schemes give for a module; `None` if no scheme gives one.
    ///
    /// A scheme that names the module takes precedence. Otherwise, if all schemes that give a value agree, that value
    /// applies. If not, the first matching pattern decides, and then the default schemes.
    ///
    /// # Errors
    ///
    /// If several values remain possible.
    pub(super) fn choose<T: PartialEq>(
        &self,
        module: &str,
        value: impl Fn(&Scheme) -> Option<T>,
    ) -> Result<Option<T>, UnresolvedReason> {
        if let Some(named) = self.named(module).and_then(&value) {
            return Ok(Some(named));
        }
        match self.common(self.config.schemes(), &value) {
            Err(UnresolvedReason::AmbiguousScheme) => {}
            common => return common,
        }
        let (mut chosen, mut possible) = (None, Vec::new());
        for (pattern, scheme) in self.matching(module) {
            match value(scheme) {
                Some(value) if pattern.is_readable() => {
                    chosen = Some(value);
                    break;
                }
                value => possible.extend(value),
            }
        }
        let chosen = match chosen {
            Some(value) => Some(value),
            None => self.common(self.config.defaults(), &value)?,
        };
        // An unsupported pattern might have matched.
        let is_sure = possible.iter().all(|value| Some(value) == chosen.as_ref());
        chosen.filter(|_| is_sure).map(Some).ok_or(UnresolvedReason::AmbiguousScheme)
    }

    /// Returns the scheme that names a module, in full or by its last components.
    fn named(&self, module: &str) -> Option<&'a Scheme> {
        if !self.config.has_names() {
            return None;
        }
        self.depends_on_name.set(true);
        let ends = module.match_indices('.').map(|(at, _)| &module[at + 1..]);
        let names = std::iter::once(module).chain(ends);
        let mut names = names.take_while(|name| self.spend(name.len() as u64));
        names.find_map(|name| self.config.named(name))
    }

    /// Returns the value common to all schemes that define one.
    fn common<T: PartialEq>(
        &self,
        schemes: impl Iterator<Item = &'a Scheme>,
        value: impl Fn(&Scheme) -> Option<T>,
    ) -> Result<Option<T>, UnresolvedReason> {
        let mut first = None;
        for scheme in schemes {
            if !self.spend(STEPS_OF_SCHEME) {
                return Err(UnresolvedReason::TooComplex);
            }
            match (&first, value(scheme)) {
                (_, None) => {}
                (None, found) => first = found,
                (Some(first), Some(other)) if *first == other => {}
                _ => return Err(UnresolvedReason::AmbiguousScheme),
            }
        }
        Ok(first)
    }

    /// Returns the patterns that match a module or are unsupported, with their schemes.
    fn matching(&self, module: &str) -> impl Iterator<Item = (&'a Pattern, &'a Scheme)> {
        self.depends_on_name.set(true);
        let patterns =
            self.config.patterns().take_while(|(pattern, _)| self.spend(pattern.steps(module)));
        patterns.filter(|(pattern, _)| pattern.matches(module) || !pattern.is_readable())
    }

    /// Spends steps. Returns false if too few were left.
    fn spend(&self, steps: u64) -> bool {
        let left = self.steps_left.get().checked_sub(steps);
        self.steps_left.set(left.unwrap_or_default());
        left.is_some()
    }

    /// Returns the number of weights of a module according to the files' metadata.
    pub(super) fn metadata_elements(&self, module: &str) -> Option<u64> {
        self.depends_on_name.set(true);
        self.shapes.elements(module)
    }

    /// Returns whether the configuration contains a dimension.
    pub(super) fn is_dimension(&self, dimension: u64) -> bool {
        self.config.dimensions().contains(&dimension)
    }

    /// Returns the model dimensions in a range, in descending order.
    pub(super) fn dimensions(
        &self,
        range: RangeInclusive<u64>,
    ) -> impl Iterator<Item = u64> + Clone + '_ {
        let range = if range.is_empty() { 0..=0 } else { range };
        let dimensions = self.config.dimensions().range(range).rev().copied();
        dimensions.take_while(|_| self.spend(1))
    }

    /// Returns the unpadded outputs of a module whose packer pads to a multiple. The outputs of the head are the
    /// vocabulary.
    pub(super) fn outputs_without_padding(
        &self,
        module: &str,
        outputs: u64,
        multiple: u64,
    ) -> Side {
        self.depends_on_name.set(true);
        let is_head = module.ends_with("lm_head") || module == "output" || module == "head";
        let range = outputs.saturating_sub(multiple - 1)..=outputs;
        match self.config.vocabulary() {
            Some(vocabulary) if is_head && range.contains(&vocabulary) => {
                Side { length: vocabulary, is_certain: true }
            }
            _ => self.without_padding(outputs, multiple),
        }
    }

    /// Returns the unpadded length of a side: the largest model dimension that would be padded to it.
    pub(super) fn without_padding(&self, side: u64, multiple: u64) -> Side {
        let listed = self.dimensions(side.saturating_sub(multiple - 1)..=side).next();
        Side { length: listed.unwrap_or(side), is_certain: listed == Some(side) }
    }
}

/// A side of a weight matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) length: u64,
    /// False if padding makes the length uncertain.
    pub(super) is_certain: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chooses bits until no steps are left, and returns the number of choices.
    fn choices(json: &str, module: &str) -> u64 {
        let config =
            QuantizationConfig::from_section(&serde_json::from_str(json).unwrap()).unwrap();
        let shapes = MetadataShapes::default();
        let hints = Hints::new(&config, &shapes);
        let steps = 1_000_000;
        hints.steps_left.set(steps);
        let choose = || hints.choose(module, |scheme| scheme.bits);
        let answered = (0..steps).take_while(|_| choose() != Err(UnresolvedReason::TooComplex));
        answered.count() as u64
    }

    #[test]
    fn an_answer_by_the_name_holds_for_that_module_only() {
        let cases = [
            (r#"{"bits":4}"#, true),
            (r#"{"bits":4,"lm_head":{"bits":8}}"#, false),
            (r#"{"bits":4,"dynamic":{"+:.*k$":{"bits":8}}}"#, false),
        ];
        for (json, expected) in cases {
            let config =
                QuantizationConfig::from_section(&serde_json::from_str(json).unwrap()).unwrap();
            let shapes = MetadataShapes::default();
            let hints = Hints::new(&config, &shapes);
            assert_eq!(hints.solve(|hints| hints.bits("h.0.q")).1, expected, "{json}");
            assert!(!hints.solve(|hints| hints.metadata_elements("h.0.q")).1);
            assert!(!hints.solve(|hints| hints.outputs_without_padding("q", 9, 8)).1);
            assert!(hints.solve(|hints| hints.without_padding(9, 8)).1);
        }
    }

    /// A head is padded by less than the multiple. Outputs of other modules may equal the vocabulary by chance.
    #[test]
    fn the_outputs_of_a_head_are_the_vocabulary() {
        let side = |vocabulary: u64, module: &str| {
            let model = format!(r#"{{"vocab_size":{vocabulary}}}"#);
            let mut config = QuantizationConfig::default();
            config.add_dimensions(&serde_json::from_str(&model).unwrap());
            let shapes = MetadataShapes::default();
            Hints::new(&config, &shapes).outputs_without_padding(module, 16, 8)
        };
        let lengths = [8, 9, 16, 17].map(|vocabulary| side(vocabulary, "model.lm_head").length);
        assert_eq!(lengths, [16, 9, 16, 16]);
        let are_certain =
            ["lm_head", "output", "head", "q"].map(|module| side(9, module).is_certain);
        assert_eq!(are_certain, [true, true, true, false]);
    }

    /// Many schemes, long names and expensive patterns must not exceed the limit.
    #[test]
    fn the_work_of_choices_is_limited() {
        let schemes: Vec<_> =
            (1..=900).map(|at| format!(r#""m{at}":{{"bits":4,"group_size":{at}}}"#)).collect();
        let schemes = format!("{{{}}}", schemes.join(","));
        let dots = "a.".repeat(1_000);
        let patterns = r#"{"a":{"bits":4},"re:.*b":{"bits":8},"re:(a+)+$":{"bits":2}}"#;
        for (json, module, most) in
            [(schemes.as_str(), "x", 70), (r#"{"x":{"bits":4}}"#, &dots, 1), (patterns, &dots, 5)]
        {
            let choices = choices(json, module);
            assert!((0..=most).contains(&choices), "{choices} choices of {most}");
        }
    }
}
