//! The table of architectures, the formulas in it, and the values of the names in formulas.
//!
//! Formulas over the keys of a configuration, such as `num_key_value_heads*(head_dim+v_head_dim)`.
//!
//! A formula is a whole-number expression with `+ - * / %`, `== >= <`, `a|b` (`b` if a key of `a` is missing),
//! `a?b:c` (`b` unless `a` is zero), `key@a` (the entry of a list at a place, from 0), `key@-a` (from its
//! end), and these functions:
//!
//! | function | value |
//! |---|---|
//! | `min(a,b)` | the smaller number |
//! | `len(key)` | the length of a list or a text, or the number of entries of an object |
//! | `sum(key)` | the sum of a list |
//! | `in(key,a)` | 1 if a list contains a number |
//! | `count(key,text)` | the number of times that a list contains a text |
//! | `has(key)` | 1 if a key is present and not `null` |
//! | `is(key,text)`, `starts(key,text)` | 1 if a text is another one, or begins with it |
//!
//! A line of the table defines names for an architecture, and may begin with the definitions of a base:
//! `cache root $kv=2*num_key_value_heads*head_dim head_dim=$hidden/$heads …`. `config.json` of Llama 3.1 8B states
//! `hidden_size` 4096, `num_attention_heads` 32 and `num_key_value_heads` 8, but no `head_dim`. So `$kv`, the elements that
//! a layer caches per token, is 2 × 8 × `head_dim`; the missing key has a definition, 4096 / 32 = 128; and the result is
//! 2,048. A configuration with `"head_dim": 64` has 1,024 instead: a definition is only a default. Without
//! `hidden_size`, the result is an error that names this key.
//!
//! All formulas come from built-in tables; only the values of the keys come from files.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::OnceLock;

use serde::Serialize;
use serde_json::value::RawValue;
use thiserror::Error;

use hf_meta_format::base::json_object::{JsonObject, number, read};

/// The lines of a table without kind and names, by kind and name. They are parsed when they are looked up.
///
/// A line is `kind names <base name=value …`. A definition of the base applies if the line has none.
type Lines = HashMap<(&'static str, &'static str), &'static str>;

// One map for all tables: a program asks for a few architectures of a thousand, so lines are parsed when they are needed.
static LINES: OnceLock<Lines> = OnceLock::new();

/// The tables, as `build.rs` packs them.
#[cfg(any(feature = "tables", test))]
pub(crate) const PACKED: &str = include_str!(concat!(env!("OUT_DIR"), "/tables.txt"));

/// Adds the tables to a program that was built without the feature `tables`: the text that the example `tables` prints.
/// Without them, only safetensors headers that need no configuration are counted right.
pub fn add_tables(tables: String) {
    LINES.get_or_init(|| lines(tables.leak()));
}

fn all_lines() -> Option<&'static Lines> {
    #[cfg(feature = "tables")]
    LINES.get_or_init(|| lines(PACKED));
    LINES.get()
}

fn lines(tables: &'static str) -> Lines {
    let mut lines = HashMap::new();
    for line in tables.lines() {
        let mut words = line.splitn(3, ' ');
        let [kind, names, rest] = [(); 3].map(|()| words.next().unwrap_or_default());
        lines.extend(names.split(',').map(|name| ((kind, name), rest)));
    }
    lines
}

/// Returns the line of a kind for a name, without both.
pub(crate) fn text_of(kind: &str, name: &str) -> Option<&'static str> {
    all_lines()?.get(&(kind, name)).copied()
}

/// Returns the names of the lines of a kind, in no order.
pub(crate) fn names_of(kind: &'static str) -> impl Iterator<Item = &'static str> {
    let lines = all_lines().into_iter().flatten();
    lines.filter(move |((found, _), _)| *found == kind).map(|((_, name), _)| *name)
}

/// Returns the keys of a number, in order of precedence.
pub(crate) fn keys_of(name: &str) -> impl Iterator<Item = &'static str> {
    text_of("keys", name).into_iter().flat_map(|keys| keys.split('|'))
}

