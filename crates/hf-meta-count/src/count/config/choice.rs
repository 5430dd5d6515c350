//! Chooses among the schemes of a configuration for each module, with a limit on the total work.

use super::pattern::Pattern;
use super::schemes::{QuantizationConfig, Scheme};
use crate::count::Embedding;
use crate::count::UnresolvedReason::{self, AmbiguousScheme, TooComplex};
use hf_meta_format::base::sort::sort_by_key;

/// The maximum number of steps for all choices of one count, about two seconds of work. Three patterns for each
/// module of Kimi-K2.5 would take a sixth of them.
const MAX_STEPS: usize = 1_000_000_000;

/// The schemes of a configuration.
pub(crate) struct Schemes<'a> {
    config: &'a QuantizationConfig,
    steps_left: usize,
}

impl<'a> Schemes<'a> {
    pub(crate) fn new(config: &'a QuantizationConfig) -> Self {
        Self { config, steps_left: MAX_STEPS }
    }

    /// Returns true if the work exceeded the limit. From then on, no answer can be trusted.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps_left == 0
    }

    /// Finds the scheme that names a module.
    pub(crate) fn of_module<'s>(&'s mut self, module: &'s str) -> ModuleSchemes<'s, 'a> {
        let (modules, ends) = (&self.config.modules, module.split('.').count());
        let depend_on_name = !modules.names.is_empty();
        let may_be_named = depend_on_name && self.spend(module.len().saturating_mul(ends));
        // compressed-tensors also names classes of modules.
        let is_embedding = || may_be_named && Embedding::is_read_by_rows(module);
        let class = if is_embedding() { Some("Embedding") } else { None };
        let mut keys = may_be_named.then_some(module).into_iter().chain(class);
        let named = keys.find_map(|key| modules.named(key).next());
        ModuleSchemes { module, all: self, named, matching: None, depend_on_name }
    }

    /// Spends steps. Returns false if too few were left.
    pub(crate) fn spend(&mut self, steps: usize) -> bool {
        let left = self.steps_left.checked_sub(steps);
        self.steps_left = left.unwrap_or_default();
        left.is_some()
    }
}

/// The schemes that may apply to a module.
pub(crate) struct ModuleSchemes<'s, 'a> {
    module: &'s str,
    all: &'s mut Schemes<'a>,
    /// The scheme that names the module.
    named: Option<&'a Scheme>,
    /// The patterns that match the module or are unsupported, with their schemes, in order of precedence. `None` if they
    /// were not needed so far.
    matching: Option<Vec<(&'a Pattern, &'a Scheme)>>,
    /// True if a choice depended on the name of the module.
    pub(crate) depend_on_name: bool,
}

