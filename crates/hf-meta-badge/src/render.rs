//! Renders badges as SVG images and as JSON for shields.io.

use serde::Serialize;
use shields::{BadgeParams, RenderOptions, render_badge_svg_with};

use super::{Badge, BadgeOptions, Color, FACE, Logo, Style, Theme};

/// CSS rules for the dark variant of the style `social`: button, bubble, borders, text and text shadow. The other
/// styles need only one rule, for a darker label.
const DARK_SOCIAL: &str = r##"[fill="#fcfcfc"]{fill:#21262d}[fill="#fafafa"]{fill:#161b22}[stroke="#fafafa"]{stroke:#161b22}[stroke="#d5d5d5"]{stroke:#3d444d}[fill="#333"]{fill:#e6edf3}[fill="#fff"]{fill:#010409}"##;

/// A badge in the JSON format of the shields.io [endpoint badge].
///
/// Shields.io rejects documents with any other fields.
///
/// [endpoint badge]: https://shields.io/badges/endpoint-badge
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct ShieldsEndpoint {
    /// The schema version, always 1.
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
    /// Renders the badge as an SVG image.
    ///
    /// The image has a title for screen readers, contains no scripts and loads no other files.
    pub fn svg(&self, options: &BadgeOptions) -> String {
        let (label, message) = (self.rendered_label(options), self.rendered_message());
        let color = format!("#{}", self.rendered_color(options));
        let gray = format!("#{}", Color::GRAY);
        let is_social = options.style == Style::Social;
        let params = BadgeParams {
            // Both crates use the names of shields.io; a test compares them.
            style: options.style.as_str().parse().unwrap_or_default(),
            // An empty label has no background.
            label_color: (!label.is_empty() && !is_social).then_some(gray.as_str()),
            message_color: Some(if is_social { "" } else { &color }),
            logo: (options.logo == Logo::HuggingFace).then_some(FACE.trim_end()),
            ..BadgeParams::new(&label, &message)
        };
        let svg = render_badge_svg_with(&params, &RenderOptions::default());
        match options.theme {
            Theme::Light => svg,
            Theme::Dark => with_rules(&svg, &dark_rules(options.style)),
            Theme::Auto => {
                let rules = dark_rules(options.style);
                with_rules(&svg, &format!("@media(prefers-color-scheme:dark){{{rules}}}"))
            }
        }
    }

    /// Returns the badge in the JSON format of shields.io.
    ///
    /// Shields.io does not support the theme `auto`, so it is replaced by the light theme.
    pub fn shields_endpoint(&self, options: &BadgeOptions) -> ShieldsEndpoint {
        let label = self.rendered_label(options);
        let is_dark = options.theme == Theme::Dark && !label.is_empty();
        ShieldsEndpoint {
            schema_version: 1,
            label,
            message: self.rendered_message(),
            color: self.rendered_color(options).to_string(),
            label_color: is_dark.then(|| Color::DARK_GRAY.to_string()),
            is_error: self.is_placeholder,
            named_logo: (options.logo == Logo::HuggingFace).then_some(options.logo.as_str()),
            style: (options.style != Style::default()).then_some(options.style.as_str()),
            cache_seconds: None,
        }
    }
}

fn dark_rules(style: Style) -> String {
    match style {
        Style::Social => DARK_SOCIAL.to_owned(),
        _ => format!(r##"[fill="#{}"]{{fill:#{}}}"##, Color::GRAY, Color::DARK_GRAY),
    }
}

/// Inserts CSS rules after the title. Text is escaped, so the first `</title>` ends the title.
fn with_rules(svg: &str, rules: &str) -> String {
    const END: &str = "</title>";
    match svg.split_once(END) {
        Some((head, body)) => format!("{head}{END}<style>{rules}</style>{body}"),
        None => svg.to_owned(),
    }
}