/// Returns the first positive number among the [keys](keys_of) of a name, with its key.
pub(crate) fn positive(model: &JsonObject<'_>, name: &str) -> Option<(&'static str, u64)> {
    let mut numbers = keys_of(name).filter_map(|key| Some((key, model.number(key)?)));
    numbers.find(|(_, number)| *number > 0)
}

/// The definitions of an architecture.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions {
    pub(crate) entries: HashMap<&'static str, &'static str>,
}

impl Definitions {
    /// Returns the definitions of a kind for an architecture, including the definitions of its bases; `None` if it is
    /// unknown.
    pub(crate) fn find(kind: &str, architecture: &str) -> Option<Self> {
        let mut line = Some(text_of(kind, architecture)?);
        let mut entries = HashMap::new();
        while let Some(words) = line.take() {
            for word in words.split_ascii_whitespace() {
                if let Some(base) = word.strip_prefix('<') {
                    line = text_of(kind, base);
                } else if let Some((name, value)) = word.split_once('=') {
                    entries.entry(name).or_insert(value);
                }
            }
        }
        Some(Self { entries })
    }

    /// Returns the defaults of the keys of an architecture of transformers. GGUF files state all keys.
    pub(crate) fn defaults(architecture: &str) -> Self {
        let is_gguf = architecture.starts_with("gguf:");
        let mut found = Self::default();
        if !is_gguf {
            found = Self::find("cache", architecture).unwrap_or_default();
        }
        // The other definitions are formulas of the cache, and not values that a class assumes.
        found.entries.retain(|_, value| value.parse::<u64>().is_ok());
        found
    }

    /// Returns what the configuration class of an architecture makes of missing keys, from `defaults.txt`.
    pub(crate) fn of_class(architecture: &str) -> Self {
        let lines = text_of("defaults", architecture).into_iter();
        let lines = lines.flat_map(|text| text.split('\t'));
        Self { entries: lines.filter_map(|line| line.split_once(" = ")).collect() }
    }

    /// Adds the definitions that these ones lack.
    pub(crate) fn or(mut self, others: Self) -> Self {
        for (name, value) in others.entries {
            self.entries.entry(name).or_insert(value);
        }
        self
    }

    /// Returns the definition of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&'static str> {
        self.entries.get(name).copied()
    }
}

/// Returns the JSON text of a key of a configuration. A dot is part of a key of a GGUF file, or separates the keys of
/// nested objects.
pub(crate) fn nested_text<'a>(object: &JsonObject<'a>, key: &str) -> Option<&'a str> {
    if let Some(value) = object.raw(key) {
        return Some(value.get());
    }
    let (outer, inner) = key.split_once('.')?;
    nested_text(&object.get(outer)?, inner)
}

/// The keys that a formula used, with their values.
pub(crate) type UsedKeys = BTreeMap<&'static str, u64>;

