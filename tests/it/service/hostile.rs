//! Hostile names and queries.

use axum::http::StatusCode;

use super::{config, get, router};
use crate::hub::LocalHub;
use crate::support;

/// Paths after `/badge/` without the suffix. None of them is a valid name.
const NAMES: [&str; 26] = [
    "../../etc/passwd",
    "%2e%2e/%2e%2e/etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "org/..",
    "org/../model",
    "./model",
    "org//model",
    "//evil.example/model",
    "http://evil.example/model",
    "http:%2f%2fevil.example%2fmodel",
    "https:%5c%5cevil.example",
    "file:%2f%2f%2fetc%2fpasswd",
    "hf:%2f%2forg%2fmodel@main",
    "org/model@main",
    "org/model%00",
    "org/model%0d%0aSet-Cookie:%20x=y",
    "org/model%0aX-Injected:%20y",
    "org/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
    "org/%22%20onload=%22alert(1)",
    "org/%E2%80%AEledom",
    "org/mod%C3%A9l",
    "org/%D0%BCodel",
    "%ff%fe/model",
    "org/model/resolve/main/x",
    "api/models/org/model",
    "-/--",
];

/// Hostile query strings for an existing repository, whose badge has to be shown.
const QUERIES: [&str; 24] = [
    "label=%3Cscript%3Ealert(1)%3C/script%3E",
    "label=%22/%3E%3Cimage%20href=%22http://evil.example/x%22/%3E",
    "label=%3C/title%3E%3Cscript%3E",
    "label=%3C!--&color=--%3E",
    "label=%3C![CDATA[",
    "label=%26%23x3c;script%26%23x3e;",
    "label=%00%01%02%1b[2J",
    "label=%0d%0aSet-Cookie:%20x=y",
    "label=%E2%80%AE%E2%81%A6gnp.exe",
    "label=%EF%BB%BF%E2%80%8B",
    "label=%F3%A0%81%81%F3%A0%81%82",
    "label=%ff%fe%80",
    "label=Z%CD%91%CD%AB%CD%83%CD%AA%CC%82%CD%AB%CC%BD",
    "color=red%22/%3E%3Cscript%3E",
    "color=url(http://evil.example/x)",
    "color=expression(alert(1))",
    "style=%3Cscript%3E&theme=%3Cscript%3E&logo=http://evil.example/x.svg",
    "logo=data:image/svg%2bxml;base64,PHN2Zz4=",
    "show=%3Cscript%3E",
    "label=a&label=b&label[]=c&label=%",
    "=&=&&&===",
    "a%00b=c",
    "revision=&path=",
    "v=1;drop%20table&callback=alert",
];

/// Revisions and paths that lead out of the repository.
const PLACES: [&str; 12] = [
    "path=../../../other/model",
    "path=%2e%2e%2f%2e%2e%2fother",
    "path=/etc/passwd",
    "path=http://evil.example/x.safetensors",
    "path=a%5c..%5cb",
    "path=a%00b",
    "path=a%0d%0aX:y",
    "revision=..",
    "revision=%0d%0aX-Injected:y",
    "revision=../../../other/model/resolve/main",
    "revision=%2e%2e%2f%2e%2e%2fother",
    "revision=main%3Ftoken=x%23",
];

/// Fails unless the response is a well-formed picture without scripts and external references.
fn assert_harmless(what: &str, seen: &super::Seen) {
    assert_eq!(seen.status, StatusCode::OK, "{what}");
    assert_eq!(seen.header("content-type"), "image/svg+xml; charset=utf-8", "{what}");
    for name in ["set-cookie", "x-injected", "x", "location"] {
        assert_eq!(seen.header(name), "", "{what}");
    }
    assert!(seen.body.len() < 20_000, "{what}: {} bytes", seen.body.len());
    let svg = roxmltree::Document::parse(&seen.body);
    let svg = svg.unwrap_or_else(|error| panic!("{what}: {error}\n{}", seen.body));
    for node in svg.descendants().filter(roxmltree::Node::is_element) {
        let name = node.tag_name().name();
        assert!(
            !matches!(name, "script" | "foreignObject" | "iframe" | "use" | "animate"),
            "{what}"
        );
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            assert!(!name.starts_with("on"), "{what}: {name}");
            let leads = name == "href" || value.contains("url(");
            let is_inside = ["#", "data:image/svg+xml;base64,", "url(#"];
            assert!(
                !leads || is_inside.iter().any(|start| value.starts_with(start)),
                "{what}: {value}"
            );
        }
    }
    let shown = svg.descendants().filter_map(|node| node.text()).collect::<String>();
    let is_hidden =
        |c: char| c.is_control() || ('\u{202a}'..='\u{2069}').contains(&c) || c == '\u{feff}';
    assert!(!shown.contains(is_hidden), "{what}: {shown:?}");
}

