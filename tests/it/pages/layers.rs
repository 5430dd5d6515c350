//! The imports of the code: they point down, and no files import each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A path of modules and items from the root of a crate.
type Segments = Vec<String>;

/// The files that each file imports, by their paths in the sources without extension.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The source files of a crate.
#[derive(Default)]
struct Sources {
    /// The file of each module.
    files: BTreeMap<Segments, String>,
    /// The names that each module exports from others, with the paths that they come from.
    exports: BTreeMap<Segments, Vec<(String, Segments)>>,
    /// The paths in the code of each module.
    paths: BTreeMap<Segments, Vec<Segments>>,
    /// The names of the items that `lib.rs` defines.
    items: BTreeSet<String>,
}

impl Sources {
    fn read(root: &Path) -> Self {
        let mut sources = Self::default();
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Some(name) = path.strip_prefix(root).unwrap().to_str()
                    && let Some(name) = name.strip_suffix(".rs")
                {
                    sources.add(name, &fs::read_to_string(&path).unwrap());
                }
            }
        }
        sources
    }

    /// Adds a source file, unless it contains tests.
    fn add(&mut self, name: &str, text: &str) {
        const TESTS: [&str; 5] = ["tests", "oracle", "oracles", "proptest_config", "main"];

        let mut module: Segments = name.split('/').map(str::to_owned).collect();
        if module.iter().any(|part| TESTS.contains(&part.as_str())) {
            return;
        }
        if matches!(module.last().unwrap().as_str(), "mod" | "lib") {
            module.pop();
        }
        let (mut exports, mut paths, mut rest) = (Vec::new(), Vec::new(), String::new());
        for statement in code(text).split_inclusive(';') {
            let Some((before, declaration)) = split_use(statement) else {
                rest += statement;
                continue;
            };
            rest += &before[..before.rfind('\n').map_or(0, |end| end + 1)];
            let is_export =
                before.lines().last().is_some_and(|line| line.trim().starts_with("pub"));
            for (path, name) in expand(&declaration) {
                match absolute(&module, &path) {
                    Some(path) if is_export => exports.push((name, path)),
                    Some(path) => paths.push(path),
                    None => {}
                }
            }
        }
        let is_part = |character: char| character.is_alphanumeric() || "_:".contains(character);
        let words = rest.split(|character| !is_part(character));
        let inline = words.filter(|word| {
            ["crate::", "super::", "self::"].iter().any(|start| word.starts_with(start))
        });
        if module.is_empty() {
            let lines = rest.lines().map(|line| line.trim_start_matches("pub "));
            let items = lines.filter_map(|line| {
                let (kind, name) = line.trim_start_matches("async ").split_once(' ')?;
                let is_item = ["const", "enum", "fn", "static", "struct", "trait", "type"];
                is_item.contains(&kind).then(|| name.split(|c| !is_part(c)).next().unwrap())
            });
            self.items = items.map(str::to_owned).collect();
        }
        let segments = |word: &str| word.split("::").map(str::to_owned).collect::<Segments>();
        paths.extend(inline.filter_map(|word| absolute(&module, &segments(word))));
        self.files.insert(module.clone(), name.to_owned());
        self.exports.insert(module.clone(), exports);
        self.paths.insert(module, paths);
    }

    /// Returns the file with the definition that a path leads to. Exports are followed. A name in `lib.rs` that it does not
    /// define is a macro or from another crate.
    fn definition(&self, path: &[String], depth: usize) -> Option<&str> {
        let is_module = |length: &usize| self.files.contains_key(&path[..*length]);
        let length = (0..=path.len()).rev().find(is_module)?;
        let (module, rest) = path.split_at(length);
        let exports = &self.exports[module];
        let exported = rest.first().and_then(|item| exports.iter().find(|(name, _)| name == item));
        match exported {
            Some((_, target)) if depth < 10 => {
                self.definition(&[target, &rest[1..]].concat(), depth + 1)
            }
            _ if length == 0 && !self.items.contains(rest.first()?) => None,
            _ => Some(&*self.files[module]),
        }
    }

    fn imports(&self) -> Imports {
        let of_module = |(module, paths): (&Segments, &Vec<Segments>)| {
            let file = &self.files[module];
            let imported = paths.iter().filter_map(|path| self.definition(path, 0));
            let imported = imported.filter(|other| other != file).map(str::to_owned);
            (file.clone(), imported.collect())
        };
        self.paths.iter().map(of_module).collect()
    }
}

