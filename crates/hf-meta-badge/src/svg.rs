//! Badges as SVG images.

use super::FACE;
use shields::{BadgeParams, BadgeStyle, RenderOptions, render_badge_svg_with};

use super::{Badge, BadgeOptions, Color, Logo, Style, Theme};

/// A face with open hands, drawn for this project.

/// CSS rules for the dark variant of the style `social`: button, bubble, borders, text and text shadow. The other
/// styles need only one rule, for a darker label.
const DARK_SOCIAL: &str = r##"[fill="#fcfcfc"]{fill:#21262d}[fill="#fafafa"]{fill:#161b22}[stroke="#fafafa"]{stroke:#161b22}[stroke="#d5d5d5"]{stroke:#3d444d}[fill="#333"]{fill:#e6edf3}[fill="#fff"]{fill:#010409}"##;

impl Badge {
    /// Renders the badge as an SVG image.
    ///
    /// The image has a title for screen readers, contains no scripts and loads no other files.
    #[must_use]
    pub fn svg(&self, options: &BadgeOptions) -> String {
        let (label, message) = (self.rendered_label(options), self.rendered_message());
        let color = format!("#{}", self.rendered_color(options));
        let grey = format!("#{}", Color::GREY);
        let is_social = options.style == Style::Social;
        let params = BadgeParams {
            style: options.style.into(),
            // An empty label has no background.
            label_color: Some(grey.as_str()).filter(|_| !label.is_empty() && !is_social),
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
}

fn dark_rules(style: Style) -> String {
    match style {
        Style::Social => DARK_SOCIAL.to_owned(),
        _ => format!(r##"[fill="#{}"]{{fill:#{}}}"##, Color::GREY, Color::DARK_GREY),
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

impl From<Style> for BadgeStyle {
    fn from(style: Style) -> Self {
        match style {
            Style::Flat => Self::Flat,
            Style::FlatSquare => Self::FlatSquare,
            Style::Plastic => Self::Plastic,
            Style::ForTheBadge => Self::ForTheBadge,
            Style::Social => Self::Social,
        }
    }
}
