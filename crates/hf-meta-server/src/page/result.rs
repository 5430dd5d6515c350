//! The part of the page that depends on the model and the options.

use maud::{Markup, html};

use super::data::{
    PageOutcome, PageUrls, PageView, Section, TableRows, WeightsDetails, dtype_rows,
};
use super::{snippets, tables};
use hf_meta::report::text::{bytes, counted, escape, short, short_bytes, thousands};
use hf_meta::report::{CountReport, Finding};
use hf_meta_badge::{BadgeOptions, Metric, MetricValues, Style, Theme};

/// The metrics of the comparison.
const METRICS: [(Metric, &str); 4] = [
    (Metric::Params, "Parameters"),
    (Metric::Bytes, "Size"),
    (Metric::Dtype, "Dtype"),
    (Metric::Tensors, "Tensors"),
];

/// The maximum number of findings on the page.
const MAX_FINDINGS: usize = 10;

/// Renders the outcome of a lookup.
pub(super) fn result(urls: &PageUrls<'_>, view: &PageView<'_>) -> Markup {
    html! {
        @if let (Some(repo), Some(path)) = (view.repo, view.path) { (breadcrumb(view, repo, path)) }
        @match view.outcome {
            PageOutcome::Counted { .. } => {},
            PageOutcome::HubReported(_, reason) | PageOutcome::Choice(reason, _) | PageOutcome::Failed(reason) => {
                p .notice { (escape(reason)) }
            },
            PageOutcome::Pending => p .notice data-pending="" {
                "The headers are being read. The counts will appear here in a moment."
            },
        }
        @if let (Some(repo), PageOutcome::Choice(_, sets)) = (view.repo, &view.outcome) {
            (tables::choice_of_sets(view, repo, sets))
        } @else if let Some(repo) = view.repo {
            (badges(view, repo))
            // Offer no snippets for a badge without a value, unless it is pending.
            @if !matches!(view.outcome, PageOutcome::Failed(_)) {
                section .paste aria-label="Embed the badge" { (snippets::fields(urls, view, repo)) }
            }
        }
        @match &view.outcome {
            PageOutcome::Counted { values, report, details, others } => {
                section aria-labelledby="found" {
                    (weights(values, report, *details))
                    (tables::other_sets(view, view.repo.unwrap_or_default(), others))
                    (fetch_stats(urls, view, report))
                }
            },
            PageOutcome::HubReported(values, _) => (reported(values)),
            PageOutcome::Choice(..) | PageOutcome::Failed(_) | PageOutcome::Pending => {},
        }
        @if let Some(repo) = view.repo { (comparison(view, repo)) }
    }
}

/// Renders the selected path with a link to the whole repository.
fn breadcrumb(view: &PageView<'_>, repo: &str, path: &str) -> Markup {
    html! {
        nav .breadcrumb aria-label="Selected path" {
            a href=(snippets::page(view, repo, None)) { (repo) }
            " / " span .name aria-current="page" { (tables::breakable(path)) }
        }
    }
}

