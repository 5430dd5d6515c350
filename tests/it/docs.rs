//! The README and the guides in `src/docs`, compared with the code and with the output of the command.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::hub::LocalHub;
use crate::{cli, support};

fn identifier(text: &str) -> &str {
    text.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default()
}

/// The name of a variant in JSON.
fn camel_case(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    first.to_ascii_lowercase() + rest
}

/// The severity of each kind of finding, from the declarations of `findings!` and `mismatches!`.
fn severities() -> BTreeMap<String, String> {
    let source = include_str!("../../crates/hf-meta-format/src/report/finding.rs");
    let declared = source.lines().filter_map(|line| {
        let (severity, kind) = line.strip_prefix("    ")?.split_once(' ')?;
        let is_severity = matches!(severity, "Error" | "Warning" | "Note");
        is_severity.then(|| (camel_case(identifier(kind)), camel_case(severity)))
    });
    // The reasons of unresolved modules have one severity.
    let unresolved = ["unresolvedModule", "conflictingComponents", "suspectedPacking"];
    let unresolved = unresolved.map(|kind| (kind.to_owned(), "warning".to_owned()));
    declared.chain(unresolved).collect()
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

/// A line without the time that the call took.
fn without_seconds(line: &str) -> &str {
    line.strip_suffix(" s").and_then(|line| line.rsplit_once(", ")).map_or(line, |(rest, _)| rest)
}

/// Compares a printed output with its excerpt in the README. A line of the excerpt may end early with `…`, and a line
/// `…` replaces all remaining ones.
fn assert_excerpt(command: &str, excerpt: &str, printed: &str) {
    let mut printed = printed.trim_end().lines();
    for expected in excerpt.lines() {
        let line = printed.next().unwrap_or_else(|| panic!("{command}: no line `{expected}`"));
        match expected.strip_suffix('…') {
            Some("") => return,
            Some(start) => assert!(line.starts_with(start), "{command}: {line}"),
            None => assert_eq!(without_seconds(line), without_seconds(expected), "{command}"),
        }
    }
    assert_eq!(printed.next(), None, "{command}");
}

#[test]
fn pages_show_what_the_command_prints() {
    let hub = support::fixtures_hub();
    let pages = [include_str!("../../README.md"), include_str!("../../src/docs/gguf.md")];
    let blocks = pages.into_iter().flat_map(|page| page.split("```text\n$ hf-meta ").skip(1));
    let mut compared = 0;
    for block in blocks {
        let (command, rest) = block.split_once('\n').unwrap();
        let (excerpt, _) = rest.split_once("```").unwrap();
        // Without a shell: the first command of a pipe only.
        if !command.contains('|') {
            let args: Vec<_> = command.split(' ').collect();
            assert_excerpt(command, excerpt, &cli::run(&hub, &args).stdout);
            compared += 1;
        }
    }
    assert!(compared >= 5);
}

/// The long options in the help of a subcommand.
fn options(hub: &LocalHub, subcommand: &[&str]) -> Vec<String> {
    let help = cli::run(hub, &[subcommand, &["--help"]].concat()).data();
    let starts = help.lines().filter_map(|line| {
        let option = line.trim_start().split(", ").find(|part| part.starts_with("--"))?;
        Some(option.split([' ', '.', '[']).next()?.to_owned())
    });
    starts.collect()
}

#[test]
fn the_page_of_the_command_lists_every_option() {
    let page = include_str!("../../src/docs/command.md");
    let hub = LocalHub::start([]).unwrap();
    for subcommand in [&[][..], &["verify"], &["diff"], &["badge"]] {
        let options = options(&hub, subcommand);
        assert!(options.len() > 10, "{subcommand:?}: {options:?}");
        for option in options {
            assert!(page.contains(&format!("`{option}`")), "{subcommand:?}: {option}");
        }
    }
}

/// The labels and targets of the link definitions in a text: `[label]: target` at the start of a line.
fn definitions<'a>(text: &'a str, prefix: &str) -> BTreeMap<&'a str, &'a str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(prefix)?.split_once("]: "));
    lines.collect()
}

/// rustdoc follows the links of `docs/mod.rs`, and readers of the files those at the end of each page.
#[test]
fn the_links_of_the_pages_lead_somewhere_in_both_places() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/docs");
    let modules = fs::read_to_string(folder.join("mod.rs")).unwrap();
    let mut pages = 0;
    for module in modules.split("pub mod ").filter(|module| module.contains("include_str!")) {
        let (rustdoc, file) = module.split_once("include_str!(\"").unwrap();
        let file = file.split('"').next().unwrap();
        let page = fs::read_to_string(folder.join(file)).unwrap();
        assert!(!page.contains("](crate::"), "{file}: define the link at the end of the page");
        let in_page = definitions(&page, "[");
        let relative = in_page.iter().filter(|(_, target)| !target.starts_with("https://"));
        for (label, target) in relative.clone() {
            let target = target.split('#').next().unwrap();
            assert!(folder.join(target).exists(), "{file}: [{label}] leads to {target}");
        }
        let labels: Vec<_> = relative.map(|(label, _)| *label).collect();
        let in_rustdoc = definitions(rustdoc, "/// [");
        assert_eq!(labels, in_rustdoc.into_keys().collect::<Vec<_>>(), "{file} and docs/mod.rs");
        pages += 1;
    }
    assert!(pages > 10);
}

/// The walks and tables of the architecture page lead through files that exist.
#[test]
fn the_files_of_the_architecture_page_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("src/docs/architecture.md")).unwrap();
    let mut folder = String::new();
    let mut checked = 0;
    for section in page.split("\n## ").skip(1) {
        if let Some((_, rest)) = section.split_once("In `crates/") {
            folder = format!("crates/{}", rest.split('`').next().unwrap());
        }
        for name in section.split('`').skip(1).step_by(2) {
            let is_path =
                Path::new(name).extension().is_some_and(|end| end == "rs") || name.ends_with('/');
            if !is_path || name.starts_with("GET") || name.contains("://") {
                continue;
            }
            let path = match name.strip_prefix("format/") {
                Some(rest) => format!("crates/hf-meta-format/src/{rest}"),
                None => name.to_owned(),
            };
            let found = root.join(&path).exists() || root.join(&folder).join(&path).exists();
            assert!(found, "{name} does not exist");
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked}");
}
