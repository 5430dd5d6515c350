//! The options of a badge: metric, style, theme, logo, label and color.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use hf_meta_format::formats::clip;

/// The appearance of a badge: everything except its message.
///
/// ```
/// use hf_meta_badge::{BadgeOptions, Style};
///
/// let options = BadgeOptions::from_query([("style", "social"), ("color", "no such color")]);
/// assert_eq!(options, BadgeOptions { style: Style::Social, ..BadgeOptions::default() });
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BadgeOptions {
    /// The badge style.
    pub style: Style,
    /// The theme of the page that shows the badge.
    pub theme: Theme,
    /// The logo to the left of the label.
    pub logo: Logo,
    /// A custom label. If it is empty, the badge shows only its message.
    pub label: Option<String>,
    /// A background color for the message. Ignored by placeholders and the style `social`.
    pub color: Option<Color>,
}

impl BadgeOptions {
    /// Parses the query parameters `style`, `theme`, `logo`, `label` and `color`.
    ///
    /// Unknown parameters are ignored, and invalid values are replaced by defaults, because every query must produce
    /// an image.
    pub fn from_query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut options = Self::default();
        for (name, value) in pairs {
            match name {
                "style" => options.style = value.parse().unwrap_or_default(),
                "theme" => options.theme = value.parse().unwrap_or_default(),
                "logo" => options.logo = value.parse().unwrap_or_default(),
                "label" => options.label = Some(value.to_owned()),
                "color" => options.color = value.parse().ok(),
                _ => {}
            }
        }
        options
    }
}

/// The error returned when a text is not the name of a choice or a color.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` is not {expected}")]
#[non_exhaustive]
pub struct UnknownChoice {
    /// The input, truncated to 200 characters.
    pub text: String,
    /// The expected choice as a noun phrase, such as `a badge style`.
    pub expected: &'static str,
}

