//! A badge as JSON for shields.io.

use serde::Serialize;

use super::{Badge, BadgeOptions, Color, Logo, Style, Theme};

/// What the [endpoint badge] of shields.io reads. It refuses documents with any other key.
///
/// [endpoint badge]: https://shields.io/badges/endpoint-badge
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ShieldsEndpoint {
    /// The version of the form, 1.
    pub schema_version: u8,
    /// The text on the left; may be empty.
    pub label: String,
    /// The text on the right.
    pub message: String,
    /// The colour behind the message, six digits.
    pub color: String,
    /// The colour behind the label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_color: Option<String>,
    /// Whether shields.io is to keep the colour whatever its own query says.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// A logo by the name that it has there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_logo: Option<&'static str>,
    /// The style, which shields.io's own query may change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub style: Option<&'static str>,
    /// How long shields.io may keep the badge; it takes no less than 300 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_seconds: Option<u64>,
}

impl Badge {
    /// The badge as JSON for shields.io, which draws it. `auto` is a theme that it cannot draw, and is
    /// taken as light.
    #[must_use]
    pub fn endpoint(&self, look: &BadgeOptions) -> ShieldsEndpoint {
        let label = self.shown_label(look);
        let is_dark = look.theme == Theme::Dark && !label.is_empty();
        ShieldsEndpoint {
            schema_version: 1,
            label,
            message: self.shown_message(),
            color: self.shown_color(look).to_string(),
            label_color: is_dark.then(|| Color::DARK_GREY.to_string()),
            is_error: self.is_error,
            named_logo: (look.logo == Logo::HuggingFace).then_some(look.logo.as_str()),
            style: (look.style != Style::default()).then_some(look.style.as_str()),
            cache_seconds: None,
        }
    }
}
