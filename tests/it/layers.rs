//! Checks of `src/docs/architecture.md`: modules import lower layers only, and every file and item it names exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const MAP: &str = include_str!("../../src/docs/architecture.md");

/// The module that belongs to no layer: pages of documentation.
const WITHOUT_LAYER: &str = "docs";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The modules in the order of the page, the lowest layer first.
fn layers() -> Vec<&'static str> {
    let (_, section) = MAP.split_once("\n## The layers\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    rows.collect()
}

fn layer(module: &str) -> usize {
    let found = layers().iter().position(|other| *other == module);
    found.unwrap_or_else(|| panic!("`{module}` has no layer in src/docs/architecture.md"))
}

/// All Rust files of a module, which is a folder, a file, or both.
fn sources(module: &str) -> Vec<PathBuf> {
    let mut files = vec![root().join(format!("src/{module}.rs"))];
    let mut folders = vec![root().join("src").join(module)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.retain(|path| path.is_file() && path.extension().is_some_and(|end| end == "rs"));
    files
}

/// A text without its comments. Documentation may link to higher layers.
fn code(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

fn identifier(text: &str) -> &str {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap_or_default()
}

/// The first names after each `crate::`, also after `crate::{`.
fn imports(code: &str) -> Vec<&str> {
    let trees = code.split("crate::").skip(1);
    trees.flat_map(branches).map(identifier).filter(|name| !name.is_empty()).collect()
}

/// The branches of a tree of imports, such as `a::{x, y}` and `b` of `{a::{x, y}, b}`.
fn branches(tree: &str) -> Vec<&str> {
    let Some(inside) = tree.strip_prefix('{') else { return vec![tree] };
    let (mut branches, mut depth, mut start) = (vec![], 0, 0);
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                branches.push(inside[start..at].trim());
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    branches
}

/// The module of each type that the crate root re-exports.
fn reexports(lib: &str) -> BTreeMap<&str, &str> {
    let trees = lib.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let paths = trees.flat_map(|tree| branches(tree.trim_start_matches("self::")));
    paths
        .flat_map(|path| {
            let names = path.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            names.map(move |name| (name, identifier(path)))
        })
        .filter(|(name, _)| name.starts_with(|c: char| c.is_ascii_uppercase()))
        .collect()
}

#[test]
fn imports_lead_to_lower_layers() {
    let lib = code(&read(&root().join("src/lib.rs")));
    let modules_of_types = reexports(&lib);
    let (mut checked, mut upward) = (0, vec![]);
    for (at, module) in layers().iter().enumerate().filter(|(_, module)| **module != "cli") {
        let files = sources(module);
        assert!(!files.is_empty(), "module `{module}` is gone; remove it from the table of layers");
        for file in files {
            for name in imports(&code(&read(&file))) {
                let target = *modules_of_types.get(name).unwrap_or(&name);
                if target.starts_with(|c: char| c.is_ascii_lowercase()) && layer(target) > at {
                    upward.push(format!("{} imports `{name}` of {target}", file.display()));
                }
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "only {checked} imports were found");
    assert!(upward.is_empty(), "imports of higher layers:\n{}", upward.join("\n"));
}

#[test]
fn every_module_has_a_layer() {
    let lib = code(&read(&root().join("src/lib.rs")));
    let modules = lib.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?.strip_suffix(';')
    });
    let named: Vec<_> = modules.filter(|module| *module != WITHOUT_LAYER).collect();
    assert!(named.len() >= 10, "{named:?}");
    for module in named {
        assert!(layer(module) < layers().len());
    }
}

#[test]
fn the_command_uses_the_public_library() {
    assert_eq!(layers().last(), Some(&"cli"));
    for file in sources("cli") {
        let text = code(&read(&file));
        let reaches = imports(&text).into_iter().find(|name| *name != "cli");
        assert_eq!(reaches, None, "{} reaches into the library", file.display());
    }
}

/// Text in backticks that is a path from the root of the repository.
fn paths() -> impl Iterator<Item = &'static str> {
    const FOLDERS: [&str; 6] = ["src/", "tests/", "examples/", "benches/", "fixtures/", ".ci/"];
    let quoted = MAP.split('`').skip(1).step_by(2);
    quoted.filter(|text| FOLDERS.iter().any(|folder| text.starts_with(folder)))
}

#[test]
fn every_file_on_the_page_exists() {
    assert!(paths().count() > 20);
    let mut missing: Vec<_> = paths().filter(|path| !root().join(path).exists()).collect();
    if root().join("Cargo.toml.orig").exists() {
        // A published package is without the packages in its folders.
        assert_eq!(missing, ["src/python", "tests/fuzz/"]);
        missing.clear();
    }
    assert!(missing.is_empty(), "{missing:?}");
}

/// Items that the page places in a file, as in "`FORMATS` in `src/formats/mod.rs`".
#[test]
fn every_item_on_the_page_is_in_its_file() {
    let quoted: Vec<_> = MAP.split('`').collect();
    let placed = quoted.windows(3).skip(1).step_by(2).filter(|parts| parts[1].trim() == "in");
    let mut missing = vec![];
    for [item, _, path] in placed.clone().map(|parts| [parts[0], parts[1], parts[2]]) {
        let text = fs::read_to_string(root().join(path)).unwrap_or_default();
        let name = item.trim_end_matches('!').rsplit("::").next().unwrap();
        let exists =
            text.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == name);
        if !exists {
            missing.push(format!("`{item}` in `{path}`"));
        }
    }
    assert!(placed.count() >= 8);
    assert!(missing.is_empty(), "{missing:?}");
}

/// Links to the source pages of the documentation, such as `../../../src/hf_meta/http/range.rs.html`.
#[test]
fn every_source_page_on_the_page_has_a_file() {
    let links = MAP.split("/src/hf_meta/").skip(1).filter_map(|rest| rest.split(".html").next());
    let links: Vec<_> = links.collect();
    assert!(links.len() >= 10);
    for file in links {
        assert!(root().join("src").join(file).is_file(), "src/{file} is gone");
    }
}
