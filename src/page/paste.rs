//! What is pasted into other pages: the addresses of a badge, and Markdown and HTML around them.

use maud::{Markup, html};
use url::form_urlencoded::Serializer;

use super::{Shown, Site};
use crate::badge::{Look, Show};

/// The address of a badge, relative to the page.
///
/// Names of repos hold nothing that would have to be encoded.
pub(super) fn badge(shown: &Shown<'_>, repo: &str, look: &Look, kind: &str) -> String {
    let Look { style, theme, logo, label, color } = look;
    let default = Look::default();
    let color = color.map(|color| color.to_string());
    let chosen = |is_chosen: bool, name: &'static str| is_chosen.then_some(name);
    let pairs = [
        ("revision", shown.revision),
        ("path", shown.path),
        ("show", chosen(shown.show != Show::default(), shown.show.as_str())),
        ("style", chosen(*style != default.style, style.as_str())),
        ("theme", chosen(*theme != default.theme, theme.as_str())),
        ("logo", chosen(*logo != default.logo, logo.as_str())),
        ("label", label.as_deref()),
        ("color", color.as_deref()),
    ];
    let pairs = pairs.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let query = Serializer::new(String::new()).extend_pairs(pairs).finish();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("badge/{repo}.{kind}{mark}{query}")
}

/// The texts to paste, each in a field of its own.
pub(super) fn fields(site: &Site<'_>, shown: &Shown<'_>, repo: &str) -> Markup {
    html! {
        (field("markdown", "Markdown", &markdown(site, shown, repo)))
        (field("html", "HTML", &html(site, shown, repo)))
        (field("shields", "Drawn by shields.io", &shields(site, shown, repo)))
    }
}

pub(super) fn markdown(site: &Site<'_>, shown: &Shown<'_>, repo: &str) -> String {
    let (badge, page) = (address(site, shown, repo, "svg"), page(site, repo));
    format!("[![{}]({badge})]({page})", in_brackets(alternative(shown)))
}

pub(super) fn html(site: &Site<'_>, shown: &Shown<'_>, repo: &str) -> String {
    let badge = address(site, shown, repo, "svg");
    let html = html! { a href=(page(site, repo)) { img src=(badge) alt=(alternative(shown)); } };
    html.into_string()
}

/// The address by which shields.io draws a badge. It takes one that begins with `https` alone.
pub(super) fn shields(site: &Site<'_>, shown: &Shown<'_>, repo: &str) -> String {
    let json = address(site, shown, repo, "json");
    let query = Serializer::new(String::new()).append_pair("url", &json).finish();
    format!("https://img.shields.io/endpoint?{query}")
}

fn address(site: &Site<'_>, shown: &Shown<'_>, repo: &str, kind: &str) -> String {
    format!("{}{}", site.address, badge(shown, repo, shown.look, kind))
}

/// The page of a repo on the Hub.
fn page(site: &Site<'_>, repo: &str) -> String {
    format!("{}/{repo}", site.endpoint)
}

/// What is read in the place of the picture. The figure may change, and so is not part of it.
fn alternative<'a>(shown: &Shown<'a>) -> &'a str {
    shown.look.label.as_deref().unwrap_or(shown.show.label())
}

/// A text that stays one, and plain, between the brackets of Markdown.
fn in_brackets(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => shown.push(' '),
            c if c.is_ascii_punctuation() => shown.extend(['\\', c]),
            c => shown.push(c),
        }
    }
    shown
}

fn field(id: &str, label: &str, value: &str) -> Markup {
    html! {
        div .field {
            label for=(id) { (label) }
            input id=(id) type="text" readonly value=(value);
            button type="button" data-copies=(id) hidden { "Copy" span .unseen { " " (label) } }
        }
    }
}
