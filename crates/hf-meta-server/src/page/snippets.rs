//! URLs of badges, JSON and pages, and snippets in Markdown, HTML and other markup that embed a badge.

use std::borrow::Cow;

use maud::{Markup, html};
use url::form_urlencoded::Serializer;

use super::data::{PageUrls, PageView};
use hf_meta_badge::{BadgeOptions, Metric, Theme};

/// Query parameters with their values.
type Pairs<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// Returns the URL of a badge, relative to the page.
///
/// Repository names need no encoding.
pub(super) fn badge(view: &PageView<'_>, repo: &str, options: &BadgeOptions, kind: &str) -> String {
    let pairs = [selection(view.revision, view.path), badge_options(view.metric, options)].concat();
    format!("badge/{repo}.{kind}{}", query(&pairs))
}

/// Returns the URL of the JSON counts, relative to the page.
pub(super) fn json(view: &PageView<'_>, repo: &str) -> String {
    format!("api/models/{repo}{}", query(&selection(view.revision, view.path)))
}

/// Returns the URL of the page for another repository, relative to the page itself.
pub(super) fn other_page(view: &PageView<'_>, repo: &str) -> String {
    let repo = vec![("repo", repo.into())];
    query(&[repo, badge_options(view.metric, view.options)].concat())
}

/// Returns the URL of the badge of another repository with another metric, relative to the page.
pub(super) fn other_badge(view: &PageView<'_>, repo: &str, metric: Metric) -> String {
    let options = BadgeOptions { label: None, color: None, ..view.options.clone() };
    format!("badge/{repo}.svg{}", query(&badge_options(metric, &options)))
}

/// Returns the URL of the page for another path in the repository, relative to the page itself.
pub(super) fn page(view: &PageView<'_>, repo: &str, path: Option<&str>) -> String {
    let repo = vec![("repo", repo.into())];
    query(
        &[repo, selection(view.revision, path), badge_options(view.metric, view.options)].concat(),
    )
}

fn selection<'a>(revision: Option<&'a str>, path: Option<&'a str>) -> Pairs<'a> {
    given([("revision", revision.map(Cow::from)), ("path", path.map(Cow::from))])
}

fn badge_options(metric: Metric, options: &BadgeOptions) -> Pairs<'_> {
    let BadgeOptions { style, theme, logo, label, color } = options;
    let default = BadgeOptions::default();
    let chosen = |is_chosen: bool, name: &'static str| is_chosen.then(|| Cow::from(name));
    given([
        ("show", chosen(metric != Metric::default(), metric.as_str())),
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

/// Returns a query string with its leading question mark, or an empty string.
fn query(pairs: &Pairs<'_>) -> String {
    let query = Serializer::new(String::new()).extend_pairs(pairs).finish();
    if query.is_empty() { query } else { format!("?{query}") }
}

/// Renders one field per snippet.
pub(super) fn fields(urls: &PageUrls<'_>, view: &PageView<'_>, repo: &str) -> Markup {
    html! {
        (field("markdown", "Markdown", &markdown(urls, view, repo)))
        (field("html", "HTML", &html(urls, view, repo)))
        (field("picture", "HTML, light and dark", &picture(urls, view, repo)))
        (field("rst", "reStructuredText", &rst(urls, view, repo)))
        (field("asciidoc", "AsciiDoc", &asciidoc(urls, view, repo)))
        (field("shields", "shields.io URL", &shields(urls, view, repo)))
    }
}

pub(super) fn markdown(urls: &PageUrls<'_>, view: &PageView<'_>, repo: &str) -> String {
    let (badge, page) = (badge_url(urls, view, repo, "svg"), hub_url(urls, repo));
    format!("[![{}]({badge})]({page})", escape_brackets(alt_text(view)))
}

pub(super) fn html(urls: &PageUrls<'_>, view: &PageView<'_>, repo: &str) -> String {
    let badge = badge_url(urls, view, repo, "svg");
    let html = html! { a href=(hub_url(urls, repo)) { img src=(badge) alt=(alt_text(view)); } };
    html.into_string()
}

/// Returns HTML that shows a different badge on dark pages.
pub(super) fn picture(urls: &PageUrls<'_>, view: &PageView<'_>, repo: &str) -> String {
    let badge = |theme| {
        let options = BadgeOptions { theme, ..view.options.clone() };
        format!("{}{}", urls.base, badge(view, repo, &options, "svg"))
    };
    let html = html! {
        a href=(hub_url(urls, repo)) {
            picture {
                source media="(prefers-color-scheme: dark)" srcset=(badge(Theme::Dark));
                img src=(badge(Theme::Light)) alt=(alt_text(view));
            }
        }
    };
    html.into_string()
}

/// Returns reStructuredText, in three lines.
pub(super) fn rst(urls: &PageUrls<'_>, view: &PageView<'_>, repo: &str) -> String {
    let (badge, page) = (badge_url(urls, view, repo, "svg"), hub_url(urls, repo));
    let alt = escape_brackets(alt_text(view));
    format!(".. image:: {badge}\n   :alt: {alt}\n   :target: {page}\n")
}

/// Returns `AsciiDoc` markup.
pub(super) fn asciidoc(urls: &PageUrls<'_>, view: &PageView<'_>, repo: &str) -> String {
    let (badge, page) = (badge_url(urls, view, repo, "svg"), hub_url(urls, repo));
    let alt = alt_text(view).replace(['\n', '\r'], " ").replace('"', "&quot;");
    format!("image:{badge}[\"{alt}\",link=\"{page}\"]")
}

/// Returns the shields.io URL of the badge. Shields.io requires a badge URL with `https`.
pub(super) fn shields(urls: &PageUrls<'_>, view: &PageView<'_>, repo: &str) -> String {
    let json = badge_url(urls, view, repo, "json");
    let query = Serializer::new(String::new()).append_pair("url", &json).finish();
    format!("https://img.shields.io/endpoint?{query}")
}

fn badge_url(urls: &PageUrls<'_>, view: &PageView<'_>, repo: &str, kind: &str) -> String {
    format!("{}{}", urls.base, badge(view, repo, view.options, kind))
}

/// Returns the URL of the repository on the Hub.
fn hub_url(urls: &PageUrls<'_>, repo: &str) -> String {
    format!("{}/{repo}", urls.hub)
}

/// Returns the alternative text of the image. It omits the value, which can change.
fn alt_text<'a>(view: &PageView<'a>) -> &'a str {
    view.options.label.as_deref().unwrap_or(view.metric.label())
}

/// Escapes text for the brackets of a Markdown link or image.
fn escape_brackets(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => escaped.push(' '),
            c if c.is_ascii_punctuation() => escaped.extend(['\\', c]),
            c => escaped.push(c),
        }
    }
    escaped
}

fn field(id: &str, label: &str, value: &str) -> Markup {
    html! {
        div .field {
            label for=(id) { (label) }
            @if value.contains('\n') {
                textarea id=(id) rows="3" readonly { (value) }
            } @else {
                input id=(id) type="text" readonly value=(value);
            }
            button type="button" data-copies=(id) hidden { "Copy" span .visually-hidden { " " (label) } }
        }
    }
}
