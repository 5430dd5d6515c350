//! The tensors to read: names, patterns with slices, or a function.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::error::PlanError;
use crate::base::text::matches_glob;
use crate::formats::pytorch::TensorView;
use crate::formats::safetensors::SafetensorsIndexJson;
use crate::formats::{TensorInfo, clip};

/// The maximum number of patterns with `*` or `?`, which are compared with the name of every tensor.
const MAX_GLOBS: usize = 1_000;

const OTHER_DIMENSION: &str =
    "only the first dimension can be sliced, because other slices are not contiguous";
const STEP: &str = "a slice with a step is not contiguous";
const INDEX: &str = "an index removes the dimension; `[5:6]` reads row 5";
const NOT_A_NUMBER: &str = "its bounds must be whole numbers from 0, such as `[0:128]`";
const EMPTY_SLICE: &str = "its end must be after its start";

/// The tensors to read.
///
/// A pattern is the name of a tensor, or contains `*`, which matches any characters, and `?`, which matches one. `[0:128]`
/// at its end selects rows: a range of the first dimension. `[8:]` and `[:8]` have one bound. A tensor that has the
/// pattern as its name is always selected whole.
#[derive(Clone, Debug)]
pub struct TensorSelection(Rule);

/// A function that selects tensors.
type Predicate = dyn Fn(&str, &TensorInfo) -> bool + Send + Sync;

#[derive(Clone)]
enum Rule {
    Patterns(Arc<[Pattern]>),
    Function(Arc<Predicate>),
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Patterns(patterns) => patterns.fmt(f),
            Self::Function(_) => f.write_str("Function"),
        }
    }
}

/// A pattern.
#[derive(Debug)]
struct Pattern {
    text: String,
    /// The pattern of names before a slice, and the slice; `None` without a slice, or the reason why it is none.
    slice: Option<Result<(String, Rows), &'static str>>,
}

/// A range of the first dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rows {
    start: u64,
    end: Option<u64>,
}

impl TensorSelection {
    /// Selects all tensors.
    pub fn all() -> Self {
        Self::matching(|_, _| true)
    }

    /// Selects the tensors that match any of these patterns. Each pattern must match a tensor.
    pub fn patterns<P: Into<String>>(patterns: impl IntoIterator<Item = P>) -> Self {
        Self(Rule::Patterns(patterns.into_iter().map(|text| Pattern::new(text.into())).collect()))
    }

    /// Selects the tensors for which a function returns true.
    pub fn matching(function: impl Fn(&str, &TensorInfo) -> bool + Send + Sync + 'static) -> Self {
        Self(Rule::Function(Arc::new(function)))
    }

    /// Returns the index of the shards that contain the selected tensors. Returns `None` if all headers are needed: a
    /// function gets the tensors, and a pattern that matches no name of the index may match one that it lacks.
    pub fn shards_in(&self, index: &SafetensorsIndexJson) -> Option<SafetensorsIndexJson> {
        let mut matcher = self.matcher().ok()?;
        if matcher.function.is_some() {
            return None;
        }
        let needed = index.of_tensors(|name| matcher.mark(name));
        let is_complete = matcher.matched.iter().all(|matched| *matched);
        (is_complete && needed.shards().len() < index.shards().len()).then_some(needed)
    }

    /// Starts a selection of the tensors of a model.
    pub(super) fn matcher(&self) -> Result<Matcher<'_>, PlanError> {
        let patterns = match &self.0 {
            Rule::Function(function) => {
                return Ok(Matcher { function: Some(&**function), ..Matcher::default() });
            }
            Rule::Patterns(patterns) => patterns,
        };
        let mut matcher = Matcher { patterns, ..Matcher::default() };
        for (at, pattern) in patterns.iter().enumerate() {
            matcher.names.entry(&*pattern.text).or_default().push(at);
            let (base, rows) = match &pattern.slice {
                Some(Ok((base, rows))) => (&**base, Some(*rows)),
                Some(Err(_)) => continue,
                None => (&*pattern.text, None),
            };
            if base.contains(['*', '?']) {
                matcher.globs.push((base, rows, at));
            } else if let Some(rows) = rows {
                matcher.sliced.entry(base).or_default().push((rows, at));
            }
        }
        matcher.matched = vec![false; patterns.len()];
        matcher.parts = vec![false; patterns.len()];
        if matcher.globs.len() > MAX_GLOBS {
            return Err(PlanError::TooMany { limit: MAX_GLOBS, items: "patterns with `*` or `?`" });
        }
        Ok(matcher)
    }
}

impl Pattern {
    fn new(text: String) -> Self {
        let slice = text.strip_suffix(']').and_then(|rest| rest.rsplit_once('['));
        let slice = slice.map(|(base, slice)| Ok((base.to_owned(), Rows::parse(slice)?)));
        Self { text, slice }
    }
}

