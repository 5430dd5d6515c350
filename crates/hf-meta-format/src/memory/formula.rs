//! Formulas over the keys of a configuration, such as `num_key_value_heads*(head_dim+v_head_dim)`.
//!
//! A formula is a whole-number expression with `+ - * / %`, `== >= <`, `a|b` (`b` if a key of `a` is missing),
//! `a?b:c` (`b` unless `a` is zero), and the functions `min(a,b)`, `in(key,n)` and `len(key)`. All formulas come from
//! the built-in table; only the values of the keys come from files.

use super::CacheError;

/// An operation, with `None` for a result that is out of range.
type Operation = fn(u64, u64) -> Option<u64>;

/// The values of the names in a formula.
pub(super) trait FormulaInputs {
    /// Returns the number that a name stands for.
    fn number(&self, name: &'static str) -> Result<u64, CacheError>;

    /// Returns whether a list contains a number.
    fn contains(&self, list: &'static str, number: u64) -> Result<bool, CacheError>;

    /// Returns the length of a list or a text.
    fn length(&self, list: &'static str) -> Result<u64, CacheError>;
}

/// Evaluates a formula.
///
/// # Errors
///
/// Returns an error if a key is missing or invalid, or if the result is negative or overflows.
pub(super) fn evaluate(
    formula: &'static str,
    names: &impl FormulaInputs,
) -> Result<u64, CacheError> {
    Parser { formula, rest: formula, names }.choice()
}

struct Parser<'a, N> {
    formula: &'static str,
    rest: &'static str,
    names: &'a N,
}

impl<N: FormulaInputs> Parser<'_, N> {
    fn take(&mut self, symbol: &str) -> bool {
        let rest = self.rest.strip_prefix(symbol);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Evaluates both alternatives, because parsing is evaluating, and returns one of them.
    fn choice(&mut self) -> Result<u64, CacheError> {
        let condition = self.fallback();
        if !self.take("?") {
            return condition;
        }
        let first = self.choice();
        self.take(":");
        let second = self.choice();
        if condition? == 0 { second } else { first }
    }

    fn fallback(&mut self) -> Result<u64, CacheError> {
        let mut value = self.comparison();
        while self.take("|") {
            let next = self.comparison();
            if matches!(value, Err(CacheError::MissingKey { .. })) {
                value = next;
            }
        }
        value
    }

    fn comparison(&mut self) -> Result<u64, CacheError> {
        const COMPARISONS: [(&str, Operation); 3] = [
            ("==", |left, right| Some(u64::from(left == right))),
            (">=", |left, right| Some(u64::from(left >= right))),
            ("<", |left, right| Some(u64::from(left < right))),
        ];
        self.operations(Self::sum, &COMPARISONS)
    }

    fn sum(&mut self) -> Result<u64, CacheError> {
        self.operations(Self::product, &[("+", u64::checked_add), ("-", u64::checked_sub)])
    }

    fn product(&mut self) -> Result<u64, CacheError> {
        const PRODUCTS: [(&str, Operation); 3] =
            [("*", u64::checked_mul), ("/", u64::checked_div), ("%", u64::checked_rem)];
        self.operations(Self::atom, &PRODUCTS)
    }

    /// Evaluates operations of equal precedence, from left to right.
    fn operations(
        &mut self,
        operand: fn(&mut Self) -> Result<u64, CacheError>,
        operations: &[(&str, Operation)],
    ) -> Result<u64, CacheError> {
        let formula = self.formula;
        let mut value = operand(self);
        while let Some((_, apply)) = operations.iter().find(|(symbol, _)| self.take(symbol)) {
            let right = operand(self);
            value = value
                .and_then(|left| apply(left, right?).ok_or(CacheError::InvalidResult { formula }));
        }
        value
    }

    fn atom(&mut self) -> Result<u64, CacheError> {
        if self.take("(") {
            let value = self.choice();
            self.take(")");
            return value;
        }
        let is_name = |char: char| char.is_ascii_alphanumeric() || "_.$".contains(char);
        let end = self.rest.find(|char| !is_name(char)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        if !self.take("(") {
            return name.parse().or_else(|_| self.names.number(name));
        }
        let value = match name {
            "min" => {
                let first = self.choice();
                self.take(",");
                let second = self.choice();
                first.and_then(|first| Ok(first.min(second?)))
            }
            list => {
                let end = self.rest.find([',', ')']).unwrap_or(self.rest.len());
                let (key, rest) = self.rest.split_at(end);
                self.rest = rest;
                if list == "len" {
                    self.names.length(key)
                } else {
                    self.take(",");
                    let number = self.choice();
                    number.and_then(|number| Ok(u64::from(self.names.contains(key, number)?)))
                }
            }
        };
        self.take(")");
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Letters;

    impl FormulaInputs for Letters {
        fn number(&self, name: &'static str) -> Result<u64, CacheError> {
            match name {
                "two" => Ok(2),
                "a.seven" => Ok(7),
                "huge" => Ok(u64::MAX),
                key => Err(CacheError::MissingKey { key }),
            }
        }

        fn contains(&self, list: &'static str, number: u64) -> Result<bool, CacheError> {
            self.number(list).map(|last| number < last)
        }

        fn length(&self, list: &'static str) -> Result<u64, CacheError> {
            self.number(list)
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
            ("two>=3?1:two<3", Some(1)),
            ("min(two,a.seven)+min(9,8)", Some(10)),
            ("in(two,1)+10*in(two,2)+len(two)*100", Some(201)),
            ("in(none,1)|5", Some(5)),
            ("len(none)|4", Some(4)),
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
