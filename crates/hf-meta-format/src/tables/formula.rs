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
//! | `null(key)` | 1 if a key is `null`; it must be present |
//!
//! All formulas come from built-in tables; only the values of the keys come from files.

use std::rc::Rc;

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

/// The reason why a formula has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormulaError {
    /// A key is missing, and has no default.
    MissingKey { key: &'static str },
    /// The value of a key is negative or of an unexpected type.
    InvalidKey { key: &'static str },
    /// A list is too short.
    WrongLength { key: &'static str },
    /// The result overflows, divides by zero, or is negative.
    InvalidResult { formula: &'static str },
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

/// A parsed formula.
#[derive(Debug)]
pub(crate) struct Formula {
    text: &'static str,
    term: FormulaTerm,
}

/// A part of a formula.
#[derive(Debug)]
enum FormulaTerm {
    Number(u64),
    Name(&'static str),
    Operation(Operation, Box<[FormulaTerm; 2]>),
    Fallback(Box<[FormulaTerm; 2]>),
    Choice(Box<[FormulaTerm; 3]>),
    Length(&'static str),
    Contains(&'static str, Box<FormulaTerm>),
    Count(&'static str, &'static str),
    IsPresent(&'static str),
    IsNull(&'static str),
}

impl Formula {
    /// Parses a formula. What follows a formula in a text is ignored.
    pub(crate) fn parse(text: &'static str) -> Self {
        Self { text, term: Parser { rest: text }.choice() }
    }

    /// Evaluates the formula.
    ///
    /// # Errors
    ///
    /// Returns an error if a key is missing or invalid, or if the result is negative or overflows.
    pub(crate) fn evaluate(&self, inputs: &impl FormulaInputs) -> Number {
        self.value(&self.term, inputs)
    }

    /// Evaluates all parts of a term, so that a trace has the keys of every alternative.
    fn value(&self, term: &FormulaTerm, inputs: &impl FormulaInputs) -> Number {
        let value = |term| self.value(term, inputs);
        match term {
            FormulaTerm::Number(number) => Ok(*number),
            FormulaTerm::Name(name) => inputs.number(name),
            FormulaTerm::Operation(apply, operands) => {
                let [left, right] = operands.each_ref().map(value);
                let result = apply(left?, right?);
                result.ok_or(FormulaError::InvalidResult { formula: self.text })
            }
            FormulaTerm::Fallback(alternatives) => {
                let [first, second] = alternatives.each_ref().map(value);
                if matches!(first, Err(FormulaError::MissingKey { .. })) { second } else { first }
            }
            FormulaTerm::Choice(terms) => {
                let [condition, first, second] = terms.each_ref().map(value);
                if condition? == 0 { second } else { first }
            }
            FormulaTerm::Length(key) => inputs.value(key).length(key),
            FormulaTerm::Contains(key, number) => inputs.value(key).contains(key, value(number)?),
            FormulaTerm::Count(key, text) => inputs.value(key).count(key, text),
            FormulaTerm::IsPresent(key) => Ok(u64::from(inputs.value(key).is_present())),
            FormulaTerm::IsNull(key) => match &*inputs.value(key) {
                Value::Missing => Err(FormulaError::MissingKey { key }),
                value => Ok(u64::from(matches!(value, Value::Null))),
            },
        }
    }
}

struct Parser {
    rest: &'static str,
}

impl Parser {
    fn take(&mut self, symbol: &str) -> bool {
        let rest = self.rest.strip_prefix(symbol);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes the text up to one of the characters `ends`.
    fn take_until(&mut self, is_end: impl Fn(char) -> bool) -> &'static str {
        let (text, rest) = self.rest.split_at(self.rest.find(is_end).unwrap_or(self.rest.len()));
        self.rest = rest;
        text
    }

    fn choice(&mut self) -> FormulaTerm {
        let condition = self.fallback();
        if !self.take("?") {
            return condition;
        }
        let first = self.choice();
        self.take(":");
        FormulaTerm::Choice(Box::new([condition, first, self.choice()]))
    }

    fn fallback(&mut self) -> FormulaTerm {
        let mut term = self.comparison();
        while self.take("|") {
            term = FormulaTerm::Fallback(Box::new([term, self.comparison()]));
        }
        term
    }

    fn comparison(&mut self) -> FormulaTerm {
        const COMPARISONS: [(&str, Operation); 3] = [
            ("==", |left, right| Some(u64::from(left == right))),
            (">=", |left, right| Some(u64::from(left >= right))),
            ("<", |left, right| Some(u64::from(left < right))),
        ];
        self.operations(Self::sum, &COMPARISONS)
    }

    fn sum(&mut self) -> FormulaTerm {
        self.operations(Self::product, &[("+", u64::checked_add), ("-", u64::checked_sub)])
    }

    fn product(&mut self) -> FormulaTerm {
        const PRODUCTS: [(&str, Operation); 3] =
            [("*", u64::checked_mul), ("/", u64::checked_div), ("%", u64::checked_rem)];
        self.operations(Self::atom, &PRODUCTS)
    }

    /// Parses operations of equal precedence, from left to right.
    fn operations(
        &mut self,
        operand: fn(&mut Self) -> FormulaTerm,
        operations: &[(&str, Operation)],
    ) -> FormulaTerm {
        let mut term = operand(self);
        while let Some((_, apply)) = operations.iter().find(|(symbol, _)| self.take(symbol)) {
            term = FormulaTerm::Operation(*apply, Box::new([term, operand(self)]));
        }
        term
    }

    fn atom(&mut self) -> FormulaTerm {
        if self.take("(") {
            let term = self.choice();
            self.take(")");
            return term;
        }
        // A star is a segment of a name, or a product.
        let is_name = |char: char| char.is_ascii_alphanumeric() || "_.$".contains(char);
        let start = self.rest;
        let mut name = self.take_until(|char| !is_name(char));
        if name.ends_with('.') && self.take("*") {
            let inner = self.take_until(|char| !is_name(char));
            name = &start[..name.len() + 1 + inner.len()];
        }
        if !self.take("(") {
            return name.parse().map_or(FormulaTerm::Name(name), FormulaTerm::Number);
        }
        let term = self.call(name);
        self.take(")");
        term
    }

    fn call(&mut self, function: &str) -> FormulaTerm {
        if function == "min" {
            let first = self.choice();
            self.take(",");
            let smaller = |left: u64, right: u64| Some(left.min(right));
            return FormulaTerm::Operation(smaller, Box::new([first, self.choice()]));
        }
        let key = self.take_until(|char| ",)".contains(char));
        self.take(",");
        match function {
            "len" => FormulaTerm::Length(key),
            "in" => FormulaTerm::Contains(key, Box::new(self.choice())),
            "count" => FormulaTerm::Count(key, self.take_until(|char| char == ')')),
            "has" => FormulaTerm::IsPresent(key),
            "null" => FormulaTerm::IsNull(key),
            _ => FormulaTerm::Name("unknown function"),
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
                "a.*.nine" => Ok(9),
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
            ("a.*.nine*a.seven", Some(63)),
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
            ("null(null)*10+null(list)", Some(10)),
            ("null(none)|3", Some(3)),
            ("none==two|6", Some(6)),
            ("two==none|6", Some(6)),
            ("two-3", None),
            ("huge+1", None),
            ("huge*two", None),
            ("two/(two-2)", None),
            ("two%(two-2)|1", None),
        ];
        for (formula, expected) in cases {
            assert_eq!(Formula::parse(formula).evaluate(&Letters).ok(), expected, "{formula}");
        }
    }
}