/// A list of texts with its key.
pub(crate) type KeyedTexts = (&'static str, Vec<String>);

/// The JSON texts of keys.
type KeyTexts<'a> = Box<dyn Fn(&str) -> Option<&'a str> + 'a>;

/// The values of names for one layer of a model.
pub(crate) struct ModelNames<'a> {
    pub(crate) definitions: Definitions,
    /// The formulas of the configuration class for missing keys.
    pub(crate) of_class: Definitions,
    keys: KeyTexts<'a>,
    /// The values that were looked up, because a configuration may have many keys.
    values: RefCell<HashMap<&'static str, Rc<Value>>>,
    /// The keys that formulas have used, with their values for the current layer.
    used: RefCell<UsedKeys>,
    pub(crate) layer: Cell<u64>,
    /// Numbers that are not part of the configuration, by name.
    pub(crate) given: Vec<(&'static str, u64)>,
    /// The number of definitions that are being evaluated.
    depth: Cell<u32>,
}

impl<'a> ModelNames<'a> {
    pub(crate) fn new(
        definitions: Definitions,
        keys: impl Fn(&str) -> Option<&'a str> + 'a,
    ) -> Self {
        let (of_class, values, used, layer, given, depth) = Default::default();
        Self { definitions, of_class, keys: Box::new(keys), values, used, layer, given, depth }
    }

    /// Returns whether a key is missing, so that its value is the default of a model class.
    pub(crate) fn is_default(&self, key: &str) -> bool {
        let is_number = |formula: &str| {
            formula.rsplit('|').next().is_some_and(|last| last.parse::<u64>().is_ok())
        };
        let defaults = [self.definitions.get(key), self.of_class.get(key)];
        defaults.into_iter().flatten().any(is_number) && (self.keys)(key).is_none()
    }

    /// Returns the JSON text of a key.
    pub(crate) fn text(&self, key: &str) -> &'a str {
        (self.keys)(key).unwrap_or("missing")
    }

    /// Returns a key that changes the model in a way that no formula covers.
    pub(crate) fn unsupported(&self) -> Option<&'static str> {
        self.first_present(self.definitions.get("unsupported")?)
    }

    /// Evaluates the definition of a name, if it has one.
    pub(crate) fn defined(&self, name: &str) -> Option<Number> {
        self.definitions.get(name).map(|formula| self.evaluate(formula))
    }

    /// Evaluates a formula. With `null` for two keys, each could be derived from the other.
    fn evaluate(&self, formula: &'static str) -> Number {
        const MAX_DEPTH: u32 = 16;

        let depth = self.depth.get();
        if depth == MAX_DEPTH {
            return Err(FormulaError::InvalidResult { formula });
        }
        self.depth.set(depth + 1);
        let value = evaluate(formula, self);
        self.depth.set(depth);
        value
    }

    /// Returns the first of several keys that has a value other than `null` and the empty list.
    fn first_present(&self, keys: &'static str) -> Option<&'static str> {
        keys.split('|').find(|key| self.value(key).is_present())
    }

    /// Returns a list of texts, or the letters of a text, from the first of the keys that is present.
    pub(crate) fn texts(&self, keys: &'static str) -> FormulaResult<Option<KeyedTexts>> {
        let Some(key) = self.first_present(keys) else { return Ok(None) };
        match &*self.value(key) {
            Value::Texts(texts) => Ok(Some((key, texts.clone()))),
            _ => Err(FormulaError::InvalidKey { key }),
        }
    }

    /// Evaluates a formula, and returns the keys that it used.
    pub(crate) fn trace(&self, formula: &'static str) -> FormulaResult<(u64, UsedKeys)> {
        self.used.take();
        let value = evaluate(formula, self)?;
        Ok((value, self.used.take()))
    }

    /// Returns the entry of a list for the current layer.
    fn of_layer<'v, T>(&self, key: &'static str, list: &'v [T]) -> FormulaResult<&'v T> {
        let entry = usize::try_from(self.layer.get()).ok().and_then(|layer| list.get(layer));
        entry.ok_or(FormulaError::WrongLength { key })
    }

    /// Returns the number of a key for the current layer.
    fn number_of_key(&self, name: &'static str) -> Number {
        let missing = FormulaError::MissingKey { key: name };
        match &*self.value(name) {
            Value::Number(number) => Ok(*number),
            Value::Numbers(numbers) if !numbers.is_empty() => self.of_layer(name, numbers).copied(),
            // An empty list selects the default, like a missing key.
            Value::Missing | Value::Numbers(_) => {
                // What the class computes for a missing key is more specific than the table of all architectures.
                let of_class = self.of_class.get(name).map(|formula| self.evaluate(formula));
                let of_class = of_class.filter(Result::is_ok).or_else(|| self.defined(name));
                of_class.ok_or(missing)?
            }
            // A model class derives the value from other keys, so a number in the table, which is the default of a missing
            // key, does not apply.
            Value::Null => {
                let is_formula = |formula: &&str| formula.parse::<u64>().is_err();
                let root = || Definitions::find("cache", "root")?.get(name);
                let formula = self.definitions.get(name).filter(is_formula).or_else(root);
                self.evaluate(formula.ok_or(missing)?)
            }
            // A kind of layer stands for a number, as in `:linear_attention=1`.
            Value::Texts(texts) => {
                let text = self.of_layer(name, texts)?;
                let number = self.definitions.get(&format!(":{text}"));
                let number = number.and_then(|number| number.parse().ok());
                number.ok_or(FormulaError::InvalidKey { key: name })
            }
            Value::Object(_) | Value::Invalid => Err(FormulaError::InvalidKey { key: name }),
        }
    }

    /// Returns the number that a name stands for.
    fn number(&self, name: &'static str) -> Number {
        if name == "layer" {
            return Ok(self.layer.get());
        }
        if let Some((_, number)) = self.given.iter().find(|(given, _)| *given == name) {
            return Ok(*number);
        }
        // The table defines names with `$`. They are not keys of a configuration, so no finding mentions them.
        if name.starts_with('$') {
            return self.defined(name).ok_or(FormulaError::MissingKey { key: name })?;
        }
        let number = self.number_of_key(name)?;
        self.used.borrow_mut().insert(name, number);
        Ok(number)
    }

    /// Returns the value of a key.
    fn value(&self, key: &'static str) -> Rc<Value> {
        let find = || Rc::new((self.keys)(key).map_or(Value::Missing, Value::from_json));
        self.values.borrow_mut().entry(key).or_insert_with(find).clone()
    }
}

