//! Badges: a label and a message, as a picture and as JSON for [shields.io].
//!
//! Everything here is pure. The pictures are those of shields.io in its five styles, to the byte but
//! for a dark theme that we add, and made by the [`shields`] crate, which has the widths of the fonts.
//!
//! ```
//! use hf_meta::badge::{Badge, BadgeOptions, Style};
//!
//! let badge = Badge::new("params", "176B");
//! let look = BadgeOptions { style: Style::ForTheBadge, ..BadgeOptions::default() };
//! assert!(badge.svg(&look).contains("<title>PARAMS: 176B</title>"));
//! ```
//!
//! [shields.io]: https://shields.io
//! [`shields`]: https://docs.rs/shields

mod choice;
mod color;
mod endpoint;
mod figures;
mod look;
mod svg;

pub use choice::{Logo, Show, Style, Theme, UnknownChoice};
pub use color::{Color, ColorError};
pub use endpoint::ShieldsEndpoint;
pub use figures::Figures;
pub use look::BadgeOptions;

#[cfg(feature = "client")]
use crate::error::Error;
use crate::report::SafetensorsParseFromRepo;
use crate::report::text::escape;

/// The most characters of a label or a message that are shown.
const LONGEST: usize = 64;

/// What a badge says, whatever it looks like.
///
/// Its texts may hold anything: they are bounded and made harmless where the badge is rendered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Badge {
    /// The text on the left.
    pub label: String,
    /// The text on the right.
    pub message: String,
    /// The colour behind the message.
    pub color: Color,
    /// Whether the badge says why there is no figure. Its colour is then not to be changed.
    pub is_error: bool,
}

impl Badge {
    /// A blue badge.
    pub fn new(label: impl Into<String>, message: impl Into<String>) -> Self {
        let (label, message) = (label.into(), message.into());
        Self { label, message, color: Color::BLUE, is_error: false }
    }

    /// What is known of a set of weights.
    #[must_use]
    pub fn of(parsed: &SafetensorsParseFromRepo, show: Show) -> Self {
        Figures::of(parsed).badge(show).unwrap_or_else(|| Self::without_figure(show, "unknown"))
    }

    /// Why nothing is known of a set of weights, in a word or two.
    #[cfg(feature = "client")]
    #[must_use]
    pub fn of_error(error: &Error, show: Show) -> Self {
        Self::without_figure(show, short_reason(error))
    }

    /// A grey badge that gives a reason in place of a figure, such as `pending`.
    #[must_use]
    pub fn without_figure(show: Show, reason: &str) -> Self {
        Self { color: Color::LIGHT_GREY, is_error: true, ..Self::new(show.label(), reason) }
    }

    /// The label as it is rendered.
    fn shown_label(&self, look: &BadgeOptions) -> String {
        shown(look.label.as_deref().unwrap_or(&self.label))
    }

    fn shown_message(&self) -> String {
        shown(&self.message)
    }

    fn shown_color(&self, look: &BadgeOptions) -> Color {
        look.color.filter(|_| !self.is_error).unwrap_or(self.color)
    }
}

/// A text that fits into a badge: in one line, with nothing hidden in it, and not too long.
fn shown(text: &str) -> String {
    // What is shown has at least as many characters as what was given, so the rest cannot matter.
    let text: String = text.trim_start().chars().take(LONGEST + 1).collect();
    let text = escape(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(feature = "client")]
fn short_reason(error: &Error) -> &'static str {
    match error {
        Error::RepoNotFound { .. } => "not found",
        Error::RevisionNotFound { .. } => "revision not found",
        Error::FileNotFound { .. } => "file not found",
        Error::NoSafetensors { .. } => "no safetensors",
        Error::Gated { .. } => "gated",
        Error::Forbidden { .. } => "private",
        Error::TooLarge { .. } | Error::TooManyHeaders { .. } => "too large",
        Error::SeveralSets { .. } => "several sets",
        Error::MissingShards { .. } => "shards missing",
        Error::Header { .. } | Error::Index { .. } => "invalid safetensors",
        Error::Source(_) => "invalid name",
        Error::NotCached { .. } => "not cached",
        Error::Offline { .. } => "offline",
        Error::RejectedToken { .. } => "invalid token",
        Error::Endpoint { .. } | Error::MalformedToken | Error::UserAgent | Error::NoCache => {
            "misconfigured"
        }
        Error::Listing { .. } => "not listed",
        Error::OtherCommit { .. } | Error::Changed { .. } => "changing",
        Error::Read { .. } => "unreadable",
        Error::Refused { source, .. } if source.status == 429 => "rate limited",
        Error::DeadlineExceeded { .. } => "timed out",
        Error::Fetch { .. } | Error::Refused { .. } => "unavailable",
    }
}

#[cfg(all(test, feature = "client"))]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use super::*;
    use crate::backends::hub_cache::SnapshotError;
    use crate::hub::{ListingError, RepoId, Revision};

    #[test]
    fn texts_are_bounded_and_harmless() {
        let cases = [
            ("params", "params"),
            ("", ""),
            ("  a \t\n b  ", "a b"),
            ("<&>\"'", "<&>\"'"),
            ("\u{202e}evil\u{0}", "\\u{202e}evil\\0"),
            ("पैरामीटर", "पैरामीटर"),
            (" \u{feff} ", "\\u{feff}"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(text), expected, "{text:?}");
        }
        assert_eq!(shown(&"ß".repeat(LONGEST)), "ß".repeat(LONGEST));
        assert_eq!(shown(&"ß".repeat(1_000_000)), format!("{}…", "ß".repeat(LONGEST)));
        assert_eq!(shown(&"\u{1}".repeat(1_000)).chars().count(), LONGEST + 1);
    }

    #[test]
    fn reasons_are_short() {
        let place = || "org/name".to_owned();
        let repo = || "org/name".parse::<RepoId>().unwrap();
        let cases = [
            (Error::SeveralSets { place: place(), sets: vec![] }, "several sets"),
            (Error::MissingShards { set: place(), found: 1, total: 2 }, "shards missing"),
            (
                Error::NotCached {
                    repo: repo(),
                    revision: Revision::default(),
                    source: SnapshotError { path: place(), reason: "none" },
                },
                "not cached",
            ),
            (Error::Offline { what: place() }, "offline"),
            (Error::MalformedToken, "misconfigured"),
            (Error::NoCache, "misconfigured"),
            (Error::Listing { place: place(), source: ListingError::Endless }, "not listed"),
            (Error::TooLarge { file: place(), limit: 1 }, "too large"),
            (Error::Changed { file: place(), before: 1, after: 2 }, "changing"),
            (Error::Read { file: place(), source: ErrorKind::Other.into() }, "unreadable"),
            (Error::DeadlineExceeded { limit: Duration::ZERO }, "timed out"),
        ];
        for (error, reason) in cases {
            let badge = Badge::of_error(&error, Show::Params);
            assert_eq!((&*badge.message, badge.is_error), (reason, true), "{error}");
        }
    }

    #[test]
    fn errors_stay_grey() {
        let badge = Badge::without_figure(Show::Bytes, "gated");
        let look = BadgeOptions { color: Some(Color::BLUE), ..BadgeOptions::default() };
        assert_eq!((badge.label.as_str(), badge.shown_color(&look)), ("size", Color::LIGHT_GREY));
        assert_eq!(Badge::new("a", "b").shown_color(&look), Color::BLUE);
    }
}
