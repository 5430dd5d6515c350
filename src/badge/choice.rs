//! What can be chosen by name.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::formats::clip;

/// A text that is not among the names that can be chosen from.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` is not {what}")]
#[non_exhaustive]
pub struct UnknownChoice {
    /// The text, cut to 200 characters.
    pub text: String,
    /// What it should have been.
    pub what: &'static str,
}

/// An enum whose variants have names in queries and on the command line.
macro_rules! choice {
    (
        $what:literal
        $(#[$doc:meta])+
        $type:ident { $($(#[$variant_doc:meta])+ $variant:ident = $name:literal,)+ }
    ) => {
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $type {
            $($(#[$variant_doc])+ $variant,)+
        }

        impl $type {
            /// All there are, the default first.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Their names, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The name in a query and on the command line.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl FromStr for $type {
            type Err = UnknownChoice;

            fn from_str(text: &str) -> Result<Self, UnknownChoice> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(UnknownChoice { text: clip(text), what: $what }),
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
    "something a badge can show"
    /// What a badge says of a set of weights.
    Show {
        /// Parameters, and of a mixture of experts those that are active: `params | 1.03T (A32B)`.
        #[default]
        Params = "params",
        /// Parameters that take part in each token: `active | 32B`.
        Active = "active",
        /// Bytes of all tensors: `size | 352 GB`.
        Bytes = "bytes",
        /// The dtype that most parameters have, and how many do: `BF16 | 176B`.
        Dtype = "dtype",
        /// Tensors: `tensors | 845`.
        Tensors = "tensors",
        /// Files of weights: `shards | 72`.
        Shards = "shards",
    }
}

impl Show {
    /// What stands on the left where no label was asked for.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Bytes => "size",
            other => other.as_str(),
        }
    }
}

choice! {
    "a style of badges"
    /// The styles of shields.io, by its names.
    Style {
        /// Rounded corners and a slight gradient.
        #[default]
        Flat = "flat",
        /// Square corners, no gradient.
        FlatSquare = "flat-square",
        /// Rounded and shining.
        Plastic = "plastic",
        /// Tall, in spaced capitals.
        ForTheBadge = "for-the-badge",
        /// A button with a bubble beside it.
        Social = "social",
    }
}

choice! {
    "a theme of badges"
    /// The page that a badge is made for.
    Theme {
        /// A light page: the colours of shields.io.
        #[default]
        Light = "light",
        /// A dark page.
        Dark = "dark",
        /// Whichever the reader prefers. Browsers tell a picture what the page around it uses; some
        /// tell it what the system prefers instead.
        Auto = "auto",
    }
}

choice! {
    "a logo of badges"
    /// A mark before the label.
    Logo {
        /// None.
        #[default]
        None = "none",
        /// A face with open hands, in our own drawing; in the JSON, shields.io is asked for the logo
        /// that it has under this name.
        HuggingFace = "huggingface",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        assert!(Style::ALL.iter().all(|style| style.as_str().parse() == Ok(*style)));
        assert!(Show::ALL.iter().all(|show| show.to_string().parse() == Ok(*show)));
        assert_eq!((Style::default(), Show::default()), (Style::ALL[0], Show::ALL[0]));
        assert_eq!(
            "Flat".parse::<Style>().map_err(|error| error.to_string()),
            Err("`Flat` is not a style of badges".to_owned())
        );
    }
}
