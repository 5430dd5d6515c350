//! URLs of badges, JSON and pages, and snippets in Markdown, HTML and other markup that embed a badge.

use maud::{Markup, html};
use url::form_urlencoded::{Serializer, byte_serialize};

use super::{PageUrls, PageView};
use crate::weights_query::WeightsQuery;
use hf_meta::Endpoint;
use hf_meta_badge::{BadgeOptions, Metric, Theme};

/// A query parameter with its value, if it is not the default.
type Parameter = (&'static str, Option<String>);

/// Returns the URL of a badge, relative to the page.
///
/// Repository names need no encoding.
pub(super) fn badge(
    view: &PageView<'_>,
    weights: &WeightsQuery,
    options: &BadgeOptions,
    kind: &str,
) -> String {
    let selection = selection(weights.revision(), weights.path());
    let query = query(selection.into_iter().chain(badge_options(view.metric, options)));
    format!("badge/{}.{kind}{query}", weights.repo())
}

/// Returns the URL of the JSON counts, relative to the page.
pub(super) fn json(weights: &WeightsQuery) -> String {
    let query = query(selection(weights.revision(), weights.path()));
    format!("api/models/{}{query}", weights.repo())
}

/// Returns the URL of the page for another path in the repository, relative to the page itself.
pub(super) fn page(view: &PageView<'_>, weights: &WeightsQuery, path: &str) -> String {
    let repo = ("repo", Some(weights.repo().to_string()));
    let selection = selection(weights.revision(), Some(path));
    let options = badge_options(view.metric, view.options);
    query([repo].into_iter().chain(selection).chain(options))
}

/// Returns the URL of the page that inspects weights in the browser, relative to the page itself.
pub(crate) fn inspector(hub: &Endpoint, weights: Option<&WeightsQuery>) -> String {
    let hub = (*hub != Endpoint::default()).then(|| hub.to_string());
    let source = weights.map_or_else(String::new, |weights| {
        let source = byte_serialize(weights.source().to_string().as_bytes()).collect::<String>();
        format!(
            "#{}",
            source.replace('+', "%20").replace("%2F", "/").replace("%3A", ":").replace("%40", "@")
        )
    });
    format!("inspect/page/index.html{}{source}", query([("hub", hub)]))
}

fn selection(revision: Option<&str>, path: Option<&str>) -> [Parameter; 2] {
    [("revision", revision.map(str::to_owned)), ("path", path.map(str::to_owned))]
}

fn badge_options(metric: Metric, options: &BadgeOptions) -> [Parameter; 6] {
    let BadgeOptions { style, theme, logo, label, color } = options;
    let default = BadgeOptions::default();
    [
        ("show", (metric != Metric::default()).then(|| metric.to_string())),
        ("style", (*style != default.style).then(|| style.to_string())),
        ("theme", (*theme != default.theme).then(|| theme.to_string())),
        ("logo", (*logo != default.logo).then(|| logo.to_string())),
        ("label", label.clone()),
        ("color", color.map(|color| color.to_string())),
    ]
}

/// Returns a query string with its leading question mark, or an empty string.
fn query(parameters: impl IntoIterator<Item = Parameter>) -> String {
    let given = parameters.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let query = Serializer::new(String::new()).extend_pairs(given).finish();
    if query.is_empty() { query } else { format!("?{query}") }
}

/// Renders one field per snippet.
pub(super) fn fields(urls: &PageUrls<'_>, view: &PageView<'_>, weights: &WeightsQuery) -> Markup {
    html! {
        section .paste aria-label="Embed the badge" {
            @for (id, label, text) in snippets(urls, view, weights) { (field(id, label, &text)) }
        }
    }
}

/// Returns the snippets, each with its ID and label.
pub(super) fn snippets(
    urls: &PageUrls<'_>,
    view: &PageView<'_>,
    weights: &WeightsQuery,
) -> [(&'static str, &'static str, String); 6] {
    let url = |options: &BadgeOptions, kind| {
        format!("{}{}", urls.base, badge(view, weights, options, kind))
    };
    let themed = |theme| url(&BadgeOptions { theme, ..view.options.clone() }, "svg");
    let (svg, json) = (url(view.options, "svg"), url(view.options, "json"));
    let (page, alt) = (format!("{}/{}", urls.hub, weights.repo()), alt_text(view));
    let escaped = escape_brackets(alt);
    let quoted = alt.replace(['\n', '\r'], " ").replace('"', "&quot;");
    let html = html! { a href=(page) { img src=(svg) alt=(alt); } };
    let picture = html! {
        a href=(page) {
            picture {
                source media="(prefers-color-scheme: dark)" srcset=(themed(Theme::Dark));
                img src=(themed(Theme::Light)) alt=(alt);
            }
        }
    };
    let rst = format!(".. image:: {svg}\n   :alt: {escaped}\n   :target: {page}\n");
    // Shields.io requires a badge URL with `https`.
    let shields = Serializer::new(String::new()).append_pair("url", &json).finish();
    [
        ("markdown", "Markdown", format!("[![{escaped}]({svg})]({page})")),
        ("html", "HTML", html.into_string()),
        ("picture", "HTML, light and dark", picture.into_string()),
        ("rst", "reStructuredText", rst),
        ("asciidoc", "AsciiDoc", format!("image:{svg}[\"{quoted}\",link=\"{page}\"]")),
        ("shields", "shields.io URL", format!("https://img.shields.io/endpoint?{shields}")),
    ]
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