/// The value of a key.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Missing,
    /// An explicit `null`. Model classes then derive the value, instead of using their default.
    Null,
    Number(u64),
    /// One value per layer, or a list of layers.
    Numbers(Vec<u64>),
    Texts(Vec<String>),
    /// An object with a number of entries.
    Object(u64),
    Invalid,
}

impl Value {
    /// The maximum length of a list or a text. Lists have an entry per layer, and models have at most a few hundred.
    const MAX_LENGTH: usize = 4_096;
    /// The maximum length of the JSON text, in bytes: 32 for each entry of the longest list.
    const MAX_BYTES: usize = 1 << 17;

    /// Parses a value. Lists and objects that are too long are invalid.
    pub(crate) fn from_json(text: &str) -> Self {
        // Configurations of Mamba-2 models state `"auto"`.
        if ["null", r#""auto""#].contains(&text) {
            return Self::Null;
        }
        let text = Some(text).filter(|text| text.len() <= Self::MAX_BYTES);
        let value = text.and_then(|text| serde_json::from_str(text).ok()).and_then(Self::parse);
        value.unwrap_or(Self::Invalid)
    }

    fn parse(value: &RawValue) -> Option<Self> {
        let is_short = |length: usize| length <= Self::MAX_LENGTH;
        if let Some(list) = read::<Vec<&RawValue>>(value) {
            let list = Some(list).filter(|list| is_short(list.len()))?;
            let numbers: Option<_> = list.iter().map(|value| whole(value)).collect();
            let texts = || list.iter().map(|value| read(value)).collect::<Option<_>>();
            return numbers.map(Self::Numbers).or_else(|| texts().map(Self::Texts));
        }
        let object =
            || read::<JsonObject<'_>>(value).map(|object| Self::Object(object.len() as u64));
        let text = || read::<String>(value).filter(|text| is_short(text.len()));
        let letters = || Some(Self::Texts(text()?.chars().map(String::from).collect()));
        whole(value).map(Self::Number).or_else(letters).or_else(object)
    }

    /// Returns whether the key has a value other than `null` and the empty list, which select the default.
    fn is_present(&self) -> bool {
        match self {
            Self::Missing | Self::Null => false,
            Self::Numbers(numbers) => !numbers.is_empty(),
            _ => true,
        }
    }
}

/// Reads a whole number, or 1 for `true` and 0 for `false`.
fn whole(value: &RawValue) -> Option<u64> {
    number(value).or_else(|| read::<bool>(value).map(u64::from))
}

