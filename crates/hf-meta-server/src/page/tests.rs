//! Tests of the page with plain and hostile text.

use super::data::{SetRow, TableRow, TableRows, TensorRow};
use super::*;
use hf_meta::Endpoint;
use hf_meta::count::DtypeCount;
use hf_meta::formats::{Dtype, RepoPath};
use hf_meta::report::FetchStats;
use hf_meta_badge::{Color, Logo, Style};

/// Text that breaks out of markup unless it is escaped.
const HOSTILE: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>](javascript:x)&";

/// Text that needs no escaping, with as many slashes as [`HOSTILE`].
const PLAIN: &str = "te/xt";

fn rows(name: &str, bytes: &[u64]) -> TableRows {
    let row = |&bytes: &u64| TableRow { name: name.to_owned(), count: bytes / 2, bytes };
    TableRows { rows: bytes.iter().map(row).collect(), total: bytes.len() + 3 }
}

/// Returns a summary with this text wherever text from files or servers can appear.
fn summary(text: &str) -> WeightsSummary {
    let mut totals = DtypeCount::default();
    (totals.tensors, totals.counted, totals.scalars) = (3, 2, 1);
    (totals.parameters, totals.elements, totals.bytes) = (600, 600, 1_200);
    let mut fetch = FetchStats::default();
    (fetch.requests, fetch.bytes_read, fetch.weight_bytes) = (4, 99, 2_000);
    let mut values = MetricValues::from_unverified([(Dtype::from(text), 600)], 600);
    values.active = Ok(40);
    WeightsSummary {
        values,
        commit: "0123456789012345678901234567890123456789".parse().ok(),
        totals,
        dtypes: rows(text, &[1_000, 150, 50]),
        files: 5,
        known_sets: KnownSets::Listed(sets(text, 1)),
        findings: vec![text.to_owned()],
        more_findings: 1,
        fetch,
    }
}

/// Returns details with this text wherever text from files can appear.
fn details(text: &str) -> WeightsDetails {
    let (name, shape) = (text.to_owned(), "[2, 3]".to_owned());
    let tensor = TensorRow { name, dtype: Dtype::from(text), shape, bytes: 24 };
    WeightsDetails {
        modules: rows(text, &[800, 300]),
        files: rows(text, &[700, 500]),
        tensors: TableRows { rows: vec![tensor], total: 2 },
    }
}

fn sets(text: &str, total: usize) -> SetRows {
    // A path can contain anything except control characters and `..`.
    let path = RepoPath::new_unchecked(text);
    TableRows { rows: vec![SetRow { path, files: 2, bytes: 1_000 }], total }
}

/// Renders the page with this text wherever untrusted text can appear.
fn render(text: &str, outcome: PageOutcome<'_>) -> String {
    let endpoint = Endpoint::default();
    let urls = PageUrls { base: "https://badges.example/", hub: &endpoint };
    let options = BadgeOptions { label: Some(text.to_owned()), ..BadgeOptions::default() };
    let others = repos("org/other");
    let view = PageView {
        input: text,
        repo: Some("org/name"),
        revision: Some(text),
        path: Some(text),
        metric: Metric::Params,
        options: &options,
        others: &others,
        outcome,
    };
    page(&urls, Some(&view))
}

fn outcomes<'a>(
    text: &'a str,
    (summary, details): &'a (WeightsSummary, WeightsDetails),
) -> [PageOutcome<'a>; 8] {
    let (read, listed) = (Section::Ready(details), Section::Ready(sets(text, 1_000)));
    [
        PageOutcome::Counted(summary, read, Section::Ready(sets(text, 1))),
        PageOutcome::Counted(summary, Section::Omitted, listed),
        PageOutcome::Counted(summary, Section::Pending, Section::Pending),
        PageOutcome::Counted(summary, Section::Unavailable, Section::Unavailable),
        PageOutcome::Choice(text, sets(text, 2)),
        PageOutcome::HubReported(&summary.values, text),
        PageOutcome::Failed(text),
        PageOutcome::Pending,
    ]
}

#[test]
fn no_text_adds_markup_to_the_page() {
    let count = |page: &str, c: char| page.matches(c).count();
    let data = |text| (summary(text), details(text));
    let (plain, hostile) = (data(PLAIN), data(HOSTILE));
    let pairs = outcomes(PLAIN, &plain).into_iter().zip(outcomes(HOSTILE, &hostile));
    for (plain, hostile) in pairs {
        let (plain, hostile) = (render(PLAIN, plain), render(HOSTILE, hostile));
        for c in ['<', '>', '"'] {
            assert_eq!(count(&plain, c), count(&hostile, c), "{c} in {hostile}");
        }
    }
}

