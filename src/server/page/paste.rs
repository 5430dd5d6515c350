//! The addresses of a badge and of what belongs to it, and what is pasted into other pages: Markdown and
//! HTML around them.

use std::borrow::Cow;

use maud::{Markup, html};
use url::form_urlencoded::Serializer;

use super::{Shown, Site};
use crate::badge::{BadgeOptions, Metric};

/// Parameters of a query that are given.
type Pairs<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// The address of a badge, relative to the page.
///
/// Names of repos hold nothing that would have to be encoded.
pub(super) fn badge(shown: &Shown<'_>, repo: &str, look: &BadgeOptions, kind: &str) -> String {
    let pairs = [place(shown.revision, shown.path), figure(shown.show, look)].concat();
    format!("badge/{repo}.{kind}{}", query(&pairs))
}

/// The address of the figures as JSON, relative to the page.
pub(super) fn json(shown: &Shown<'_>, repo: &str) -> String {
    format!("api/models/{repo}{}", query(&place(shown.revision, shown.path)))
}

/// The address of the page, relative to itself, for another path in the repo or for all of it.
pub(super) fn page(shown: &Shown<'_>, repo: &str, path: Option<&str>) -> String {
    let repo = vec![("repo", repo.into())];
    query(&[repo, place(shown.revision, path), figure(shown.show, shown.look)].concat())
}

fn place<'a>(revision: Option<&'a str>, path: Option<&'a str>) -> Pairs<'a> {
    given([("revision", revision.map(Cow::from)), ("path", path.map(Cow::from))])
}

fn figure(show: Metric, look: &BadgeOptions) -> Pairs<'_> {
    let BadgeOptions { style, theme, logo, label, color } = look;
    let default = BadgeOptions::default();
    let chosen = |is_chosen: bool, name: &'static str| is_chosen.then(|| Cow::from(name));
    given([
        ("show", chosen(show != Metric::default(), show.as_str())),
        ("style", chosen(*style != default.style, style.as_str())),
        ("theme", chosen(*theme != default.theme, theme.as_str())),
        ("logo", chosen(*logo != default.logo, logo.as_str())),
        ("label", label.as_deref().map(Cow::from)),
        ("color", color.map(|color| color.to_string().into())),
    ])
}

fn given<'a, const N: usize>(pairs: [(&'static str, Option<Cow<'a, str>>); N]) -> Pairs<'a> {
    pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A query with its mark, or nothing.
fn query(pairs: &Pairs<'_>) -> String {
    let query = Serializer::new(String::new()).extend_pairs(pairs).finish();
    if query.is_empty() { query } else { format!("?{query}") }
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
    let (badge, page) = (address(site, shown, repo, "svg"), on_the_hub(site, repo));
    format!("[![{}]({badge})]({page})", in_brackets(alternative(shown)))
}

pub(super) fn html(site: &Site<'_>, shown: &Shown<'_>, repo: &str) -> String {
    let badge = address(site, shown, repo, "svg");
    let html =
        html! { a href=(on_the_hub(site, repo)) { img src=(badge) alt=(alternative(shown)); } };
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
fn on_the_hub(site: &Site<'_>, repo: &str) -> String {
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
