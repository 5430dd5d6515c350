//! A badge as a picture.

use shields::{BadgeParams, BadgeStyle, RenderOptions, render_badge_svg_with};

use super::{Badge, BadgeOptions, Color, Logo, Style, Theme};

/// A face with open hands, drawn for this project.
const FACE: &str = include_str!("face.svg");

/// What the dark theme makes of the colours of the style `social`: button, bubble, borders, text, and
/// the relief of the text. In the other styles only the label is darker.
const DARK_SOCIAL: &str = r##"[fill="#fcfcfc"]{fill:#21262d}[fill="#fafafa"]{fill:#161b22}[stroke="#fafafa"]{stroke:#161b22}[stroke="#d5d5d5"]{stroke:#3d444d}[fill="#333"]{fill:#e6edf3}[fill="#fff"]{fill:#010409}"##;

impl Badge {
    /// The badge as SVG.
    ///
    /// It is accessible by its title, holds no script and asks for nothing from elsewhere.
    #[must_use]
    pub fn svg(&self, look: &BadgeOptions) -> String {
        let (label, message) = (self.shown_label(look), self.shown_message());
        let color = format!("#{}", self.shown_color(look));
        let grey = format!("#{}", Color::GREY);
        let is_social = look.style == Style::Social;
        let params = BadgeParams {
            style: look.style.into(),
            // Without a label there is nothing to stand on a colour.
            label_color: Some(grey.as_str()).filter(|_| !label.is_empty() && !is_social),
            message_color: Some(if is_social { "" } else { &color }),
            logo: (look.logo == Logo::HuggingFace).then_some(FACE.trim_end()),
            ..BadgeParams::new(&label, &message)
        };
        let svg = render_badge_svg_with(&params, &RenderOptions::default());
        match look.theme {
            Theme::Light => svg,
            Theme::Dark => with_rules(&svg, &dark(look.style)),
            Theme::Auto => {
                let rules = dark(look.style);
                with_rules(&svg, &format!("@media(prefers-color-scheme:dark){{{rules}}}"))
            }
        }
    }
}

fn dark(style: Style) -> String {
    match style {
        Style::Social => DARK_SOCIAL.to_owned(),
        _ => format!(r##"[fill="#{}"]{{fill:#{}}}"##, Color::GREY, Color::DARK_GREY),
    }
}

/// The picture with CSS after its title. Texts in it are escaped, so the first end of a title is its.
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
