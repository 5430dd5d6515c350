//! The HTML page for creating badges: a form, the badge in every style, snippets to embed it, and one line of counts.
//!
//! The server renders the whole page, so it works without scripts. When the user selects a model or an option, the
//! script requests the page again and replaces the result. The page loads nothing from other hosts and has no inline
//! styles or scripts, so that [`content_security_policy`] can forbid them.

mod snippets;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use maud::{DOCTYPE, Markup, html};

pub(crate) use self::snippets::inspector as inspector_url;
use super::failure::Failure;
use super::lookup_result::LookupResult;
use super::weights_query::WeightsQuery;
use hf_meta::Endpoint;
use hf_meta_badge::{BadgeOptions, Metric, MetricValues, Style, Theme};
use hf_meta_count::results::text::{counted, escape, short_bytes, thousands};

/// The style sheet, served at `style.css`.
pub(crate) const STYLE: &str = include_str!("style.css");

/// The script, served at `app.js`.
pub(crate) const SCRIPT: &str = include_str!("app.js");

/// The icon, served at `favicon.svg`.
pub(crate) const ICON: &str = hf_meta_badge::FACE;

/// Returns the content security policy of the page: it loads only its own files, and only `frame_ancestors` may embed
/// it.
pub(crate) fn content_security_policy(frame_ancestors: Option<&str>) -> String {
    let frame_ancestors = frame_ancestors.unwrap_or("'none'");
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors {frame_ancestors}"
    )
}

/// Example repositories.
const EXAMPLES: [&str; 3] = ["bigscience/bloom", "EleutherAI/gpt-neox-20b", "gpt2"];

/// The maximum number of weight sets to choose from. A repository can have any number of files.
const MAX_SETS: usize = 100;

/// The URLs that the page refers to.
pub(crate) struct PageUrls<'a> {
    /// The URL of the page as users see it, with a trailing slash; `/` if unknown.
    pub(crate) base: &'a str,
    pub(crate) hub: &'a Endpoint,
    /// `true` if the page that inspects models in the browser is served.
    pub(crate) has_inspector: bool,
}

/// A request for the page of a repository, and its result.
pub(crate) struct PageView<'a> {
    /// The user's input.
    pub(crate) input: &'a str,
    /// The requested weights, if the input is valid.
    pub(crate) weights: Option<&'a WeightsQuery>,
    pub(crate) metric: Metric,
    pub(crate) options: &'a BadgeOptions,
    pub(crate) result: &'a LookupResult,
}

impl PageView<'_> {
    /// Returns whether the result is not known yet.
    fn is_pending(&self) -> bool {
        matches!(self.result, LookupResult::Failed(failure) if failure.is_pending())
    }
}

/// Renders the page. Without a repository it contains only the form and examples.
pub(crate) fn page(urls: &PageUrls<'_>, view: Option<&PageView<'_>>) -> String {
    let weights = view.and_then(|view| view.weights);
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="description" content="Parameter count badges for models on the Hugging Face Hub";
                // With scripts, the script polls. Without, the browser reloads the page.
                @if view.is_some_and(PageView::is_pending) {
                    noscript { meta http-equiv="refresh" content="3"; }
                }
                title { @if let Some(weights) = weights { (weights.repo()) " · " } "hf-meta badges" }
                link rel="icon" href="favicon.svg" type="image/svg+xml";
                link rel="stylesheet" href="style.css";
                script src="app.js" type="module" {}
            }
            body data-base=(urls.base) {
                (header())
                main {
                    (form(view))
                    div #result aria-busy="false" {
                        @match view {
                            Some(view) => (result(urls, view)),
                            None => (examples()),
                        }
                    }
                    p #status .visually-hidden role="status" {}
                }
                footer {
                    @if urls.has_inspector {
                        p { a href=(snippets::inspector(urls.hub, weights)) { "Tensors, modules and memory" } }
                    }
                    p {
                        "Counts come from the files themselves, not from model cards. "
                        "Badge styles follow shields.io."
                    }
                }
            }
        }
    };
    markup.into_string()
}

fn header() -> Markup {
    html! {
        header {
            a .brand href="./" { img src="favicon.svg" alt="" width="28" height="28"; "hf-meta" }
            h1 { "Parameter count badges" }
            p .lead {
                "Enter a model on the Hugging Face Hub. The service reads and validates only the headers of its "
                "safetensors files: a few kilobytes instead of gigabytes. The badge is updated whenever the "
                "repository changes."
            }
        }
    }
}

fn form(view: Option<&PageView<'_>>) -> Markup {
    let default = BadgeOptions::default();
    let options = view.map_or(&default, |view| view.options);
    let color = options.color.map(|color| color.to_string());
    let metric = view.map_or_else(Metric::default, |view| view.metric);
    let weights = view.and_then(|view| view.weights);
    // A URL is replaced by its repository's name, because revision and path have their own fields.
    let input = view.map_or("", |view| view.input);
    let repo = weights.map_or_else(|| input.to_owned(), |weights| weights.repo().to_string());
    html! {
        form #query method="get" action="./" role="search" {
            div .repo {
                label for="repo" { "Model" }
                input #repo name="repo" type="text" required autofocus[view.is_none()]
                    autocomplete="off" autocapitalize="none" spellcheck="false" maxlength="400"
                    placeholder="org/name" value=(repo);
                button type="submit" { "Show" }
            }
            div .options {
                (select("show", "Metric", Metric::NAMES, metric.as_str()))
                (select("theme", "Theme", Theme::NAMES, options.theme.as_str()))
                (text("label", "Label", 64, metric.label(), options.label.as_deref()))
                (text("color", "Color", 64, "blue", color.as_deref()))
                div .check {
                    input #logo type="checkbox" name="logo" value="huggingface" checked[options.logo != default.logo];
                    label for="logo" { "Logo" }
                }
            }
            @let (revision, path) = weights.map_or((None, None), |weights| (weights.revision(), weights.path()));
            div .options .selection {
                (text("revision", "Revision", 255, "main", revision))
                (text("path", "File or folder", 1_024, "default weights", path))
            }
        }
    }
}

