//! The part of the page that changes while the reader types.

use maud::{Markup, html};

use super::found::Found;
use super::sets::{self, Others};
use super::{Outcome, Shown, Site, paste, table};
use crate::badge::{BadgeOptions, MetricValues, Style, Theme};
use crate::report::text::{bytes, counted, escape, short, short_bytes, thousands};

/// What came of what was asked for.
pub(super) fn result(site: &Site<'_>, shown: &Shown<'_>) -> Markup {
    html! {
        @if let (Some(repo), Some(path)) = (shown.repo, shown.path) { (whereabouts(shown, repo, path)) }
        @match shown.outcome {
            Outcome::Found(..) => {},
            Outcome::Claimed(_, reason) | Outcome::Choice(reason, _) | Outcome::Failed(reason) => {
                p .notice { (escape(reason)) }
            },
            Outcome::Pending => p .notice data-pending="" {
                "The headers are being read. What is found will stand here in a moment."
            },
        }
        @if let (Some(repo), Outcome::Choice(_, sets)) = (shown.repo, &shown.outcome) {
            (sets::choice(shown, repo, sets))
        } @else if let Some(repo) = shown.repo {
            (badges(shown, repo))
            // A badge without a figure is nothing to paste, unless it will have one soon.
            @if !matches!(shown.outcome, Outcome::Failed(_)) {
                section .paste aria-label="To paste" { (paste::fields(site, shown, repo)) }
            }
        }
        @match &shown.outcome {
            Outcome::Found(found, others) => (weights(site, shown, found, others)),
            Outcome::Claimed(figures, _) => (claim(figures)),
            Outcome::Choice(..) | Outcome::Failed(_) | Outcome::Pending => {},
        }
    }
}

/// What of the repo is shown, and the way to all of it.
fn whereabouts(shown: &Shown<'_>, repo: &str, path: &str) -> Markup {
    html! {
        nav .whereabouts aria-label="What is shown" {
            a href=(paste::page(shown, repo, None)) { (repo) }
            " / " span .name aria-current="page" { (sets::path(path)) }
        }
    }
}

/// The badge in every style, on a light and on a dark page, one of them chosen.
fn badges(shown: &Shown<'_>, repo: &str) -> Markup {
    html! {
        fieldset .styles {
            legend { "Style" }
            @for style in Style::ALL {
                @let address = |page| paste::badge(shown, repo, &on(page, *style, shown.look), "svg");
                label {
                    input type="radio" name="style" form="ask" id={ "style-" (style) }
                        value=(style) checked[*style == shown.look.style];
                    span .style { (style) }
                    span .sample { img src=(address(Theme::Light)) alt={ "the badge in the style " (style) }; }
                    span .sample .dark aria-hidden="true" { img src=(address(Theme::Dark)) alt=""; }
                }
            }
        }
    }
}

/// The look in a style on a page, where the theme `auto` is that of the page.
fn on(page: Theme, style: Style, look: &BadgeOptions) -> BadgeOptions {
    let theme = if look.theme == Theme::Auto { page } else { look.theme };
    BadgeOptions { style, theme, ..look.clone() }
}

/// What is in the weights.
fn weights(site: &Site<'_>, shown: &Shown<'_>, found: &Found, others: &Others) -> Markup {
    let (total, repo) = (found.totals.bytes, shown.repo.unwrap_or_default());
    html! {
        section aria-labelledby="found" {
            h2 #found { "In the files" }
            (tiles(found))
            h3 { "Dtypes" }
            (table::bar(&found.dtypes, total))
            (table::dtypes(&found.dtypes, total))
            h3 { "Modules" }
            (table::rows("module", "elements", &found.modules, total))
            (files(found, total))
            h3 { "Findings" }
            (findings(found))
            (sets::others(shown, repo, others))
            (cost(site, shown, repo, found))
        }
    }
}

/// The figures in large.
fn tiles(found: &Found) -> Markup {
    let Found { figures, totals, .. } = found;
    let parameters = figures.parameters;
    html! {
        dl .tiles {
            (tile("Parameters", &short(parameters), &thousands(parameters)))
            @if let Some(active) = figures.active {
                (tile("Active", &short(active), &thousands(active)))
            }
            (tile("Size", &short_bytes(totals.bytes), &counted(totals.bytes, "byte")))
            (tile("Tensors", &thousands(totals.tensors), &scalars(totals.scalars)))
            (tile("Files", &thousands(found.files.all as u64), ""))
        }
    }
}

fn scalars(scalars: u64) -> String {
    match scalars {
        0 => String::new(),
        scalars => format!("{} not counted", counted(scalars, "scalar")),
    }
}

fn tile(name: &str, figure: &str, exact: &str) -> Markup {
    html! {
        div {
            dt { (name) }
            dd { strong { (figure) } small { (exact) } }
        }
    }
}

/// The files: one is told by its name, several are folded away.
fn files(found: &Found, total: u64) -> Markup {
    let count = counted(found.files.all as u64, "file");
    let sizes = found.files.rows.iter().map(|row| row.bytes);
    let range = sizes.clone().min().zip(sizes.max());
    html! {
        h3 { "Files" }
        @if let [file] = &*found.files.rows {
            p { code { (escape(&file.name)) } }
        } @else {
            details #files {
                summary {
                    (count)
                    @if let Some((least, most)) = range { ", " (bytes(least)) " to " (bytes(most)) }
                }
                (table::rows("file", "parameters", &found.files, total))
            }
        }
    }
}

fn findings(found: &Found) -> Markup {
    html! {
        @if found.findings.is_empty() {
            p .fine { "Nothing is wrong or odd with the headers." }
        } @else {
            ul .findings {
                @for finding in &found.findings { li { (escape(finding)) } }
                @if found.more_findings > 0 {
                    li { "and " (thousands(found.more_findings as u64)) " more" }
                }
            }
        }
    }
}

/// What it took to know all this, and of which state of the repo it is.
fn cost(site: &Site<'_>, shown: &Shown<'_>, repo: &str, found: &Found) -> Markup {
    let fetch = &found.fetch;
    html! {
        p .fetch {
            (counted(fetch.requests, "request")) ", " (bytes(fetch.bytes_read)) " read of "
            (bytes(fetch.bytes_total)) ", " (format!("{:.2}", fetch.elapsed.as_secs_f64())) " s"
            @if let Some(commit) = &found.commit {
                " · commit "
                a href={ (site.endpoint) "/" (repo) "/tree/" (commit) } {
                    code { (commit.as_str().get(..7).unwrap_or_default()) }
                }
            }
            " · "
            a href=(paste::json(shown, repo)) { "as JSON" }
        }
    }
}

/// The Hub's own figures.
fn claim(figures: &MetricValues) -> Markup {
    html! {
        section aria-labelledby="found" {
            h2 #found { "What the Hub says" }
            dl .tiles { (tile("Parameters", &short(figures.parameters), &thousands(figures.parameters))) }
            p { "Not held against the files, which are closed to this reader." }
        }
    }
}