/// Defines an enum whose variants have names in queries and on the command line.
macro_rules! choice {
    (
        $expected:literal
        $(#[$doc:meta])+
        $type:ident { $($(#[$variant_doc:meta])+ $variant:ident = $name:literal,)+ }
    ) => {
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $type {
            $($(#[$variant_doc])+ $variant,)+
        }

        impl $type {
            /// All variants, starting with the default.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The names of all variants, in the order of [`Self::ALL`].
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// Returns the name used in URL queries and on the command line.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl FromStr for $type {
            type Err = UnknownChoice;

            fn from_str(text: &str) -> Result<Self, UnknownChoice> {
                let known = Self::ALL.iter().find(|choice| choice.as_str() == text);
                let unknown = || UnknownChoice { text: clip(text), expected: $expected };
                known.copied().ok_or_else(unknown)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

choice! {
    "a badge metric"
    /// The property of a checkpoint that a badge shows.
    Metric {
        /// The number of parameters, followed by the active parameters of a mixture of experts:
        /// `params | 1.03T (A32B)`.
        #[default]
        Params = "params",
        /// The number of active parameters per token in a mixture of experts: `active | 32B`.
        Active = "active",
        /// The total size of the tensors: `size | 352 GB`.
        Bytes = "bytes",
        /// The dtype with the most parameters, and their number: `BF16 | 176B`.
        Dtype = "dtype",
        /// The number of tensors: `tensors | 845`.
        Tensors = "tensors",
        /// The number of weight files: `shards | 72`.
        Shards = "shards",
        /// The memory of the weights and of the cache at a context length: `memory | 17.8 GB at 32k`.
        Memory = "memory",
    }
}

impl Metric {
    /// Returns the default label for this metric.
    pub fn label(self) -> &'static str {
        match self {
            Self::Bytes => "size",
            other => other.as_str(),
        }
    }
}

choice! {
    "a badge style"
    /// A badge style, with the same name as on shields.io.
    Style {
        /// Rounded corners, subtle gradient.
        #[default]
        Flat = "flat",
        /// Square corners, no gradient.
        FlatSquare = "flat-square",
        /// Rounded corners, glossy gradient.
        Plastic = "plastic",
        /// Tall, with widely spaced capital letters.
        ForTheBadge = "for-the-badge",
        /// A button with a speech bubble on its right.
        Social = "social",
    }
}

choice! {
    "a badge theme"
    /// The background that a badge's colors are chosen for.
    Theme {
        /// A light page; uses the colors of shields.io.
        #[default]
        Light = "light",
        /// A dark page.
        Dark = "dark",
        /// The viewer's preferred color scheme. Most browsers use the scheme of the surrounding page, some the
        /// preference of the operating system.
        Auto = "auto",
    }
}

choice! {
    "a badge logo"
    /// An optional logo to the left of the label.
    Logo {
        /// No logo.
        #[default]
        None = "none",
        /// A face with open hands. SVG badges use this project's own drawing; JSON badges refer to the logo
        /// `huggingface` on shields.io.
        HuggingFace = "huggingface",
    }
}

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

/// The texts that [`Color`] parses, for messages.
const A_COLOR: &str = "a color; use a shields.io color name, or three or six hexadecimal digits";

/// An opaque color, such as `blue`, `fc3` or `#007ec6`.
///
/// The `Display` output is six hexadecimal digits without a `#`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Color([u8; 3]);

impl Color {
    /// The default background color of a message.
    pub const BLUE: Self = Self([0x00, 0x7e, 0xc6]);
    /// The background color of a label.
    pub const GRAY: Self = Self([0x55, 0x55, 0x55]);
    /// The background color of a placeholder.
    pub const LIGHT_GRAY: Self = Self([0x93, 0x93, 0x93]);
    /// The background color of a label on a dark page.
    pub(crate) const DARK_GRAY: Self = Self([0x30, 0x36, 0x3d]);
}

impl FromStr for Color {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        let name = text.to_ascii_lowercase();
        let named = NAMED.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let value = named.or_else(|| digits(name.strip_prefix('#').unwrap_or(&name)));
        value.map(Self).ok_or_else(|| UnknownChoice { text: clip(text), expected: A_COLOR })
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
    fn every_name_parses_to_its_variant() {
        assert!(Style::ALL.iter().all(|style| style.as_str().parse() == Ok(*style)));
        assert!(Metric::ALL.iter().all(|metric| metric.to_string().parse() == Ok(*metric)));
        let shields = |style: &Style| style.as_str().parse::<shields::BadgeStyle>().is_ok();
        assert!(Style::ALL.iter().all(shields), "shields.io has the same names");
        assert_eq!((Style::default(), Metric::default()), (Style::ALL[0], Metric::ALL[0]));
        assert_eq!(
            "Flat".parse::<Style>().map_err(|error| error.to_string()),
            Err("`Flat` is not a badge style".to_owned())
        );
    }

    #[test]
    fn colors_are_parsed_from_names_and_digits() {
        let cases = [
            ("blue", Some(Color::BLUE)),
            ("Blue", Some(Color::BLUE)),
            ("007ec6", Some(Color::BLUE)),
            ("#007EC6", Some(Color::BLUE)),
            ("inactive", Some(Color::LIGHT_GRAY)),
            ("fc3", Some(Color([0xff, 0xcc, 0x33]))),
            ("#555", Some(Color::GRAY)),
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

    #[test]
    fn unknown_parameters_and_invalid_values_change_nothing() {
        let asked = [
            ("style", "social"),
            ("theme", "dark"),
            ("logo", "huggingface"),
            ("label", "p"),
            ("color", "red"),
            ("v", "2"),
        ];
        let options = BadgeOptions {
            style: Style::Social,
            theme: Theme::Dark,
            logo: Logo::HuggingFace,
            label: Some("p".to_owned()),
            color: "red".parse().ok(),
        };
        assert_eq!(BadgeOptions::from_query(asked), options);
        let wrong = asked.map(|(name, _)| (name, "\0"));
        assert_eq!(
            BadgeOptions::from_query(wrong.into_iter().filter(|(name, _)| *name != "label")),
            BadgeOptions::default()
        );
    }
}
