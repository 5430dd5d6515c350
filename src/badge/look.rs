//! How a badge looks.

use super::{Color, Logo, Style, Theme};

/// All of a badge that is not what it says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BadgeOptions {
    /// One of the five styles.
    pub style: Style,
    /// For light pages, dark ones or both.
    pub theme: Theme,
    /// A mark before the label.
    pub logo: Logo,
    /// Another text on the left; an empty one leaves the message alone.
    pub label: Option<String>,
    /// Another colour behind the message; errors keep theirs. The style `social` has none.
    pub color: Option<Color>,
}

impl BadgeOptions {
    /// A look from the parameters of a query: `style`, `theme`, `logo`, `label` and `color`.
    ///
    /// A badge must be a picture whatever was asked for, so what is not understood is left at its
    /// default.
    pub fn from_query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut look = Self::default();
        for (name, value) in pairs {
            match name {
                "style" => look.style = value.parse().unwrap_or_default(),
                "theme" => look.theme = value.parse().unwrap_or_default(),
                "logo" => look.logo = value.parse().unwrap_or_default(),
                "label" => look.label = Some(value.to_owned()),
                "color" => look.color = value.parse().ok(),
                _ => {}
            }
        }
        look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_changes_nothing() {
        let asked = [
            ("style", "social"),
            ("theme", "dark"),
            ("logo", "huggingface"),
            ("label", "p"),
            ("color", "red"),
            ("v", "2"),
        ];
        let look = BadgeOptions {
            style: Style::Social,
            theme: Theme::Dark,
            logo: Logo::HuggingFace,
            label: Some("p".to_owned()),
            color: "red".parse().ok(),
        };
        assert_eq!(BadgeOptions::from_query(asked), look);
        let wrong = asked.map(|(name, _)| (name, "\0"));
        assert_eq!(
            BadgeOptions::from_query(wrong.into_iter().filter(|(name, _)| *name != "label")),
            BadgeOptions::default()
        );
    }
}