/// Returns the code of a file without comments and without its tests.
fn code(text: &str) -> String {
    let mut kept = String::new();
    let mut is_test = false;
    for line in text.lines() {
        let attribute = kept.lines().last().unwrap_or_default();
        let is_of_tests = attribute == "#[cfg(test)]" || attribute.starts_with("#[cfg(all(test,");
        let starts_test = line.starts_with("mod ") && is_of_tests;
        is_test = (is_test || starts_test) && line != "}";
        if !is_test && !line.trim_start().starts_with("//") {
            kept += line.split(" // ").next().unwrap();
            kept.push('\n');
        }
    }
    kept
}

/// Splits a statement before the tree of a `use` declaration.
fn split_use(statement: &str) -> Option<(&str, String)> {
    let start = statement.rfind("use ")?;
    let (before, tree) = statement.split_at(start);
    let line = before.rsplit('\n').next()?.trim_start();
    let is_part = |character: char| character.is_alphanumeric() || "_:{},* ;\n".contains(character);
    let is_declaration = (line.is_empty() || line.starts_with("pub")) && tree.chars().all(is_part);
    let tree = tree["use ".len()..].trim_end_matches(';').split_whitespace();
    is_declaration.then(|| (before, tree.collect::<Vec<_>>().join(" ")))
}

/// Expands the tree of a `use` declaration to paths with the names that they introduce.
fn expand(tree: &str) -> Vec<(Segments, String)> {
    let Some((prefix, list)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, tree));
        let name = name.rsplit("::").next().unwrap().trim().to_owned();
        return vec![(path.split("::").map(|part| part.trim().to_owned()).collect(), name)];
    };
    let list = list.rsplit_once('}').map_or("", |(list, _)| list);
    let (mut depth, mut items) = (0, vec![String::new()]);
    for character in list.chars() {
        depth += i32::from(character == '{') - i32::from(character == '}');
        if character == ',' && depth == 0 {
            items.push(String::new());
        } else {
            items.last_mut().unwrap().push(character);
        }
    }
    let items = items.iter().map(|item| item.trim()).filter(|item| !item.is_empty());
    let expanded = items.flat_map(|item| match item {
        "self" => expand(prefix.trim().trim_end_matches("::")),
        item => expand(&format!("{}{item}", prefix.trim())),
    });
    expanded.collect()
}