/// The reason why a formula has no value.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "code", rename_all = "camelCase")]
#[non_exhaustive]
pub enum FormulaError {
    /// A key is missing, and the model class has no default for it.
    #[error("`{key}` is missing")]
    MissingKey {
        /// The name of the key.
        key: &'static str,
    },
    /// The value of a key is negative, too small, unknown, or of an unexpected type.
    #[error("the value of `{key}` is invalid")]
    InvalidKey {
        /// The name of the key.
        key: &'static str,
    },
    /// A list is shorter than the number of layers.
    #[error("the list `{key}` has fewer entries than the model has layers")]
    WrongLength {
        /// The name of the key.
        key: &'static str,
    },
    /// The result overflows, divides by zero, or is negative.
    #[error("the result of `{formula}` is out of range")]
    InvalidResult {
        /// The formula.
        formula: &'static str,
    },
}

pub(crate) type FormulaResult<T> = Result<T, FormulaError>;

type Number = FormulaResult<u64>;

/// An operation, with `None` for a result that is out of range.
type Operation = fn(u64, u64) -> Option<u64>;

/// The operations by precedence, the lowest first.
const OPERATIONS: [&[(&str, Operation)]; 3] = [
    &[
        ("==", |left, right| Some(u64::from(left == right))),
        (">=", |left, right| Some(u64::from(left >= right))),
        ("<", |left, right| Some(u64::from(left < right))),
    ],
    &[("+", u64::checked_add), ("-", u64::checked_sub)],
    &[("*", u64::checked_mul), ("/", u64::checked_div), ("%", u64::checked_rem)],
];

/// Evaluates a formula. What follows a formula in a text is ignored.
///
/// # Errors
///
/// Returns an error if a key is missing or invalid, or if the result is negative or overflows.
fn evaluate(formula: &'static str, names: &ModelNames<'_>) -> Number {
    Evaluator { formula, rest: formula, names }.choice()
}

/// Evaluates a formula while parsing it. All alternatives are evaluated, so that a trace has the keys of each.
struct Evaluator<'a, 'm> {
    formula: &'static str,
    rest: &'static str,
    names: &'a ModelNames<'m>,
}

impl Evaluator<'_, '_> {
    fn take(&mut self, symbol: &str) -> bool {
        let rest = self.rest.strip_prefix(symbol);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes the text up to a character that ends it.
    fn take_until(&mut self, is_end: impl Fn(char) -> bool) -> &'static str {
        let (text, rest) = self.rest.split_at(self.rest.find(is_end).unwrap_or(self.rest.len()));
        self.rest = rest;
        text
    }

    fn choice(&mut self) -> Number {
        let condition = self.fallback();
        if !self.take("?") {
            return condition;
        }
        // Both branches are evaluated, because the parser has to pass them. An error of the other branch is dropped.
        let first = self.choice();
        self.take(":");
        let second = self.choice();
        if condition? == 0 { second } else { first }
    }

    fn fallback(&mut self) -> Number {
        let mut value = self.operations(0);
        while self.take("|") {
            let other = self.operations(0);
            // A key that is present and invalid is an error of the configuration, and no reason for a fallback.
            if matches!(value, Err(FormulaError::MissingKey { .. })) {
                value = other;
            }
        }
        value
    }

    /// Evaluates operations of this precedence or a higher one, from left to right.
    fn operations(&mut self, precedence: usize) -> Number {
        let Some(operations) = OPERATIONS.get(precedence) else { return self.atom() };
        let mut value = self.operations(precedence + 1);
        while let Some((_, apply)) = operations.iter().find(|(symbol, _)| self.take(symbol)) {
            let right = self.operations(precedence + 1);
            let invalid = FormulaError::InvalidResult { formula: self.formula };
            value = value.and_then(|left| apply(left, right?).ok_or(invalid));
        }
        value
    }

