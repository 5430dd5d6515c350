//! The page in a real browser.
//!
//! Needs Chromium or Chrome. Without a browser these tests are skipped with a message, and fail if `CI` is `true`.

mod devtools;

use hf_meta_badge::Style;
use pulldown_cmark::{Parser, html};
use serde_json::{Value, json};

use self::devtools::Browser;
use super::process::Server;
use crate::call::layouts;
use crate::hub::LocalHub;
use crate::support;

/// A JavaScript condition: all badges of the page are loaded.
const BADGES_ARE_LOADED: &str = "document.querySelectorAll('.sample img').length === 10 &&
    [...document.querySelectorAll('.sample img')].every(image => image.naturalWidth > 0)";

/// Returns the roles and the accessible names of all controls.
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
    browser.eval("new Promise(end => setTimeout(() => end(true), 600))");
    assert_eq!(hub.log().len(), 0, "a name that is being typed costs no lookup");
    browser.submit();
    browser.until(BADGES_ARE_LOADED);
    assert_eq!(browser.eval("document.activeElement.id"), "repo", "the focus stays in the field");
    // Until the headers are read, the page says so.
    let status = "document.getElementById('status').textContent";
    browser.until(&format!("{status} === '176,247,271,424 parameters'"));
    browser.until(BADGES_ARE_LOADED);
    assert_eq!(browser.eval("location.search"), "?repo=bigscience%2Fbloom");

    browser.eval("document.getElementById('style-for-the-badge').click()");
    browser.until("document.getElementById('markdown').value.includes('style=for-the-badge')");
    browser.until(BADGES_ARE_LOADED);
    let permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"];
    browser.call("Browser.grantPermissions", &json!({ "permissions": permissions }));
    browser.eval("document.querySelector('[data-copies=markdown]').click()");
    browser
        .until("document.querySelector('[data-copies=markdown]').textContent.startsWith('Copied')");
    let markdown = browser.eval("navigator.clipboard.readText()");
    let markdown = markdown.as_str().unwrap();
    let badge = format!("{}/badge/bigscience/bloom.svg?style=for-the-badge", server.address);
    assert_eq!(markdown, format!("[![params]({badge})]({}/bigscience/bloom)", hub.endpoint()));
    assert_eq!(browser.problems(), Vec::<String>::new());

    let mut rendered = String::from("<link rel=icon href=data:,>");
    html::push_html(&mut rendered, Parser::new(markdown));
    browser.show(&rendered);
    browser.until("document.querySelector('a > img').naturalWidth > 100");
    assert_eq!(browser.eval("document.querySelector('a > img').naturalHeight"), 28);
}

#[test]
fn the_style_persists_across_models_and_back_restores_the_previous_one() {
    let Some(mut browser) = Browser::start() else { return };
    let hub = support::fixtures_hub();
    let server = Server::start(&hub, &["--lookup-timeout", "60"]);
    browser.open(&format!("{}/?repo=bigscience/bloom", server.address));
    browser.until(BADGES_ARE_LOADED);
    browser.eval("document.getElementById('style-social').click()");
    for repo in ["org/none", "gpt2"] {
        browser.eval("document.getElementById('repo').value = ''");
        browser.type_text("repo", repo);
        browser.eval("document.activeElement.blur()");
        browser.until(&format!("document.title.startsWith('{repo}')"));
    }
    assert_eq!(browser.eval("location.search"), "?repo=gpt2&style=social");
    assert_eq!(browser.eval("document.getElementById('style-social').checked"), true);
    for repo in ["org/none", "bigscience/bloom"] {
        browser.eval("history.back()");
        browser.until(&format!("document.title.startsWith('{repo}')"));
        browser.until(&format!("document.getElementById('repo').value === '{repo}'"));
    }
    assert_eq!(browser.problems(), Vec::<String>::new());
}

