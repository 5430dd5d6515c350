//! Tests of the page with plain and hostile text.

use super::*;
use crate::weights_query::QueryString;
use hf_meta::{Endpoint, SafetensorsFileHeader};
use hf_meta_badge::{Color, Logo, Style};
use hf_meta_count::count::Configs;
use hf_meta_count::results::CountReport;
use hf_meta_count::steps::ReportBuilder;
use hf_meta_format::formats::weight_sets::{ListedFile, ListedWeights};
use hf_meta_format::formats::{Formats, RepoPath};

/// Text that breaks out of markup unless it is escaped.
const HOSTILE: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>](javascript:x)&";

/// Text that needs no escaping, with as many slashes as [`HOSTILE`].
const PLAIN: &str = "te/xt";

/// Returns counts with this text as a dtype.
fn report(text: &str) -> CountReport {
    let json = serde_json::json!({
        "a": { "dtype": text, "shape": [40], "data_offsets": [0, 1_000] },
        "b": { "dtype": "F16", "shape": [2, 3], "data_offsets": [1_000, 1_012] },
    });
    let header = SafetensorsFileHeader::from_json(json.to_string().as_bytes()).unwrap();
    let mut builder = ReportBuilder::new_single(false);
    builder.add(RepoPath::new_unchecked(text), header.into());
    builder.finish(&Configs::default()).report(Vec::new()).unwrap()
}

/// Returns a failure with `count` sets to choose from, with this text in their paths.
fn choice(text: &str, count: usize) -> Failure {
    let file = |n| ListedFile {
        path: RepoPath::new_unchecked(&format!("{text}/{n}/x.safetensors")),
        size: 9,
    };
    let files: Vec<_> = (0..count).map(file).collect();
    let sets = ListedWeights::new(Formats::built_in(), None, &files).sets;
    let mut failure = Failure::invalid("invalid name", text);
    failure.sets = sets;
    failure
}

fn results(text: &str) -> [LookupResult; 4] {
    [
        report(text).into(),
        LookupResult::Failed(choice(text, 2)),
        LookupResult::Failed(Failure::too_many_files(text.to_owned())),
        LookupResult::Failed(Failure::pending()),
    ]
}

/// Returns a query for weights with these parameters.
fn weights(query: &[(&str, &str)]) -> WeightsQuery {
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    WeightsQuery::parse("org/name", &QueryString::parse(Some(&query))).unwrap()
}

/// Renders the page with this text wherever untrusted text can appear.
fn render(text: &str, result: &LookupResult) -> String {
    let endpoint = Endpoint::default();
    let urls = PageUrls { base: "https://badges.example/", hub: &endpoint, has_inspector: false };
    let options = BadgeOptions { label: Some(text.to_owned()), ..BadgeOptions::default() };
    // A path must not look like a URL.
    let weights = weights(&[("path", &text.replace(':', ""))]);
    let view = PageView {
        input: text,
        weights: Some(&weights),
        metric: Metric::Params,
        options: &options,
        result,
    };
    let invalid = PageView { weights: None, ..view };
    page(&urls, Some(&invalid)) + &page(&urls, Some(&view))
}

#[test]
fn no_text_adds_markup_to_the_page() {
    let count = |page: &str, c: char| page.matches(c).count();
    for (plain, hostile) in results(PLAIN).iter().zip(&results(HOSTILE)) {
        let (plain, hostile) = (render(PLAIN, plain), render(HOSTILE, hostile));
        for c in ['<', '>', '"'] {
            assert_eq!(count(&plain, c), count(&hostile, c), "{c} in {hostile}");
        }
    }
}

#[test]
fn the_page_complies_with_its_content_security_policy() {
    for result in results("text") {
        let page = render("text", &result);
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
fn the_number_of_sets_to_choose_from_is_limited() {
    let links = |count| {
        let page = render("text", &LookupResult::Failed(choice("text", count)));
        (page.matches("<li><a ").count(), page.contains("<li>and 23 more</li>"))
    };
    assert_eq!((links(MAX_SETS), links(MAX_SETS + 23)), ((MAX_SETS, false), (MAX_SETS, true)));
}

#[test]
fn snippets_contain_the_chosen_options() {
    let endpoint = Endpoint::default();
    let urls = PageUrls { base: "https://badges.example/", hub: &endpoint, has_inspector: false };
    let options = BadgeOptions {
        style: Style::FlatSquare,
        logo: Logo::HuggingFace,
        label: Some("a [b] & c".to_owned()),
        color: Some(Color::GRAY),
        ..BadgeOptions::default()
    };
    let (revision, result) =
        (weights(&[("revision", "refs/pr/1")]), LookupResult::Failed(Failure::pending()));
    let view = PageView {
        input: "org/name",
        weights: Some(&revision),
        metric: Metric::Bytes,
        options: &options,
        result: &result,
    };
    let query = "revision=refs%2Fpr%2F1&show=bytes&style=flat-square&logo=huggingface\
                 &label=a+%5Bb%5D+%26+c&color=555555";
    let svg = format!("https://badges.example/badge/org/name.svg?{query}");
    assert_eq!(
        snippets::badge(&view, &revision, &options, "svg"),
        svg["https://badges.example/".len()..]
    );
    let [markdown, html, picture, rst, asciidoc, shields] =
        snippets::snippets(&urls, &view, &revision).map(|(_, _, text)| text);
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
    assert_eq!(snippets::json(&revision), "api/models/org/name?revision=refs%2Fpr%2F1");
    assert_eq!(
        snippets::page(&view, &revision, "vae/a&b.safetensors"),
        format!(
            "?repo=org%2Fname&{}",
            query.replace("&show", "&path=vae%2Fa%26b.safetensors&show")
        )
    );
    let main = weights(&[]);
    let plain = PageView { metric: Metric::Params, options: &BadgeOptions::default(), ..view };
    assert_eq!(snippets::badge(&plain, &main, plain.options, "svg"), "badge/org/name.svg");
    assert_eq!(snippets::json(&main), "api/models/org/name");
    assert_eq!(snippets::page(&plain, &main, "a.gguf"), "?repo=org%2Fname&path=a.gguf");
}

#[test]
fn without_a_repository_the_page_has_a_form_and_examples() {
    let endpoint = Endpoint::default();
    let page =
        page(&PageUrls { base: "http://127.0.0.1/", hub: &endpoint, has_inspector: false }, None);
    assert!(page.contains("<form") && page.contains("?repo=bigscience/bloom"));
    assert!(!page.contains("<fieldset"));
}
