//! The table of architectures, and the values of the names in its formulas.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::{LazyLock, OnceLock};

use super::formula::{FormulaError, FormulaInputs, Value, evaluate};
use crate::base::json_object::JsonObject;

/// The tables that every program contains.
const TABLES: [&str; 2] = [include_str!("architectures.txt"), include_str!("vllm.txt")];

/// The lines of a table without kind and names, by kind and name. They are parsed when they are looked up.
///
/// A line is `kind names <base name=value …`. A definition of the base applies if the line has none.
type Lines = HashMap<(&'static str, &'static str), &'static str>;

static LINES: LazyLock<Lines> = LazyLock::new(|| lines(&TABLES));

/// The lines of the layouts. A program without the feature `layouts` may add them.
static LAYOUTS: OnceLock<Lines> = OnceLock::new();

/// Adds the tables of layouts, which most models do not need, to a program that was built without them.
pub fn add_layouts(tables: String) {
    LAYOUTS.get_or_init(|| lines(&[tables.leak()]));
}

fn layouts() -> Option<&'static Lines> {
    #[cfg(feature = "layouts")]
    LAYOUTS.get_or_init(|| lines(&[include_str!("layouts.txt"), include_str!("gguf_layouts.txt")]));
    LAYOUTS.get()
}

fn lines(tables: &[&'static str]) -> Lines {
    let mut lines = HashMap::new();
    for line in tables.iter().flat_map(|table| table.lines()).filter(|line| !line.starts_with('#'))
    {
        let mut words = line.splitn(3, ' ');
        let [kind, names, rest] = [(); 3].map(|()| words.next().unwrap_or_default());
        lines.extend(names.split(',').map(|name| ((kind, name), rest)));
    }
    lines
}

/// Returns the line of a kind for a name, without both.
pub(crate) fn text_of(kind: &str, name: &str) -> Option<&'static str> {
    let key = (kind, name);
    LINES.get(&key).or_else(|| layouts()?.get(&key)).copied()
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

    /// Returns the definitions of a cache that hold for most architectures.
    pub(crate) fn root() -> Option<Self> {
        Self::find("cache", "root")
    }

    /// Returns the defaults of the keys of an architecture of transformers. GGUF files state all keys.
    pub(crate) fn defaults(architecture: &str) -> Self {
        let is_gguf = architecture.starts_with("gguf:");
        let found = Self::find("cache", architecture).filter(|_| !is_gguf);
        let mut found = found.unwrap_or_default();
        found.entries.retain(|_, value| value.parse::<u64>().is_ok());
        found
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

/// Returns the JSON text of a key. A dot is part of a key of a GGUF file, or separates the keys of nested objects.
fn nested_text<'a>(object: &JsonObject<'a>, key: &str) -> Option<&'a str> {
    if let Some(value) = object.raw(key) {
        return Some(value.get());
    }
    let (outer, inner) = key.split_once('.')?;
    nested_text(&object.get(outer)?, inner)
}

/// The keys that a formula used, with their values.
pub(crate) type UsedKeys = BTreeMap<&'static str, u64>;

/// The JSON texts of keys.
type KeyTexts<'a> = Box<dyn Fn(&str) -> Option<&'a str> + 'a>;

/// The values of names for one layer of a model.
pub(crate) struct ModelNames<'a> {
    pub(crate) definitions: Definitions,
    keys: KeyTexts<'a>,
    /// The values that were looked up, because a configuration may have many keys.
    values: RefCell<HashMap<&'static str, Rc<Value>>>,
    /// The keys that formulas have used, with their values for the current layer.
    used: RefCell<UsedKeys>,
    pub(crate) layer: u64,
    /// Numbers that are not part of the configuration, by name.
    pub(crate) given: Vec<(&'static str, u64)>,
    /// The number of definitions that are being evaluated.
    depth: Cell<u32>,
}

impl<'a> ModelNames<'a> {
    /// Creates the names of a configuration.
    pub(crate) fn of_config(definitions: Definitions, object: &'a JsonObject<'_>) -> Self {
        Self::new(definitions, |key| nested_text(object, key))
    }

    pub(crate) fn of_shared(definitions: Definitions, object: Rc<JsonObject<'a>>) -> Self {
        Self::new(definitions, move |key| nested_text(&object, key))
    }

