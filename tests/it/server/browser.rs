//! The page in a real browser.
//!
//! Needs Chromium or Chrome. Where there is none, these tests say so, and fail if `CI` is `true`.

mod devtools;

use hf_meta::badge::Style;
use pulldown_cmark::{Parser, html};
use serde_json::{Value, json};

use self::devtools::Browser;
use super::process::Server;
use crate::hub::LocalHub;
use crate::{layouts, support};

/// Whether all badges of the page are there to be seen.
const BADGES_ARE_THERE: &str = "document.querySelectorAll('.sample img').length === 10 &&
    [...document.querySelectorAll('.sample img')].every(image => image.naturalWidth > 0)";

/// The name of a control as readers of screens hear it, by its role.
fn controls(browser: &mut Browser) -> Vec<(String, String)> {
    let tree = browser.call("Accessibility.getFullAXTree", &json!({}));
    let text = |node: &Value, key: &str| node[key]["value"].as_str().unwrap_or("").to_owned();
    let roles = ["button", "checkbox", "combobox", "image", "link", "radio", "textbox"];
    let nodes = tree["nodes"].as_array().unwrap().iter();
    let nodes = nodes.map(|node| (text(node, "role"), text(node, "name")));
    nodes.filter(|(role, _)| roles.contains(&role.as_str())).collect()
}

#[test]
fn a_badge_appears_while_a_name_is_typed_and_its_markdown_renders() {
    let Some(mut browser) = Browser::start() else { return };
    let hub = support::fixtures_hub();
    let server = Server::start(&hub, &[]);
    browser.open(&format!("{}/", server.address));
    browser.until("document.activeElement.id === 'repo'");
    browser.type_text("repo", "bigscience/bloom");
    browser.until(BADGES_ARE_THERE);
    assert_eq!(browser.eval("document.activeElement.id"), "repo", "the reader types on");
    assert_eq!(browser.eval("document.getElementById('status').textContent"), "Parameters: 176B");
    assert_eq!(browser.eval("location.search"), "?repo=bigscience%2Fbloom");

    browser.eval("document.getElementById('style-for-the-badge').click()");
    browser.until("document.getElementById('markdown').value.includes('style=for-the-badge')");
    browser.until(BADGES_ARE_THERE);
    let permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"];
    browser.call("Browser.grantPermissions", &json!({ "permissions": permissions }));
    browser.eval("document.querySelector('[data-copies=markdown]').click()");
    browser
        .until("document.querySelector('[data-copies=markdown]').textContent.startsWith('Copied')");
    let markdown = browser.eval("navigator.clipboard.readText()");
    let markdown = markdown.as_str().unwrap();
    let badge = format!("{}/badge/bigscience/bloom.svg?style=for-the-badge", server.address);
    assert_eq!(markdown, format!("[![params]({badge})]({}/bigscience/bloom)", hub.endpoint()));
    assert_eq!(browser.complaints(), Vec::<String>::new());

    let mut rendered = String::from("<link rel=icon href=data:,>");
    html::push_html(&mut rendered, Parser::new(markdown));
    browser.show(&rendered);
    browser.until("document.querySelector('a > img').naturalWidth > 100");
    assert_eq!(browser.eval("document.querySelector('a > img').naturalHeight"), 28);
}

