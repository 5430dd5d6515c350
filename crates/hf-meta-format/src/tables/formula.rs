//! Formulas over the keys of a configuration, such as `num_key_value_heads*(head_dim+v_head_dim)`.
//!
//! A formula is a whole-number expression with `+ - * / %`, `== >= <`, `a|b` (`b` if a key of `a` is missing),
//! `a?b:c` (`b` unless `a` is zero), and these functions:
//!
//! | function | value |
//! |---|---|
//! | `min(a,b)` | the smaller number |
//! | `len(key)` | the length of a list or a text, or the number of entries of an object |
//! | `in(key,a)` | 1 if a list contains a number |
//! | `count(key,text)` | the number of times that a list contains a text |
//! | `has(key)` | 1 if a key is present and not `null` |
//!
//! All formulas come from built-in tables; only the values of the keys come from files.

use std::rc::Rc;

use serde::Serialize;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::base::json_object::{JsonObject, number, read};

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
    /// The maximum length of a list or a text.
    const MAX_LENGTH: usize = 4_096;
    /// The maximum length of the JSON text, in bytes.
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
    pub(super) fn is_present(&self) -> bool {
        match self {
            Self::Missing | Self::Null => false,
            Self::Numbers(numbers) => !numbers.is_empty(),
            _ => true,
        }
    }

    fn contains(&self, key: &'static str, number: u64) -> Number {
        match self {
            Self::Numbers(numbers) => Ok(u64::from(numbers.contains(&number))),
            _ => Err(self.unsuitable(key)),
        }
    }

    fn count(&self, key: &'static str, text: &str) -> Number {
        match self {
            Self::Texts(texts) => Ok(texts.iter().filter(|other| *other == text).count() as u64),
            _ => Err(self.unsuitable(key)),
        }
    }

    fn length(&self, key: &'static str) -> Number {
        match self {
            Self::Numbers(numbers) if self.is_present() => Ok(numbers.len() as u64),
            Self::Texts(texts) => Ok(texts.len() as u64),
            Self::Object(entries) => Ok(*entries),
            Self::Number(_) => Err(FormulaError::MissingKey { key }),
            _ => Err(self.unsuitable(key)),
        }
    }

    /// Returns the error for a value that a function does not accept.
    fn unsuitable(&self, key: &'static str) -> FormulaError {
        if self.is_present() {
            FormulaError::InvalidKey { key }
        } else {
            FormulaError::MissingKey { key }
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

type Number = Result<u64, FormulaError>;

/// An operation, with `None` for a result that is out of range.
type Operation = fn(u64, u64) -> Option<u64>;

/// The values of the names in a formula.
pub(crate) trait FormulaInputs {
    /// Returns the number that a name stands for.
    fn number(&self, name: &'static str) -> Number;

    /// Returns the value of a key.
    fn value(&self, key: &'static str) -> Rc<Value>;
}

/// Evaluates a formula. What follows a formula in a text is ignored.
///
/// # Errors
///
/// Returns an error if a key is missing or invalid, or if the result is negative or overflows.
pub(crate) fn evaluate(formula: &'static str, inputs: &dyn FormulaInputs) -> Number {
    Evaluator { formula, rest: formula, inputs }.choice()
}

/// Evaluates a formula while parsing it. All alternatives are evaluated, so that a trace has the keys of each.
struct Evaluator<'a> {
    formula: &'static str,
    rest: &'static str,
    inputs: &'a dyn FormulaInputs,
}

impl Evaluator<'_> {
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
        let first = self.choice();
        self.take(":");
        let second = self.choice();
        if condition? == 0 { second } else { first }
    }

    fn fallback(&mut self) -> Number {
        let mut value = self.comparison();
        while self.take("|") {
            let other = self.comparison();
            if matches!(value, Err(FormulaError::MissingKey { .. })) {
                value = other;
            }
        }
        value
    }

    fn comparison(&mut self) -> Number {
        const COMPARISONS: [(&str, Operation); 3] = [
            ("==", |left, right| Some(u64::from(left == right))),
            (">=", |left, right| Some(u64::from(left >= right))),
            ("<", |left, right| Some(u64::from(left < right))),
        ];
        self.operations(Self::sum, &COMPARISONS)
    }

    fn sum(&mut self) -> Number {
        self.operations(Self::product, &[("+", u64::checked_add), ("-", u64::checked_sub)])
    }

    fn product(&mut self) -> Number {
        const PRODUCTS: [(&str, Operation); 3] =
            [("*", u64::checked_mul), ("/", u64::checked_div), ("%", u64::checked_rem)];
        self.operations(Self::atom, &PRODUCTS)
    }

    /// Evaluates operations of equal precedence, from left to right.
    fn operations(
        &mut self,
        operand: fn(&mut Self) -> Number,
        operations: &[(&str, Operation)],
    ) -> Number {
        let mut value = operand(self);
        while let Some((_, apply)) = operations.iter().find(|(symbol, _)| self.take(symbol)) {
            let right = operand(self);
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
        let name = self.take_until(|char| !is_name(char));
        if !self.take("(") {
            return name.parse().or_else(|_| self.inputs.number(name));
        }
        let value = self.call(name);
        self.take(")");
        value
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
        let value = self.inputs.value(key);
        match function {
            "len" => value.length(key),
            "in" => value.contains(key, self.choice()?),
            "count" => value.count(key, self.take_until(|char| char == ')')),
            "has" => Ok(u64::from(value.is_present())),
            _ => Err(FormulaError::MissingKey { key: function }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Letters;

    impl FormulaInputs for Letters {
        fn number(&self, name: &'static str) -> Number {
            match name {
                "two" => Ok(2),
                "a.seven" => Ok(7),
                "huge" => Ok(u64::MAX),
                key => Err(FormulaError::MissingKey { key }),
            }
        }

        fn value(&self, key: &'static str) -> Rc<Value> {
            Rc::new(match key {
                "list" => Value::Numbers(vec![1, 5]),
                "kinds" => Value::Texts(["a", "b", "a"].map(str::to_owned).into()),
                "object" => Value::Object(4),
                "null" => Value::Null,
                "invalid" => Value::Invalid,
                _ => Value::Missing,
            })
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
            ("len(kinds)*len(object)", Some(12)),
            ("len(invalid)|1", None),
            ("count(kinds,a)*10+count(kinds,c)", Some(20)),
            ("count(none,a)|7", Some(7)),
            ("count(list,a)|7", None),
            ("has(list)*100+has(invalid)*10+has(null)+has(none)", Some(110)),
            ("none==two|6", Some(6)),
            ("two==none|6", Some(6)),
            ("two-3", None),
            ("huge+1", None),
            ("huge*two", None),
            ("two/(two-2)", None),
            ("two%(two-2)|1", None),
        ];
        for (formula, expected) in cases {
            assert_eq!(evaluate(formula, &Letters).ok(), expected, "{formula}");
        }
    }
}