impl Rows {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if text.contains(',') {
            return Err(OTHER_DIMENSION);
        }
        let (start, end) = text.split_once(':').ok_or(INDEX)?;
        if end.contains(':') {
            return Err(STEP);
        }
        let bound = |text: &str| {
            // The parser of Rust accepts a plus sign.
            if !text.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(NOT_A_NUMBER);
            }
            text.parse().map_err(|_| NOT_A_NUMBER)
        };
        let start = if start.is_empty() { 0 } else { bound(start)? };
        let end = if end.is_empty() { None } else { Some(bound(end)?) };
        if end.is_some_and(|end| end <= start) {
            return Err(EMPTY_SLICE);
        }
        Ok(Self { start, end })
    }
}

/// The selected part of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SelectedPart {
    Whole,
    Rows(Range<u64>),
}

/// A selection that is compared with the tensors of a model, one after another.
#[derive(Default)]
pub(super) struct Matcher<'a> {
    function: Option<&'a Predicate>,
    patterns: &'a [Pattern],
    /// The patterns by their text.
    names: HashMap<&'a str, Vec<usize>>,
    /// Slices of tensors by name.
    sliced: HashMap<&'a str, Vec<(Rows, usize)>>,
    globs: Vec<(&'a str, Option<Rows>, usize)>,
    /// True for each pattern that matched.
    matched: Vec<bool>,
    /// True for each pattern that is a part of a name.
    parts: Vec<bool>,
}

/// The maximum number of patterns that are searched in names, for a hint.
const MAX_HINTS: usize = 10;

impl Matcher<'_> {
    /// Returns the selected part of a tensor, or `None` if it is not selected.
    pub(super) fn select(
        &mut self,
        name: &str,
        tensor: &TensorInfo,
    ) -> Result<Option<SelectedPart>, PlanError> {
        if let Some(function) = self.function {
            return Ok(function(name, tensor).then_some(SelectedPart::Whole));
        }
        let mut selected = None;
        for (rows, at) in self.matches(name) {
            self.matched[at] = true;
            let part = match rows {
                None => SelectedPart::Whole,
                Some(rows) => SelectedPart::Rows(rows.of(name, tensor)?),
            };
            if selected.replace(part.clone()).is_some_and(|other| other != part) {
                return Err(PlanError::SelectedTwice { tensor: clip(name) });
            }
        }
        if selected.is_none() {
            let patterns = self.patterns.iter().take(MAX_HINTS);
            for (is_part, pattern) in self.parts.iter_mut().zip(patterns) {
                *is_part |= name.contains(&pattern.text);
            }
        }
        Ok(selected)
    }

    /// Returns the patterns that match a name, each with its rows.
    fn matches(&self, name: &str) -> Vec<(Option<Rows>, usize)> {
        let whole = self.names.get(name).into_iter().flatten().map(|at| (None, *at));
        let sliced = self.sliced.get(name).into_iter().flatten();
        let sliced = sliced.map(|(rows, at)| (Some(*rows), *at));
        let globs = self.globs.iter().filter(|(glob, ..)| matches_glob(glob, name));
        let globs = globs.map(|(_, rows, at)| (*rows, *at));
        whole.chain(sliced).chain(globs).collect()
    }

    /// Marks the patterns that match a name. Returns whether any does.
    fn mark(&mut self, name: &str) -> bool {
        let found = self.matches(name);
        for (_, at) in &found {
            self.matched[*at] = true;
        }
        !found.is_empty()
    }

    /// Checks that every pattern has matched a tensor.
    pub(super) fn finish(self, aliases: &[&TensorView]) -> Result<(), PlanError> {
        let Some(at) = self.matched.iter().position(|matched| !matched) else { return Ok(()) };
        let pattern = &self.patterns[at];
        if let Some(Err(reason)) = pattern.slice {
            return Err(PlanError::UnsupportedSlice { pattern: clip(&pattern.text), reason });
        }
        let text = clip(&pattern.text);
        let alias = aliases.iter().find(|alias| alias.name == pattern.text);
        let hint = if let Some(alias) = alias {
            format!("; its elements are stored as `{}`", clip(&alias.stored_in))
        } else if self.parts[at] {
            format!("; `*{text}*` matches a part of a name")
        } else {
            String::new()
        };
        Err(PlanError::NoMatch { pattern: text, hint })
    }
}

impl Rows {
    /// Returns the rows of a tensor.
    fn of(self, name: &str, tensor: &TensorInfo) -> Result<Range<u64>, PlanError> {
        let missing = |reason| PlanError::NoSuchRows { tensor: clip(name), reason };
        let rows = tensor.shape.first().copied();
        let rows = rows.ok_or_else(|| missing("is a scalar, without rows".to_owned()))?;
        let end = self.end.unwrap_or(rows);
        if end > rows || self.start >= end {
            return Err(missing(format!("has {rows} rows, not `[{}:{end}]`", self.start)));
        }
        Ok(self.start..end)
    }
}