#[test]
fn the_page_works_without_scripts() {
    let Some(mut browser) = Browser::start() else { return };
    let hub = support::fixtures_hub();
    let server = Server::start(&hub, &["--lookup-wait", "60"]);
    browser.call("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    browser.open(&format!("{}/", server.address));
    browser.type_text("repo", "EleutherAI/gpt-neox-20b");
    browser.press_enter();
    let text = browser.text();
    for expected in
        ["20,739,117,584", "44 scalars not counted", "99.55 %", "46 files", "read of 41.3 GB"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let widths =
        browser.eval("[...document.querySelectorAll('.sample img')].map(i => i.naturalWidth)");
    assert!(
        widths[0].as_u64().unwrap() > 80,
        "fields that are left empty change nothing: {widths}"
    );
    assert!(!text.contains("Copy"), "buttons that would do nothing are hidden");
    browser.screenshot("without-scripts");
}

#[test]
fn the_page_on_every_screen() {
    let Some(mut browser) = Browser::start() else { return };
    let hub = support::fixtures_hub();
    let server = Server::start(&hub, &["--lookup-wait", "60"]);
    let screens = [
        ("light", 1_000, "light"),
        ("dark", 1_000, "dark"),
        ("phone", 390, "light"),
        ("small-phone", 320, "dark"),
    ];
    for (name, width, scheme) in screens {
        browser.screen(width, scheme);
        let query = "?repo=EleutherAI/gpt-neox-20b&logo=huggingface&theme=auto";
        browser.open(&format!("{}/{query}", server.address));
        browser.until(BADGES_ARE_THERE);
        browser.screenshot(name);
        assert_eq!(
            browser.eval("document.documentElement.scrollWidth"),
            width,
            "nothing sticks out"
        );
        for (role, label) in controls(&mut browser) {
            assert!(!label.trim().is_empty(), "a {role} has no name");
        }
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }
    browser.screen(1_000, "light");
    browser.open(&format!("{}/?repo=org/none", server.address));
    browser.until(BADGES_ARE_THERE);
    browser.screenshot("not-found");
}

#[test]
fn every_set_of_weights_is_a_link_away() {
    let Some(mut browser) = Browser::start() else { return };
    let several = layouts::repo("org/several", &["a.safetensors", "b.safetensors"]);
    let hub = LocalHub::start([layouts::pipeline("org/pipeline"), several]).unwrap();
    let server = Server::start(&hub, &["--lookup-wait", "60"]);
    for (name, width, scheme) in
        [("light", 1_000, "light"), ("dark", 1_000, "dark"), ("phone", 390, "light")]
    {
        browser.screen(width, scheme);
        for repo in ["pipeline", "several"] {
            browser.open(&format!("{}/?repo=org/{repo}", server.address));
            browser.screenshot(&format!("{repo}-{name}"));
            assert_eq!(browser.eval("document.documentElement.scrollWidth"), width);
        }
    }
    browser.call("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    browser.open(&format!("{}/?repo=org/several", server.address));
    assert!(browser.text().contains("Choose a set of weights"));
    let links = controls(&mut browser).into_iter().filter(|(role, _)| role == "link");
    let links: Vec<_> = links.map(|(_, name)| name).collect();
    assert_eq!(links, ["hf-meta", "a.safetensors", "b.safetensors"]);
    browser.call("Emulation.setScriptExecutionDisabled", &json!({ "value": false }));

    browser.open(&format!("{}/?repo=org/pipeline", server.address));
    browser.eval("document.querySelector('.sets a[href*=vae]').focus()");
    browser.press_enter();
    let shown = "document.querySelector('.whereabouts [aria-current]').textContent";
    assert_eq!(browser.eval(shown), "vae/diffusion_pytorch_model.safetensors");
    browser.until(BADGES_ARE_THERE);
    browser.screenshot("component");
    browser.eval("document.getElementById('repo').value = ''");
    browser.type_text("repo", "org/several");
    browser.until("document.body.innerText.includes('Choose a set of weights')");
    assert_eq!(browser.eval("location.search"), "?repo=org%2Fseveral", "its path is its own");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// What stands beside the style in the addresses of badges.
const LOOKS: [&str; 5] = [
    "",
    "&theme=dark&logo=huggingface",
    "&theme=auto&show=bytes",
    "&label=&color=fc3",
    "&show=dtype&color=brightgreen",
];

/// All looks in all styles, on a light part of a page and on a dark one.
fn gallery(address: &str) -> String {
    let image = |style: &str, look: &str| {
        let badge = format!("{address}/badge/bigscience/bloom.svg?style={style}{look}");
        format!("<img crossorigin=anonymous src='{badge}'>")
    };
    let line = |style: &&str| LOOKS.map(|look| image(style, look)).concat() + "<br>";
    let lines: String = Style::NAMES.iter().map(line).collect();
    format!(
        "<link rel=icon href=data:,><style>body {{ margin: 0 }} div {{ padding: 8px }} img {{ margin: 4px }}
        .dark {{ background: #0d1117; color-scheme: dark }}</style>
        <div>{lines}</div><div class=dark>{lines}</div>"
    )
}

/// How bright the button of the style `social` is that follows the page, on a light part and on a dark
/// one: the red of a pixel of it.
const BRIGHTNESS: &str =
    "[...document.querySelectorAll('[src*=\"social&theme=auto\"]')].map(image => {
    const canvas = document.createElement('canvas').getContext('2d');
    canvas.drawImage(image, 0, 0);
    return canvas.getImageData(3, 4, 1, 1).data[0];
})";

#[test]
fn every_badge() {
    let Some(mut browser) = Browser::start() else { return };
    let hub = support::fixtures_hub();
    let server = Server::start(&hub, &["--lookup-wait", "60"]);
    browser.screen(800, "light");
    browser.show(&gallery(&server.address));
    browser.until(
        "document.images.length === 50 && [...document.images].every(image => image.naturalWidth > 0)",
    );
    browser.screenshot("badges");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let brightness = browser.eval(BRIGHTNESS);
    let [light, dark] = [0, 1].map(|at| brightness[at].as_u64().unwrap());
    assert!(light > 200 && dark < 60, "a badge is {light} on a light page, {dark} on a dark one");
}