    fn atom(&mut self) -> Number {
        if self.take("(") {
            let value = self.choice();
            self.take(")");
            return value;
        }
        let is_name = |char: char| char.is_ascii_alphanumeric() || "_.$".contains(char);
        // Keys of GGUF files contain dots and numbers, so a dot is a part of a name.
        let name = self.take_until(|char| !is_name(char));
        if self.take("@") {
            let is_from_end = self.take("-");
            let place = self.atom();
            return self.entry(name, place, is_from_end);
        }
        if !self.take("(") {
            return name.parse().or_else(|_| self.names.number(name));
        }
        let value = self.call(name);
        self.take(")");
        value
    }

    /// Returns the entry of a list at a place. A list that is too short is like a missing one.
    fn entry(&self, key: &'static str, place: Number, is_from_end: bool) -> Number {
        let place = place.ok().and_then(|place| usize::try_from(place).ok());
        let at = |list: &[u64], place: usize| {
            let place = if is_from_end { list.len().checked_sub(place)? } else { place };
            list.get(place).copied()
        };
        let entry = match &*self.names.value(key) {
            Value::Numbers(list) => place.and_then(|place| at(list, place)),
            _ => None,
        };
        let entry = entry.ok_or(FormulaError::MissingKey { key })?;
        self.names.used.borrow_mut().insert(key, entry);
        Ok(entry)
    }

