//! The HTML page for creating badges: a form, the badge in every style, snippets to embed it, and the counts of the
//! checkpoint.
//!
//! The server renders the whole page, so it works without scripts. When the user selects a model or an option, the
//! script requests the page again and replaces the result. The page loads nothing from other hosts and has no inline
//! styles or scripts, so that [`content_security_policy`] can forbid them.

mod data;
mod result;
mod snippets;
mod tables;
#[cfg(test)]
mod tests;

use maud::{DOCTYPE, Markup, html};

use hf_meta::RepoId;
use hf_meta::report::text::{escape, short, short_bytes, thousands};
use hf_meta_badge::{BadgeOptions, Metric, MetricValues, Theme};

pub(crate) use data::{
    MAX_TENSORS, PageOutcome, PageUrls, PageView, Section, SetRows, WeightsDetails,
};

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

/// The maximum number of other models.
const MAX_OTHERS: usize = 5;

/// Example repositories.
const EXAMPLES: [&str; 3] = ["bigscience/bloom", "EleutherAI/gpt-neox-20b", "gpt2"];

/// Parses repository names separated by whitespace or commas. Other text is ignored.
pub(crate) fn repos(text: &str) -> Vec<RepoId> {
    let names = text.split([' ', ',', '\n', '\t']).filter(|name| !name.is_empty());
    names.filter_map(|name| name.parse().ok()).take(MAX_OTHERS).collect()
}

/// Returns the repositories as text for the form.
fn names(repos: &[RepoId]) -> String {
    repos.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Renders the page. Without a repository it contains only the form and examples.
pub(crate) fn page(urls: &PageUrls<'_>, view: Option<&PageView<'_>>) -> String {
    let repo = view.and_then(|view| view.repo);
    let is_pending = view.is_some_and(|view| view.outcome.is_pending());
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="description" content="Parameter count badges for models on the Hugging Face Hub";
                // With scripts, the script polls. Without, the browser reloads the page.
                @if is_pending { noscript { meta http-equiv="refresh" content="3"; } }
                title { @if let Some(repo) = repo { (repo) " · " } "hf-meta badges" }
                @if let Some(view) = view { (card(urls, view)) }
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
                            Some(view) => (result::result(urls, view)),
                            None => (examples()),
                        }
                    }
                    p #status .visually-hidden role="status" {}
                }
                (footer())
            }
        }
    };
    markup.into_string()
}

/// Renders the preview card that other sites show for links to the page (Open Graph).
fn card(urls: &PageUrls<'_>, view: &PageView<'_>) -> Markup {
    let Some(repo) = view.repo else { return html! {} };
    let (title, description) = match &view.outcome {
        PageOutcome::Counted { values, .. } | PageOutcome::HubReported(values, _) => {
            card_texts(repo, values)
        }
        PageOutcome::Choice(reason, _) | PageOutcome::Failed(reason) => {
            (repo.to_owned(), escape(reason))
        }
        PageOutcome::Pending => (repo.to_owned(), "Parameter counts".to_owned()),
    };
    html! {
        meta property="og:type" content="website";
        meta property="og:site_name" content="hf-meta";
        meta property="og:title" content=(title);
        meta property="og:description" content=(description);
        meta property="og:url" content={ (urls.base) (snippets::page(view, repo, view.path)) };
        meta name="twitter:card" content="summary";
    }
}

/// Returns the title and description of a model.
fn card_texts(repo: &str, values: &MetricValues) -> (String, String) {
    let parameters = values.parameters;
    let title = format!("{repo}: {} parameters", short(parameters));
    let dtypes = values.dtypes.iter().take(3).map(|(dtype, _)| escape(dtype.as_str()));
    let mut parts = vec![
        format!("{} parameters", thousands(parameters)),
        dtypes.collect::<Vec<_>>().join(", "),
    ];
    if !values.is_verified {
        parts.push("reported by the Hub, not verified".to_owned());
    }
    parts.extend(values.bytes.map(|bytes| format!("{} of weights", short_bytes(bytes))));
    (title, parts.join(" · "))
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
    let metric = view.map_or_else(Metric::default, |view| view.metric);
    // A URL is replaced by its repository's name, because revision and path have their own fields.
    let repo = view.map_or("", |view| view.repo.unwrap_or(view.input));
    html! {
        form #query method="get" action="./" role="search" {
            div .repo {
                label for="repo" { "Model" }
                input #repo name="repo" type="text" required autofocus[view.is_none()]
                    autocomplete="off" autocapitalize="none" spellcheck="false" maxlength="400"
                    placeholder="org/name" value=(repo);
                button type="submit" { "Show" }
            }
            (badge_fields(metric, options))
            (selection_fields(view.and_then(|view| view.revision), view.and_then(|view| view.path)))
            @let others = view.map_or(&[][..], |view| view.others);
            div .options .comparison {
                (text("compare", "Compare with", 1_024, "org/name org/name", Some(&names(others))))
            }
        }
    }
}

/// Renders the fields for the metric and the appearance of the badge.
fn badge_fields(metric: Metric, options: &BadgeOptions) -> Markup {
    let color = options.color.map(|color| color.to_string()).unwrap_or_default();
    html! {
        div .options {
            (select("show", "Metric", Metric::NAMES, metric.as_str()))
            (select("theme", "Theme", Theme::NAMES, options.theme.as_str()))
            (text("label", "Label", 64, metric.label(), options.label.as_deref()))
            (text("color", "Color", 64, "blue", Some(&color)))
            div .check {
                input #logo type="checkbox" name="logo" value="huggingface"
                    checked[options.logo != BadgeOptions::default().logo];
                label for="logo" { "Logo" }
            }
        }
    }
}

/// Renders the fields that select a revision and a path.
fn selection_fields(revision: Option<&str>, path: Option<&str>) -> Markup {
    html! {
        div .options .selection {
            (text("revision", "Revision", 255, "main", revision))
            (text("path", "File or folder", 1_024, "default weights", path))
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

fn footer() -> Markup {
    html! {
        footer {
            p {
                "Counts come from the files themselves, not from model cards. "
                "Badge styles follow shields.io."
            }
        }
    }
}