impl<'a> ModuleSchemes<'_, 'a> {
    /// The steps of reading a value from a scheme.
    const STEPS: usize = 16;

    /// Returns the bits of the module's weights, if the configuration gives them.
    pub(crate) fn bits(&mut self) -> Option<u64> {
        self.choose(Self::STEPS, |scheme| scheme.bits).ok().flatten()
    }

    /// Returns the scheme of the module: the only one that may apply, or the bits and the group size that the schemes
    /// give. The scheme of a pattern overrides only what it states.
    ///
    /// # Errors
    ///
    /// Returns an error if several group sizes remain possible.
    pub(crate) fn resolve(&mut self) -> Result<Scheme, UnresolvedReason> {
        let grouping = |scheme: &Scheme| {
            let is_stated = scheme.has_row_scales || scheme.group_size.is_some();
            is_stated.then_some(scheme.group_size)
        };
        let group_size = self.choose(Self::STEPS, grouping)?.flatten();
        let stated = Scheme { bits: self.bits(), group_size, ..Scheme::default() };
        let is_whole = self.all.config.modules.patterns.is_empty();
        let whole = self.choose(1, |scheme| is_whole.then_some(*scheme)).ok().flatten();
        Ok(whole.filter(|whole| whole.bits == stated.bits).unwrap_or(stated))
    }

    /// Returns the value that the configuration's schemes give for a module; `None` if no scheme gives one. A value takes
    /// `steps` steps.
    ///
    /// A scheme that names the module takes precedence. Otherwise, if all schemes that give a value agree, that value
    /// applies. If not, the first matching pattern decides, and then the default schemes.
    ///
    /// # Errors
    ///
    /// Returns an error if several values remain possible.
    pub(crate) fn choose<T: PartialEq>(
        &mut self,
        steps: usize,
        mut value: impl FnMut(&Scheme) -> Option<T>,
    ) -> Result<Option<T>, UnresolvedReason> {
        if let Some(named) = self.named.and_then(&mut value) {
            return Ok(Some(named));
        }
        let config = self.all.config;
        match self.common(&config.schemes, steps, &mut value) {
            Err(AmbiguousScheme) => {}
            common => return common,
        }
        let (mut values, mut is_decided) = (Vec::new(), false);
        for (pattern, scheme) in self.matching() {
            let Some(value) = value(scheme) else { continue };
            values.push(value);
            is_decided = pattern.is_supported();
            if is_decided {
                break;
            }
        }
        if !is_decided {
            let default = self.common(&config.defaults, steps, &mut value)?;
            values.push(default.ok_or(AmbiguousScheme)?);
        }
        // An unsupported pattern might have matched.
        let is_sure = values.windows(2).all(|values| values[0] == values[1]);
        if is_sure { values.pop().map(Some).ok_or(AmbiguousScheme) } else { Err(AmbiguousScheme) }
    }

    /// Returns whether the configuration quantizes a linear module to at most eight bits, if no list excludes it.
    pub(crate) fn pack(&mut self) -> bool {
        let is_packed = |scheme: &Scheme| scheme.bits.is_none_or(|bits| bits <= 8);
        if let Some(scheme) = self.named {
            return is_packed(scheme);
        }
        let QuantizationConfig { schemes, defaults, .. } = self.all.config;
        match self.matching().first() {
            Some((pattern, scheme)) => pattern.is_supported() && is_packed(scheme),
            None if schemes.is_empty() => true,
            None => !defaults.is_empty() && defaults.iter().all(is_packed),
        }
    }

    /// Returns the value common to all schemes that define one.
    fn common<T: PartialEq>(
        &mut self,
        schemes: &[Scheme],
        steps: usize,
        value: &mut impl FnMut(&Scheme) -> Option<T>,
    ) -> Result<Option<T>, UnresolvedReason> {
        let mut first = None;
        for scheme in schemes {
            if !self.all.spend(steps) {
                return Err(TooComplex);
            }
            match (&first, value(scheme)) {
                (_, None) => {}
                (None, found) => first = found,
                (Some(first), Some(other)) if *first == other => {}
                _ => return Err(AmbiguousScheme),
            }
        }
        Ok(first)
    }

    fn matching(&mut self) -> &[(&'a Pattern, &'a Scheme)] {
        self.depend_on_name = true;
        let (module, all) = (self.module, &mut *self.all);
        self.matching.get_or_insert_with(|| {
            let mut matching = Vec::new();
            for (pattern, scheme) in &all.config.modules.patterns {
                if !all.spend(pattern.steps(module)) {
                    break;
                }
                if let Some(precedence) = pattern.may_match(module) {
                    matching.push((precedence, pattern, scheme));
                }
            }
            sort_by_key(&mut matching, |(precedence, ..)| *precedence);
            matching.into_iter().map(|(_, pattern, scheme)| (pattern, scheme)).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Schemes<'_> {
        /// Uses up all steps.
        pub(crate) fn exhaust(&mut self) {
            self.steps_left = 0;
        }
    }

    fn config(json: &str) -> QuantizationConfig {
        QuantizationConfig::from_section(&serde_json::from_str(json).unwrap()).unwrap()
    }

    /// Chooses bits until no steps are left, and returns the number of choices.
    fn choices(json: &str, module: &str) -> usize {
        let (config, steps) = (config(json), 1_000_000);
        let mut schemes = Schemes { steps_left: steps, ..Schemes::new(&config) };
        let mut choose = || {
            let mut schemes = schemes.of_module(module);
            schemes.choose(ModuleSchemes::STEPS, |scheme| scheme.bits)
        };
        (0..steps).take_while(|_| choose() != Err(TooComplex)).count()
    }

    #[test]
    fn name_dependent_answers_are_not_reused() {
        let cases = [
            (r#"{"bits":4}"#, true),
            (r#"{"bits":4,"lm_head":{"bits":8}}"#, false),
            (r#"{"bits":4,"dynamic":{"+:.*k$":{"bits":8}}}"#, false),
        ];
        for (json, expected) in cases {
            let config = config(json);
            let mut schemes = Schemes::new(&config);
            let mut schemes = schemes.of_module("h.0.q");
            schemes.bits();
            assert_eq!(!schemes.depend_on_name, expected, "{json}");
        }
    }

    /// Many schemes, long names and expensive patterns must not exceed the limit.
    #[test]
    fn total_work_is_limited() {
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
