//! The guides in `src/docs`, compared with the code.

use std::collections::BTreeMap;

fn identifier(text: &str) -> &str {
    text.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default()
}

/// The name of a variant in JSON.
fn camel_case(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    first.to_ascii_lowercase() + rest
}

/// The severity of each kind of finding, from the match in `Finding::severity`.
fn severities() -> BTreeMap<String, String> {
    let source = include_str!("../../src/report/finding.rs");
    let (_, body) = source.split_once("fn severity(&self) -> Severity {").unwrap();
    let body = body.split("\n    }\n").next().unwrap();
    let arms: Vec<_> = body.split("Severity::").collect();
    let arms = arms.windows(2).map(|arm| (arm[0], camel_case(identifier(arm[1]))));
    arms.flat_map(|(variants, severity)| {
        let names = variants.split("Self::").skip(1).map(identifier).map(camel_case);
        names.map(|name| (name, severity.clone())).collect::<Vec<_>>()
    })
    .collect()
}

#[test]
fn the_table_of_findings_is_complete() {
    let page = include_str!("../../src/docs/validity.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | `"));
    let listed: BTreeMap<_, _> = rows
        .map(|(severity, rest)| (rest.split('`').next().unwrap().to_owned(), severity.to_owned()))
        .collect();
    assert_eq!(listed, severities());
}