#[tokio::test]
async fn hostile_names_cause_no_requests_and_no_markup() {
    let hub = LocalHub::start([support::sharded("org/model"), support::sharded("other/model")]);
    let hub = hub.unwrap();
    let router = router(&hub, config());
    for name in NAMES {
        let badge = get(&router, &format!("/badge/{name}.svg")).await;
        assert_harmless(name, &badge);
        assert_eq!(badge.title(), "params: invalid name", "{name}");
        let json = get(&router, &format!("/badge/{name}.json")).await;
        assert_eq!(
            (json.status, &json.json()["isError"]),
            (StatusCode::OK, &true.into()),
            "{name}"
        );
        assert_eq!(get(&router, &format!("/api/models/{name}")).await.status, 400, "{name}");
    }
    assert_eq!(hub.log().len(), 0, "the Hub was never asked");
    for ending in ["", ".png", ".svg.exe", ".SVG", "/"] {
        assert_harmless(ending, &get(&router, &format!("/badge/org/model{ending}")).await);
    }
}

#[tokio::test]
async fn hostile_queries_cause_no_markup_and_no_foreign_requests() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let router = router(&hub, config());
    let long = format!("label={}", "%F0%9F%A4%97".repeat(300));
    let many = "label=x&".repeat(500);
    let queries = QUERIES.into_iter().chain([&*long, &many]);
    for query in queries {
        let what = &query[..query.len().min(80)];
        let badge = get(&router, &format!("/badge/org/model.svg?{query}")).await;
        assert_harmless(what, &badge);
        assert!(badge.title().ends_with('2'), "{what}: {}", badge.title());
        let json = get(&router, &format!("/badge/org/model.json?{query}")).await;
        assert_eq!(
            (json.status, &json.json()["schemaVersion"]),
            (StatusCode::OK, &1.into()),
            "{what}"
        );
    }
    let asked: Vec<_> = hub.log().into_iter().map(|request| request.path).collect();
    assert!(
        asked.iter().all(|path| path.starts_with("/org/model/resolve/")
            || path.starts_with("/models/org/model/")
            || path.starts_with("/api/resolve-cache/models/org/model/")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn an_oversized_query_gets_an_error_badge() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let router = router(&hub, config());
    let query = format!("revision=none&label={}", "W".repeat(60_000));
    let badge = get(&router, &format!("/badge/org/model.svg?{query}")).await;
    assert_eq!(
        (badge.status, badge.title().as_str()),
        (StatusCode::URI_TOO_LONG, "params: query too long")
    );
    for path in ["/badge/org/model.json", "/api/models/org/model", "/"] {
        let refused = get(&router, &format!("{path}?{query}")).await;
        assert_eq!(refused.status, StatusCode::URI_TOO_LONG, "{path}");
    }
    assert_eq!(hub.log().len(), 0, "the revision is not dropped");
    let twice =
        get(&router, "/badge/org/model.svg?label=a&revision=main&label=b&revision=none").await;
    assert_eq!(twice.title(), "a: 2", "the first value counts, of every parameter");
}

#[tokio::test]
async fn hostile_revisions_and_paths_stay_in_the_repo() {
    let hub = LocalHub::start([support::sharded("org/model"), support::sharded("other/model")]);
    let hub = hub.unwrap();
    let router = router(&hub, config());
    for place in PLACES {
        let badge = get(&router, &format!("/badge/org/model.svg?{place}")).await;
        assert_harmless(place, &badge);
        assert!(!badge.title().ends_with('2'), "{place}: {}", badge.title());
    }
    let asked: Vec<_> = hub.log().into_iter().map(|request| request.path).collect();
    assert!(asked.iter().all(|path| path.starts_with("/org/model/resolve/")), "{asked:?}");
    assert!(!asked.iter().any(|path| path.contains("..")), "{asked:?}");
}

#[tokio::test]
async fn hostile_input_adds_no_markup_to_the_page() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let router = router(&hub, config());
    let names = NAMES.iter().map(|name| format!("repo={name}"));
    let queries = QUERIES.iter().chain(&PLACES).map(|query| format!("repo=org/model&{query}"));
    for query in names.chain(queries) {
        let page = get(&router, &format!("/?{query}")).await;
        assert_eq!(page.status, StatusCode::OK, "{query}");
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(page.header("cache-control"), "no-store");
        assert_eq!(page.header("set-cookie"), "", "{query}");
        let policy = page.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
        assert_eq!(page.body.matches("<script").count(), 1, "{query}");
        for markup in [" onload=\"", " onerror=\"", "href=\"javascript:", "<image"] {
            assert!(!page.body.contains(markup), "{query}");
        }
    }
}
