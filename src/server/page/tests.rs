//! The page over plain and over hostile texts.

use std::time::Duration;

use super::rows::{Row, Rows};
use super::sets::Set;
use super::*;
use crate::badge::{Color, Logo, Style};
use crate::count::DtypeCount;
use crate::formats::{Dtype, RepoPath};
use crate::report::FetchStats;

/// What markup would have to be escaped in, were it not escaped.
const HOSTILE: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>](javascript:x)&";

/// A text that needs no escaping, with as many places to break a line.
const PLAIN: &str = "te/xt";

fn rows(name: &str, bytes: &[u64]) -> Rows {
    let row = |&bytes: &u64| Row { name: name.to_owned(), count: bytes / 2, bytes };
    Rows { rows: bytes.iter().map(row).collect(), all: bytes.len() + 3 }
}

/// A result with this text wherever a file or a server may put one.
fn found(text: &str) -> Found {
    let totals = DtypeCount {
        tensors: 3,
        counted: 2,
        parameters: 600,
        elements: 600,
        scalars: 1,
        bytes: 1_200,
    };
    let fetch =
        FetchStats { requests: 4, bytes_read: 99, bytes_total: 2_000, elapsed: Duration::ZERO };
    Found {
        figures: MetricValues {
            active: Some(40),
            ..MetricValues::from_unverified([(Dtype::from(text), 600)], 600)
        },
        commit: "0123456789012345678901234567890123456789".parse().ok(),
        totals,
        dtypes: rows(text, &[1_000, 150, 50]),
        modules: rows(text, &[800, 300]),
        files: rows(text, &[700, 500]),
        beside: Beside::Listed(sets(text, 1)),
        findings: vec![text.to_owned()],
        more_findings: 1,
        fetch,
    }
}

fn sets(text: &str, all: usize) -> Sets {
    // A path may hold anything but control characters and what leads elsewhere.
    let path = RepoPath::trusted(text);
    Rows { rows: vec![Set { path, files: 2, bytes: 1_000 }], all }
}

/// The page with this text wherever a stranger may put one.
fn shown(text: &str, outcome: Outcome<'_>) -> String {
    let endpoint = Endpoint::default();
    let site = Site { address: "https://badges.example/", endpoint: &endpoint };
    let look = BadgeOptions { label: Some(text.to_owned()), ..BadgeOptions::default() };
    let asked = Shown {
        asked: text,
        repo: Some("org/name"),
        revision: Some(text),
        path: Some(text),
        show: Metric::Params,
        look: &look,
        outcome,
    };
    page(&site, Some(&asked))
}

fn outcomes<'a>(text: &'a str, found: &'a Found) -> [Outcome<'a>; 7] {
    [
        Outcome::Found(found, Others::Listed(sets(text, 1))),
        Outcome::Found(found, Others::Listed(sets(text, 1_000))),
        Outcome::Found(found, Others::Pending),
        Outcome::Choice(text, sets(text, 2)),
        Outcome::Claimed(&found.figures, text),
        Outcome::Failed(text),
        Outcome::Pending,
    ]
}

#[test]
fn text_is_only_text() {
    let count = |page: &str, c: char| page.matches(c).count();
    let (plain, hostile) = (found(PLAIN), found(HOSTILE));
    let pairs = outcomes(PLAIN, &plain).into_iter().zip(outcomes(HOSTILE, &hostile));
    for (plain, hostile) in pairs {
        let (plain, hostile) = (shown(PLAIN, plain), shown(HOSTILE, hostile));
        for c in ['<', '>', '"'] {
            assert_eq!(count(&plain, c), count(&hostile, c), "{c} in {hostile}");
        }
    }
}

#[test]
fn the_policy_forbids_nothing_that_the_page_needs() {
    let found = found("text");
    for outcome in outcomes("text", &found) {
        let page = shown("text", outcome);
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
fn texts_to_paste() {
    let endpoint = Endpoint::default();
    let site = Site { address: "https://badges.example/", endpoint: &endpoint };
    let look = BadgeOptions {
        style: Style::FlatSquare,
        logo: Logo::HuggingFace,
        label: Some("a [b] & c".to_owned()),
        color: Some(Color::GREY),
        ..BadgeOptions::default()
    };
    let asked = Shown {
        asked: "org/name",
        repo: Some("org/name"),
        revision: Some("refs/pr/1"),
        path: None,
        show: Metric::Bytes,
        look: &look,
        outcome: Outcome::Pending,
    };
    let query = "revision=refs%2Fpr%2F1&show=bytes&style=flat-square&logo=huggingface\
                 &label=a+%5Bb%5D+%26+c&color=555555";
    let svg = format!("https://badges.example/badge/org/name.svg?{query}");
    assert_eq!(
        paste::badge(&asked, "org/name", &look, "svg"),
        svg["https://badges.example/".len()..]
    );
    assert_eq!(
        paste::markdown(&site, &asked, "org/name"),
        format!("[![a \\[b\\] \\& c]({svg})](https://huggingface.co/org/name)")
    );
    assert_eq!(
        paste::html(&site, &asked, "org/name"),
        format!(
            "<a href=\"https://huggingface.co/org/name\"><img src=\"{}\" alt=\"a [b] &amp; c\"></a>",
            svg.replace('&', "&amp;")
        )
    );
    let shields = paste::shields(&site, &asked, "org/name");
    let shields = url::Url::parse(&shields).unwrap();
    let json = svg.replace(".svg", ".json");
    assert_eq!(shields.query_pairs().collect::<Vec<_>>(), [("url".into(), json.into())]);
    assert_eq!(paste::json(&asked, "org/name"), "api/models/org/name?revision=refs%2Fpr%2F1");
    assert_eq!(
        paste::page(&asked, "org/name", Some("vae/a&b.safetensors")),
        format!(
            "?repo=org%2Fname&{}",
            query.replace("&show", "&path=vae%2Fa%26b.safetensors&show")
        )
    );
    let plain =
        Shown { revision: None, show: Metric::Params, look: &BadgeOptions::default(), ..asked };
    assert_eq!(paste::badge(&plain, "gpt2", plain.look, "svg"), "badge/gpt2.svg");
    assert_eq!(paste::json(&plain, "gpt2"), "api/models/gpt2");
    assert_eq!(paste::page(&plain, "gpt2", None), "?repo=gpt2");
}

#[test]
fn without_anything_asked_for_there_is_a_form() {
    let endpoint = Endpoint::default();
    let page = page(&Site { address: "http://127.0.0.1/", endpoint: &endpoint }, None);
    assert!(page.contains("<form") && page.contains("?repo=bigscience/bloom"));
    assert!(!page.contains("<fieldset"));
}
