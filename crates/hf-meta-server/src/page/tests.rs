//! Tests of the page with plain and hostile text.

use super::data::{SetRow, TableRow, TableRows, TensorRow};
use super::*;
use hf_meta::count::Configs;
use hf_meta::formats::{Dtype, RepoPath};
use hf_meta::report::{CountReport, Finding, ReportBuilder};
use hf_meta::{Endpoint, SafetensorsFileHeader};
use hf_meta_badge::{Color, Logo, Style};

/// Text that breaks out of markup unless it is escaped.
const HOSTILE: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>](javascript:x)&";

/// Text that needs no escaping, with as many slashes as [`HOSTILE`].
const PLAIN: &str = "te/xt";

fn rows(name: &str, bytes: &[u64]) -> TableRows {
    let row = |&bytes: &u64| TableRow { name: name.to_owned(), count: bytes / 2, bytes };
    TableRows { rows: bytes.iter().map(row).collect(), total: bytes.len() + 3 }
}

/// Returns a report with this text wherever text from files or servers can appear.
fn report(text: &str) -> CountReport {
    let json = serde_json::json!({
        "a": { "dtype": text, "shape": [40], "data_offsets": [0, 1_000] },
        "b": { "dtype": "F16", "shape": [2, 3], "data_offsets": [1_000, 1_012] },
        "c": { "dtype": "F32", "shape": [], "data_offsets": [1_012, 1_016] },
    });
    let header = SafetensorsFileHeader::from_json(json.to_string().as_bytes()).unwrap();
    let mut builder = ReportBuilder::new_single(false);
    builder.add(RepoPath::new_unchecked(text), header.into());
    let mut report = builder.finish(&Configs::default()).report(Vec::new()).unwrap();
    report.commit = "0123456789012345678901234567890123456789".parse().ok();
    report.findings = vec![Finding::Renamed { repo: text.to_owned() }; 11];
    (report.fetch.requests, report.fetch.bytes_read) = (4, 99);
    report
}

/// Returns values with this text as a dtype.
fn values(text: &str) -> MetricValues {
    let mut values = MetricValues::from_unverified([(Dtype::from(text), 600)], 600);
    values.active = Ok(40);
    values
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

/// The data of [`outcomes`].
type Data = (MetricValues, CountReport, WeightsDetails);

fn data(text: &str) -> Data {
    (values(text), report(text), details(text))
}

fn outcomes<'a>(text: &'a str, (values, report, details): &'a Data) -> [PageOutcome<'a>; 8] {
    let counted = |details, others| PageOutcome::Counted { values, report, details, others };
    [
        counted(Section::Ready(details), Section::Ready(sets(text, 1))),
        counted(Section::Omitted, Section::Ready(sets(text, 1_000))),
        counted(Section::Pending, Section::Pending),
        counted(Section::Unavailable, Section::Unavailable),
        PageOutcome::Choice(text, sets(text, 2)),
        PageOutcome::HubReported(values, text),
        PageOutcome::Failed(text),
        PageOutcome::Pending,
    ]
}

#[test]
fn no_text_adds_markup_to_the_page() {
    let count = |page: &str, c: char| page.matches(c).count();
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
    let data = data("text");
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
    let [markdown, html, picture, rst, asciidoc, shields] =
        snippets::snippets(&urls, &view, "org/name").map(|(_, _, text)| text);
    assert_eq!(markdown, format!("[![a \\[b\\] \\& c]({svg})](https://huggingface.co/org/name)"));
    assert_eq!(
        html,
        format!(
            "<a href=\"https://huggingface.co/org/name\"><img src=\"{}\" alt=\"a [b] &amp; c\"></a>",
            svg.replace('&', "&amp;")
        )
    );
    let dark = svg.replace("flat-square", "flat-square&theme=dark").replace('&', "&amp;");
    assert!(picture.contains(&format!("srcset=\"{dark}\"")), "{picture}");
    assert_eq!(
        rst,
        format!(
            ".. image:: {svg}\n   :alt: a \\[b\\] \\& c\n   :target: https://huggingface.co/org/name\n"
        )
    );
    assert_eq!(
        asciidoc,
        format!("image:{svg}[\"a [b] & c\",link=\"https://huggingface.co/org/name\"]")
    );
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