/// Renders the badge in every style on light and dark, with a radio button for each style.
fn badges(view: &PageView<'_>, repo: &str) -> Markup {
    html! {
        fieldset .styles {
            legend { "Style" }
            @for style in Style::ALL {
                @let address = |page| snippets::badge(view, repo, &with_style(page, *style, view.options), "svg");
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

/// Renders the counts of a checkpoint.
fn weights(
    values: &MetricValues,
    report: &CountReport,
    details: Section<&WeightsDetails>,
) -> Markup {
    let total = report.parameter_count.totals().bytes;
    let dtypes = dtype_rows(&report.parameter_count);
    html! {
        h2 #found { "Contents of the files" }
        (tiles(values, report))
        h3 { "Dtypes" }
        (tables::bar(&dtypes, total))
        (tables::dtypes(&dtypes, total))
        (self::details(details, total))
        h3 { "Findings" }
        (findings(&report.findings))
    }
}

/// Renders the main numbers in large type.
fn tiles(values: &MetricValues, report: &CountReport) -> Markup {
    let (parameters, totals) = (values.parameters, report.parameter_count.totals());
    html! {
        dl .tiles {
            (tile("Parameters", &short(parameters), &thousands(parameters)))
            @if let Ok(active) = values.active {
                (tile("Active", &short(active), &thousands(active)))
            }
            (tile("Size", &short_bytes(totals.bytes), &counted(totals.bytes, "byte")))
            (tile("Tensors", &thousands(totals.tensors), &scalars(totals.scalars)))
            (tile("Files", &thousands(report.file_count() as u64), ""))
        }
    }
}

fn scalars(scalars: u64) -> String {
    match scalars {
        0 => String::new(),
        scalars => format!("{} not counted", counted(scalars, "scalar")),
    }
}

fn tile(name: &str, value: &str, exact: &str) -> Markup {
    html! {
        div {
            dt { (name) }
            dd { strong { (value) } small { (exact) } }
        }
    }
}

/// Renders the modules, files and tensors, or the reason they are missing.
fn details(details: Section<&WeightsDetails>, total: u64) -> Markup {
    let reason = match details {
        Section::Ready(details) => {
            return html! {
                h3 { "Modules" }
                (tables::bar(&details.modules, total))
                (tables::rows("module", "elements", &details.modules, total))
                (files(&details.files, total))
                (tables::tensors(&details.tensors))
            };
        }
        Section::Pending => {
            return html! { p .hint data-pending="" { "The modules are being read." } };
        }
        Section::Omitted => "This checkpoint has too many tensors to list its modules.",
        Section::Unavailable => "The modules are currently unavailable.",
    };
    html! { p .hint { (reason) } }
}

/// Renders the name of a single file, or a collapsed table of several files.
fn files(files: &TableRows, total: u64) -> Markup {
    let count = counted(files.total as u64, "file");
    let sizes = files.rows.iter().map(|row| row.bytes);
    let range = sizes.clone().min().zip(sizes.max());
    html! {
        h3 { "Files" }
        @if let [file] = &*files.rows {
            p { code { (escape(&file.name)) } }
        } @else {
            details #files {
                summary {
                    (count)
                    @if let Some((least, most)) = range { ", " (bytes(least)) " to " (bytes(most)) }
                }
                (tables::rows("file", "elements", files, total))
            }
        }
    }
}

fn findings(findings: &[Finding]) -> Markup {
    let (first, rest) = findings.split_at(findings.len().min(MAX_FINDINGS));
    html! {
        @if first.is_empty() {
            p .fine { "No irregularities were found in the headers." }
        } @else {
            ul .findings {
                @for finding in first { li { (escape(&finding.to_string())) } }
                @if !rest.is_empty() { li { "and " (thousands(rest.len() as u64)) " more" } }
            }
        }
    }
}

/// Renders the cost of the lookup, the commit, and a link to the JSON.
fn fetch_stats(urls: &PageUrls<'_>, view: &PageView<'_>, report: &CountReport) -> Markup {
    let (fetch, repo) = (&report.fetch, view.repo.unwrap_or_default());
    html! {
        p .fetch {
            (counted(fetch.requests, "request")) ", " (bytes(fetch.bytes_read)) " read of "
            (bytes(fetch.weight_bytes)) ", " (format!("{:.2}", fetch.elapsed.as_secs_f64())) " s"
            @if let Some(commit) = &report.commit {
                " · commit "
                a href={ (urls.hub) "/" (repo) "/tree/" (commit) } {
                    code { (commit.as_str().get(..7).unwrap_or_default()) }
                }
            }
            " · "
            a href=(snippets::json(view, repo)) { "JSON" }
        }
    }
}

/// Renders the values that the Hub reports.
fn reported(values: &MetricValues) -> Markup {
    html! {
        section aria-labelledby="found" {
            h2 #found { "Reported by the Hub" }
            dl .tiles { (tile("Parameters", &short(values.parameters), &thousands(values.parameters))) }
            p { "Not verified, because this service has no access to the files." }
        }
    }
}

/// Renders the badges of this model and the others, or nothing without others. The browser requests each badge, so a
/// slow model does not delay the others.
fn comparison(view: &PageView<'_>, repo: &str) -> Markup {
    let others = view.others.iter().map(ToString::to_string);
    let models: Vec<_> = [repo.to_owned()].into_iter().chain(others).collect();
    html! {
        @if !view.others.is_empty() {
            section aria-labelledby="comparison" {
                h2 #comparison { "Comparison" }
                div .comparison {
                    @for model in &models {
                        div {
                            h3 { a href=(snippets::other_page(view, model)) { (model) } }
                            @for (metric, name) in METRICS {
                                @let alt = format!("{name} of {model}");
                                img src=(snippets::other_badge(view, model, metric)) alt=(alt);
                            }
                        }
                    }
                }
            }
        }
    }
}
