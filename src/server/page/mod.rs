//! The page on which a badge is made: a form, the badge in every style, the texts to paste, and what
//! was found in the weights.
//!
//! It is rendered here in whole, and so works without scripts; the script asks for the same page again
//! while the reader types, and puts its result in the place of the old one. Nothing is asked of third
//! parties, and neither style nor script stands in the page, so that [`CONTENT_SECURITY_POLICY`] can
//! forbid both.

mod found;
mod modules;
mod paste;
mod result;
mod rows;
mod sets;
mod table;
#[cfg(test)]
mod tests;

use maud::{DOCTYPE, Markup, html};

use crate::badge::{BadgeOptions, Metric, MetricValues, Theme};
use crate::hub::Endpoint;

pub(crate) use found::{Beside, Found};
pub(crate) use sets::{Others, Sets};

/// The style sheet, at `style.css` beside the page.
pub(crate) const STYLE: &str = include_str!("style.css");

/// The script, at `app.js` beside the page.
pub(crate) const SCRIPT: &str = include_str!("app.js");

/// The icon, at `favicon.svg` beside the page.
pub(crate) const ICON: &str = include_str!("../../badge/face.svg");

/// What the page may load, and from where: its own files.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; \
     style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; \
     frame-ancestors 'none'";

/// Repos to try.
const EXAMPLES: [&str; 3] = ["bigscience/bloom", "EleutherAI/gpt-neox-20b", "gpt2"];

/// What was asked for, and what came of it.
pub(crate) struct Shown<'a> {
    /// What was typed.
    pub(crate) asked: &'a str,
    /// The repo that it names, as it stands in a URL: `org/name`.
    pub(crate) repo: Option<&'a str>,
    pub(crate) revision: Option<&'a str>,
    pub(crate) path: Option<&'a str>,
    pub(crate) show: Metric,
    pub(crate) look: &'a BadgeOptions,
    pub(crate) outcome: Outcome<'a>,
}

/// What came of a look at a repo.
pub(crate) enum Outcome<'a> {
    /// What is in its weights, and what other weights are there.
    Found(&'a Found, Others),
    /// The Hub's own figures, and why there are no others.
    Claimed(&'a MetricValues, &'a str),
    /// There are several sets of weights, and no name tells which is the model.
    Choice(&'a str, Sets),
    /// Why nothing is known.
    Failed(&'a str),
    /// The look is not over.
    Pending,
}

impl Outcome<'_> {
    /// Whether there will be more to show in a moment.
    fn is_pending(&self) -> bool {
        matches!(self, Self::Pending | Self::Found(_, Others::Pending))
    }
}

/// Where the page is, and the Hub that it asks.
pub(crate) struct Site<'a> {
    /// The address of the page, which ends with a slash, as far as the server knows it.
    pub(crate) address: &'a str,
    pub(crate) endpoint: &'a Endpoint,
}

/// The page; without anything asked for, the form alone.
pub(crate) fn page(site: &Site<'_>, shown: Option<&Shown<'_>>) -> String {
    let repo = shown.and_then(|shown| shown.repo);
    let is_pending = shown.is_some_and(|shown| shown.outcome.is_pending());
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="description" content="Badges with the parameters of models on the Hugging Face Hub";
                // Scripts ask again by themselves.
                @if is_pending { noscript { meta http-equiv="refresh" content="3"; } }
                title { @if let Some(repo) = repo { (repo) " · " } "hf-meta badges" }
                link rel="icon" href="favicon.svg" type="image/svg+xml";
                link rel="stylesheet" href="style.css";
                script src="app.js" type="module" {}
            }
            body data-address=(site.address) {
                (header())
                main {
                    (form(shown))
                    div #result aria-busy="false" {
                        @match shown {
                            Some(shown) => (result::result(site, shown)),
                            None => (examples()),
                        }
                    }
                    p #status .unseen role="status" {}
                }
                (footer())
            }
        }
    };
    markup.into_string()
}

fn header() -> Markup {
    html! {
        header {
            a .brand href="./" { img src="favicon.svg" alt="" width="28" height="28"; "hf-meta" }
            h1 { "Parameters, counted, on a badge" }
            p .lead {
                "Name a model on the Hugging Face Hub. The headers of its safetensors files are read and "
                "checked, kilobytes out of terabytes, and its badge shows what is in them, now and after "
                "every change."
            }
        }
    }
}

fn form(shown: Option<&Shown<'_>>) -> Markup {
    let default = BadgeOptions::default();
    let look = shown.map_or(&default, |shown| shown.look);
    let show = shown.map_or_else(Metric::default, |shown| shown.show);
    // What was typed, put in order if it named a repo: revision and path have fields of their own.
    let repo = shown.map_or("", |shown| shown.repo.unwrap_or(shown.asked));
    html! {
        form #ask method="get" action="./" role="search" {
            div .repo {
                label for="repo" { "Model" }
                input #repo name="repo" type="text" required autofocus[shown.is_none()]
                    autocomplete="off" autocapitalize="none" spellcheck="false" maxlength="400"
                    placeholder="org/name" value=(repo);
                button type="submit" { "Metric" }
            }
            (options(show, look))
            (place(shown.and_then(|shown| shown.revision), shown.and_then(|shown| shown.path)))
        }
    }
}

/// What the badge says, and how it looks.
fn options(show: Metric, look: &BadgeOptions) -> Markup {
    let color = look.color.map(|color| color.to_string()).unwrap_or_default();
    html! {
        div .options {
            (select("show", "Figure", Metric::NAMES, show.as_str()))
            (select("theme", "For pages", Theme::NAMES, look.theme.as_str()))
            (text("label", "Label", 64, show.label(), look.label.as_deref()))
            (text("color", "Colour", 64, "blue", Some(&color)))
            div .check {
                input #logo type="checkbox" name="logo" value="huggingface"
                    checked[look.logo != BadgeOptions::default().logo];
                label for="logo" { "Logo" }
            }
        }
    }
}

/// What of the repo is looked at.
fn place(revision: Option<&str>, path: Option<&str>) -> Markup {
    html! {
        div .options .place {
            (text("revision", "Revision", 255, "main", revision))
            (text("path", "File or folder", 1_024, "the model", path))
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

fn text(name: &str, label: &str, longest: u16, placeholder: &str, value: Option<&str>) -> Markup {
    html! {
        div {
            label for=(name) { (label) }
            input id=(name) name=(name) type="text" maxlength=(longest) autocomplete="off"
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
                "MetricValues are counted from the files, not taken from their descriptions. "
                "The drawings are in the styles of shields.io."
            }
        }
    }
}