    pub(crate) fn new(
        definitions: Definitions,
        keys: impl Fn(&str) -> Option<&'a str> + 'a,
    ) -> Self {
        let (values, used, given, depth) = Default::default();
        Self { definitions, keys: Box::new(keys), values, used, layer: 0, given, depth }
    }

    /// Returns whether a key is missing, so that its value is the default of a model class.
    pub(crate) fn is_default(&self, key: &str) -> bool {
        let default = self.definitions.get(key).is_some_and(|value| value.parse::<u64>().is_ok());
        default && (self.keys)(key).is_none()
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
    pub(crate) fn defined(&self, name: &str) -> Option<Result<u64, FormulaError>> {
        self.definitions.get(name).map(|formula| self.evaluate(formula))
    }

    /// Evaluates a formula. With `null` for two keys, each could be derived from the other.
    fn evaluate(&self, formula: &'static str) -> Result<u64, FormulaError> {
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
    pub(crate) fn texts(
        &self,
        keys: &'static str,
    ) -> Result<Option<(&'static str, Vec<String>)>, FormulaError> {
        let Some(key) = self.first_present(keys) else { return Ok(None) };
        match &*self.value(key) {
            Value::Texts(texts) => Ok(Some((key, texts.clone()))),
            _ => Err(FormulaError::InvalidKey { key }),
        }
    }

    /// Evaluates a formula, and returns the keys that it used.
    pub(crate) fn trace(&self, formula: &'static str) -> Result<(u64, UsedKeys), FormulaError> {
        self.used.take();
        let value = evaluate(formula, self)?;
        Ok((value, self.used.take()))
    }

    /// Returns the entry of a list for the current layer.
    fn of_layer<'v, T>(&self, key: &'static str, list: &'v [T]) -> Result<&'v T, FormulaError> {
        let entry = usize::try_from(self.layer).ok().and_then(|layer| list.get(layer));
        entry.ok_or(FormulaError::WrongLength { key })
    }

    /// Returns the number of a key for the current layer.
    fn number_of_key(&self, name: &'static str) -> Result<u64, FormulaError> {
        let missing = FormulaError::MissingKey { key: name };
        match &*self.value(name) {
            Value::Number(number) => Ok(*number),
            Value::Numbers(numbers) if !numbers.is_empty() => self.of_layer(name, numbers).copied(),
            Value::Missing | Value::Numbers(_) => self.defined(name).ok_or(missing)?,
            Value::Null => {
                let is_formula = |formula: &&str| formula.parse::<u64>().is_err();
                let root = || Definitions::root()?.get(name);
                let formula = self.definitions.get(name).filter(is_formula).or_else(root);
                self.evaluate(formula.ok_or(missing)?)
            }
            Value::Texts(texts) => {
                let text = self.of_layer(name, texts)?;
                let number = self.definitions.get(&format!(":{text}"));
                let number = number.and_then(|number| number.parse().ok());
                number.ok_or(FormulaError::InvalidKey { key: name })
            }
            Value::Object(_) | Value::Invalid => Err(FormulaError::InvalidKey { key: name }),
        }
    }
}

impl FormulaInputs for ModelNames<'_> {
    fn number(&self, name: &'static str) -> Result<u64, FormulaError> {
        if name == "layer" {
            return Ok(self.layer);
        }
        if let Some((_, number)) = self.given.iter().find(|(given, _)| *given == name) {
            return Ok(*number);
        }
        if name.starts_with('$') {
            return self.defined(name).ok_or(FormulaError::MissingKey { key: name })?;
        }
        let number = self.number_of_key(name)?;
        self.used.borrow_mut().insert(name, number);
        Ok(number)
    }

    fn value(&self, key: &'static str) -> Rc<Value> {
        let find = || Rc::new((self.keys)(key).map_or(Value::Missing, Value::from_json));
        self.values.borrow_mut().entry(key).or_insert_with(find).clone()
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

        let lines = TABLES.iter().flat_map(|table| table.lines());
        let lines = lines.filter(|line| !line.starts_with('#'));
        let mut known = HashSet::new();
        for line in lines.filter(|line| !line.starts_with("keys ") && !line.starts_with("layout "))
        {
            let mut words = line.split(' ');
            let (kind, names) = (words.next().unwrap(), words.next().unwrap());
            for name in names.split(',') {
                assert!(known.insert((kind, name)), "{kind} {name} is defined twice");
            }
            assert!(["cache", "vllm"].contains(&kind), "{line}");
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
}
