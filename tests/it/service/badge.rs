//! The texts of badges, and valid SVG and JSON for any text.

use hf_meta_badge::{Badge, BadgeOptions, Color, Logo, Metric, Style, Theme};
use proptest::prelude::*;
use proptest::sample::select;
use roxmltree::Document;
use serde_json::{Value, json};

use crate::count::properties::config;
use crate::hub::{File, LocalHub, Repo};
use crate::support;

fn styles() -> impl Iterator<Item = BadgeOptions> {
    Style::ALL.iter().map(|&style| BadgeOptions { style, ..BadgeOptions::default() })
}

/// Returns the names of all elements with their attribute names, and all texts.
fn parts(svg: &str) -> (Vec<String>, Vec<String>) {
    let document = Document::parse(svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
    let elements = document.descendants().filter(roxmltree::Node::is_element);
    let element = |node: roxmltree::Node| {
        let names: Vec<_> = node.attributes().map(|attribute| attribute.name()).collect();
        format!("{} {}", node.tag_name().name(), names.join(" "))
    };
    let texts = document.descendants().filter_map(|node| node.text().map(str::to_owned));
    (elements.map(element).collect(), texts.collect())
}

#[test]
fn pictures_in_every_style() {
    let badge = Badge::new("params", "1.03T (A32B)");
    let pictures = styles().flat_map(|options| {
        let full = BadgeOptions {
            theme: Theme::Dark,
            logo: Logo::HuggingFace,
            color: "brightgreen".parse().ok(),
            ..options.clone()
        };
        let alone = BadgeOptions {
            label: Some(String::new()),
            color: "fc3".parse().ok(),
            ..options.clone()
        };
        let auto = BadgeOptions { theme: Theme::Auto, ..options.clone() };
        [options, full, alone, auto].map(|options| badge.svg(&options))
    });
    insta::assert_snapshot!(pictures.collect::<Vec<_>>().join("\n"));
}

#[tokio::test]
async fn the_badges_of_bloom_show_every_metric() {
    let hub = support::fixtures_hub();
    let parsed = support::parse(&hub, "bigscience/bloom").await.unwrap();
    let texts = Metric::ALL.iter().map(|&metric| {
        let badge = Badge::from_report(parsed.report(), metric);
        format!("{} | {}", badge.label, badge.message)
    });
    let expected = [
        "params | 176B",
        "active | no experts",
        "size | 352 GB",
        "BF16 | 176B",
        "tensors | 845",
        "shards | 72",
        "memory | unknown",
    ];
    assert_eq!(texts.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn the_readme_images_are_up_to_date() {
    let hub = support::fixtures_hub();
    let parsed = support::parse(&hub, "bigscience/bloom").await.unwrap();
    let badge = Badge::from_report(parsed.report(), Metric::Params);
    for options in styles() {
        let options = BadgeOptions { logo: Logo::HuggingFace, ..options };
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/badges");
        let drawn = std::fs::read_to_string(format!("{folder}/{}.svg", options.style)).unwrap();
        assert_eq!(drawn.trim_end(), badge.svg(&options), "draw it again by `hf-meta badge`");
    }
}

#[tokio::test]
async fn a_badge_of_an_error_shows_a_short_reason() {
    let hub = LocalHub::builder()
        .repo(Repo::new("org/empty"))
        .repo(Repo::new("org/bad").file("model.safetensors", File::from_bytes("")))
        .repo(support::sharded("org/good"))
        .repo(support::sharded("org/gated").gated())
        .start()
        .unwrap();
    let client = support::client(&hub);
    let cases = [
        (client.model("org/none"), "not found"),
        (client.model("org/good").revision("none"), "revision not found"),
        (client.model("org/good").path("none.safetensors"), "file not found"),
        (client.model("org/empty"), "no weights"),
        (client.model("org/bad"), "invalid safetensors"),
        (client.model("org/gated"), "gated"),
        (client.model("../etc/passwd"), "invalid name"),
    ];
    for (model, reason) in cases {
        let error = model.parse_safetensors_metadata().await.unwrap_err();
        let badge = Badge::from_error(&error, Metric::Params);
        assert_eq!(badge, Badge::placeholder(Metric::Params, reason), "{error}");
    }
}

#[test]
fn a_badge_serializes_to_the_json_of_shields_io() {
    let badge = Badge::new("params", "176B");
    let plain = json!(badge.shields_endpoint(&BadgeOptions::default()));
    let expected = json!({
        "schemaVersion": 1, "label": "params", "message": "176B", "color": "007ec6"
    });
    assert_eq!(plain, expected);
    let options = BadgeOptions::from_query([
        ("style", "social"),
        ("theme", "dark"),
        ("logo", "huggingface"),
        ("label", "a\u{202e}b"),
        ("color", "red"),
    ]);
    let error = json!(Badge::placeholder(Metric::Params, "gated").shields_endpoint(&options));
    let expected = json!({
        "schemaVersion": 1, "label": "a\\u{202e}b", "message": "gated", "color": "939393",
        "labelColor": "30363d", "isError": true, "namedLogo": "huggingface", "style": "social"
    });
    assert_eq!(error, expected);
}

fn options() -> impl Strategy<Value = BadgeOptions> {
    let names = (select(Style::ALL), select(Theme::ALL), select(Logo::ALL));
    let label = proptest::option::of(any::<String>());
    let color = proptest::option::of("[0-9a-f]{6}");
    (names, label, color).prop_map(|((style, theme, logo), label, color)| {
        let color = color.map(|digits| digits.parse::<Color>().unwrap());
        BadgeOptions { style, theme, logo, label, color }
    })
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn no_text_adds_an_element_or_an_attribute(message in any::<String>(), options in options()) {
        let message = format!("m{message}");
        let svg = Badge::new("label", &message).svg(&options);
        let json: Value = json!(Badge::new("label", &message).shields_endpoint(&options));
        let (elements, texts) = parts(&svg);
        let shown = |key: &str| {
            let text = json[key].as_str().unwrap();
            match options.style {
                Style::ForTheBadge => text.to_uppercase(),
                _ => text.to_owned(),
            }
        };
        prop_assert!(texts.contains(&shown("message")), "{svg}");
        prop_assert!(json["message"].as_str().unwrap().chars().count() <= 65);
        let label = Some(if shown("label").is_empty() { "" } else { "a" }.to_owned());
        let plain = Badge::new("", "a").svg(&BadgeOptions { label, ..options });
        prop_assert_eq!(elements, parts(&plain).0);
    }
}
