//! Colors, given as shields.io names or hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use hf_meta::formats::clip;

/// The named colors of shields.io, including aliases, as of version 6.0 of its `badge-maker`.
const NAMED: [(&str, [u8; 3]); 16] = [
    ("brightgreen", [0x44, 0xbb, 0x00]),
    ("green", [0x67, 0xac, 0x09]),
    ("yellow", [0xd8, 0xb8, 0x00]),
    ("yellowgreen", [0x95, 0x99, 0x1a]),
    ("orange", [0xea, 0x72, 0x33]),
    ("red", [0xdd, 0x43, 0x43]),
    ("blue", [0x00, 0x7e, 0xc6]),
    ("grey", [0x55, 0x55, 0x55]),
    ("lightgrey", [0x93, 0x93, 0x93]),
    ("gray", [0x55, 0x55, 0x55]),
    ("lightgray", [0x93, 0x93, 0x93]),
    ("critical", [0xdd, 0x43, 0x43]),
    ("important", [0xea, 0x72, 0x33]),
    ("success", [0x44, 0xbb, 0x00]),
    ("informational", [0x00, 0x7e, 0xc6]),
    ("inactive", [0x93, 0x93, 0x93]),
];

/// An opaque color, such as `blue`, `fc3` or `#007ec6`.
///
/// The `Display` output is six hexadecimal digits without a `#`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Color([u8; 3]);

/// The error returned when parsing a [`Color`] fails.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` is not a color; use a shields.io color name, or three or six hexadecimal digits")]
pub struct ColorError {
    text: String,
}

impl Color {
    /// The default background color of a message.
    pub const BLUE: Self = Self([0x00, 0x7e, 0xc6]);
    /// The background color of a label.
    pub const GREY: Self = Self([0x55, 0x55, 0x55]);
    /// The background color of a placeholder.
    pub const LIGHT_GREY: Self = Self([0x93, 0x93, 0x93]);
    /// The background color of a label on a dark page.
    pub(super) const DARK_GREY: Self = Self([0x30, 0x36, 0x3d]);
}

impl FromStr for Color {
    type Err = ColorError;

    fn from_str(text: &str) -> Result<Self, ColorError> {
        let name = text.to_ascii_lowercase();
        let named = NAMED.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let value = named.or_else(|| digits(name.strip_prefix('#').unwrap_or(&name)));
        value.map(Self).ok_or_else(|| ColorError { text: clip(text) })
    }
}

/// Parses six hexadecimal digits, or three digits that are each doubled.
fn digits(text: &str) -> Option<[u8; 3]> {
    let digit = |at| char::to_digit(char::from(*text.as_bytes().get(at)?), 16);
    let pair = |high, low| u8::try_from((digit(high)? << 4) | digit(low)?).ok();
    match text.len() {
        3 => Some([pair(0, 0)?, pair(1, 1)?, pair(2, 2)?]),
        6 => Some([pair(0, 1)?, pair(2, 3)?, pair(4, 5)?]),
        _ => None,
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.0;
        write!(f, "{red:02x}{green:02x}{blue:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_parsed_from_names_and_digits() {
        let cases = [
            ("blue", Some(Color::BLUE)),
            ("Blue", Some(Color::BLUE)),
            ("007ec6", Some(Color::BLUE)),
            ("#007EC6", Some(Color::BLUE)),
            ("inactive", Some(Color::LIGHT_GREY)),
            ("fc3", Some(Color([0xff, 0xcc, 0x33]))),
            ("#555", Some(Color::GREY)),
            ("", None),
            ("#", None),
            ("##555", None),
            ("+12", None),
            ("12", None),
            ("1234", None),
            ("12345678", None),
            ("blue\"/><script>", None),
            ("rgb(0,0,0)", None),
            ("ßß", None),
        ];
        for (text, color) in cases {
            assert_eq!(text.parse::<Color>().ok(), color, "{text}");
        }
        assert_eq!(Color([0, 0, 0xff]).to_string(), "0000ff");
        assert!("ß".repeat(1_000).parse::<Color>().unwrap_err().to_string().len() < 600);
    }
}
