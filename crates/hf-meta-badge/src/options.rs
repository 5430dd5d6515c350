//! The appearance of a badge.

use super::{Color, Logo, Style, Theme};

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

#[cfg(test)]
mod tests {
    use super::*;

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
