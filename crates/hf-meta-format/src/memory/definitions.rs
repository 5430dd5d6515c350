//! The names in formulas: keys of a configuration, and the built-in definitions for each architecture.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::value::RawValue;

use super::CacheError;
use super::formula::{FormulaInputs, evaluate};
use crate::base::json_object::{JsonObject, number, read};

/// The value of a formula, and the keys that it used with their values.
type EvaluatedFormula = (u64, Vec<(&'static str, u64)>);

/// The definitions by name of the architecture.
///
/// A line is `names < base name=value …`. A definition of the base applies if the line has none.
static ARCHITECTURES: LazyLock<HashMap<&'static str, Definitions>> =
    LazyLock::new(|| parse(include_str!("architectures.txt")));

/// Parses a table of definitions.
pub(crate) fn parse(table: &'static str) -> HashMap<&'static str, Definitions> {
    let mut architectures = HashMap::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_ascii_whitespace();
        let names = words.next().unwrap_or_default();
        let base = words.next().and_then(|base| base.strip_prefix('<'));
        let entries: HashMap<_, _> = words.filter_map(|word| word.split_once('=')).collect();
        for name in names.split(',') {
            architectures.insert(name, Definitions { base, entries: entries.clone() });
        }
    }
    architectures
}

/// The line on which all others are based.
const ROOT: &str = "root";

/// The definitions of an architecture.
#[derive(Debug)]
pub(crate) struct Definitions {
    base: Option<&'static str>,
    entries: HashMap<&'static str, &'static str>,
}

impl Definitions {
    /// Returns the definitions of an architecture; `None` if it is unknown.
    pub(crate) fn find(architecture: &str) -> Option<&'static Self> {
        ARCHITECTURES.get(architecture)
    }

    /// Returns the definitions of an architecture without rules for a cache.
    pub(crate) fn root() -> Option<&'static Self> {
        Self::find(ROOT)
    }

    /// Returns the definitions of the line itself, and the name of its base.
    pub(crate) fn own(&self) -> (&HashMap<&'static str, &'static str>, Option<&'static str>) {
        (&self.entries, self.base)
    }

    /// Returns the definition of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&'static str> {
        let inherited = || Self::find(self.base?)?.get(name);
        self.entries.get(name).copied().or_else(inherited)
    }
}

/// The value of a key.
#[derive(Clone, Debug)]
enum Value {
    Missing,
    /// An explicit `null`. Model classes then derive the value, instead of using their default.
    Null,
    Number(u64),
    /// One value per layer, or a list of layers.
    Numbers(Vec<u64>),
    Texts(Vec<String>),
    Invalid,
}

impl Value {
    /// The maximum length of a list.
    const MAX_LENGTH: usize = 4_096;

    fn from_json(value: Option<&RawValue>) -> Self {
        let Some(value) = value else { return Self::Missing };
        let whole = |value: &RawValue| number(value).or_else(|| read::<bool>(value).map(u64::from));
        match value.get() {
            // Configurations of Mamba-2 models state `"auto"`.
            "null" | r#""auto""# => Self::Null,
            text if text.starts_with('[') => match read::<Vec<&RawValue>>(value) {
                Some(list) if list.len() <= Self::MAX_LENGTH => {
                    let numbers = list.iter().map(|value| whole(value)).collect();
                    let texts = || list.iter().map(|value| read(value)).collect::<Option<_>>();
                    let numbers = Option::map(numbers, Self::Numbers);
                    numbers.or_else(|| texts().map(Self::Texts)).unwrap_or(Self::Invalid)
                }
                _ => Self::Invalid,
            },
            _ => match (whole(value), read::<String>(value)) {
                (Some(number), _) => Self::Number(number),
                (None, Some(text)) if text.len() <= Self::MAX_LENGTH => {
                    Self::Texts(text.chars().map(String::from).collect())
                }
                _ => Self::Invalid,
            },
        }
    }
}

/// The values of names for one layer of a model.
pub(crate) struct ModelNames<'a> {
    pub(super) definitions: &'static Definitions,
    config: &'a JsonObject<'a>,
    /// The values that were looked up, because a configuration may have many keys.
    values: RefCell<HashMap<&'static str, Value>>,
    /// The keys that formulas have used, with their values for the current layer.
    used: RefCell<Vec<(&'static str, u64)>>,
    pub(crate) layer: u64,
    /// The number of definitions that are being evaluated.
    depth: Cell<u32>,
}

impl<'a> ModelNames<'a> {
    pub(crate) fn new(definitions: &'static Definitions, config: &'a JsonObject<'a>) -> Self {
        let (values, used) = Default::default();
        Self { definitions, config, values, used, layer: 0, depth: Cell::new(0) }
    }

    /// Returns the value of a key; a dot separates the keys of nested objects.
    fn value(&self, key: &'static str) -> Value {
        let find = || {
            let Some((outer, inner)) = key.rsplit_once('.') else { return self.config.raw(key) };
            let mut object = None::<JsonObject<'a>>;
            for key in outer.split('.') {
                object = Some(object.as_ref().unwrap_or(self.config).get(key)?);
            }
            object?.raw(inner)
        };
        let mut values = self.values.borrow_mut();
        values.entry(key).or_insert_with(|| Value::from_json(find())).clone()
    }

