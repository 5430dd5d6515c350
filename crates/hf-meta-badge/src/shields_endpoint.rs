//! Badges as JSON for shields.io.

use serde::Serialize;

use super::{Badge, BadgeOptions, Color, Logo, Style, Theme};

/// A badge in the JSON format of the shields.io [endpoint badge].
///
/// Shields.io rejects documents with any other fields.
///
/// [endpoint badge]: https://shields.io/badges/endpoint-badge
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct ShieldsEndpoint {
    /// The schema version, always 1.
    #[cfg_attr(feature = "utoipa", schema(minimum = 1, maximum = 1))]
    pub schema_version: u8,
    /// The text on the left; may be empty.
    pub label: String,
    /// The text on the right.
    pub message: String,
    /// The background color of the message, as six hexadecimal digits.
    pub color: String,
    /// The background color of the label, as six hexadecimal digits; absent for the default gray.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_color: Option<String>,
    /// `true` for a placeholder. Shields.io then ignores a color in its own query.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// The name of a shields.io logo.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_logo: Option<&'static str>,
    /// The name of the style. A shields.io query can override it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub style: Option<&'static str>,
    /// The time, in seconds, for which shields.io may cache the badge. Its minimum is 300 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_seconds: Option<u64>,
}

impl Badge {
    /// Returns the badge in the JSON format of shields.io.
    ///
    /// Shields.io does not support the theme `auto`, so it is replaced by the light theme.
    #[must_use]
    pub fn shields_endpoint(&self, options: &BadgeOptions) -> ShieldsEndpoint {
        let label = self.rendered_label(options);
        let is_dark = options.theme == Theme::Dark && !label.is_empty();
        ShieldsEndpoint {
            schema_version: 1,
            label,
            message: self.rendered_message(),
            color: self.rendered_color(options).to_string(),
            label_color: is_dark.then(|| Color::DARK_GREY.to_string()),
            is_error: self.is_placeholder,
            named_logo: (options.logo == Logo::HuggingFace).then_some(options.logo.as_str()),
            style: (options.style != Style::default()).then_some(options.style.as_str()),
            cache_seconds: None,
        }
    }
}