    fn call(&mut self, function: &'static str) -> Number {
        if function == "min" {
            let first = self.choice();
            self.take(",");
            let second = self.choice();
            return Ok(first?.min(second?));
        }
        let key = self.take_until(|char| ",)".contains(char));
        self.take(",");
        let number = if function == "in" { self.choice()? } else { 0 };
        let text = self.take_until(|char| char == ')');
        match (function, &*self.names.value(key)) {
            ("has", value) => Ok(u64::from(value.is_present())),
            ("in", Value::Numbers(list)) => Ok(u64::from(list.contains(&number))),
            ("count", Value::Texts(list)) => {
                Ok(list.iter().filter(|other| *other == text).count() as u64)
            }
            ("len", Value::Numbers(list)) => Ok(list.len() as u64),
            ("len", Value::Texts(list)) => Ok(list.len() as u64),
            ("sum", Value::Numbers(list)) if !list.is_empty() => {
                let sum = list.iter().try_fold(0_u64, |sum, number| sum.checked_add(*number));
                sum.ok_or(FormulaError::InvalidResult { formula: self.formula })
            }
            ("len", Value::Object(entries)) => Ok(*entries),
            ("is", Value::Texts(list)) => Ok(u64::from(list.concat() == text)),
            ("starts", Value::Texts(list)) => Ok(u64::from(list.concat().starts_with(text))),
            // One number for all layers has no length. `len(key)|num_hidden_layers` covers both forms.
            ("len", Value::Number(_)) => Err(FormulaError::MissingKey { key }),
            (_, value) if value.is_present() => Err(FormulaError::InvalidKey { key }),
            _ => Err(FormulaError::MissingKey { key }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// A base that does not exist, a word without a value, or a function that does not exist would be ignored.
    #[test]
    fn the_table_has_no_typing_errors() {
        const CALLS: [&str; 14] = [
            "",
            "min",
            "len",
            "in",
            "count",
            "has",
            "window",
            "chunk",
            "compressed",
            "remainder",
            "index",
            "cross",
            "fixed",
            "state",
        ];

        let tables = [include_str!("architectures.txt"), include_str!("vllm.txt")];
        let lines = tables.iter().flat_map(|table| table.lines());
        let mut known = HashSet::new();
        for line in lines.filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let (kind, names) = (words.next().unwrap(), words.next().unwrap());
            if ["keys", "layout", "top_k"].contains(&kind) {
                continue;
            }
            for name in names.split(',') {
                assert!(known.insert((kind, name)), "{kind} {name} is defined twice");
            }
            assert!(["cache", "vllm", "rank"].contains(&kind), "{line}");
            for word in words {
                if let Some(base) = word.strip_prefix('<') {
                    assert!(Definitions::find(kind, base).is_some(), "{names} {word}");
                    continue;
                }
                let (_, formula) = word.split_once('=').unwrap_or_else(|| panic!("{names} {word}"));
                for (before, _) in formula.match_indices('(').map(|(at, _)| formula.split_at(at)) {
                    let name = before.rsplit(|char: char| !char.is_ascii_alphanumeric()).next();
                    assert!(CALLS.contains(&name.unwrap()), "{names} {word}");
                }
                assert_eq!(formula.matches('(').count(), formula.matches(')').count(), "{word}");
            }
        }
    }

    #[test]
    fn a_dot_separates_the_keys_of_nested_objects() {
        let json = r#"{"a":{"b":{"c":1}},"d.e":3}"#;
        let object: JsonObject<'_> = serde_json::from_str(json).unwrap();
        let cases = [("a.b.c", Some("1")), ("a.b.d", None), ("d.e", Some("3")), ("a.b.c.d", None)];
        for (key, expected) in cases {
            assert_eq!(nested_text(&object, key), expected, "{key}");
        }
    }

    #[test]
    fn formulas_are_evaluated() {
        let cases = [
            ("1+two*3-1", Some(6)),
            ("(1+two)*3/two%3", Some(1)),
            ("none|a.seven", Some(7)),
            ("none+1|other|two*two", Some(4)),
            ("none|other", None),
            ("two==2?a.seven:none", Some(7)),
            ("two==3?none:a.seven", Some(7)),
            ("none?1:2", None),
            ("none?1:2|3", None),
            ("(none?1:2)|3", Some(3)),
            ("two>=3?1:two<3", Some(1)),
            ("min(two,a.seven)+min(9,8)", Some(10)),
            ("in(list,5)+10*in(list,2)+len(list)*100", Some(201)),
            ("in(none,1)|5", Some(5)),
            ("in(kinds,1)|5", None),
            ("len(none)|4", Some(4)),
            ("len(empty)+4", Some(4)),
            ("len(kinds)*len(object)", Some(12)),
            ("len(invalid)|1", None),
            ("two*list@1+list@(two-2)", Some(11)),
            ("list@two|9", Some(9)),
            ("two*list@-1+list@-two", Some(11)),
            ("list@-3|list@-(two-2)|9", Some(9)),
            ("list@(1-two)|kinds@0|none@0|8", Some(8)),
            ("sum(list)*10+sum(none)|3", Some(3)),
            ("sum(list)*10", Some(60)),
            ("sum(kinds)|1", None),
            ("count(kinds,a)*10+count(kinds,c)", Some(20)),
            ("count(none,a)|7", Some(7)),
            ("count(list,a)|7", None),
            ("has(list)*100+has(invalid)*10+has(null)+has(none)", Some(110)),
            ("none==two|6", Some(6)),
            ("two==none|6", Some(6)),
            ("is(text,gated-gelu)*10+starts(text,gated-)", Some(11)),
            ("is(text,gated)+starts(text,gelu)", Some(0)),
            ("is(none,gated)|5", Some(5)),
            ("two-3", None),
            ("huge+1", None),
            ("huge*two", None),
            ("two/(two-2)", None),
            ("two%(two-2)|1", None),
        ];
        let names = ModelNames::new(Definitions::default(), |key| {
            Some(match key {
                "two" => "2",
                "a.seven" => "7",
                "huge" => "18446744073709551615",
                "list" => "[1,5]",
                "empty" => "[]",
                "kinds" => r#"["a","b","a"]"#,
                "object" => r#"{"a":1,"b":2,"c":3,"d":4}"#,
                "null" => "null",
                "text" => r#""gated-gelu""#,
                "invalid" => "-1",
                _ => return None,
            })
        });
        for (formula, expected) in cases {
            assert_eq!(evaluate(formula, &names).ok(), expected, "{formula}");
        }
    }
}