    /// Returns whether a key is missing, so that its value is the default of a model class.
    pub(crate) fn is_default(&self, key: &str) -> bool {
        let default = self.definitions.get(key).is_some_and(|value| value.parse::<u64>().is_ok());
        default && self.config.raw(key).is_none()
    }

    /// Returns the JSON text of a key.
    pub(crate) fn text(&self, key: &str) -> &'a str {
        self.config.raw(key).map_or("missing", RawValue::get)
    }

    /// Returns whether a key has a value other than `null` and the empty list.
    pub(super) fn has(&self, key: &'static str) -> bool {
        !matches!(self.value(key), Value::Missing | Value::Null) && !self.is_empty(key)
    }

    /// Returns whether a key has an empty list, which selects the default of a value.
    fn is_empty(&self, key: &'static str) -> bool {
        matches!(self.value(key), Value::Numbers(numbers) if numbers.is_empty())
    }

    /// Evaluates the definition of a name, if it has one.
    pub(crate) fn defined(&self, name: &str) -> Option<Result<u64, CacheError>> {
        self.definitions.get(name).map(|formula| self.evaluate(formula))
    }

    /// Evaluates a definition. With `null` for two keys, each could be derived from the other.
    fn evaluate(&self, formula: &'static str) -> Result<u64, CacheError> {
        const MAX_DEPTH: u32 = 16;

        if self.depth.get() == MAX_DEPTH {
            return Err(CacheError::InvalidResult { formula });
        }
        self.depth.set(self.depth.get() + 1);
        let value = evaluate(formula, self);
        self.depth.set(self.depth.get() - 1);
        value
    }

    /// Returns a list of texts, or the letters of a text, from the first of the keys that is present.
    pub(super) fn texts(
        &self,
        keys: &'static str,
    ) -> Result<Option<(&'static str, Vec<String>)>, CacheError> {
        let Some(key) = keys.split('|').find(|key| self.has(key)) else { return Ok(None) };
        match self.value(key) {
            Value::Texts(texts) => Ok(Some((key, texts))),
            _ => Err(CacheError::InvalidKey { key }),
        }
    }

    /// Evaluates a formula, and returns the keys that it used.
    pub(crate) fn trace(&self, formula: &'static str) -> Result<EvaluatedFormula, CacheError> {
        self.used.borrow_mut().clear();
        let value = evaluate(formula, self)?;
        let mut used = self.used.take();
        used.sort_unstable();
        used.dedup();
        Ok((value, used))
    }
}

impl FormulaInputs for ModelNames<'_> {
    fn number(&self, name: &'static str) -> Result<u64, CacheError> {
        if name == "layer" {
            return Ok(self.layer);
        }
        let missing = CacheError::MissingKey { key: name };
        let value = if name.starts_with('$') { Value::Missing } else { self.value(name) };
        let number = match value {
            Value::Number(number) => number,
            Value::Numbers(numbers) if !numbers.is_empty() => {
                let number = usize::try_from(self.layer).ok().and_then(|layer| numbers.get(layer));
                *number.ok_or(CacheError::WrongLength { key: name })?
            }
            Value::Missing | Value::Numbers(_) => self.defined(name).ok_or(missing)??,
            Value::Null => {
                let is_formula = |formula: &&str| formula.parse::<u64>().is_err();
                let root = || Definitions::root()?.get(name);
                let formula = self.definitions.get(name).filter(is_formula).or_else(root);
                self.evaluate(formula.ok_or(missing)?)?
            }
            Value::Texts(texts) => {
                let text = usize::try_from(self.layer).ok().and_then(|layer| texts.get(layer));
                let text = text.ok_or(CacheError::WrongLength { key: name })?;
                let number = self.definitions.get(&format!(":{text}"));
                let number = number.and_then(|number| number.parse().ok());
                number.ok_or(CacheError::InvalidKey { key: name })?
            }
            Value::Invalid => return Err(CacheError::InvalidKey { key: name }),
        };
        if !name.starts_with('$') {
            self.used.borrow_mut().push((name, number));
        }
        Ok(number)
    }

    fn contains(&self, list: &'static str, number: u64) -> Result<bool, CacheError> {
        match self.value(list) {
            Value::Numbers(numbers) => Ok(numbers.contains(&number)),
            Value::Missing | Value::Null => Err(CacheError::MissingKey { key: list }),
            _ => Err(CacheError::InvalidKey { key: list }),
        }
    }

    fn length(&self, list: &'static str) -> Result<u64, CacheError> {
        match self.value(list) {
            Value::Numbers(numbers) if !numbers.is_empty() => Ok(numbers.len() as u64),
            Value::Texts(texts) => Ok(texts.len() as u64),
            Value::Number(_) | Value::Numbers(_) | Value::Missing | Value::Null => {
                Err(CacheError::MissingKey { key: list })
            }
            Value::Invalid => Err(CacheError::InvalidKey { key: list }),
        }
    }
}
