//! The README and the guides in `src/docs`, compared with the code and with the output of the command.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[cfg(unix)]
use {
    crate::command,
    crate::folder::load_folder,
    crate::hub::{File, Repo},
    crate::support,
    hf_meta_testing::{MockHub, MockHubBuilder},
    std::process::Command,
};

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
    let sources = [
        include_str!("../../../crates/hf-meta-count/src/results/finding.rs"),
        include_str!("../../../crates/hf-meta-count/src/results/mismatch.rs"),
    ];
    let declared = sources.iter().flat_map(|source| source.lines()).filter_map(|line| {
        let (severity, kind) = line.strip_prefix("    ")?.split_once(' ')?;
        let is_severity = matches!(severity, "Error" | "Warning" | "Note");
        is_severity.then(|| (camel_case(identifier(kind)), camel_case(severity)))
    });
    declared.collect()
}

#[test]
fn the_lists_of_findings_are_complete() {
    let page = include_str!("../../../src/docs/validity.md");
    let items = page.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("** `"));
    let listed: BTreeMap<_, _> = items
        .map(|(severity, rest)| (rest.split('`').next().unwrap().to_owned(), severity.to_owned()))
        .collect();
    assert_eq!(listed, severities());
}

/// A line without the time that the call took.
fn without_seconds(line: &str) -> &str {
    line.strip_suffix(" s").and_then(|line| line.rsplit_once(", ")).map_or(line, |(rest, _)| rest)
}

/// Compares a printed output with its excerpt in a page. A line of the excerpt may end early with `…`, and a line `…`
/// replaces all remaining ones.
fn assert_excerpt(command: &str, excerpt: &[&str], printed: &str) {
    let mut printed = printed.trim_end().lines();
    for expected in excerpt {
        let line = printed.next().unwrap_or_else(|| panic!("{command}: no line `{expected}`"));
        match expected.strip_suffix('…') {
            Some("") => return,
            Some(start) => assert!(line.starts_with(start), "{command}: {line}"),
            None => assert_eq!(without_seconds(line), without_seconds(expected), "{command}"),
        }
    }
    assert_eq!(printed.next(), None, "{command}");
}

/// The commands of a page, which begin with `$ `, with the lines that they print.
#[cfg(unix)]
fn transcripts(page: &str) -> Vec<(&str, Vec<&str>)> {
    let blocks = page.split("```text\n$ ").skip(1).map(|rest| rest.split("```").next().unwrap());
    let commands = blocks.flat_map(|block| block.split("\n$ "));
    commands
        .map(|text| {
            let mut lines = text.lines();
            (lines.next().unwrap(), lines.collect())
        })
        .collect()
}

/// Runs the commands of the pages in a folder with the model of the tutorial, which is also a private repository.
#[cfg(unix)]
#[test]
fn pages_show_what_their_commands_print() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let model = root.join("examples/tutorial/my-model");
    let files = |folder: &Path| {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path))
    };
    let repo =
        Repo::new("me/my-model").private().commit("8b6e4e71d5a11a868b6e4e71d5a11a868b6e4e71");
    let repo = files(&model).fold(repo, |repo, (name, path)| {
        repo.file(&name, File::from_bytes(fs::read(path).unwrap()))
    });
    let hub = MockHub::builder().token("hf_mine").repo(repo);
    let fixtures = load_folder(&root.join("fixtures")).unwrap();
    let hub = fixtures.into_iter().fold(hub, MockHubBuilder::repo).start().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_hf-meta")).parent().unwrap();
    let search = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let pages = [
        include_str!("../../../README.md"),
        include_str!("../../../SKILL.md"),
        include_str!("../../../src/docs/command.md"),
        include_str!("../../../src/docs/gguf.md"),
        include_str!("../../../src/docs/tensors.md"),
        include_str!("../../../src/docs/tutorial.md"),
    ];
    let mut compared = 0;
    for page in pages {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("my-model")).unwrap();
        for (name, path) in files(&model) {
            fs::copy(path, folder.path().join("my-model").join(name)).unwrap();
        }
        std::os::unix::fs::symlink(&root, folder.path().join("hf-meta")).unwrap();
        for (command, excerpt) in transcripts(page) {
            if command.contains("| jq") && Command::new("jq").arg("--version").output().is_err() {
                support::program_is_missing("jq", command);
                continue;
            }
            let mut shell = Command::new("sh");
            shell.args(["-c", command]).current_dir(folder.path()).env_clear();
            shell.env("PATH", &search).env("HF_META_CACHE", "off").env("HF_TOKEN", "hf_mine");
            let ran = command::CommandOutput::new(shell.env("HF_ENDPOINT", hub.endpoint()));
            assert_excerpt(command, &excerpt, &ran.stdout);
            compared += 1;
        }
    }
    assert!(compared > 15, "{compared}");
}

/// The address of the repository is written as in `Cargo.toml`.
#[test]
fn the_pages_have_the_address_of_the_manifest() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, address) = manifest.split_once("\nrepository = \"https://github.com/").unwrap();
    let address = address.split('"').next().unwrap();
    let pages = ["src/docs/install.md", "src/docs/ci.md"];
    for file in pages.into_iter().chain(["hf-meta", ".github/actions/verify/action.yml"]) {
        let text = fs::read_to_string(root.join(file)).unwrap();
        assert!(text.contains(address), "{file}: {address}");
        assert!(address.starts_with("OWNER/") || !text.contains("OWNER/"), "{file}: {address}");
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
            let of_crate = ["format", "count", "inspect"].into_iter().find_map(|short| {
                let rest = name.strip_prefix(short)?.strip_prefix('/')?;
                Some(format!("crates/hf-meta-{short}/src/{rest}"))
            });
            let path = of_crate.unwrap_or_else(|| name.to_owned());
            let found = root.join(&path).exists() || root.join(&folder).join(&path).exists();
            assert!(found, "{name} does not exist");
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked}");
}
