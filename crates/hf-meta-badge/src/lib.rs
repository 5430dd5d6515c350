//! Badges: a label and a message, rendered as SVG or as JSON for [shields.io].
//!
//! This crate performs no I/O. The [`shields`] crate reproduces the five shields.io styles byte for byte; the dark
//! theme is an addition of this crate.
//!
//! - [`Badge`] contains the text, and [`BadgeOptions`] the appearance.
//! - [`Metric`] selects the property to show, and [`MetricValues`] contains the values of all metrics. To add a
//!   metric, add a variant to [`Metric`] and an arm to [`MetricValues::badge`].
//!
//! [shields.io]: https://shields.io
//! [`shields`]: https://docs.rs/shields

mod metric_values;
mod options;
mod render;

pub use metric_values::MetricValues;
pub use options::{BadgeOptions, Color, Logo, Metric, Style, Theme, UnknownChoice};
pub use render::ShieldsEndpoint;

use hf_meta::{Error, ErrorKind};
use hf_meta_count::results::text::escape;

/// A face with open hands as SVG, drawn for this project.
pub const FACE: &str = include_str!("face.svg");

/// The maximum length of a rendered label or message, in characters.
const MAX_TEXT_LENGTH: usize = 64;

/// The text of a badge, and the default background color of its message.
///
/// The text may come from untrusted sources, such as a file on the Hub. Rendering makes control characters visible,
/// escapes markup and truncates long text.
///
/// ```
/// use hf_meta_badge::{Badge, BadgeOptions, Metric, Style};
///
/// let badge = Badge::new("params", "176B");
/// let options = BadgeOptions { style: Style::ForTheBadge, ..BadgeOptions::default() };
/// assert!(badge.svg(&options).contains("<title>PARAMS: 176B</title>"));
///
/// let json = badge.shields_endpoint(&options);
/// assert_eq!(json.style, Some("for-the-badge"));
///
/// let placeholder = Badge::placeholder(Metric::Bytes, "not found");
/// assert_eq!((placeholder.label.as_str(), placeholder.is_placeholder), ("size", true));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Badge {
    /// The text on the left.
    pub label: String,
    /// The text on the right.
    pub message: String,
    /// The default background color of the message.
    pub color: Color,
    /// `true` if the message explains why there is no value. [`BadgeOptions::color`] is then ignored.
    pub is_placeholder: bool,
}

impl Badge {
    /// Creates a badge with a blue message background.
    pub fn new(label: impl Into<String>, message: impl Into<String>) -> Self {
        let (label, message) = (label.into(), message.into());
        Self { label, message, color: Color::BLUE, is_placeholder: false }
    }

    /// Creates a placeholder with a short description of an error, such as `not found`.
    pub fn from_error(error: &Error, metric: Metric) -> Self {
        Self::placeholder(metric, short_reason(error))
    }

    /// Creates a gray placeholder that shows a reason, such as `pending`, instead of a value.
    pub fn placeholder(metric: Metric, reason: &str) -> Self {
        Self { color: Color::LIGHT_GRAY, is_placeholder: true, ..Self::new(metric.label(), reason) }
    }

    fn rendered_label(&self, options: &BadgeOptions) -> String {
        rendered(options.label.as_deref().unwrap_or(&self.label))
    }

    fn rendered_message(&self) -> String {
        rendered(&self.message)
    }

    fn rendered_color(&self, options: &BadgeOptions) -> Color {
        if self.is_placeholder { self.color } else { options.color.unwrap_or(self.color) }
    }
}

/// Prepares text for a badge: puts it on one line, escapes hidden characters and truncates it.
fn rendered(text: &str) -> String {
    // Escaping never makes a text shorter, so nothing after this many characters can be visible.
    let text: String = text.trim_start().chars().take(MAX_TEXT_LENGTH + 1).collect();
    let text = escape(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    match text.char_indices().nth(MAX_TEXT_LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Returns a description of one or two words, which fits on a badge.
pub fn short_reason(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::RepoNotFound => "not found",
        ErrorKind::RevisionNotFound => "revision not found",
        ErrorKind::FileNotFound => "file not found",
        ErrorKind::NoWeights => "no weights",
        ErrorKind::Gated => "gated",
        ErrorKind::Forbidden => "private",
        ErrorKind::TooLarge => "too large",
        ErrorKind::SeveralSets => "several sets",
        ErrorKind::MissingShards => "shards missing",
        ErrorKind::MalformedHeader => match error {
            Error::InvalidHeader { format: "GGUF", .. } => "invalid GGUF",
            Error::InvalidHeader { format: "safetensors", .. } => "invalid safetensors",
            _ => "invalid file",
        },
        ErrorKind::MalformedIndex => "invalid safetensors",
        ErrorKind::InvalidSource => "invalid name",
        ErrorKind::NotCached => "not cached",
        ErrorKind::Offline => "offline",
        ErrorKind::RejectedToken => "invalid token",
        ErrorKind::InvalidOption => "invalid option",
        ErrorKind::InvalidSettings => "misconfigured",
        ErrorKind::MalformedListing => "not listed",
        ErrorKind::Changed => "changing",
        ErrorKind::LocalIo => "unreadable",
        ErrorKind::RateLimited => "rate limited",
        ErrorKind::Timeout => "timed out",
        _ => "unavailable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendered_texts_are_bounded_and_have_no_hidden_characters() {
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
            assert_eq!(rendered(text), expected, "{text:?}");
        }
        assert_eq!(rendered(&"ß".repeat(MAX_TEXT_LENGTH)), "ß".repeat(MAX_TEXT_LENGTH));
        assert_eq!(rendered(&"ß".repeat(1_000_000)), format!("{}…", "ß".repeat(MAX_TEXT_LENGTH)));
        assert_eq!(rendered(&"\u{1}".repeat(1_000)).chars().count(), MAX_TEXT_LENGTH + 1);
    }

    #[test]
    fn errors_are_placeholders_with_a_short_reason() {
        let long = "org/".to_owned() + &"x".repeat(200);
        let invalid = long.parse::<hf_meta::Source>().unwrap_err().into();
        let builder = hf_meta::Client::builder;
        let cases = [
            (invalid, "invalid name"),
            (builder().token("\n").build().unwrap_err(), "invalid option"),
            (builder().endpoint("x").build().unwrap_err(), "misconfigured"),
        ];
        for (error, reason) in cases {
            let badge = Badge::from_error(&error, Metric::Params);
            assert_eq!((&*badge.message, badge.is_placeholder), (reason, true), "{error}");
        }
    }

    #[test]
    fn a_placeholder_ignores_a_chosen_color() {
        let badge = Badge::placeholder(Metric::Bytes, "gated");
        let options = BadgeOptions { color: Some(Color::BLUE), ..BadgeOptions::default() };
        assert_eq!(
            (badge.label.as_str(), badge.rendered_color(&options)),
            ("size", Color::LIGHT_GRAY)
        );
        assert_eq!(Badge::new("a", "b").rendered_color(&options), Color::BLUE);
    }
}
