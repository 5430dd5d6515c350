//! Rules that compare tensors with `config.json`, and with the quantization recipe in it.
//!
//! A rule that is not certain reports nothing: a layout that the tables do not contain, a missing key, or a name that
//! an engine might map differently.

mod adapter;
mod adapter_base;
mod config;
mod exceptions;
mod head;
mod missing;
mod model;
mod model_class;
mod parts;
mod recipe;
mod siblings;
mod single_file;
mod stages;
mod stored_modules;
#[cfg(test)]
mod tests;
mod timm;

use std::collections::BTreeMap;
use std::fmt::Display;

pub(crate) use self::adapter::check_adapter;
pub(crate) use self::model::check_model;
pub(crate) use self::model_class::LoadedAs;
pub(crate) use self::recipe::{check_recipe, recipe_file};
use crate::count::names::pattern::NamePattern;
use crate::results::{Finding, Severity, bounded};
pub(crate) use crate::results::{Mismatch, MismatchKind};
use hf_meta_format::formats::clip;

/// The mismatches found so far: the first module of each, and the number of modules. Mismatches of modules whose names
/// differ only in numbers are folded if they have equal values.
#[derive(Debug, Default)]
struct Mismatches {
    found: BTreeMap<(MismatchKind, String, MismatchValues), (String, u64)>,
}

/// The key, the expected value and the found value.
type MismatchValues = [String; 3];

impl Mismatches {
    /// Adds a mismatch of a tensor, a module, or an entry of the configuration.
    fn add(
        &mut self,
        kind: MismatchKind,
        module: &str,
        key: &str,
        expected: impl Display,
        found: impl Display,
    ) {
        /// The maximum number of different mismatches. A hostile file can cause one per tensor.
        const MAX_MISMATCHES: usize = 10_000;

        // The names in a list are folded, too.
        let is_entry = kind == MismatchKind::UnmatchedTarget;
        let pattern = if is_entry { String::new() } else { NamePattern::new(module).text };
        let values = [clip(key), clip(&expected.to_string()), clip(&found.to_string())];
        let entry = (kind, clip(&pattern), values);
        if self.found.len() < MAX_MISMATCHES || self.found.contains_key(&entry) {
            self.found.entry(entry).or_insert_with(|| (clip(module), 0)).1 += 1;
        }
    }

    /// Adds a key whose value is not a number.
    fn add_invalid(&mut self, key: &str, value: &str) {
        self.add(MismatchKind::InvalidConfigValue, key, key, "a number", value);
    }

    /// Adds a prefix of all names, in place of the one that loaders expect.
    fn add_prefix(&mut self, kind: MismatchKind, found: &str, key: &str, expected: &str) {
        let expected = if expected.is_empty() { "no prefix" } else { &format!("`{expected}`") };
        self.add(kind, found, key, expected, "");
    }

    /// Adds other mismatches.
    fn append(&mut self, others: Self) {
        self.found.extend(others.found);
    }

    /// Returns the number of modules with a kind of mismatch.
    fn count(&self, kind: MismatchKind) -> usize {
        let of_kind = self.found.iter().filter(|((found, ..), _)| *found == kind);
        of_kind.map(|(_, (_, modules))| usize::try_from(*modules).unwrap_or(usize::MAX)).sum()
    }

    fn has_errors(&self) -> bool {
        self.found.keys().any(|(kind, ..)| kind.rule().severity == Severity::Error)
    }

    /// Returns the findings, errors first.
    fn into_findings(self) -> Vec<Finding> {
        let mut kinds = BTreeMap::<_, Vec<_>>::new();
        for ((kind, _, [key, expected, found]), (module, modules)) in self.found {
            let found = Mismatch { kind, module, modules, key, expected, found };
            kinds.entry(kind).or_default().push(Finding::Mismatch(found));
        }
        kinds.into_values().flat_map(|found| bounded(found.into_iter())).collect()
    }
}

/// Formats the sides of a shape, with `_` for each unknown one.
fn sides_text(sides: impl Iterator<Item = Option<u64>>) -> String {
    let sides = sides.map(|side| side.map_or_else(|| "_".to_owned(), |length| length.to_string()));
    format!("[{}]", sides.collect::<Vec<_>>().join(", "))
}