/// Returns a path from the root of the crate; `None` above the root. A path without `crate`, `super` or `self` begins
/// with a child of the module, or with another crate, which is not found later.
fn absolute(module: &[String], path: &[String]) -> Option<Segments> {
    let (mut base, mut rest) = (module.to_vec(), path);
    match path.first()?.as_str() {
        "crate" => (base, rest) = (Vec::new(), &path[1..]),
        "self" => rest = &path[1..],
        _ => {}
    }
    while rest.first().is_some_and(|first| first == "super") {
        base.pop()?;
        rest = &rest[1..];
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// Returns the sets of files that import each other.
fn circles(imports: &Imports) -> BTreeSet<Vec<&str>> {
    let reach = |start: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![start.to_owned()]);
        while let Some(file) = open.pop() {
            for next in imports.get(&file).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, _> = imports.keys().map(|file| (&**file, reach(file))).collect();
    let circle = |file: &str| {
        let others = reached
            .keys()
            .filter(|other| reached[file].contains(**other) && reached[*other].contains(file));
        others.copied().collect::<Vec<_>>()
    };
    reached.keys().map(|file| circle(file)).filter(|files| files.len() > 1).collect()
}

/// Returns the imports that point up. `layers` lists the top-level modules from the bottom up.
fn upward(imports: &Imports, layers: &[String]) -> Vec<String> {
    let layer = |file: &str| {
        let top = file.split('/').next().unwrap();
        layers.iter().position(|layer| layer == top)
    };
    let pairs = imports.iter().flat_map(|(file, others)| others.iter().map(move |to| (file, to)));
    let is_upward =
        |(file, other): &(&String, &String)| layer(file) < layer(other) || layer(other).is_none();
    let up = pairs.filter(|(file, _)| *file != "lib").filter(is_upward);
    up.map(|(file, other)| format!("{file} imports {other}")).collect()
}

/// Returns the modules in the first column of the table below a heading of the architecture page.
fn layers(heading: &str) -> Vec<String> {
    let page = include_str!("../../../src/docs/architecture.md");
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(module, _)| module.to_owned()).collect()
}

#[test]
fn imports_point_down_and_no_files_import_each_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let crates = [
        ("src", Some("The layers of the library")),
        ("crates/hf-meta-count/src", Some("The layers of the count")),
        ("crates/hf-meta-format/src", Some("The layers of the formats")),
        ("crates/hf-meta-inspect/src", Some("The layers of the call")),
        ("crates/hf-meta-badge/src", None),
        ("crates/hf-meta-census/src", None),
        ("crates/hf-meta-edit/src", None),
        ("crates/hf-meta-cli/src", None),
        ("crates/hf-meta-python/src", None),
        ("crates/hf-meta-server/src", None),
        ("crates/hf-meta-testing/src", None),
        ("crates/hf-meta-wasm/src", None),
        // One file.
        ("crates/hf-meta-repo-list/src", None),
    ];
    let known = crates.map(|(folder, _)| folder.to_owned()).into();
    let names = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut folders: BTreeSet<_> =
        names.map(|name| format!("crates/{}/src", name.to_str().unwrap())).collect();
    folders.insert("src".to_owned());
    assert_eq!(folders, known, "a crate without a row");
    for (folder, heading) in crates {
        let imports = Sources::read(&root.join(folder)).imports();
        let found = imports.values().map(BTreeSet::len).sum::<usize>();
        assert!(found > 1 || imports.len() == 1, "{folder}: {imports:?}");
        assert_eq!(circles(&imports), BTreeSet::new(), "{folder}");
        if let Some(heading) = heading {
            assert_eq!(upward(&imports, &layers(heading)), [""; 0], "{folder}");
        }
    }
}

#[test]
fn an_import_that_is_turned_around_is_found() {
    let imports = |files: &[(&str, &str)]| {
        let mut sources = Sources::default();
        for (name, text) in files {
            sources.add(name, text);
        }
        sources.imports()
    };
    let down = [
        ("lib", "mod low;\nmod high;\npub use high::Top;"),
        ("low/mod", "mod a;\nmod b;\npub use a::A;"),
        ("low/a", "pub struct A;"),
        ("low/b", "use super::{A, c::{self, C}};\nfn f() -> crate::low::A { A }"),
        (
            "low/c",
            "// use crate::high::Top;\npub struct C;\n#[cfg(test)]\nmod tests {\n    use crate::high::Top;\n}",
        ),
        ("high", "use crate::low::A as B;\npub struct Top;"),
    ];
    let layers = ["low", "high"].map(str::to_owned);
    let found = imports(&down);
    assert_eq!(found["low/b"], ["low/a", "low/c"].map(str::to_owned).into());
    assert_eq!(found["high"], ["low/a".to_owned()].into());
    assert!(circles(&found).is_empty() && upward(&found, &layers).is_empty());

    let mut turned = down;
    turned[2].1 = "use crate::{Top, low::c::C};";
    turned[4].1 = "fn f(a: super::A) {}";
    let found = imports(&turned);
    assert_eq!(upward(&found, &layers), ["low/a imports high"]);
    assert_eq!(circles(&found), [vec!["high", "low/a", "low/c"]].into());

    // A function of `lib.rs`, which imports the module.
    let mut turned = down;
    turned[0].1 = "mod low;\nmod high;\nuse self::high::Top;\nfn json() {}";
    turned[5].1 = "pub struct Top;\nfn f() { super::json() }";
    assert_eq!(circles(&imports(&turned)), [vec!["high", "lib"]].into());
}