fn select(name: &str, label: &str, choices: &[&str], chosen: &str) -> Markup {
    html! {
        div {
            label for=(name) { (label) }
            select id=(name) name=(name) {
                @for choice in choices {
                    option selected[*choice == chosen] { (choice) }
                }
            }
        }
    }
}

fn text(
    name: &str,
    label: &str,
    max_length: u16,
    placeholder: &str,
    value: Option<&str>,
) -> Markup {
    html! {
        div {
            label for=(name) { (label) }
            input id=(name) name=(name) type="text" maxlength=(max_length) autocomplete="off"
                spellcheck="false" placeholder=(placeholder) value=(value.unwrap_or_default());
        }
    }
}

fn examples() -> Markup {
    html! {
        p .examples {
            "Try "
            @for (at, repo) in EXAMPLES.iter().enumerate() {
                @if at > 0 { " · " }
                a href={ "?repo=" (repo) } { (repo) }
            }
        }
    }
}

/// Renders the part of the page that depends on the model and the options. A failure without a value has no badge to
/// embed.
fn result(urls: &PageUrls<'_>, view: &PageView<'_>) -> Markup {
    let values = match view.result {
        LookupResult::Counted(counted) => Some(MetricValues::from_report(&counted.report)),
        LookupResult::Failed(failure) => failure.reported(),
    };
    let weights = if values.is_some() || view.is_pending() { view.weights } else { None };
    html! {
        @if let LookupResult::Failed(failure) = view.result { (notice(view, failure)) }
        @if let Some(weights) = weights {
            @if let Some(values) = values { (counts(&values, weights)) }
            (badges(view, weights))
            (snippets::fields(urls, view, weights))
        }
    }
}

/// Renders the message of a failure and what to do next, with links to the weight sets to choose from.
fn notice(view: &PageView<'_>, failure: &Failure) -> Markup {
    html! {
        div .notice data-pending[view.is_pending()] {
            p { (escape(&failure.error)) }
            @if !failure.help.is_empty() { p { (failure.help) } }
            @if let (Some(weights), false) = (view.weights, failure.sets.is_empty()) {
                ul .sets {
                    @for set in failure.sets.iter().take(MAX_SETS) {
                        @let path = set.path.as_str();
                        li { a href=(snippets::page(view, weights, path)) { (escape(path)) } }
                    }
                    @if let Some(omitted @ 1..) = failure.sets.len().checked_sub(MAX_SETS) {
                        li { "and " (thousands(omitted as u64)) " more" }
                    }
                }
            }
        }
    }
}

/// Renders the counts in one line.
fn counts(values: &MetricValues, weights: &WeightsQuery) -> Markup {
    let mark = if values.is_exact { "" } else { "~" };
    let mut dtypes: Vec<_> = values.dtypes.iter().collect();
    dtypes.sort_by_key(|(_, count)| Reverse(*count));
    let dtypes = dtypes.iter().take(3).map(|(dtype, _)| escape(dtype.as_str()));
    let parts = [
        values.active.ok().map(|active| format!("{} active", thousands(active))),
        Some(dtypes.collect::<Vec<_>>().join(", ")),
        values.bytes.map(short_bytes),
        values.tensors.map(|tensors| counted(tensors, "tensor")),
        values.shards.map(|files| counted(files, "file")),
        (!values.is_verified).then(|| "reported by the Hub, not verified".to_owned()),
    ];
    html! {
        p .counts {
            strong { (mark) (counted(values.parameters, "parameter")) }
            @for part in parts.into_iter().flatten() { " · " (part) }
            " · " a href=(snippets::json(weights)) { "JSON" }
        }
    }
}

/// Renders the badge in every style on light and dark, with a radio button for each style.
fn badges(view: &PageView<'_>, weights: &WeightsQuery) -> Markup {
    html! {
        fieldset .styles {
            legend { "Style" }
            @for style in Style::ALL {
                @let address = |page| snippets::badge(view, weights, &with_style(page, *style, view.options), "svg");
                label {
                    input type="radio" name="style" form="query" id={ "style-" (style) }
                        value=(style) checked[*style == view.options.style];
                    span .style { (style) }
                    span .sample { img src=(address(Theme::Light)) alt={ "Badge in the style " (style) }; }
                    span .sample .dark aria-hidden="true" { img src=(address(Theme::Dark)) alt=""; }
                }
            }
        }
    }
}

/// Returns the options with another style. The `auto` theme becomes the theme of the page.
fn with_style(page: Theme, style: Style, options: &BadgeOptions) -> BadgeOptions {
    let theme = if options.theme == Theme::Auto { page } else { options.theme };
    BadgeOptions { style, theme, ..options.clone() }
}
