//! Bounds the length of text in errors, because names in a file can have any length. Also parses and serializes
//! numbers and names in JSON.

use std::error::Error;

/// The maximum length of file text in an error, in characters.
const MAX_CHARS: usize = 200;

/// Truncates a text for use in an error message.
pub fn clip(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the message of an error followed by those of its causes, separated by colons.
pub fn chain(error: &dyn Error) -> String {
    let errors = std::iter::successors(Some(error), |&error| Some(error.source()? as &dyn Error));
    errors.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Returns the first rule that is violated.
pub fn first_violated(rules: &[(bool, &'static str)]) -> Option<&'static str> {
    rules.iter().find(|(is_violated, _)| *is_violated).map(|(_, rule)| *rule)
}

/// Parses a whole number in JSON, written as `8`, `8.0`, `80e-1` or `"8"`. No float is involved, so none is rounded.
pub fn whole_number(json: &str) -> Option<u64> {
    /// The maximum length of the text in bytes.
    const MAX_LENGTH: usize = 100;

    let text = json.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(json);
    let text = Some(text).filter(|text| text.len() <= MAX_LENGTH)?;
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let (decimal, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() && !digits.is_empty() {
        return Some(0);
    }
    let zeros = i64::try_from(whole.len()).ok()? - i64::try_from(significant.len()).ok()?;
    let scale = u32::try_from(exponent.checked_add(zeros)?).ok()?;
    significant.parse::<u64>().ok()?.checked_mul(10_u64.checked_pow(scale)?)
}

/// Returns whether a text matches a pattern, in which `*` matches any characters and `?` matches one. The time is at most the product of their lengths: only the last `*` before a
/// difference is extended.
pub(crate) fn matches_glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut next) = (0, 0);
    // The position after the last `*`, and the end of the text that it matches.
    let mut star = None;
    while at < text.len() {
        match pattern.get(next) {
            Some(b'*') => {
                star = Some((next + 1, at));
                next += 1;
            }
            // `?` matches one character, whose other bytes follow.
            Some(b'?') => {
                at += 1;
                next += 1;
                while text.get(at).is_some_and(|byte| byte & 0xc0 == 0x80) {
                    at += 1;
                }
            }
            Some(byte) if *byte == text[at] => {
                at += 1;
                next += 1;
            }
            _ => match &mut star {
                Some((after, end)) => {
                    *end += 1;
                    (next, at) = (*after, *end);
                }
                None => return false,
            },
        }
    }
    pattern.get(next..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

/// Implements the conversions of types with `as_str`: `Serialize` as text, and `Deserialize` with the checks of
/// `FromStr`.
macro_rules! text_type {
    ($($type:ty),+) => {$(
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

/// Defines an enum whose values have names.
#[doc(hidden)]
#[macro_export]
macro_rules! named_enum {
    ($(#[$docs:meta])* $vis:vis $type:ident { $($(#[$variant_docs:meta])* $variant:ident $name:literal,)+ }) => {
        $(#[$docs])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        $vis enum $type {
            $($(#[$variant_docs])* $variant,)+
        }

        impl $type {
            /// Returns the name of the value.
            $vis fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub use named_enum;
pub(crate) use text_type;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(clip("h.0.ln_1.weight"), "h.0.ln_1.weight");
        assert_eq!(clip(&"ß".repeat(MAX_CHARS)), "ß".repeat(MAX_CHARS));
        assert_eq!(clip(&"ß".repeat(1_000_000)), format!("{}…", "ß".repeat(MAX_CHARS)));
    }

    #[test]
    fn whole_numbers_are_read_in_every_spelling() {
        let numbers = [
            ("8", Some(8)),
            ("8.0", Some(8)),
            ("\"8\"", Some(8)),
            ("80e-1", Some(8)),
            ("0.8E+1", Some(8)),
            ("0.000e7", Some(0)),
            ("1e18", Some(1_000_000_000_000_000_000)),
            // The last one is not a float.
            ("9007199254740993.0", Some(9_007_199_254_740_993)),
            ("1e20", None),
            ("1e999999999999999999999", None),
            ("8.5", None),
            ("85e-1", None),
            ("-8", None),
            ("-8.0", None),
            ("\"\"", None),
            (".", None),
            ("e1", None),
            ("0ex", None),
            ("0x8", None),
            ("٨", None),
            ("null", None),
        ];
        for (text, number) in numbers {
            assert_eq!(whole_number(text), number, "{text}");
        }
        assert_eq!(whole_number(&format!("8.{}", "0".repeat(1_000_000))), None);
    }

    #[test]
    fn a_chain_has_all_causes() {
        #[derive(Debug, thiserror::Error)]
        enum Failure {
            #[error("outer")]
            Outer(#[source] Box<Failure>),
            #[error("inner")]
            Inner,
        }
        let outer = |cause| Failure::Outer(Box::new(cause));
        assert_eq!(chain(&outer(outer(Failure::Inner))), "outer: outer: inner");
    }
}