#[test]
fn the_page_complies_with_its_content_security_policy() {
    let data = (summary("text"), details("text"));
    for outcome in outcomes("text", &data) {
        let page = render("text", outcome);
        assert!(!page.contains("<style") && !page.contains(" style=\""), "{page}");
        let is_handler = |word: &str| word.starts_with("on") && word.contains("=\"");
        assert!(!page.split_whitespace().any(is_handler), "{page}");
        assert_eq!(page.matches("<script").count(), page.matches("<script src=\"app.js\"").count());
        for source in page.split(" src=\"").skip(1) {
            assert!(!source.starts_with("http") && !source.starts_with('/'), "{source}");
        }
    }
}

#[test]
fn snippets_contain_the_chosen_options() {
    let endpoint = Endpoint::default();
    let urls = PageUrls { base: "https://badges.example/", hub: &endpoint };
    let options = BadgeOptions {
        style: Style::FlatSquare,
        logo: Logo::HuggingFace,
        label: Some("a [b] & c".to_owned()),
        color: Some(Color::GRAY),
        ..BadgeOptions::default()
    };
    let others = repos("org/other");
    let view = PageView {
        input: "org/name",
        repo: Some("org/name"),
        revision: Some("refs/pr/1"),
        path: None,
        metric: Metric::Bytes,
        options: &options,
        others: &others,
        outcome: PageOutcome::Pending,
    };
    let query = "revision=refs%2Fpr%2F1&show=bytes&style=flat-square&logo=huggingface\
                 &label=a+%5Bb%5D+%26+c&color=555555";
    let svg = format!("https://badges.example/badge/org/name.svg?{query}");
    assert_eq!(
        snippets::badge(&view, "org/name", &options, "svg"),
        svg["https://badges.example/".len()..]
    );
    assert_eq!(
        snippets::markdown(&urls, &view, "org/name"),
        format!("[![a \\[b\\] \\& c]({svg})](https://huggingface.co/org/name)")
    );
    assert_eq!(
        snippets::html(&urls, &view, "org/name"),
        format!(
            "<a href=\"https://huggingface.co/org/name\"><img src=\"{}\" alt=\"a [b] &amp; c\"></a>",
            svg.replace('&', "&amp;")
        )
    );
    let dark = svg.replace("flat-square", "flat-square&theme=dark").replace('&', "&amp;");
    let picture = snippets::picture(&urls, &view, "org/name");
    assert!(picture.contains(&format!("srcset=\"{dark}\"")), "{picture}");
    assert_eq!(
        snippets::rst(&urls, &view, "org/name"),
        format!(
            ".. image:: {svg}\n   :alt: a \\[b\\] \\& c\n   :target: https://huggingface.co/org/name\n"
        )
    );
    assert_eq!(
        snippets::asciidoc(&urls, &view, "org/name"),
        format!("image:{svg}[\"a [b] & c\",link=\"https://huggingface.co/org/name\"]")
    );
    let shields = snippets::shields(&urls, &view, "org/name");
    let shields = url::Url::parse(&shields).unwrap();
    let json = svg.replace(".svg", ".json");
    assert_eq!(shields.query_pairs().collect::<Vec<_>>(), [("url".into(), json.into())]);
    assert_eq!(snippets::json(&view, "org/name"), "api/models/org/name?revision=refs%2Fpr%2F1");
    assert_eq!(
        snippets::page(&view, "org/name", Some("vae/a&b.safetensors")),
        format!(
            "?repo=org%2Fname&{}",
            query.replace("&show", "&path=vae%2Fa%26b.safetensors&show")
        )
    );
    let plain = PageView {
        revision: None,
        metric: Metric::Params,
        options: &BadgeOptions::default(),
        ..view
    };
    assert_eq!(snippets::badge(&plain, "gpt2", plain.options, "svg"), "badge/gpt2.svg");
    assert_eq!(snippets::json(&plain, "gpt2"), "api/models/gpt2");
    assert_eq!(snippets::page(&plain, "gpt2", None), "?repo=gpt2");
}

#[test]
fn without_a_repository_the_page_has_a_form_and_examples() {
    let endpoint = Endpoint::default();
    let page = page(&PageUrls { base: "http://127.0.0.1/", hub: &endpoint }, None);
    assert!(page.contains("<form") && page.contains("?repo=bigscience/bloom"));
    assert!(!page.contains("<fieldset"));
}

#[test]
fn names_of_repositories_are_found_and_other_text_is_ignored() {
    assert_eq!(names(&repos("gpt2, org/name  ../etc <script>\torg/b")), "gpt2 org/name org/b");
    assert_eq!(repos(&"gpt2 ".repeat(100)).len(), MAX_OTHERS);
}