#[test]
fn the_page_works_without_scripts() {
    let Some(mut browser) = Browser::start() else { return };
    let hub = support::fixtures_hub();
    let server = Server::start(&hub, &["--lookup-timeout", "60"]);
    browser.call("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    browser.open(&format!("{}/", server.address));
    browser.type_text("repo", "EleutherAI/gpt-neox-20b");
    browser.press_enter();
    let text = browser.text();
    for expected in ["20,739,117,584 parameters", "41.3 GB", "46 files", "F16, U8"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let widths =
        browser.eval("[...document.querySelectorAll('.sample img')].map(i => i.naturalWidth)");
    assert!(widths[0].as_u64().unwrap() > 80, "empty fields change nothing: {widths}");
    assert!(!text.contains("Copy"), "buttons that need scripts are hidden");
    browser.screenshot("without-scripts");
}

#[test]
fn the_page_fits_every_screen() {
    let Some(mut browser) = Browser::start() else { return };
    let hub = support::fixtures_hub();
    let server = Server::start(&hub, &["--lookup-timeout", "60"]);
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
        browser.until(BADGES_ARE_LOADED);
        browser.screenshot(name);
        assert_eq!(
            browser.eval("document.documentElement.scrollWidth"),
            width,
            "the page has no horizontal scroll bar"
        );
        for (role, label) in controls(&mut browser) {
            assert!(!label.trim().is_empty(), "a {role} has no name");
        }
        assert_eq!(browser.problems(), Vec::<String>::new());
    }
    browser.screen(1_000, "light");
    browser.open(&format!("{}/?repo=org/none", server.address));
    assert!(browser.text().contains("Check the spelling."));
    assert_eq!(browser.eval("document.images.length"), 1, "an error has no badge to embed");
    browser.screenshot("not-found");
}

#[test]
fn the_page_offers_several_sets_of_weights() {
    let Some(mut browser) = Browser::start() else { return };
    let several = layouts::repo("org/several", &["a.safetensors", "b.safetensors"]);
    let hub = LocalHub::start([several, support::sharded("org/model")]).unwrap();
    let server = Server::start(&hub, &["--lookup-timeout", "60"]);
    for (name, width, scheme) in
        [("light", 1_000, "light"), ("dark", 1_000, "dark"), ("phone", 390, "light")]
    {
        browser.screen(width, scheme);
        browser.open(&format!("{}/?repo=org/several", server.address));
        browser.screenshot(&format!("several-{name}"));
        assert_eq!(browser.eval("document.documentElement.scrollWidth"), width);
    }
    browser.call("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    browser.open(&format!("{}/?repo=org/several", server.address));
    assert!(browser.text().contains("Choose one of them."));
    let links = controls(&mut browser).into_iter().filter(|(role, _)| role == "link");
    let links: Vec<_> = links.map(|(_, name)| name).collect();
    assert_eq!(links, ["hf-meta", "a.safetensors", "b.safetensors"]);
    browser.call("Emulation.setScriptExecutionDisabled", &json!({ "value": false }));

    browser.open(&format!("{}/?repo=org/several", server.address));
    browser.eval("document.querySelector('.sets a[href*=b]').focus()");
    browser.press_enter();
    browser.until("document.getElementById('path').value === 'b.safetensors'");
    browser.until(BADGES_ARE_LOADED);
    browser.screenshot("set");
    browser.eval("document.getElementById('repo').value = ''");
    browser.type_text("repo", "org/model");
    browser.submit();
    browser.until("document.title.startsWith('org/model')");
    assert_eq!(
        browser.eval("location.search"),
        "?repo=org%2Fmodel",
        "the path of the other repository is cleared"
    );
    assert_eq!(browser.problems(), Vec::<String>::new());
}

/// Query parameters of badges besides the style.
const OPTIONS: [&str; 5] = [
    "",
    "&theme=dark&logo=huggingface",
    "&theme=auto&show=bytes",
    "&label=&color=fc3",
    "&show=dtype&color=brightgreen",
];

/// Returns HTML with all badges in all styles, on a light and on a dark background.
fn gallery(address: &str) -> String {
    let image = |style: &str, options: &str| {
        let badge = format!("{address}/badge/bigscience/bloom.svg?style={style}{options}");
        format!("<img crossorigin=anonymous src='{badge}'>")
    };
    let line = |style: &&str| OPTIONS.map(|options| image(style, options)).concat() + "<br>";
    let lines: String = Style::NAMES.iter().map(line).collect();
    format!(
        "<link rel=icon href=data:,><style>body {{ margin: 0 }} div {{ padding: 8px }} img {{ margin: 4px }}
        .dark {{ background: #0d1117; color-scheme: dark }}</style>
        <div>{lines}</div><div class=dark>{lines}</div>"
    )
}

/// A JavaScript expression for the brightness of the button of the style `social` with the theme `auto`,
/// on a light and on a dark background: the red component of one pixel.
const BRIGHTNESS: &str =
    "[...document.querySelectorAll('[src*=\"social&theme=auto\"]')].map(image => {
    const canvas = document.createElement('canvas').getContext('2d');
    canvas.drawImage(image, 0, 0);
    return canvas.getImageData(3, 4, 1, 1).data[0];
})";

#[test]
fn every_badge_is_drawn_in_every_style() {
    let Some(mut browser) = Browser::start() else { return };
    let hub = support::fixtures_hub();
    let server = Server::start(&hub, &["--lookup-timeout", "60"]);
    browser.screen(800, "light");
    browser.show(&gallery(&server.address));
    browser.until(
        "document.images.length === 50 && [...document.images].every(image => image.naturalWidth > 0)",
    );
    browser.screenshot("badges");
    assert_eq!(browser.problems(), Vec::<String>::new());
    let brightness = browser.eval(BRIGHTNESS);
    let [light, dark] = [0, 1].map(|at| brightness[at].as_u64().unwrap());
    assert!(light > 200 && dark < 60, "a badge is {light} on a light page, {dark} on a dark one");
}
