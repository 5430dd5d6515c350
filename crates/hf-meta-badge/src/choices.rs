//! The named choices for a badge: metric, style, theme and logo.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use hf_meta::formats::clip;

/// The error returned when a text is not the name of a choice.
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
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Returns the OpenAPI schema of the names. The default is the first one.
            #[cfg(feature = "utoipa")]
            pub fn schema() -> utoipa::openapi::schema::Object {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::Type::String)
                    .enum_values(Some(Self::NAMES.iter().copied()))
                    .default(Some(Self::default().as_str().into()))
                    .build()
            }
        }

        impl FromStr for $type {
            type Err = UnknownChoice;

            fn from_str(text: &str) -> Result<Self, UnknownChoice> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(UnknownChoice { text: clip(text), expected: $expected }),
                }
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
    }
}

impl Metric {
    /// Returns the default label for this metric.
    #[must_use]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_to_its_variant() {
        assert!(Style::ALL.iter().all(|style| style.as_str().parse() == Ok(*style)));
        assert!(Metric::ALL.iter().all(|metric| metric.to_string().parse() == Ok(*metric)));
        assert_eq!((Style::default(), Metric::default()), (Style::ALL[0], Metric::ALL[0]));
        assert_eq!(
            "Flat".parse::<Style>().map_err(|error| error.to_string()),
            Err("`Flat` is not a badge style".to_owned())
        );
    }
}
